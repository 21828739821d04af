"""Runs the confined worker: with a deadline, bounded output, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from sandboxd.packages import worker
from sandboxd.tasks import outlast

MAX_OUTPUT_BYTES = 1 << 20
"""Standard output; a worker that writes more is killed."""
KEPT_ERROR_BYTES = 16 << 10
"""The end of standard error that is kept."""
_CHUNK_BYTES = 64 << 10
_KILL_SECONDS = 10.0


class WorkerTimedOut(Exception):
    """The worker did not end in time, and was killed."""


class Finished(NamedTuple):
    code: int
    """Exit code; negative for a signal."""
    errors: str
    """The end of what it wrote to standard error."""


async def run_worker(
    job: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    seconds: float,
    on_line: Callable[[str], None] = lambda _: None,
) -> Finished:
    """Run one job to its end; WorkerTimedOut if that takes too long.

    However this ends, the worker and what it started has ended too.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", worker.__name__),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=dict(environment),
        cwd="/",
        start_new_session=True,  # so that it can be killed with all that it starts
    )
    try:
        async with asyncio.timeout(seconds):
            return await _talk(process, job, on_line)
    except TimeoutError:
        raise WorkerTimedOut from None
    finally:
        await _end(process)


async def _talk(
    process: Process, job: Mapping[str, Any], on_line: Callable[[str], None]
) -> Finished:
    assert process.stdin is not None
    process.stdin.write(json.dumps({**job, "parent": os.getpid()}).encode())
    process.stdin.close()
    errors, _ = await asyncio.gather(_read_errors(process), _read_lines(process, on_line))
    return Finished(await process.wait(), errors)


async def _read_lines(process: Process, on_line: Callable[[str], None]) -> None:
    assert process.stdout is not None
    read, rest = 0, b""
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        read += len(chunk)
        if read > MAX_OUTPUT_BYTES:
            _kill(process)
            return
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            on_line(line.decode(errors="replace"))


async def _read_errors(process: Process) -> str:
    assert process.stderr is not None
    kept = b""
    while chunk := await process.stderr.read(_CHUNK_BYTES):
        kept = (kept + chunk)[-KEPT_ERROR_BYTES:]
    return kept.decode(errors="replace")


async def _end(process: Process) -> None:
    """Kill what is left of it, also if the daemon is being cancelled meanwhile."""
    _kill(process)
    cancel = await outlast(asyncio.ensure_future(process.wait()), _KILL_SECONDS)
    if cancel is not None:
        raise cancel


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):  # it has ended
        os.killpg(process.pid, signal.SIGKILL)
