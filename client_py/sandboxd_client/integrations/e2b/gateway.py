"""The gateway as an HTTP server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from sandboxd_client.errors import SandboxError
from sandboxd_client.integrations.callers import Callers
from sandboxd_client.integrations.e2b.boxes import Boxes, named_in
from sandboxd_client.integrations.e2b.code import CodeInterpreter
from sandboxd_client.integrations.e2b.connect import Refused, refusal
from sandboxd_client.integrations.e2b.control import ControlPlane, failure
from sandboxd_client.integrations.e2b.files import Files, Watchers
from sandboxd_client.integrations.e2b.processes import Processes

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
        answer = refusal(error, request.headers.get("E2b-Sandbox-Id", ""))
        return web.json_response(answer.body, status=answer.status)
    except web.HTTPNotFound as error:
        if error.content_type == "application/json":
            raise
        return not_offered(request)
    except web.HTTPMethodNotAllowed:
        return not_offered(request)
    except web.HTTPException as error:
        body = {"code": error.status, "message": error.reason}
        return web.json_response(body, status=error.status)
    except (asyncio.CancelledError, ConnectionResetError):
        raise  # nobody waits for an answer
    except Exception:
        _log.exception("a request failed: %s %s", request.method, request.path)
        body = {"code": 500, "message": "The gateway failed; its log has the details."}
        return web.json_response(body, status=500)


def not_offered(request: web.Request) -> web.Response:
    why = f"{request.method} {request.path}: not offered by sandboxd"
    return web.json_response({"code": 501, "message": why}, status=501)


def build_app(callers: Callers) -> web.Application:
    """All routes, with what runs beside them."""
    boxes = Boxes(callers)
    watchers = Watchers(boxes)
    app = web.Application(middlewares=[errors_as_answers], client_max_size=MAX_BODY_BYTES)
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
    callers: Callers, host: str, port: int, on_start: Callable[[int], None] = lambda port: None
) -> None:
    """Serve until cancelled."""
    await callers.check_daemon()
    runner = web.AppRunner(
        build_app(callers), access_log=None, handle_signals=True, handler_cancellation=True
    )
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
