"""Tools that run commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from sandboxd_client.integrations.mcp.answers import CommandAnswer, CommandState, OutputAnswer
from sandboxd_client.integrations.mcp.workspaces import AnyContext, Workspaces
from sandboxd_client.integrations.model_output import shaped
from sandboxd_client.results import SessionInfo, StreamName
from sandboxd_client.sandbox import AsyncSandbox

MAX_OUTPUT_BYTES = 16 << 10
"""Of each stream in one answer."""
PROGRESS_SECONDS = 0.5
MAX_PROGRESS_TEXT = 500

Workspace = Annotated[
    str | None, Field(description="Id from open_workspace; leave out if you have none.")
]
OutputId = Annotated[str, Field(description="output_id of the command.")]


class CommandTools:
    """run_command, read_output, stop_command, send_input."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def run_command(
        self,
        context: AnyContext,
        command: Annotated[str, Field(description="A line for bash.")],
        timeout: Annotated[
            float | None, Field(ge=0, description="Seconds it may run; 0 for the longest.")
        ] = None,
        cwd: Annotated[
            str | None, Field(description="Directory; by default the workspace.")
        ] = None,
        background: Annotated[
            bool, Field(description="Only start it, such as a server; read_output follows it.")
        ] = False,
        workspace: Workspace = None,
    ) -> CommandAnswer:
        """Run a command in the Linux sandbox of this conversation.

        Files stay from one command to the next; variables and the current directory do not. A
        non-zero exit code is the command's own result: read stderr and hint. Long output is
        shortened in the middle; read_output has the rest. There is no network unless your
        operator says otherwise.
        """

        async def run(sandbox: AsyncSandbox) -> CommandAnswer:
            notice = notice_of(sandbox.info)
            if background:
                handle = await sandbox.commands.run(
                    command, cwd=cwd, timeout=timeout, background=True, stdin=True
                )
                return CommandAnswer(state="running", output_id=handle.exec_id, notice=notice)
            report = progress(context)
            done = await sandbox.commands.run(
                command, cwd=cwd, timeout=timeout, on_stdout=report, on_stderr=report
            )
            stdout, stderr, is_cut = await shaped(
                sandbox, done, MAX_OUTPUT_BYTES, reader="read_output"
            )
            return CommandAnswer(
                state="ended",
                exit_code=done.exit_code,
                stdout=stdout,
                stderr=stderr,
                reason=done.reason,
                hint=done.hint,
                is_shortened=is_cut,
                output_id=done.exec_id,
                notice=notice,
            )

        return await self._workspaces.use(context, workspace, run)

    async def read_output(
        self,
        context: AnyContext,
        output_id: OutputId,
        stream: Literal["stdout", "stderr"] = "stdout",
        offset: Annotated[int, Field(ge=0, description="Byte to begin at.")] = 0,
        pattern: Annotated[
            str | None, Field(description="Regular expression: return only matching lines.")
        ] = None,
        workspace: Workspace = None,
    ) -> OutputAnswer:
        """Read what a command has written, from a position or by a pattern; also while it runs."""
        return await self._workspaces.use(
            context, workspace, lambda sandbox: _output(sandbox, output_id, stream, offset, pattern)
        )

    async def stop_command(
        self, context: AnyContext, output_id: OutputId, workspace: Workspace = None
    ) -> CommandState:
        """Kill a command that runs in the background."""

        async def stop(sandbox: AsyncSandbox) -> CommandState:
            handle = await sandbox.commands.connect(output_id)
            await handle.kill()
            await handle.wait(10)
            return CommandState.of(await handle.info())

        return await self._workspaces.use(context, workspace, stop)

    async def send_input(
        self,
        context: AnyContext,
        output_id: OutputId,
        text: Annotated[str, Field(description="With its newlines.")],
        end: Annotated[bool, Field(description="Close the input afterwards.")] = False,
        workspace: Workspace = None,
    ) -> CommandState:
        """Write to the standard input of a command that runs in the background."""

        async def send(sandbox: AsyncSandbox) -> CommandState:
            handle = await sandbox.commands.connect(output_id)
            await handle.send_stdin(text)
            if end:
                await handle.close_stdin()
            return CommandState.of(await handle.info())

        return await self._workspaces.use(context, workspace, send)


def notice_of(session: SessionInfo) -> str:
    if session.status == "recreated" and not session.workspace_kept:
        return "The sandbox is new since the last command: its files are gone."
    if session.status == "recreated":
        return "The sandbox was replaced since the last command: its processes are gone."
    return ""


def progress(context: AnyContext) -> Callable[[str], Awaitable[None]]:
    """Reports the last line of output to the client, at most twice a second."""
    clock = asyncio.get_running_loop().time
    start = clock()
    reported = start - PROGRESS_SECONDS

    async def report(text: str) -> None:
        nonlocal reported
        now = clock()
        lines = text.rstrip().rsplit("\n", 1)
        if now - reported >= PROGRESS_SECONDS and lines[-1]:
            reported = now
            await context.report_progress(now - start, None, lines[-1][-MAX_PROGRESS_TEXT:])

    return report


async def _output(
    sandbox: AsyncSandbox, output_id: str, stream: StreamName, offset: int, pattern: str | None
) -> OutputAnswer:
    handle = await sandbox.commands.connect(output_id)
    info = await handle.info()
    state: dict[str, Any] = {"state": info.state, "exit_code": info.exit_code}
    total = info.stdout_bytes if stream == "stdout" else info.stderr_bytes
    if pattern is not None:
        found = await handle.search_output(pattern, stream=stream)
        text = "".join(f"{match.line_number}: {match.line}\n" for match in found)
        return OutputAnswer(text=text, next_offset=None, total_bytes=total, **state)
    piece = await handle.read_output(stream, offset=offset, max_bytes=MAX_OUTPUT_BYTES)
    end = piece.offset + len(piece.data)
    return OutputAnswer(
        text=piece.data.decode(errors="replace"),
        next_offset=None if piece.ended and end >= piece.total_bytes else end,
        total_bytes=piece.total_bytes,
        **state,
    )
