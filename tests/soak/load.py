"""A mixed load, of clients that know what has to be true after each answer."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import grpc

from sandboxd_proto.v1 import exec_pb2, exec_service_pb2, session_pb2
from tests.docker.commands import close_session, exec_request, send_signal, start, wait
from tests.docker.daemon_process import Api
from tests.docker.test_lifecycle import get_session, open_session, reason
from tests.service.file_client import FileClient

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
"""How long a client tries while the daemon is not there."""
SHELL = ["/bin/busybox", "sh", "-c"]


@dataclass
class Tally:
    """What was done, and what went wrong."""

    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lost: int = 0
    """Sessions that ended although nobody ended them."""


class Thread:
    """One conversation: at most one command at a time, each exactly once."""

    def __init__(self, api: Api, name: str, tally: Tally, chance: random.Random) -> None:
        self._api = api
        self._name = name
        self._tally = tally
        self._chance = chance
        self._number = 0
        self._session: session_pb2.Session | None = None
        self._lines = 0
        """Written to a file of the workspace, as far as it was answered."""
        self._unsure = 0
        """How many more there may be, of commands whose sandbox was ended meanwhile."""
        self.sandbox_may_be_gone = False
        """Someone ended it, so that a loss is none of ours."""

    @property
    def session_id(self) -> str | None:
        return self._session.session_id if self._session else None

    async def act(self) -> None:
        session = await self._open()
        choices: list[tuple[Callable[[str], Awaitable[None]], int]] = [
            (self._append, 10),
            (self._flood, 2),
            (self._time_out, 1),
            (self._kill, 2),
            (self._several, 2),
            (self._exchange, 4),
            (self._close, 2),
        ]
        actions, weights = zip(*choices, strict=True)
        (action,) = self._chance.choices(actions, weights)
        try:
            await action(session.session_id)
        except NotStarted:
            self._tally.done["refused by a guest without CPU"] += 1
            return
        self._tally.done[action.__name__.strip("_")] += 1

    async def close(self) -> None:
        if self._session is not None:
            await self._close((await self._open()).session_id)

    # --- what it does ---

    async def _open(self) -> session_pb2.Session:
        before, may_be_gone = self._session, self.sandbox_may_be_gone
        answer = await self._patiently(lambda: open_session(self._api, self._name))
        session = answer.session
        if before is None:
            self._check(session.incarnation == 1, "a closed session is open again")
            self._lines = self._unsure = 0
        else:
            self._check(session.session_id == before.session_id, "another session")
            if session.incarnation != before.incarnation:
                self._check(answer.workspace_kept, "files of a lost sandbox are gone")
                # It may have been ended before the call, or while it was under way.
                if not (may_be_gone or self.sandbox_may_be_gone):
                    self._tally.lost += 1
                self.sandbox_may_be_gone = False
        self._session = session
        self._tally.done["open"] += 1
        return session

    async def _append(self, session_id: str) -> None:
        line = f"echo {self._lines} >> lines; busybox wc -l < lines"
        done = await self._run(session_id, line)
        if done is None:
            self._unsure += 1
            return
        if not done.stdout.data:
            self._check(False, f"nothing appended: {done}")
            return
        said, least = int(done.stdout.data), self._lines + 1
        is_so = least <= said <= least + self._unsure
        self._check(is_so, f"{said} lines instead of {least} to {least + self._unsure}")
        self._lines, self._unsure = said, 0

    async def _flood(self, session_id: str) -> None:
        done = await self._run(session_id, "busybox yes 0123456 | busybox head -c 400000")
        if done is not None:
            self._check(done.exit.stdout_bytes == 400_000, f"{done.exit.stdout_bytes} of a flood")

    async def _time_out(self, session_id: str) -> None:
        done = await self._run(session_id, "busybox sleep 60", timeout=0.5)
        if done is not None:
            timed_out = exec_pb2.EXIT_REASON_TIMED_OUT
            self._check(done.exit.reason == timed_out, f"not timed out: {done.exit.reason}")

    async def _kill(self, session_id: str) -> None:
        exec_id = self._next_id()
        try:
            command = [*SHELL, "busybox sleep 60"]
            await self._patiently(
                lambda: start(self._api, session_id, command, exec_id=exec_id, timeout=60)
            )
            await self._patiently(lambda: send_signal(self._api, session_id, exec_id, 9))
            ended = await self._patiently(lambda: wait(self._api, session_id, exec_id))
        except SandboxGone:
            return
        if not self._is_of_a_gone_sandbox(ended.exit):
            self._check(ended.exit.signal == 9, f"not killed: {ended.exit}")

    async def _several(self, session_id: str) -> None:
        lines = [f"busybox sleep 0.0{number}; echo {number}" for number in range(4)]
        runs = (self._run(session_id, line) for line in lines)
        done = await asyncio.gather(*runs, return_exceptions=True)
        for number, one in enumerate(done):
            if isinstance(one, BaseException):
                raise one
            if one is not None:
                self._check(one.stdout.data == b"%d\n" % number, f"{one.stdout.data!r} of {number}")

    async def _exchange(self, session_id: str) -> None:
        """Upload a file and get it back."""
        files, data = FileClient(self._api.files, session_id), self._chance.randbytes(200_000)
        path = "outputs/exchanged"
        try:
            await self._patiently(lambda: files.upload(path, data))
            found = await self._patiently(lambda: files.download(path))
        except SandboxGone:
            return
        self._check(found == data, f"{len(found)} other bytes than were uploaded")

    async def _close(self, session_id: str) -> None:
        await self._patiently(lambda: close_session(self._api, session_id))
        state = (await self._patiently(lambda: get_session(self._api, session_id))).state
        self._check(state == session_pb2.SESSION_STATE_CLOSED, f"closed, but in state {state}")
        self._session = None
        self.sandbox_may_be_gone = False

    # --- how ---

    async def _run(
        self, session_id: str, line: str, **fields: float
    ) -> exec_service_pb2.RunResponse | None:
        """Once, however often it has to be asked for; None if its sandbox was ended meanwhile."""
        request = exec_request(
            session_id, [*SHELL, line], exec_id=self._next_id(), timeout=fields.get("timeout", 30)
        )
        try:
            done = await self._patiently(lambda: self._api.execs.Run(request, timeout=60))
        except SandboxGone:
            return None
        return None if self._is_of_a_gone_sandbox(done.exit) else done

    def _is_of_a_gone_sandbox(self, end: exec_pb2.ExitStatus) -> bool:
        return end.reason == exec_pb2.EXIT_REASON_SANDBOX_LOST and self.sandbox_may_be_gone

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Ask again while the daemon is away, as a client of a service does."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    return await call()
                except grpc.aio.AioRpcError as error:
                    self._tally.done["tried again"] += 1
                    if error.code() == grpc.StatusCode.UNAVAILABLE or _is_for_later(error):
                        await asyncio.sleep(0.05)
                    elif reason(error) == "COMMAND_NOT_STARTABLE":
                        raise NotStarted from error
                    elif self.sandbox_may_be_gone:
                        raise SandboxGone from error
                    else:
                        raise

    def _next_id(self) -> str:
        self._number += 1
        return f"{self._name}-{self._number}"

    def _check(self, is_so: bool, problem: str) -> None:
        if not is_so:
            self._tally.wrong.append(f"{self._name}: {problem}")


class NotStarted(Exception):
    """The guest could not start the command in time: the machine is too busy. It had no effect."""


class SandboxGone(Exception):
    """Somebody ended the sandbox of the session, as the test does on purpose."""


def _is_for_later(error: grpc.aio.AioRpcError) -> bool:
    return reason(error) in ("POOL_EXHAUSTED", "FILE_BUSY", "FILE_WORK_INTERRUPTED")
