"""A command that ran out of memory: what it has left is ended before its end is reported."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from sandboxd.execs import host_kill
from sandboxd.execs.ending import Reason
from sandboxd.execs.exec import Exec
from sandboxd.guest import frames
from sandboxd.guest.frames import Kind
from sandboxd.isolation.meter import Usage
from sandboxd.sessions.session import Session
from sandboxd.sessions.sessions import Sessions
from tests.fakes.guest import FakeGuest, FakeGuests
from tests.fakes.waiting import eventually
from tests.unit.test_execs import started
from tests.unit.test_sessions import opened

StartSessions = Callable[..., Awaitable[Sessions]]
STARVED = Usage(
    peak_memory_bytes=1, cpu_seconds=0.5, peak_processes=2, oom_kills=1, refused_forks=0
)
SWEPT = "What it had started was ended"


@pytest.fixture(autouse=True)
def kernel_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    """During each command, as the host counts."""
    monkeypatch.setattr(Exec, "_used", lambda _: STARVED)


@pytest.fixture
async def session(start_sessions: StartSessions) -> Session:
    session, _ = await opened(await start_sessions())
    return session


def guest_of(guests: FakeGuests) -> FakeGuest:
    return guests.commands[-1].guest


async def asked_to_sweep(guests: FakeGuests, line: str) -> tuple[FakeGuest, int]:
    command = await guests.wait_for(line)
    await eventually(lambda: command.guest.sweeps == [command.channel])
    return command.guest, command.channel


@pytest.mark.parametrize("line", ["exit 1", "signal 9", "exit 137"])
async def test_end_is_reported_after_the_sweep(
    line: str, session: Session, guests: FakeGuests
) -> None:
    """Whoever reads the end can use the memory."""
    guests.answers_sweeps = False
    execution = started(session, shell=line)
    guest, channel = await asked_to_sweep(guests, line)
    assert execution.exit is None
    guest.say(frames.encode_swept(channel, was_known=True))

    status = await execution.wait()
    assert status.reason is Reason.OUT_OF_MEMORY
    assert SWEPT in status.hint
    assert len(session.execs) == 0


async def test_command_that_succeeded_is_not_swept(session: Session, guests: FakeGuests) -> None:
    """What it started may be there on purpose."""
    assert (await started(session, shell="true").wait()).reason is Reason.EXITED
    assert not guest_of(guests).sweeps


async def test_next_command_of_a_shell_begins_after_the_sweep(
    session: Session, guests: FakeGuests
) -> None:
    """It would need the memory."""
    guests.answers_sweeps = False
    started(session, exec_id="first", shell="exit 1", shell_name="main")
    following = started(session, exec_id="second", shell="true", shell_name="main")
    guest, channel = await asked_to_sweep(guests, "exit 1")
    assert [command.line for command in guests.commands] == ["exit 1"]
    guest.say(frames.encode_swept(channel, was_known=True))

    assert (await following.wait()).code == 0


async def test_hint_does_not_claim_what_the_guest_did_not_do(
    session: Session, guests: FakeGuests
) -> None:
    """A guest that has forgotten the command has ended nothing."""
    guests.answers_sweeps = False
    execution = started(session, shell="exit 1")
    guest, channel = await asked_to_sweep(guests, "exit 1")
    guest.say(frames.encode_swept(channel, was_known=False))

    status = await execution.wait()
    assert (status.reason, SWEPT in status.hint) == (Reason.OUT_OF_MEMORY, False)


async def test_guest_of_an_earlier_release_is_not_asked(
    start_sessions: StartSessions, guests: FakeGuests
) -> None:
    """It does not know how; the end is reported at once, and the session goes on."""
    hello = struct.pack("!HIB", frames.SWEEP_VERSION - 1, 1, 0)
    guests.greet = lambda guest: guest.say(frames.encode(Kind.HELLO, payload=hello))
    session, _ = await opened(await start_sessions())
    status = await started(session, shell="exit 1").wait()

    assert (status.reason, SWEPT in status.hint) == (Reason.OUT_OF_MEMORY, False)
    assert not guest_of(guests).sweeps
    assert session.is_active


async def test_guest_that_does_not_sweep_is_ended(
    session: Session, guests: FakeGuests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep has the time of a kill; then the sandbox goes, and the reason stays."""
    monkeypatch.setattr(host_kill, "STEP_SECONDS", 0.01)
    guests.answers_sweeps = False
    status = await started(session, shell="exit 1").wait()

    assert status.reason is Reason.OUT_OF_MEMORY
    assert "open the session again" in status.hint
    assert not session.is_active


async def test_reports_of_the_guest_win_it_time(
    session: Session, guests: FakeGuests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep takes long on a busy host, like any kill."""
    monkeypatch.setattr(host_kill, "STEP_SECONDS", 60.0)
    extended = asyncio.Event()
    monkeypatch.setattr(host_kill.HostKill, "extend", lambda _: extended.set())
    guests.answers_sweeps = False
    execution = started(session, shell="exit 1")
    guest, channel = await asked_to_sweep(guests, "exit 1")
    extended.clear()
    await asyncio.sleep(0.06)  # sooner would be a lie
    guest.say(frames.encode_sweeping(channel, 1))
    await asyncio.wait_for(extended.wait(), 5)
    guest.say(frames.encode_swept(channel, was_known=True))

    assert (await execution.wait()).reason is Reason.OUT_OF_MEMORY


@pytest.mark.parametrize("reason", [Reason.TIMED_OUT, Reason.CANCELLED, Reason.SESSION_CLOSED])
async def test_end_asked_for_during_the_sweep_changes_nothing(
    reason: Reason, session: Session, guests: FakeGuests
) -> None:
    """It had ended before."""
    guests.answers_sweeps = False
    execution = started(session, shell="exit 1")
    guest, channel = await asked_to_sweep(guests, "exit 1")
    execution.end(reason)
    execution.kill(reason)
    guest.say(frames.encode_swept(channel, was_known=True))

    assert (await execution.wait()).reason is Reason.OUT_OF_MEMORY


async def test_sandbox_lost_during_the_sweep(session: Session, guests: FakeGuests) -> None:
    """The reason stays, and the hint says how to go on."""
    guests.answers_sweeps = False
    execution = started(session, shell="exit 1")
    guest, _ = await asked_to_sweep(guests, "exit 1")
    guest.drop()

    status = await execution.wait()
    assert (status.reason, status.code) == (Reason.OUT_OF_MEMORY, 1)
    assert "open the session again" in status.hint
