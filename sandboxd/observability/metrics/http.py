"""A small HTTP listener on loopback: /metrics and /health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from sandboxd import __version__
from sandboxd.observability.metrics.figures import Figures
from sandboxd_client.site_names import SiteNames

LOOPBACK = "127.0.0.1"
CLOSE_SECONDS = 1.0
"""How long responses under way get to finish at the end."""


_NAMES = SiteNames(LOOPBACK)


class PortInUse(Exception):
    """The port could not be opened; the text says which and what to do."""


class Exposition:
    """The figures and those of the process, as Prometheus reads them."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, figures: Figures) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(figures)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """In the loop, not in a thread: the state that is read belongs to the loop."""
        return generate_latest(self._registry)


class MetricsServer:
    """Serves everyone on the host while it is open as a context manager."""

    def __init__(
        self, exposition: Exposition, *, port: int, is_serving: Callable[[], bool]
    ) -> None:
        self._exposition = exposition
        self._wanted_port = port
        self._is_serving = is_serving
        application = web.Application(middlewares=[_guard])
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/health", self._health)
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=CLOSE_SECONDS
        )
        self.port = 0

    async def __aenter__(self) -> MetricsServer:
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, self._wanted_port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise PortInUse(
                f"{LOOPBACK}:{self._wanted_port} is in use by another program; set "
                "SANDBOXD_METRICS_PORT to a free port, or to 0 for none"
            ) from error
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._exposition.text(), headers={"Content-Type": Exposition.content_type}
        )

    async def _health(self, _: web.Request) -> web.Response:
        """200 while the API accepts calls, as the gRPC health service reports it."""
        is_serving = self._is_serving()
        health = {"status": "serving" if is_serving else "not serving", "version": __version__}
        return web.json_response(health, status=200 if is_serving else 503)


@web.middleware
async def _guard(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse requests for another name: a page may have had its own pointed at this host."""
    if not _NAMES.include(request.host):
        raise web.HTTPMisdirectedRequest(text=f"Use the name {LOOPBACK} or localhost.")
    return await handler(request)
