"""One daemon, a session that attacks, and a neighbour that must not notice."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import aiodocker
import grpc

from sandboxd_proto.v1 import exec_pb2, exec_service_pb2, session_pb2, session_service_pb2
from tests.docker.commands import Streamed, exec_request, run, stream
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.hostile.cases import HOST_FILE, Case, Outcome, name_of
from tests.hostile.compiled import upload_command
from tests.hostile.host_view import SandboxSeen, find_sandbox
from tests.hostile.neighbour import PAUSE_SECONDS, Neighbour, is_harmed
from tests.hostile.scoreboard import Verdict

if TYPE_CHECKING:  # generated for type checkers only
    from sandboxd_proto.v1.exec_service_pb2_grpc import ExecServiceAsyncStub
    from sandboxd_proto.v1.session_service_pb2_grpc import SessionServiceAsyncStub

SETTINGS = {
    "POOL_SIZE": "2",
    "MEMORY_LIMIT": "256m",
    "SANDBOXD_MAX_PROCESSES": "128",
    "MAX_WORKSPACE_SIZE_MB": "64",
    "MAX_TOTAL_FILES": "1000",
    "SANDBOXD_OPEN_WAIT_SECONDS": "120",
}
NEXT_SECONDS = 10.0
"""For the commands after an attack; a healthy guest takes milliseconds."""
LEFTOVER_SECONDS = 5.0
LOOKS = 3
"""At an attack that seems to have slowed the neighbour down."""
ENOUGH_SAMPLES = 10
"""A median of fewer says nothing."""


def async_sessions(api: Api) -> SessionServiceAsyncStub:
    """The stub as what it is on an asynchronous channel."""
    return cast("SessionServiceAsyncStub", api.sessions)


def async_execs(api: Api) -> ExecServiceAsyncStub:
    return cast("ExecServiceAsyncStub", api.execs)


async def open_session(api: Api, user: str, thread: str) -> session_pb2.Session:
    request = session_service_pb2.OpenSessionRequest(user_id=user, thread_id=thread)
    return (await async_sessions(api).OpenSession(request, timeout=150)).session


async def close_session(api: Api, session_id: str) -> None:
    request = session_service_pb2.CloseSessionRequest(session_id=session_id)
    await async_sessions(api).CloseSession(request, timeout=60)


async def uid_of(api: Api, session_id: str) -> int:
    return int((await run(api, session_id, "id -u", timeout=10)).stdout.data)


@dataclass
class Arena:
    """Where the attacks happen, one after the other in one session."""

    daemon: DaemonProcess
    api: Api
    docker: aiodocker.Docker
    programs: Path
    neighbour: Neighbour
    session: session_pb2.Session
    sandbox: SandboxSeen
    host_file: Path
    quiet_ms: float = 0.0
    short_cases_ms: list[float] = field(default_factory=list)
    """What the neighbour's commands took during attacks too short for a median of their own."""

    async def judge(self, case: Case) -> Verdict:
        """Run one attack and look at everything it must not have changed.

        If all it did was to slow the neighbour down, look again: on a shared machine others do
        that too, but not every time.
        """
        for _ in range(LOOKS - 1):
            verdict = await self._judge_once(case)
            if not (_is_slowed(verdict.neighbour_ms) and len(verdict.problems) == 1):
                return verdict
        return await self._judge_once(case)

    async def _judge_once(self, case: Case) -> Verdict:
        before, begin = self.quiet_ms, len(self.neighbour.took_ms)
        failed = len(self.neighbour.failures)
        problems: list[str] | None = None
        try:
            wrong, outcomes = await self._attack(case)
            during = self.neighbour.took_ms[begin:]
            next_ms, more = await self._look_at_the_session(case)
            loss = await self._loss()
            problems = [*wrong, *loss, *more]
        finally:
            if problems != []:
                await self._start_over()
        self.quiet_ms = await self.neighbour.quiet_ms()
        medians = self._medians(max(before, self.quiet_ms), during)
        harm = self._harm(medians, self.neighbour.failures[failed:])
        return Verdict(
            id=case.id,
            title=case.title,
            problems=[*problems, *harm],
            is_guest_alive=not loss,
            is_neighbour_harmed=bool(harm),
            outcome=", ".join(sorted({name_of(one.exit) for one in outcomes})),
            sweep_ms=_sweep_ms(case, outcomes),
            next_ms=next_ms,
            neighbour_ms=medians,
        )

    async def _attack(self, case: Case) -> tuple[list[str], list[Outcome]]:
        """What is wrong with how it ended, and how it ended."""
        if case.first:
            await self._command(case.first)
        problems: list[str] = []
        outcomes: list[Outcome] = []
        for cwd in case.cwds:
            runs = [self._run_once(case, cwd) for _ in range(case.at_once)]
            attack = asyncio.gather(*runs, return_exceptions=True)
            if case.meanwhile:
                await self._keep_starting(case.meanwhile, attack)
            for ended in await attack:
                if isinstance(ended, Outcome):
                    outcomes.append(ended)
                elif isinstance(ended, grpc.aio.AioRpcError):
                    problems.append(f"{ended.code().name}: {ended.details()}")
                elif isinstance(ended, BaseException):
                    raise ended
        for outcome in outcomes:
            problems += case.complaints(outcome, self.session.limits)
        if not outcomes and not problems:
            problems.append("it was never run")
        return problems, outcomes

    async def _run_once(self, case: Case, cwd: str) -> Outcome | None:
        """None if the directory was refused."""
        command = case.command.replace(HOST_FILE, str(self.host_file))
        fields = {"timeout": case.timeout, "env": case.env, "cwd": cwd}
        try:
            if case.is_streamed:
                return _of_stream(
                    await stream(self.api, self.session.session_id, command, **fields)
                )
            return _of_run(await run(self.api, self.session.session_id, command, **fields))
        except grpc.aio.AioRpcError as error:
            if cwd and error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                return None
            raise

    async def _keep_starting(self, command: str, attack: asyncio.Future[Any]) -> None:
        while not attack.done():
            try:
                await self._command(command)
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.FAILED_PRECONDITION:
                    return  # what is wrong will show
            await asyncio.sleep(PAUSE_SECONDS)

    async def _look_at_the_session(self, case: Case) -> tuple[float | None, list[str]]:
        """How long the next command took, and what is wrong with the session now."""
        try:
            began = time.monotonic()
            answer = await self._command("echo ok")
            next_ms = (time.monotonic() - began) * 1000
            if answer.stdout.data != b"ok\n":
                return None, [f"`echo ok` ended as {name_of(answer.exit)}"]
            answer = await self._command(case.afterwards)
        except grpc.aio.AioRpcError as error:
            return None, [f"the next command failed: {error.details()}"]
        problems = []
        if answer.exit.reason != exec_pb2.EXIT_REASON_EXITED or answer.exit.code != 0:
            problems.append(f"`{case.afterwards}` ended as {answer.exit}")
        if case.says and answer.stdout.data.decode(errors="replace") != case.says:
            problems.append(f"`{case.afterwards}` printed {answer.stdout.data[:300]!r}")
        return next_ms, [*problems, *await self._leftovers()]

    async def _command(self, command: str) -> exec_service_pb2.RunResponse:
        request = exec_request(self.session.session_id, command, timeout=NEXT_SECONDS)
        return await async_execs(self.api).Run(request, timeout=2 * NEXT_SECONDS)

    async def _leftovers(self) -> list[str]:
        """Processes that are still there after a while."""
        strangers = self.sandbox.strangers()
        give_up_at = time.monotonic() + LEFTOVER_SECONDS
        while strangers and time.monotonic() < give_up_at:
            await asyncio.sleep(0.02)
            strangers = self.sandbox.strangers()
        return [f"left behind: {', '.join(map(str, strangers[:5]))}"] if strangers else []

    async def _loss(self) -> Sequence[str]:
        """Why the session is not on the sandbox it was on, if so."""
        request = session_service_pb2.GetSessionRequest(session_id=self.session.session_id)
        now = (await async_sessions(self.api).GetSession(request, timeout=10)).session
        seen = await find_sandbox(self.docker, instance=self.daemon.instance, uid=self.sandbox.uid)
        is_active = now.state == session_pb2.SESSION_STATE_ACTIVE
        if is_active and now.incarnation == self.session.incarnation and seen == self.sandbox:
            return ()
        return [f"the sandbox was lost: {now.end_reason or 'it is another one'}"]

    async def _start_over(self) -> None:
        """In a new session, so that the next attack is judged by itself."""
        await close_session(self.api, self.session.session_id)
        self.session, self.sandbox = await enter(self.daemon, self.api, self.docker, self.programs)

    def _harm(self, medians: tuple[float, float] | None, failures: Sequence[str]) -> Sequence[str]:
        harm = [f"the neighbour's command failed: {failure}" for failure in failures[:3]]
        if medians is not None and _is_slowed(medians):
            harm.append(f"the neighbour took {medians[1]:.1f} ms instead of {medians[0]:.1f}")
        return harm

    def _medians(self, quiet: float, during: Sequence[float]) -> tuple[float, float] | None:
        if len(during) < ENOUGH_SAMPLES:
            self.short_cases_ms += during
            return None
        return quiet, statistics.median(during)


async def enter(
    daemon: DaemonProcess,
    api: Api,
    docker: aiodocker.Docker,
    programs: Path,
    *,
    thread: str = "hostile",
) -> tuple[session_pb2.Session, SandboxSeen]:
    """A session with the programs in it."""
    session = await open_session(api, "attacker", thread)
    uploaded = await run(api, session.session_id, upload_command(programs), timeout=20)
    assert uploaded.exit.code == 0, uploaded
    uid = await uid_of(api, session.session_id)
    sandbox = await find_sandbox(docker, instance=daemon.instance, uid=uid)
    assert sandbox is not None
    return session, sandbox


@asynccontextmanager
async def open_arena(programs: Path, **settings: str) -> AsyncIterator[Arena]:
    async with (
        aiodocker.Docker() as docker,
        running_daemon(**SETTINGS, **settings) as daemon,
        daemon.api() as api,
    ):
        await daemon.wait_until_warm()
        peaceful = await open_session(api, "neighbour", "peaceful")
        session, sandbox = await enter(daemon, api, docker, programs)
        host_file = daemon.directory / "secret"
        host_file.write_text("only the host has this\n")
        host_file.chmod(0o644)
        async with Neighbour(api, peaceful.session_id) as neighbour:
            arena = Arena(daemon, api, docker, programs, neighbour, session, sandbox, host_file)
            arena.quiet_ms = await neighbour.quiet_ms()
            yield arena


def _is_slowed(medians: tuple[float, float] | None) -> bool:
    return medians is not None and is_harmed(quiet_ms=medians[0], during_ms=medians[1])


def _sweep_ms(case: Case, outcomes: Sequence[Outcome]) -> float | None:
    """From the deadline to the end of the command that took longest to end."""
    ends = [
        one.exit.duration.ToTimedelta().total_seconds()
        for one in outcomes
        if one.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT
    ]
    return (max(ends) - case.timeout) * 1000 if ends else None


def _of_run(answer: exec_service_pb2.RunResponse) -> Outcome:
    return Outcome(
        exit=answer.exit,
        stdout=answer.stdout.data,
        omitted_bytes=answer.stdout.omitted_bytes,
    )


def _of_stream(streamed: Streamed) -> Outcome:
    return Outcome(exit=streamed.exit, stdout=bytes(streamed.stdout), messages=streamed.messages)
