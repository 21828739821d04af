"""The HTTP listener: what surrounds every request, health, metrics, and the pages about the API."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from sandboxd import __version__
from sandboxd.access import Caller
from sandboxd.errors import InvalidRequest, SandboxdError
from sandboxd.http import problems
from sandboxd.http.api import api_routes
from sandboxd.http.browsers import BrowserGuard
from sandboxd.http.calls import HttpCalls
from sandboxd.http.listener import Address, Listener
from sandboxd.http.seeds import seed_routes
from sandboxd.service.in_process import CallRefused, InProcessCalls
from sandboxd.service.json_messages import refusal
from sandboxd.service.transport.guard import CallGuard
from sandboxd_client.errors import InvalidRequestError
from sandboxd_client.site_names import SiteNames

log = structlog.get_logger()

PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpSettings(NamedTuple):
    address: Address
    names: Sequence[str] = ()
    """Further names under which it is reached."""
    origins: Sequence[str] = ()
    """Of pages of other sites that may call."""
    any_host: bool = False
    """Whether it listens on every address of this host."""
    open_paths: Sequence[str] = ()
    """Those of /health, /ready and /metrics that need no token."""
    tls: ssl.SSLContext | None = None


class Observed(NamedTuple):
    """What the listener reports about the daemon."""

    is_serving: Callable[[], bool]
    is_ready: Callable[[], bool]
    metrics: Callable[[], tuple[bytes, str]]
    """The figures, and their content type."""


class HttpApi:
    """Serves the API over HTTP while it is open as a context manager."""

    def __init__(
        self,
        settings: HttpSettings,
        calls: InProcessCalls,
        guard: CallGuard,
        observed: Observed,
    ) -> None:
        self._settings = settings
        self._guard = guard
        self._observed = observed
        is_unix = settings.address.socket is not None
        self._calls = HttpCalls(
            calls, guard, is_unix=is_unix, on_admitted=lambda one: self._admitted.add(one.transport)
        )
        self._browsers = BrowserGuard(
            SiteNames(settings.address.host or "localhost", settings.names),
            has_tls=settings.tls is not None,
            origins=settings.origins,
            any_host=settings.any_host,
        )
        application = web.Application(middlewares=[self._surround])
        application.on_response_prepare.append(self._add_headers)
        application.add_routes([*self._own_routes(), *api_routes(self._calls)])
        application.add_routes(list(seed_routes(self._calls)))
        self._listener = Listener(
            application, settings.address, settings.tls, ends_with_caller=True
        )
        self._admitted = self._listener.admitted

    async def __aenter__(self) -> HttpApi:
        await self._listener.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.__aexit__()

    @property
    def address(self) -> str:
        """Where it is reached, as a URL or the path of its socket."""
        address = self._settings.address
        if address.socket is not None:
            return str(address)
        scheme = "http" if self._settings.tls is None else "https"
        return f"{scheme}://{address._replace(port=self._listener.port)}"

    def _own_routes(self) -> Sequence[web.RouteDef]:
        return [
            web.get("/health", self._health),
            web.get("/ready", self._ready),
            web.get("/metrics", self._metrics),
            web.get("/docs", self._asset("docs.html", "text/html")),
            web.get("/openapi.json", self._asset("openapi.json", "application/json")),
        ]

    # --- what surrounds every request ---

    @web.middleware
    async def _surround(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        structlog.contextvars.clear_contextvars()  # a connection's requests share a context
        try:
            self._check(request)
            if request.method == "OPTIONS":  # a browser asks whether a page may call
                return web.Response(status=204)
            return await handler(request)
        except CallRefused as refused:
            return problems.answer(refused)
        except SandboxdError as error:
            return problems.answer(refusal(error))
        except web.HTTPException as error:
            return problems.of_http(error)
        except InvalidRequestError as error:  # of the SDK, for the routes that use it
            return problems.answer(refusal(InvalidRequest("request", error.message)))
        except (HttpProcessingError, RequestPayloadError) as error:  # of a form, or of a body
            return problems.of_http(web.HTTPBadRequest(text=f"The body is malformed: {error}"))
        except TimeoutError:
            return problems.of_http(web.HTTPGatewayTimeout(text="The call took too long."))
        except ConnectionError:
            raise  # the caller is gone
        except Exception as error:
            log.error("http.failed", method=request.method, exc_info=error)
            return problems.of_http(
                web.HTTPInternalServerError(text="sandboxd failed; see its log.")
            )
        finally:
            self._admitted.discard(request.transport)

    def _check(self, request: web.Request) -> None:
        port = None if self._settings.address.socket is not None else self._listener.port
        self._browsers.check(request, port)
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise web.HTTPUnsupportedMediaType(text="Send the body without Content-Encoding.")

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.update(self._browsers.cors_headers(request))

    # --- health and metrics ---

    def _admit(self, request: web.Request) -> Caller | None:
        """The caller, if the path needs one."""
        is_open = request.path.removeprefix("/") in self._settings.open_paths
        return None if is_open else self._calls.identify(request)

    async def _health(self, request: web.Request) -> web.Response:
        """200 while the API accepts calls, as the gRPC health service reports it."""
        self._admit(request)
        return _state("serving", self._observed.is_serving())

    async def _ready(self, request: web.Request) -> web.Response:
        """200 while a new session finds a sandbox."""
        self._admit(request)
        return _state("ready", self._observed.is_serving() and self._observed.is_ready())

    async def _metrics(self, request: web.Request) -> web.Response:
        caller = self._admit(request)
        if caller is not None:
            self._guard.check_overseer(caller, "metrics")
        body, content_type = self._observed.metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    # --- pages about the API ---

    def _asset(self, name: str, content_type: str) -> Handler:
        data = files("sandboxd.http").joinpath("assets", name).read_bytes()

        async def serve(_: web.Request) -> web.Response:
            response = web.Response(body=data, content_type=content_type, charset="utf-8")
            response.headers["Content-Security-Policy"] = PAGE_POLICY
            response.enable_compression()
            return response

        return serve


def _state(word: str, is_so: bool) -> web.Response:
    health = {"status": word if is_so else f"not {word}", "version": __version__}
    return web.json_response(health, status=200 if is_so else 503)
