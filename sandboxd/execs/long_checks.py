"""Checks of commands that take long: in a process of their own, the users in turn.

Refused commands start nothing, so no other limit applies to them. What one user sends delays the
long checks of others by one check, and short checks not at all.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from subprocess import Popen
from typing import NamedTuple

import structlog

from sandboxd.errors import ExecLimitReached
from sandboxd.policy import Decision, Finding, Policy, Rule, worker
from sandboxd.processes import exited, start
from sandboxd.tasks import Tasks

log = structlog.get_logger()

MAX_WAITING_OF_USER = 32
MAX_WAITING = 512
MAX_SECONDS = 30.0
"""Time of one check on a busy host; the worker itself limits the processor time."""
RETRY_SECONDS = 1.0
_BY_OTHERS = (signal.SIGKILL, signal.SIGTERM)
_TOO_LONG = Decision(
    (
        Finding(
            Rule.TOO_COMPLEX,
            "",
            "The command takes too long to check.",
            "Split it, or put data into single quotes.",
        ),
    )
)


class _Waiting(NamedTuple):
    command: str | Sequence[str]
    decision: asyncio.Future[Decision]


class LongChecks:
    """Checks commands of all users, one at a time."""

    def __init__(self, policy: Policy) -> None:
        self._worker = _Worker(policy)
        self._waiting: dict[str, deque[_Waiting]] = {}
        """Commands by user; the first user is next."""
        self._waiting_count = 0
        self._tasks = Tasks()
        self._is_running = False

    async def check(self, command: str | Sequence[str], user_id: str) -> Decision:
        """ExecLimitReached if the user has too many commands waiting, or no process can start."""
        if len(self._waiting.get(user_id, ())) >= MAX_WAITING_OF_USER:
            raise _too_many("This user already has")
        if self._waiting_count >= MAX_WAITING:
            raise _too_many("The daemon already has")
        waiting = _Waiting(command, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(user_id, deque()).append(waiting)
        self._waiting_count += 1
        if not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._run(), "long-checks")
        return await waiting.decision

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._decide(self._next())
        finally:
            self._is_running = False

    def _next(self) -> _Waiting:
        user_id, own = next(iter(self._waiting.items()))
        del self._waiting[user_id]
        self._waiting_count -= 1
        waiting = own.popleft()
        if own:
            self._waiting[user_id] = own  # behind the others
        return waiting

    async def _decide(self, waiting: _Waiting) -> None:
        if waiting.decision.done():
            return  # its caller is gone
        try:
            decision = await self._worker.check(waiting.command)
        except ExecLimitReached as error:
            if not waiting.decision.done():
                waiting.decision.set_exception(error)
        else:
            if not waiting.decision.done():
                waiting.decision.set_result(decision)

    async def aclose(self) -> None:
        for own in self._waiting.values():
            for waiting in own:
                waiting.decision.cancel()
        self._waiting.clear()
        self._tasks.cancel("long-checks")
        await self._tasks.finish()
        await self._worker.stop()


class _Process(NamedTuple):
    child: Popen[bytes]
    answers: asyncio.StreamReader
    commands: asyncio.StreamWriter


class _Worker:
    """The process that checks, started when it is needed."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._process: _Process | None = None

    async def check(self, command: str | Sequence[str]) -> Decision:
        answer = b""
        try:
            async with asyncio.timeout(MAX_SECONDS):
                answer = await self._ask(command)
        except (OSError, TimeoutError) as error:
            log.warning("policy.check_failed", why=str(error) or "timeout")
        finally:
            code = 0 if answer else await self.stop()
        if answer:
            return worker.decode_decision(answer)
        if code < 0 and -code not in _BY_OTHERS:
            log.warning("policy.check_ended", signal=-code)
            return _TOO_LONG
        raise ExecLimitReached(
            "The command could not be checked in time; try again later.",
            retry_after_seconds=RETRY_SECONDS,
        )

    async def _ask(self, command: str | Sequence[str]) -> bytes:
        process = self._process or await self._start()
        process.commands.write(worker.encode_command(command))
        # Nothing to drain to before the answer: the socket may hold less than the command.
        answer = await process.answers.readline()
        if not answer:
            await exited(process.child)  # it ends by itself; a kill would hide how
        return answer

    async def _start(self) -> _Process:
        ours, its = socket.socketpair()
        with its:
            try:
                answers, commands = await asyncio.open_connection(sock=ours)
            except BaseException:
                ours.close()
                raise
            try:
                command = [sys.executable, "-P", "-m", worker.__name__]
                child = start(command, stdin=its.fileno(), stdout=its.fileno(), own_session=True)
            except OSError:
                commands.close()
                raise
        self._process = _Process(child, answers, commands)
        commands.write(worker.encode_policy(self._policy))
        return self._process

    async def stop(self) -> int:
        """End the process; returns its exit code, negative for a signal."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.commands.close()
        process.child.kill()  # does nothing if it has ended
        return await exited(process.child)


def _too_many(who: str) -> ExecLimitReached:
    return ExecLimitReached(
        f"{who} too many long commands that wait for a check by the command policy; try again.",
        retry_after_seconds=RETRY_SECONDS,
    )
