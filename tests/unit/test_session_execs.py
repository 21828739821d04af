"""The execs of a session: what is kept of them, for how long, and what the guest may forget."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sandboxd.errors import CommandNotAllowed, ExecNotFound
from sandboxd.execs import session_execs
from sandboxd.execs.ending import Reason
from sandboxd.execs.exec import Exec, State
from sandboxd.guest.frames import Stream
from sandboxd.policy import STRICT
from sandboxd.sessions.session import Session
from sandboxd.sessions.sessions import Sessions
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.unit.test_execs import a_spec
from tests.unit.test_sessions import opened

StartSessions = Callable[..., Awaitable[Sessions]]


async def ended(session: Session, line: str = "echo hi", exec_id: str = "e1") -> Exec:
    execution, _ = session.start_exec(a_spec(shell=line, exec_id=exec_id))
    await execution.ended()
    return execution


def kept_files(directory: Path) -> set[str]:
    folders = (directory / "spool", directory / "execs")
    return {path.name for folder in folders if folder.exists() for path in folder.iterdir()}


@pytest.mark.parametrize("exec_id", ["e1", "e2"])
async def test_policy_is_asked_where_commands_start(
    exec_id: str, start_sessions: StartSessions
) -> None:
    """No caller within the daemon gets around the policy, not even with the id of what runs."""
    session, _ = await opened(await start_sessions(policy=STRICT))
    session.start_exec(a_spec(shell="sleep", exec_id="e1"))
    with pytest.raises(CommandNotAllowed, match="`strict`") as caught:
        session.start_exec(a_spec(shell="rm x", exec_id=exec_id))

    assert caught.value.metadata["rule"] == "forbidden-command"
    assert list(session.execs.running) == ["e1"]
    assert session.execs.decision == "allowed by policy strict"


async def test_persisted_exec_is_on_disk_and_forgotten_in_the_guest(
    start_sessions: StartSessions, guests: FakeGuests, short_dir: Path
) -> None:
    """The guest keeps an ended exec until output and end are written down here."""
    session, _ = await opened(await start_sessions())
    await ended(session)
    (command,) = guests.commands
    assert command.channel in command.guest.ended
    session.execs.persist()

    await eventually(lambda: not command.guest.ended)
    name = f"{session.id}.1-e1"
    assert kept_files(short_dir) == {f"{name}.stdout", f"{name}.end"}


async def test_ended_execs_are_persisted_by_themselves(
    start_sessions: StartSessions, guests: FakeGuests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest is not left with what has ended."""
    monkeypatch.setattr(session_execs, "PERSIST_SECONDS", 0.01)
    session, _ = await opened(await start_sessions())
    await ended(session)

    await eventually(lambda: not guests.commands[0].guest.ended)


async def test_guest_never_keeps_many(start_sessions: StartSessions, guests: FakeGuests) -> None:
    """A storm of short commands is persisted ahead of time."""
    session, _ = await opened(await start_sessions(max_running=session_execs.MAX_UNPERSISTED))
    for n in range(session_execs.MAX_UNPERSISTED):
        await ended(session, "true", f"e{n}")

    await eventually(lambda: not guests.commands[0].guest.ended)


async def test_persisted_execs_hold_no_files_open(start_sessions: StartSessions) -> None:
    """What is only kept for late readers costs no descriptor, and can still be read."""
    session, _ = await opened(await start_sessions())
    before = len(os.listdir("/proc/self/fd"))
    execs = [await ended(session, f"flood {1 << 18}", f"e{n}") for n in range(20)]
    session.execs.persist()

    assert len(os.listdir("/proc/self/fd")) <= before
    for execution in execs:
        assert execution.kept_output.spool.read(Stream.STDOUT, 0, 5).data == b"xxxxx"
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_only_so_many_ended_execs_are_kept(
    start_sessions: StartSessions, short_dir: Path
) -> None:
    """The oldest goes first, with its files."""
    session, _ = await opened(await start_sessions(max_ended=3))
    for n in range(5):
        await ended(session, exec_id=f"e{n}")
        session.execs.persist()

    assert [one.id for one in session.execs] == ["e4", "e3", "e2"]
    assert len(kept_files(short_dir)) == 6
    with pytest.raises(ExecNotFound):
        session.execs.find("e1")


async def test_old_execs_are_forgotten(start_sessions: StartSessions, short_dir: Path) -> None:
    """After its time an ended exec is gone, and a running one is not."""
    sessions = await start_sessions()
    session, _ = await opened(sessions)
    running, _ = session.start_exec(a_spec(shell="sleep", exec_id="running"))
    await ended(session)
    session.execs.persist()
    session.execs.forget_old()
    assert {one.id for one in session.execs} == {"running", "e1"}
    object.__setattr__(sessions.exec_state.settings, "memory_seconds", 0.0)
    session.execs.forget_old()

    assert list(session.execs) == [running]
    assert kept_files(short_dir) == set()


async def test_new_incarnation_begins_without_execs(
    start_sessions: StartSessions, guests: FakeGuests, short_dir: Path
) -> None:
    """Execs of a lost sandbox can be read until the session is opened again."""
    sessions = await start_sessions()
    session, _ = await opened(sessions)
    await ended(session)
    session.execs.persist()
    guests.commands[0].guest.drop()
    await eventually(lambda: not session.is_active)
    assert sessions.find_exec(session.id, "e1").state == State.ENDED
    again, _ = await opened(sessions)

    assert list(again.execs) == []
    assert kept_files(short_dir) == set()


async def test_every_end_is_counted_once(start_sessions: StartSessions, guests: FakeGuests) -> None:
    """Whatever ends them, the daemon's count of running commands comes back to nothing."""
    sessions = await start_sessions(max_running=16)
    session, _ = await opened(sessions)
    lines = ["true", "refuse no", "sleep", "signal 9", "stubborn"]
    execs = [
        session.start_exec(a_spec(shell=line, exec_id=f"e{n}"))[0] for n, line in enumerate(lines)
    ]
    queued = [
        session.start_exec(a_spec(shell="sleep", exec_id=f"q{n}", shell_name="main"))[0]
        for n in range(3)
    ]
    assert [one.state for one in queued] == [State.RUNNING, State.QUEUED, State.QUEUED]
    queued[1].end(Reason.CANCELLED)
    execs[2].end(Reason.TIMED_OUT)
    await execs[2].ended()
    sessions.close(session.id)
    for one in (*execs, *queued):
        await one.ended()

    assert (sessions.exec_state.quotas.running_execs, len(session.execs)) == (0, 0)
    assert queued[2].exit is not None
    assert queued[2].exit.reason == Reason.SESSION_CLOSED


async def test_lost_sandbox_ends_what_waits_for_a_shell(
    start_sessions: StartSessions, guests: FakeGuests
) -> None:
    """A queue is not stuck behind a command that will never end by itself."""
    sessions = await start_sessions()
    session, _ = await opened(sessions)
    line = [
        session.start_exec(a_spec(shell="sleep", exec_id=f"q{n}", shell_name="main"))[0]
        for n in range(3)
    ]
    (await guests.wait_for("sleep")).guest.drop()

    assert {(await one.ended()).reason for one in line} <= {
        Reason.SANDBOX_LOST,
        Reason.SESSION_CLOSED,
    }
    assert sessions.exec_state.quotas.running_execs == 0
