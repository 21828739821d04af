"""Addresses that may contain credentials. Nothing but the standard library: a confined process
uses it too."""

from __future__ import annotations

import base64
import urllib.request
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

_PORTS = {"http": 80, "https": 443}


def split(url: str) -> SplitResult:
    """The parts of an address; all are empty if it is none."""
    try:
        address = urlsplit(url)
        _ = address.port  # is looked at only here
    except ValueError:
        return SplitResult("", "", "", "", "")
    return address


def origin(address: SplitResult) -> tuple[str, str | None, int | None]:
    """Where an address leads to, apart from its path."""
    return address.scheme, address.hostname, address.port or _PORTS.get(address.scheme)


def credentials(address: SplitResult) -> str:
    """The credentials of an address, as the scheme Basic writes them; empty if it has none."""
    if not address.username:
        return ""
    pair = f"{unquote(address.username)}:{unquote(address.password or '')}"
    return base64.b64encode(pair.encode()).decode()


def without_credentials(address: SplitResult) -> str:
    return urlunsplit(address._replace(netloc=address.netloc.rpartition("@")[2]))


def request_for(url: str, *, index: str) -> urllib.request.Request:
    """A request with the credentials of the address, or of the index if it is on the same host."""
    headers = {"User-Agent": "sandboxd", "Accept-Encoding": "identity"}
    place, known = urlsplit(url), urlsplit(index)
    given = credentials(place)
    if not given and origin(known) == origin(place):
        given = credentials(known)
    if given:
        headers["Authorization"] = f"Basic {given}"
    return urllib.request.Request(without_credentials(place), headers=headers)
