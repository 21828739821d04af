"""A process of ours for work that holds the interpreter's lock, which would stop the whole daemon.

It limits its own processor time and memory, and works for one caller at a time: give them turns.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from subprocess import Popen
from typing import NamedTuple

import structlog

from sandboxd.lost_connections import closed_as_lost
from sandboxd.processes import exited, start

log = structlog.get_logger()

NICENESS = 10
_BY_OTHERS = (signal.SIGKILL, signal.SIGTERM)


class SideProcessFailed(Exception):
    """There is no answer."""

    def __init__(self, *, is_too_much: bool) -> None:
        """`is_too_much`: the process has used up the processor time or memory that it may use."""
        super().__init__()
        self.is_too_much = is_too_much


class _Process(NamedTuple):
    child: Popen[bytes]
    answers: asyncio.StreamReader
    requests: asyncio.StreamWriter


class SideProcess:
    """The process, started when it is needed. `module` reads requests and answers each with one
    line; before the first it reads `greeting`."""

    def __init__(
        self, module: str, *, seconds: float, greeting: bytes = b"", max_answer: int = 1 << 16
    ) -> None:
        """`seconds`: of one request, on a busy host."""
        self._module = module
        self._seconds = seconds
        self._greeting = greeting
        self._max_answer = max_answer
        self._process: _Process | None = None
        self._is_closed = False

    async def ask(self, request: bytes) -> bytes:
        """The line that answers; SideProcessFailed. A cancel ends the process, and so the work."""
        answer, code = b"", 0
        try:
            async with asyncio.timeout(self._seconds):
                answer = await self._ask(request)
        except (OSError, ValueError, TimeoutError) as error:
            log.warning("side_process.failed", module=self._module, why=str(error) or "timeout")
        finally:
            if not answer:
                code = await self.stop()
        if answer:
            return answer
        is_too_much = code < 0 and -code not in _BY_OTHERS
        if is_too_much:
            log.warning("side_process.ended", module=self._module, signal=-code)
        raise SideProcessFailed(is_too_much=is_too_much)

    async def _ask(self, request: bytes) -> bytes:
        process = self._process or await self._start()
        with closed_as_lost():
            process.requests.write(request)
        # Nothing to drain to before the answer: the socket may hold less than the request.
        answer = await process.answers.readline()
        if not answer:
            await exited(process.child)  # it ends by itself; a kill would hide how
        return answer

    async def _start(self) -> _Process:
        ours, its = socket.socketpair()
        with its:
            try:
                answers, requests = await asyncio.open_connection(sock=ours, limit=self._max_answer)
            except BaseException:
                ours.close()
                raise
            try:
                if self._is_closed:
                    raise OSError("the daemon stops")
                command = [sys.executable, "-P", "-m", self._module]
                child = start(command, stdin=its.fileno(), stdout=its.fileno(), own_session=True)
            except OSError:
                requests.close()
                raise
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, child.pid, NICENESS)  # its start takes time, too
        self._process = _Process(child, answers, requests)
        requests.write(self._greeting)
        return self._process

    async def aclose(self) -> None:
        """What is asked from now on fails."""
        self._is_closed = True
        await self.stop()

    async def stop(self) -> int:
        """End the process; returns its exit code, negative for a signal."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.requests.close()
        process.child.kill()  # does nothing if it has ended
        return await exited(process.child)
