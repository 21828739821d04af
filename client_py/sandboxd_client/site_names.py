"""Which names and origins are those of a listener, for all that serve HTTP beside browsers."""

from __future__ import annotations

from collections.abc import Iterable

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class SiteNames:
    """The names of a listener. A page that had its own name pointed at this host (DNS rebinding)
    sends another one, and a page of another site says where it comes from."""

    def __init__(self, host: str, further: Iterable[str] = ()) -> None:
        """`further` names it has where something forwards to it; `*.NAME` is all names below."""
        self._near = LOOPBACK_NAMES | {bracketed(host)}
        self._further = tuple(name.lower() for name in further)

    def include(self, host: str, port: int | None = None) -> bool:
        """Whether a Host header names the listener. With `port`, loopback names need that port;
        something that forwards may have another one."""
        name, named_port = _split(host)
        if self._is_further(name):
            return True
        return name in self._near and (port is None or named_port in ("", str(port)))

    def is_own_origin(self, origin: str, host: str, *, has_tls: bool = False) -> bool:
        """Whether a page of `origin` is one that was loaded from this Host."""
        if origin == f"https://{host}":  # something in front may have ended TLS
            return has_tls or self._is_further(_split(host)[0])
        return origin == f"http://{host}" and not has_tls

    def _is_further(self, name: str) -> bool:
        return any(
            name.endswith(known[1:]) if known.startswith("*.") else name == known
            for known in self._further
        )


def bracketed(host: str) -> str:
    """A host as it stands in an address."""
    return f"[{host}]" if ":" in host else host.lower()


def _split(host: str) -> tuple[str, str]:
    """Name and port of a Host header; the port is empty if there is none."""
    has_port = ":" in host.rpartition("]")[2]
    name, _, port = host.rpartition(":") if has_port else (host, "", "")
    return name.lower(), port
