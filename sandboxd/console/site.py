"""The listener of the console: pages, logins, sockets, and the headers that protect them.

There is no cookie: every call carries a key that other pages cannot get, so that there is nothing
that a browser would add to a request of a foreign page.
"""

from __future__ import annotations

import gzip
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.resources import files
from mimetypes import guess_type
from typing import NamedTuple

import structlog
from aiohttp import web

from sandboxd.access import Caller, Logins
from sandboxd.access.shares import CONSOLE_PAGES, Places, holder_of
from sandboxd.console.bodies import Bodies
from sandboxd.console.socket import PageSocket
from sandboxd.http.listener import Address, Listener
from sandboxd.service.in_process import InProcessCalls
from sandboxd_client.site_names import SiteNames, bracketed

log = structlog.get_logger()

MAX_LOGIN_BYTES = 4096
LOGIN_TRIES = 5
"""Failed logins in a second from one address that are recorded; then it is told to wait."""
MAX_TRIES = 50
"""The same, from all addresses."""
MAX_STRANGERS = 16
"""Sockets of one address that have not said yet which login they have; another one ends the
oldest, and so it does of all."""
MAX_ALL_STRANGERS = 64
INDEX = "index.html"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "font-src 'self'; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-DNS-Prefetch-Control": "off",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), usb=(), payment=()",
}


class ConsoleSettings(NamedTuple):
    host: str
    port: int
    names: Sequence[str] = ()
    """Further names under which browsers reach it; the first is the one in links."""
    tls: ssl.SSLContext | None = None


class Console:
    """Serves browsers while it is open as a context manager."""

    def __init__(
        self,
        settings: ConsoleSettings,
        calls: InProcessCalls,
        logins: Logins,
        on_refused: Callable[[str], None] = lambda peer: None,
    ) -> None:
        """`on_refused` is called with the peer of a login that was refused."""
        self._settings = settings
        self._calls = calls
        self._logins = logins
        self._on_refused = on_refused
        self._sockets: dict[PageSocket, None] = {}
        """Oldest first."""
        self._pages = Places(CONSOLE_PAGES)
        self._tries: list[tuple[float, str]] = []
        self._names = SiteNames(settings.host, settings.names)
        self._assets = _load_assets()
        application = web.Application(middlewares=[self._guard], client_max_size=MAX_LOGIN_BYTES)
        application.on_response_prepare.append(_add_headers)
        application.add_routes(self._routes())
        address = Address(settings.host, settings.port)
        self._listener = Listener(application, address, settings.tls)

    def _routes(self) -> Sequence[web.RouteDef]:
        return [
            web.get("/", self._page),
            web.get("/assets/{name:.+}", self._asset),
            web.post("/login", self._log_in),
            web.post("/logout", self._log_out),
            web.get("/socket", self._open_socket),
            *Bodies(self._calls, self._caller_of, self._on_admitted).routes(),
        ]

    async def __aenter__(self) -> Console:
        await self._listener.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for page in tuple(self._sockets):
            await page.close()
        await self._listener.__aexit__()

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def address(self) -> str:
        """Under which a browser reaches it."""
        name = next(iter(self._settings.names), bracketed(self._settings.host))
        scheme = "http" if self._settings.tls is None else "https"
        return f"{scheme}://{name}:{self.port}"

    # --- what surrounds every request ---

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Refuse requests for another name, which a foreign page may have sent here, and requests
        that such a page makes."""
        if not self._names.include(request.host, self.port):
            raise web.HTTPMisdirectedRequest(
                text="The console does not have this name; add it to SANDBOXD_CONSOLE_NAMES."
            )
        origin = request.headers.get("Origin")
        is_socket = request.path == "/socket"
        has_tls = self._settings.tls is not None
        if (origin is not None or is_socket) and not self._names.is_own_origin(
            origin or "", request.host, has_tls=has_tls
        ):
            raise web.HTTPForbidden(text="This request comes from another site.")
        try:
            return await handler(request)
        finally:
            self._listener.admitted.discard(request.transport)

    def _caller_of(self, request: web.Request) -> Caller:
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        caller = self._logins.find(key) if scheme.lower() == "bearer" else None
        if caller is None:
            raise web.HTTPUnauthorized(text="Log in again.")
        self._on_admitted(request)
        return caller

    def _on_admitted(self, request: web.Request) -> None:
        self._listener.admitted.add(request.transport)

    # --- pages ---

    async def _page(self, request: web.Request) -> web.Response:
        return self._file(request, INDEX)

    async def _asset(self, request: web.Request) -> web.Response:
        return self._file(request, request.match_info["name"])

    def _file(self, request: web.Request, name: str) -> web.Response:
        asset = self._assets.get(name)
        if asset is None:
            raise web.HTTPNotFound(text="There is no such file.")
        is_packed = asset.packed and "gzip" in request.headers.get("Accept-Encoding", "")
        response = web.Response(
            body=asset.packed if is_packed else asset.data, content_type=asset.media_type
        )
        if is_packed:
            response.headers["Content-Encoding"] = "gzip"
        response.headers["Vary"] = "Accept-Encoding"
        # The names of chunks change with their content; those of the entry points do not.
        response.headers["Cache-Control"] = "no-cache"
        return response

    # --- logins ---

    async def _log_in(self, request: web.Request) -> web.Response:
        """A key for a token, or for a one-time code."""
        try:
            given = json.loads(await request.text())
            token, code = str(given.get("token", "")), str(given.get("code", ""))
        except (ValueError, AttributeError):
            raise web.HTTPBadRequest(text="Send a token or a code as JSON.") from None
        key = self._logins.redeem(code) if code else self._logins.log_in(token)
        if key is None:
            # Only failures: a flood of them must not lock out a right token, which nobody guesses.
            self._count_failure(str(request.remote))
            self._on_refused(str(request.remote))
            raise web.HTTPUnauthorized(
                text="This link was used, or is too old; print another one with `sandboxd console`."
                if code
                else "This daemon does not know the token; check that it is complete."
            )
        return web.json_response({"key": key})

    async def _log_out(self, request: web.Request) -> web.Response:
        self._caller_of(request)
        self._logins.log_out(request.headers["Authorization"].partition(" ")[2])
        return web.json_response({})

    def _count_failure(self, peer: str) -> None:
        now = time.monotonic()
        self._tries = [(tried, who) for tried, who in self._tries if now - tried < 1.0]
        of_peer = sum(who == peer for _, who in self._tries)
        if of_peer >= LOGIN_TRIES or len(self._tries) >= MAX_TRIES:
            raise web.HTTPTooManyRequests(text="Too many logins at once; try again in a second.")
        self._tries.append((now, peer))

    # --- sockets ---

    async def _open_socket(self, request: web.Request) -> web.StreamResponse:
        peer = f"console:{request.remote}"
        strangers = [page for page in self._sockets if not page.key]
        of_peer = [page for page in strangers if page.peer == peer]
        if len(of_peer) >= MAX_STRANGERS or len(strangers) >= MAX_ALL_STRANGERS:
            oldest = of_peer[0] if len(of_peer) >= MAX_STRANGERS else strangers[0]
            del self._sockets[oldest]
            oldest.abort()

        def admit(caller: Caller) -> AbstractContextManager[None]:
            self._on_admitted(request)
            return self._pages.place(holder_of(caller))

        page = PageSocket(self._calls, self._logins.find, peer, admit)
        self._sockets[page] = None
        try:
            return await page.serve(request)
        finally:
            self._sockets.pop(page, None)


class _Asset(NamedTuple):
    data: bytes
    packed: bytes
    """The same, compressed; empty if that is not smaller."""
    media_type: str


def _load_assets() -> Mapping[str, _Asset]:
    """All files of the built pages: nothing else is ever served."""
    return {
        entry.name: _asset(entry.name, entry.read_bytes())
        for entry in files("sandboxd.console").joinpath("assets").iterdir()
        if entry.is_file()
    }


def _asset(name: str, data: bytes) -> _Asset:
    packed = gzip.compress(data, mtime=0)
    media_type = guess_type(name)[0] or "application/octet-stream"
    return _Asset(data, packed if len(packed) < len(data) else b"", media_type)


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
