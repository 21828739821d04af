"""What stands before every request, because browsers can send one here for any page.

Without tokens every caller is the operator. So a request is refused that has another name than
ours (a page whose name was pointed at this host), that says it comes from another site, or that
changes something and could have been sent by such a page without asking (a form, a plain `fetch`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from aiohttp import web

from sandboxd_client.site_names import SiteNames

JSON_TYPE = "application/json"
SIGN = "X-Requested-With"
"""A header that a page cannot send without asking, for bodies that are not JSON."""
CORS_HEADERS = "authorization, content-type, if-match, last-event-id, range, x-requested-with"


class BrowserGuard:
    """Judges requests before anything of them is read."""

    def __init__(
        self,
        names: SiteNames,
        *,
        has_tls: bool,
        origins: Sequence[str] = (),
        any_host: bool = False,
    ) -> None:
        """`origins`: those of other sites that may call. `any_host`: the listener has every address
        of this host, so each may be named."""
        self._names = names
        self._has_tls = has_tls
        self._origins = frozenset(origins)
        self._any_host = any_host

    def check(self, request: web.Request, port: int | None) -> None:
        """Refuse a request that a page of another site may have sent."""
        host = request.headers.get("Host", "")
        if not self._names.include(host, port) and not (self._any_host and _is_address(host)):
            raise web.HTTPMisdirectedRequest(
                text="This daemon does not have the name in the Host header; add it to "
                "SANDBOXD_HTTP_NAMES."
            )
        if not self._is_near(request, host):
            raise web.HTTPForbidden(
                text="This request comes from a page of another site; add its origin to "
                "SANDBOXD_HTTP_ORIGINS if it may call."
            )
        if not _is_deliberate(request):
            raise web.HTTPUnsupportedMediaType(
                text=f"Send JSON with `Content-Type: {JSON_TYPE}`, or add the header "
                f"`{SIGN}: curl`: without one of them, any web page could have sent this."
            )

    def cors_headers(self, request: web.Request) -> dict[str, str]:
        """For answers to a page of another site that may call."""
        origin = request.headers.get("Origin", "")
        if origin not in self._origins:
            return {}
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Headers": CORS_HEADERS,
            "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
            "Access-Control-Expose-Headers": "ETag, Content-Range, Retry-After",
            "Access-Control-Max-Age": "600",
            "Cross-Origin-Resource-Policy": "cross-origin",
            "Vary": "Origin",
        }

    def _is_near(self, request: web.Request, host: str) -> bool:
        origin = request.headers.get("Origin")
        if origin is not None:
            is_own = self._names.is_own_origin(origin, host, has_tls=self._has_tls)
            return is_own or origin in self._origins
        return request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")


def _is_deliberate(request: web.Request) -> bool:
    if request.method != "POST":
        return True  # a page may send it, and it changes nothing, or the browser asks us first
    headers = request.headers
    return "Authorization" in headers or SIGN in headers or request.content_type == JSON_TYPE


def _is_address(host: str) -> bool:
    """Whether a Host header is an address: a page cannot have one pointed at this host."""
    name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
