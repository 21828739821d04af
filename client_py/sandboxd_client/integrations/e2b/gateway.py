"""The gateway as an HTTP server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from sandboxd_client.errors import SandboxError
from sandboxd_client.integrations.callers import Callers, check_address
from sandboxd_client.integrations.e2b.boxes import Boxes, has_signature, named_in
from sandboxd_client.integrations.e2b.code import CodeInterpreter
from sandboxd_client.integrations.e2b.connect import Refused, refusal
from sandboxd_client.integrations.e2b.control import ControlPlane, failure
from sandboxd_client.integrations.e2b.files import Files, Watchers
from sandboxd_client.integrations.e2b.processes import Processes
from sandboxd_client.site_names import SiteNames

MAX_BODY_BYTES = 8 << 20
"""Of a call with a message; files are streamed and have the session's limit."""
MAX_CONNECTIONS_WAITING = 1024
CLOSING_SECONDS = 5.0
_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def errors_as_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error is JSON; what is not known here is reported without its words."""
    try:
        return await handler(request)
    except Refused as refused:
        return web.json_response(refused.body, status=refused.status)
    except SandboxError as error:
        if "/sandboxes" in request.path:
            return failure(error)
        known = refusal(error, request.headers.get("E2b-Sandbox-Id", ""))
        return web.json_response(known.body, status=known.status)
    except web.HTTPNotFound as error:
        if error.content_type == "application/json":
            raise
        return not_offered(request)
    except web.HTTPMethodNotAllowed:
        return not_offered(request)
    except web.HTTPException as error:
        return answer(error.status, error.reason)
    except (asyncio.CancelledError, ConnectionResetError):
        raise  # nobody waits for an answer
    except Exception:
        _log.exception("a request failed: %s %s", request.method, request.path)
        return answer(500, "The gateway failed; its log has the details.")


def guard(names: SiteNames) -> Middleware:
    """Refuses what pages in a browser on this machine send: with --user nothing else would."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not names.include(request.host):
            return answer(421, "The gateway does not have this name; add it with --allow-host.")
        # A signature in the address is a right that the browser does not add.
        if not has_signature(request) and _is_foreign(request, names):
            return answer(403, "This request comes from a page of another site.")
        return await handler(request)

    return guarded


def _is_foreign(request: web.Request, names: SiteNames) -> bool:
    origin = request.headers.get("Origin")
    if origin is not None and not names.is_own_origin(origin, request.host):
        return True
    return request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")


def answer(status: int, message: str) -> web.Response:
    return web.json_response({"code": status, "message": message}, status=status)


def not_offered(request: web.Request) -> web.Response:
    return answer(501, f"{request.method} {request.path}: not offered by sandboxd")


def build_app(callers: Callers, names: SiteNames) -> web.Application:
    """All routes, with what runs beside them."""
    boxes = Boxes(callers)
    watchers = Watchers(boxes)
    app = web.Application(
        middlewares=[errors_as_answers, guard(names)], client_max_size=MAX_BODY_BYTES
    )
    for part in (
        ControlPlane(boxes),
        Processes(boxes),
        Files(boxes),
        watchers,
        CodeInterpreter(boxes),
    ):
        app.add_routes(part.routes())

    async def health(request: web.Request) -> web.Response:
        named_in(request)
        await boxes.of(request)
        return web.Response(status=204)

    async def beside(_: web.Application) -> AsyncIterator[None]:
        ending = asyncio.create_task(boxes.end_on_time(), name="deadlines of sandboxes")
        yield
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        await watchers.aclose()
        await callers.aclose()

    app.add_routes([web.get("/health", health)])
    app.cleanup_ctx.append(beside)
    return app


async def serve(
    callers: Callers,
    host: str,
    port: int,
    *,
    allowed_hosts: tuple[str, ...] = (),
    on_start: Callable[[int], None] = lambda port: None,
) -> None:
    """Serve until cancelled; `allowed_hosts` are further names of this server."""
    check_address(host, callers)
    await callers.check_daemon()
    app = build_app(callers, SiteNames(host, allowed_hosts))
    runner = web.AppRunner(app, access_log=None, handle_signals=True, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(
            runner, host, port, backlog=MAX_CONNECTIONS_WAITING, shutdown_timeout=CLOSING_SECONDS
        )
        await site.start()
        on_start(runner.addresses[0][1])
        await asyncio.Event().wait()
    except web.GracefulExit:
        pass
    finally:
        await runner.cleanup()
