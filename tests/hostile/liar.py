"""A stage for a lying guest: the whole daemon, the liar, and an honest neighbour who is watched."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from structlog.testing import capture_logs

from sandboxd.daemon.composition import Daemon, running
from sandboxd.engine.contract import ContainerId
from sandboxd.guest.frames import Cause, Ending, Exited
from sandboxd_proto.v1 import exec_pb2, exec_service_pb2, session_pb2, session_service_pb2
from tests.fakes import settings as settings_for_tests
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuest, FakeGuests
from tests.fakes.waiting import eventually
from tests.service.client import Api, ExecCall, events, refused

MIB = 1 << 20
PATIENCE_SECONDS = 15.0
"""Whatever takes longer has hung."""
MEMORY_BYTES = 96 * MIB
"""What daemon, client and fakes together may grow by, whatever a guest sends."""
ROOT = Path(__file__).parents[2]
LOST = exec_pb2.EXIT_REASON_SANDBOX_LOST
TIMED_OUT = exec_pb2.EXIT_REASON_TIMED_OUT
BYE = Exited(Ending.CODE, Cause.ITSELF, 0, 0, 0)

Say = Callable[[FakeGuest], None]


@dataclass
class Tally:
    lies: int = 0
    unhandled: int = 0
    hangs: int = 0


tally = Tally()


@asynccontextmanager
async def in_time(seconds: float = PATIENCE_SECONDS) -> AsyncIterator[None]:
    """The block must come to its end."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        tally.hangs += 1
        raise AssertionError(f"still not done after {seconds:g} s") from None


class Faults(logging.Handler):
    """Everything that nobody handled: callbacks and tasks that failed, errors in any log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[object] = []
        self.events: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """None may come up until the block ends."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.seen.append(context))
        logging.getLogger().addHandler(self)
        try:
            with capture_logs() as self.events:
                yield
        finally:
            logging.getLogger().removeHandler(self)
            loop.set_exception_handler(None)
            self.seen += [one for one in self.events if one["log_level"] in ("error", "critical")]
            tally.unhandled += len(self.seen)
        assert self.seen == []


def other_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def memory_within(limit: int = MEMORY_BYTES) -> AsyncIterator[None]:
    """The process may not grow by more than this, at no time in the block."""
    before = resident_bytes()
    peak = before

    async def look() -> None:
        nonlocal peak
        while True:
            peak = max(peak, resident_bytes())
            await asyncio.sleep(0.005)

    looking = asyncio.ensure_future(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])
    assert peak - before < limit, f"grew by {(peak - before) / MIB:.0f} MiB"


class Neighbour:
    """Another session, with an honest guest, in use for as long as the stage stands."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._served = 0
        self._is_over = False

    @asynccontextmanager
    async def busy(self) -> AsyncIterator[Neighbour]:
        session_id = await self._api.open_id("bob")
        watched = self._api.exec(session_id, "echo here; sleep")
        await watched.read()
        using = asyncio.ensure_future(self._use(session_id))
        try:
            yield self
        finally:
            self._is_over = True
            async with in_time():
                await using
        await self._was_not_disturbed(session_id, watched)

    async def _use(self, session_id: str) -> None:
        while not self._is_over:
            answer = await self._api.run(session_id, f"echo {self._served}; exit 7")
            assert answer.stdout.data == b"%d\n" % self._served
            assert (answer.exit.code, answer.exit.reason) == (7, exec_pb2.EXIT_REASON_EXITED)
            self._served += 1

    async def _was_not_disturbed(self, session_id: str, watched: ExecCall) -> None:
        session = await self._api.get(session_id)
        assert session.state == session_pb2.SESSION_STATE_ACTIVE
        assert (session.incarnation, session.running_execs) == (1, 1)
        watched.cancel()

    async def is_served(self) -> None:
        """Return once it got answers to questions that it asks from now on."""
        wanted = self._served + 2
        await eventually(lambda: self._served >= wanted)


@dataclass
class Stage:
    """A daemon with a guest that is going to lie, and a neighbour that must not notice."""

    daemon: Daemon
    engine: FakeEngine
    guests: FakeGuests
    api: Api
    neighbour: Neighbour
    faults: Faults

    async def liar(self, *, timeout: float = 30.0) -> Liar:
        async with in_time():
            liar = await Liar.meet(self)
            await liar.take_commands(timeout)
        return liar

    def guest_of(self, session_id: str) -> tuple[ContainerId, FakeGuest]:
        sandbox = self.daemon.sessions.get(session_id).sandbox
        assert sandbox is not None
        return sandbox.container_id, self.guests.by_container[sandbox.container_id]


@asynccontextmanager
async def staged(directory: Path, **settings: Any) -> AsyncIterator[Stage]:
    """A stage; when it has been cleared nothing is left of it and nothing went wrong unseen."""
    before = other_tasks()
    faults, engine = Faults(), FakeEngine()
    guests = FakeGuests(engine)
    config = settings_for_tests.of_daemon(directory).model_copy(update=settings)
    with faults.watched():
        async with (
            running(config, engine=engine, maker=guests.maker) as daemon,
            Api(config.api_socket) as api,
            # A connection of its own, so that the liar's callers cannot hold it up.
            Api(config.api_socket) as other_api,
            Neighbour(other_api).busy() as neighbour,
        ):
            yield Stage(daemon, engine, guests, api, neighbour, faults)
        await guests.aclose()
        assert engine.live == set()
        await eventually(lambda: other_tasks() <= before)


async def rest_of(call: ExecCall) -> list[exec_pb2.ExecEvent]:
    return [event async for event in events(call)]


class Liar:
    """A session whose guest runs two commands, one followed and one waited for, and then lies."""

    def __init__(self, stage: Stage, session: session_pb2.Session) -> None:
        self.stage = stage
        self.session_id = session.session_id
        self.incarnation = session.incarnation
        self.container_id, self.guest = stage.guest_of(session.session_id)
        self.followed: asyncio.Future[list[exec_pb2.ExecEvent]]
        self.answer: asyncio.Future[exec_service_pb2.RunResponse]

    @classmethod
    async def meet(cls, stage: Stage) -> Liar:
        return cls(stage, (await stage.api.open("mallory")).session)

    async def take_commands(self, timeout: float) -> None:
        """The time is for the command that is waited for."""
        # Stubborn: what is to be said about them is for the liar to choose.
        call = self.stage.api.exec(self.session_id, "stubborn")
        self.followed = asyncio.ensure_future(rest_of(call))
        await eventually(lambda: len(self.guest.running) == 1)
        answer = self.stage.api.run(self.session_id, "stubborn", timeout=timeout)
        self.answer = asyncio.ensure_future(answer)
        await eventually(lambda: len(self.guest.running) == 2)

    @property
    def channel(self) -> int:
        """Of the command that is waited for. It is the newest: the next number is not in use."""
        return max(self.guest.running)

    def say(self, data: bytes) -> None:
        tally.lies += 1
        self.guest.say(data)

    async def is_caught(
        self, told: str, *, reason: exec_pb2.ExitReason.ValueType = LOST
    ) -> exec_pb2.ExitStatus:
        """The command that is waited for ends for this reason; the sandbox is lost."""
        async with in_time():
            answer, followed = await asyncio.gather(self.answer, self.followed)
        assert answer.exit.reason == reason
        assert answer.exit.WhichOneof("outcome") is None
        self._was_followed_to_the_loss(followed)
        await self.is_gone(told)
        return answer.exit

    async def is_caught_after(self, first: str, told: str) -> None:
        """The one command ended as the liar had said `first`, the other is lost."""
        async with in_time():
            if first == "refusal":
                with refused(grpc.StatusCode.FAILED_PRECONDITION, "COMMAND_NOT_STARTABLE"):
                    await self.answer
            else:
                exited = (await self.answer).exit
                assert (exited.reason, exited.code) == (exec_pb2.EXIT_REASON_EXITED, 0)
            followed = await self.followed
        self._was_followed_to_the_loss(followed)
        await self.is_gone(told)

    def _was_followed_to_the_loss(self, followed: list[exec_pb2.ExecEvent]) -> None:
        assert [event.WhichOneof("event") for event in followed] == ["started", "exited"]
        assert followed[-1].exited.reason == LOST

    async def is_gone(self, told: str) -> None:
        """Killed, removed, told, replaced; and the neighbour has noticed nothing."""
        stage = self.stage
        async with in_time():
            await stage.engine.wait_until(lambda: self.container_id not in stage.engine.live)
            assert self.guest.process is not None
            assert self.guest.process.kills >= 1
            session = await stage.api.get(self.session_id)
            assert session.state == session_pb2.SESSION_STATE_LOST
            assert told in session.end_reason
            with refused(grpc.StatusCode.ABORTED, "SANDBOX_LOST") as refusal:
                await stage.api.run(self.session_id, "true")
            assert told in refusal.message
            again = await stage.api.open("mallory")
            assert again.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
            assert again.session.session_id == self.session_id
            assert again.session.incarnation == self.incarnation + 1
            assert (await stage.api.run(self.session_id, "echo new")).stdout.data == b"new\n"
            await stage.neighbour.is_served()
