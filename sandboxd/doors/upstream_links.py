"""Addresses in answers of an upstream, as programs in a sandbox can use them.

An address of the upstream becomes one of its door, so that a client that follows it comes back to
the door. Any other is left as it is: a client that follows it goes through the rules of its
session, without the secret. Relative ones are written out where a client would take them for
something else: to it, the upstream begins at the door.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from yarl import URL

_ADDRESSES = frozenset({"location", "content-location"})
_LINK = re.compile(r"<([^<>]*)>")
_DOTS = re.compile(r"(^|[/\\])\.{1,2}([/\\;]|$)")


def leads_up(path: str) -> bool:
    """Whether a server may take the path for one outside of the upstream's."""
    place = path.partition("?")[0]
    for _ in range(3):
        if _DOTS.search(place) or "\\" in place:
            return True
        place = unquote(place)
    return False


class UpstreamLinks:
    """Rewrites the fields of answers of one upstream."""

    def __init__(self, url: str, door: str) -> None:
        """With the address of the upstream, and the name of its door."""
        self._url = url
        self._door = f"http://{door}"
        self._place = _place(URL(url, encoded=True))
        self._prefix = URL(url, encoded=True).raw_path.rstrip("/")

    def local(self, path: str, name: str, content: str) -> str:
        """The content of a field of the answer to a request for a path."""
        if name.lower() in _ADDRESSES:
            return self._local(path, content)
        if name.lower() == "link":
            return _LINK.sub(lambda link: f"<{self._local(path, link[1])}>", content)
        return content

    def _local(self, path: str, address: str) -> str:
        try:
            given = URL(address, encoded=True)
            found = URL(self._url + path, encoded=True).join(given)
            is_here = _place(found) == self._place and not leads_up(found.raw_path)
        except ValueError:
            return address  # nobody can follow it
        rest = found.raw_path.removeprefix(self._prefix)
        is_below = found.raw_path.startswith(self._prefix) and rest[:1] in ("", "/")
        if not is_here or not is_below:
            return address if given.scheme else str(found)
        query = f"?{found.raw_query_string}" if found.raw_query_string else ""
        fragment = f"#{found.raw_fragment}" if found.raw_fragment else ""
        return f"{self._door}{rest or '/'}{query}{fragment}"


def _place(url: URL) -> tuple[str, str, int | None, bool]:
    """What two addresses have in common that lead to the same server; ValueError."""
    has_login = url.raw_user is not None or url.raw_password is not None
    return url.scheme.lower(), (url.host or "").lower(), url.port, has_login
