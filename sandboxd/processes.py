"""Child processes of the daemon, started and followed without the event loop's own way.

uvloop forks in a way that runs gRPC's handlers in the child, which crash there now and then; so
children are started by `subprocess`, and the loop only follows their pipes and their ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from subprocess import DEVNULL, Popen
from typing import IO, Any, TypeAlias

_File: TypeAlias = int | IO[Any]


def start(
    command: Sequence[str],
    *,
    stdin: _File = DEVNULL,
    stdout: _File = DEVNULL,
    stderr: _File = DEVNULL,
    own_session: bool = False,
) -> Popen[bytes]:
    """Start a program; with `own_session`, signals for the daemon's terminal are not for it."""
    return Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=own_session)


@asynccontextmanager
async def reading(pipe: IO[bytes] | None) -> AsyncIterator[asyncio.StreamReader]:
    """A reader of a child's pipe, which is closed afterwards."""
    assert pipe is not None
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        yield reader
    finally:
        transport.close()


async def exited(process: Popen[bytes]) -> int:
    """Wait for its end; returns the exit code, negative for a signal."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    if process.poll() is None:
        pidfd = os.pidfd_open(process.pid)
        loop.add_reader(pidfd, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
    return process.wait()
