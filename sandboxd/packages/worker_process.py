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
_LOOK_SECONDS = 0.01


class WorkerTimedOut(Exception):
    """The worker did not end in time, and was killed."""


class Finished(NamedTuple):
    code: int
    """Exit code, as a shell counts it."""
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
    code = await process.wait()
    return Finished(code if code >= 0 else 128 - code, errors)


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
    """Kill what is left of it, and wait for the end, also if the daemon is cancelled meanwhile."""
    _kill(process)
    ending = asyncio.ensure_future(_gone(process))
    cancel = await outlast(ending, _KILL_SECONDS)
    ending.cancel()
    if cancel is not None:
        raise cancel


async def _gone(process: Process) -> None:
    """Return when the worker has ended, and the confined process, which it does not outlive."""
    await process.wait()
    with suppress(ProcessLookupError):
        while True:
            os.killpg(process.pid, 0)
            await asyncio.sleep(_LOOK_SECONDS)


def _kill(process: Process) -> None:
    if process.returncode is None:  # otherwise its number may belong to another by now
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
