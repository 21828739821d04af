"""Runs the confined worker: with a deadline, bounded output, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from subprocess import PIPE
from typing import Any, NamedTuple

from sandboxd.packages import worker
from sandboxd.processes import exited, reading
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
    process = _start(job, environment)
    try:
        async with asyncio.timeout(seconds):
            return await _follow(process, on_line)
    except TimeoutError:
        raise WorkerTimedOut from None
    finally:
        await _end(process)


def _start(job: Mapping[str, Any], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as given:
        given.write(json.dumps({**job, "parent": os.getpid()}).encode())
        given.seek(0)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", worker.__name__],
            stdin=given,
            stdout=PIPE,
            stderr=PIPE,
            env=dict(environment),
            cwd="/",
            start_new_session=True,  # so that it can be killed with all that it starts
        )


async def _follow(process: subprocess.Popen[bytes], on_line: Callable[[str], None]) -> Finished:
    async with reading(process.stdout) as output, reading(process.stderr) as complaints:
        errors, _ = await asyncio.gather(
            _read_errors(complaints), _read_lines(process, output, on_line)
        )
    code = await exited(process)
    return Finished(code if code >= 0 else 128 - code, errors)


async def _read_lines(
    process: subprocess.Popen[bytes], output: asyncio.StreamReader, on_line: Callable[[str], None]
) -> None:
    read, rest = 0, b""
    while chunk := await output.read(_CHUNK_BYTES):
        read += len(chunk)
        if read > MAX_OUTPUT_BYTES:
            _kill(process)
            return
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            on_line(line.decode(errors="replace"))


async def _read_errors(complaints: asyncio.StreamReader) -> str:
    kept = b""
    while chunk := await complaints.read(_CHUNK_BYTES):
        kept = (kept + chunk)[-KEPT_ERROR_BYTES:]
    return kept.decode(errors="replace")


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of it, and wait for the end, also if the daemon is cancelled meanwhile."""
    _kill(process)
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
    ending = asyncio.ensure_future(_gone(process))
    cancel = await outlast(ending, _KILL_SECONDS)
    ending.cancel()
    if cancel is not None:
        raise cancel


async def _gone(process: subprocess.Popen[bytes]) -> None:
    """Return when the worker has ended, and the confined process, which it does not outlive."""
    await exited(process)
    with suppress(ProcessLookupError):
        while True:
            os.killpg(process.pid, 0)
            await asyncio.sleep(_LOOK_SECONDS)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:  # otherwise its number may belong to another by now
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
