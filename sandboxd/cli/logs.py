"""`sandboxd logs`: the output of a command."""

from __future__ import annotations

import click

from sandboxd.cli.failure import NOT_FOUND, Failure, call
from sandboxd.cli.relay import Left, Relay, show
from sandboxd.cli.target import Target, target_options
from sandboxd_client import AsyncCommandHandle, AsyncSandbox, OutputChunk
from sandboxd_client.results import StreamName

PIECE_BYTES = 64 << 10


@click.command("logs")
@click.argument("session")
@click.argument("exec_id", metavar="[EXEC]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Follow until it ends.")
@click.option(
    "-n", "--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last LINES."
)
@target_options
def command(
    session: str, exec_id: str | None, follow: bool, tail: int | None, target: Target
) -> None:
    """Print the output of a command of a SESSION: standard output and standard error.

    Of the newest command if none is named; `sandboxd ps -a` lists the ids. All of it, or the last
    LINES of each stream.
    """
    call(_print(target, session, exec_id, follow, tail))


async def _print(
    target: Target, session: str, exec_id: str | None, follow: bool, tail: int | None
) -> None:
    async with target.sandbox(session) as sandbox:
        handle = await sandbox.commands.connect(exec_id or await _newest(sandbox))
        info = await handle.info()
        ends: dict[StreamName, int] = {"stdout": info.stdout_bytes, "stderr": info.stderr_bytes}
        begins = {
            name: 0 if tail is None else await _last_lines(handle, name, end, tail)
            for name, end in ends.items()
        }
        if follow:
            relay = Relay(handle, is_owner=False)
            ended = await relay.run(
                sends_input=False, stdout_offset=begins["stdout"], stderr_offset=begins["stderr"]
            )
            if ended is Left.INTERRUPTED:
                raise KeyboardInterrupt
        else:
            await _so_far(handle, begins, ends)


async def _newest(sandbox: AsyncSandbox) -> str:
    found = await sandbox.commands.list()
    if not found:
        raise Failure("the session has run no command yet, or none whose output is kept", NOT_FOUND)
    return found[0].exec_id


async def _so_far(
    handle: AsyncCommandHandle, begins: dict[StreamName, int], ends: dict[StreamName, int]
) -> None:
    """Print the output up to `ends`, in the order it was written."""
    seen = dict(begins)
    stream = handle.stream(stdout_offset=begins["stdout"], stderr_offset=begins["stderr"])
    async with stream as events:
        while any(seen[name] < ends[name] for name in ends):
            event = await anext(events, None)
            if event is None:
                return
            length = len(event.data) if isinstance(event, OutputChunk) else event.size_bytes
            seen[event.stream] = max(seen[event.stream], event.offset + length)
            show(event)


async def _last_lines(handle: AsyncCommandHandle, stream: StreamName, end: int, count: int) -> int:
    """Position of the last lines in the kept output of a stream."""
    position = end
    wanted = count
    while position > 0 and wanted:
        start = max(0, position - PIECE_BYTES)
        piece = await handle.read_output(stream, offset=start, max_bytes=position - start)
        data = piece.data[: position - piece.offset]
        search_end = len(data)
        if position == end and data.endswith(b"\n"):
            search_end -= 1  # the end of the last line is not the beginning of another
        while wanted and (newline := data.rfind(b"\n", 0, search_end)) >= 0:
            search_end = newline
            wanted -= 1
            if not wanted:
                return piece.offset + newline + 1
        if piece.dropped_bytes or not data:
            return piece.offset
        position = start
    return position
