"""E2B's code interpreter: runs of code in contexts that keep their variables."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from sandboxd_client.code_results import CodeRun, ContextInfo, Display
from sandboxd_client.errors import SandboxError
from sandboxd_client.integrations.e2b.boxes import CODE_PORT, Boxes
from sandboxd_client.integrations.e2b.connect import Message, Refused, parsed, text
from sandboxd_client.sandbox import AsyncSandbox

LANGUAGES = {
    "": "python",
    "python": "python",
    "python3": "python",
    "javascript": "javascript",
    "js": "javascript",
}
_NAMES = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/javascript": "javascript",
}


class CodeInterpreter:
    """Handlers of runs and contexts."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            web.post("/execute", self.execute),
            web.post("/contexts", self.create),
            web.get("/contexts", self.list),
            web.delete("/contexts/{id}", self.delete),
            web.post("/contexts/{id}/restart", self.restart),
        ]

    async def execute(self, request: web.Request) -> web.StreamResponse:
        sandbox = await self._boxes.of(request, CODE_PORT)
        body = parsed(await request.read())
        if body.get("env_vars"):
            raise Refused(
                "unimplemented", "envs: not offered for a run; create the sandbox with it"
            )
        context = text_or_nothing(body, "context_id")
        language = language_of(text_or_nothing(body, "language"))
        if not context:
            context = "main" if language == "python" else language
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})

        async def send(**event: Any) -> None:
            if not response.prepared:
                await response.prepare(request)
            await response.write(json.dumps(event).encode() + b"\n")

        async def output(name: str, piece: str) -> None:
            await send(type=name, text=piece, timestamp=time.time_ns() // 1000)

        run = await sandbox.code.run(
            text(body, "code"),
            context=context,
            language=language,  # type: ignore[arg-type]
            timeout=0,
            on_stdout=lambda piece: output("stdout", piece),
            on_stderr=lambda piece: output("stderr", piece),
            on_display=lambda shown: send(**result_of(shown, is_main=False)),
        )
        if run.value is not None:
            await send(**result_of(run.value, is_main=True))
        if (failed := error_of(run)) is not None:
            await send(**failed)
        await send(type="number_of_executions", execution_count=await runs_of(sandbox, context))
        await response.write_eof()
        return response

    async def create(self, request: web.Request) -> web.Response:
        sandbox = await self._boxes.of(request, CODE_PORT)
        body = parsed(await request.read())
        made = await sandbox.code.create_context(
            f"e2b-{secrets.token_hex(8)}",
            language=language_of(text_or_nothing(body, "language")),  # type: ignore[arg-type]
            cwd=text_or_nothing(body, "cwd"),
        )
        return web.json_response(described(made, sandbox), status=201)

    async def list(self, request: web.Request) -> web.Response:
        sandbox = await self._boxes.of(request, CODE_PORT)
        found = await sandbox.code.contexts()
        return web.json_response([described(context, sandbox) for context in found])

    async def delete(self, request: web.Request) -> web.Response:
        sandbox = await self._boxes.of(request, CODE_PORT)
        await sandbox.code.delete_context(request.match_info["id"])
        return web.Response(status=204)

    async def restart(self, request: web.Request) -> web.Response:
        sandbox = await self._boxes.of(request, CODE_PORT)
        restarted = await sandbox.code.restart(request.match_info["id"])
        return web.json_response(described(restarted, sandbox))


def text_or_nothing(body: Message, name: str) -> str:
    return "" if body.get(name) is None else text(body, name)


def language_of(name: str) -> str:
    if name.lower() not in LANGUAGES:
        raise Refused(
            "unimplemented", f"language: {name} is not offered; python and javascript are"
        )
    return LANGUAGES[name.lower()]


def result_of(display: Display, *, is_main: bool) -> Message:
    """A display with the names that E2B gives to media types."""
    found: Message = {"type": "result", "is_main_result": is_main}
    extra: Message = {}
    for media_type, value in display.items():
        shown = base64.b64encode(value).decode() if isinstance(value, bytes) else value
        if media_type == "application/json":
            found["json"] = display.json
        elif media_type in _NAMES:
            found[_NAMES[media_type]] = shown
        else:
            extra[media_type] = shown
    return {**found, "extra": extra} if extra else found


def error_of(run: CodeRun) -> Message | None:
    """An exception of the code, or why the run did not come to its end."""
    if run.error is not None:
        return {
            "type": "error",
            "name": run.error.type,
            "value": run.error.message,
            "traceback": run.error.traceback,
        }
    if run.exit_code == 0:
        return None
    return {"type": "error", "name": run.reason, "value": run.hint, "traceback": run.hint}


async def runs_of(sandbox: AsyncSandbox, name: str) -> int:
    try:
        found = await sandbox.code.contexts()
    except SandboxError:
        return 0
    return next((context.runs for context in found if context.name == name), 0)


def described(context: ContextInfo, sandbox: AsyncSandbox) -> Message:
    return {
        "id": context.name,
        "language": context.language,
        "cwd": context.cwd or sandbox.workspace_dir,
    }
