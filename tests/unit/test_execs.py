"""A command: what is accepted, how it ends, and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.errors import (
    CommandNotStartable,
    ExecLimitReached,
    ExecNotFound,
    InvalidRequest,
    RequestTooLarge,
    SandboxLost,
)
from sandboxd.execs.ending import Reason
from sandboxd.execs.exec import RETRY_SECONDS, Batch, Exec
from sandboxd.execs.output import ACK_STEP, Chunk
from sandboxd.execs.spec import ExecSpec, new_exec_id
from sandboxd.guest import frames
from sandboxd.guest.frames import (
    FRAME_COST,
    MAX_CHUNK,
    MAX_DAEMON_PAYLOAD,
    NO_PROCESS,
    WINDOW,
    Cause,
    Ending,
    Remark,
    Stream,
)
from sandboxd.sessions.session import Session
from sandboxd.sessions.sessions import Sessions
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.unit.test_sessions import opened

StartSessions = Callable[..., Awaitable[Sessions]]
KIB = 1024


def a_spec(**fields: Any) -> ExecSpec:
    plain = {"exec_id": "e1", "shell": "true", "argv": (), "cwd": "", "env": {}}
    return ExecSpec(**{**plain, "timeout_seconds": 30.0, **fields})


def an_argv(*words: str) -> dict[str, Any]:
    return {"shell": None, "argv": words}


@pytest.fixture
async def session(start_sessions: StartSessions) -> Session:
    session, _ = await opened(await start_sessions())
    return session


def started(session: Session, **fields: Any) -> Exec:
    execution, is_new = session.start_exec(a_spec(**fields))
    assert is_new
    return execution


async def batches(execution: Exec) -> list[Batch]:
    return [batch async for batch in execution.follow()]


async def heard_everything(session: Session) -> None:
    """All output so far has reached the daemon, and all its credit the guest."""
    assert session.sandbox is not None
    for _ in range(2):
        await session.sandbox.link.ping()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        pytest.param({"shell": ""}, "command", id="empty line"),
        pytest.param({"shell": " \n\t"}, "command", id="blank line"),
        pytest.param({"shell": "echo a\0b"}, "command", id="NUL in the line"),
        pytest.param(an_argv(), "command", id="no words"),
        pytest.param(an_argv("", "x"), "command", id="empty program"),
        pytest.param(an_argv("echo", "a\0"), "command", id="NUL in a word"),
        pytest.param({"cwd": "a\0b"}, "cwd", id="NUL in the directory"),
        pytest.param({"env": {"": "x"}}, "env", id="variable without a name"),
        pytest.param({"env": {"A=B": "x"}}, "env", id="equals sign in a name"),
        pytest.param({"env": {"A\0": "x"}}, "env", id="NUL in a name"),
        pytest.param({"env": {"A": "x\0"}}, "env", id="NUL in a value"),
        pytest.param({"exec_id": ""}, "exec_id", id="empty id"),
        pytest.param({"exec_id": "a b"}, "exec_id", id="blank in the id"),
        pytest.param({"exec_id": "../x"}, "exec_id", id="slash in the id"),
        pytest.param({"exec_id": "x" * 65}, "exec_id", id="long id"),
        pytest.param({"exec_id": "x\n"}, "exec_id", id="newline after the id"),
    ],
)
def test_malformed_command_is_refused(fields: dict[str, Any], field: str) -> None:
    """What can never run is refused before anything is sent to a guest."""
    with pytest.raises(InvalidRequest) as caught:
        a_spec(**fields)

    assert (caught.value.field, caught.value.reason) == (field, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        pytest.param({"shell": "x" * 2048 * KIB}, "command", id="long line"),
        pytest.param({"shell": "\u00e9" * 1024 * KIB}, "command", id="line long in bytes only"),
        pytest.param(an_argv("echo", "x" * 4096 * KIB), "command", id="4 MB word"),
        pytest.param(an_argv("echo", "x" * 128 * KIB), "command", id="long word"),
        pytest.param(an_argv(*["x"] * 33_000), "command", id="many words"),
        pytest.param(an_argv(*["x" * KIB] * 2000), "command", id="large vector"),
        pytest.param(
            {"env": {f"V{n}": "x" * 100 * KIB for n in range(20)}}, "command", id="large env"
        ),
        pytest.param(
            {"shell": "x" * 1000 * KIB, "env": {f"V{n}": "x" * 100 * KIB for n in range(10)}},
            "command",
            id="line and env",
        ),
        pytest.param({"env": {"V": "x" * 128 * KIB}}, "env", id="large variable"),
        pytest.param({"env": {f"V{n}": "" for n in range(5000)}}, "env", id="many variables"),
        pytest.param({"cwd": "x" * 4097}, "cwd", id="long directory"),
    ],
)
def test_command_over_a_limit_is_refused(fields: dict[str, Any], field: str) -> None:
    """What the kernel would not take is refused, with the limit in words."""
    with pytest.raises(RequestTooLarge) as caught:
        a_spec(**fields)

    assert caught.value.field == field


text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@given(shell=text.filter(str.strip), cwd=text, value=text)
def test_request_says_the_same_to_the_guest(shell: str, cwd: str, value: str) -> None:
    """Any text reaches the guest unchanged."""
    request = json.loads(a_spec(shell=shell, cwd=cwd, env={"V": value}).encode("mine"))

    told = {"shell": shell, "argv": [], "cwd": cwd, "env": {"V": value}, "timeout": 30.0}
    assert request == {**told, "label": "mine", "keep": True}


@pytest.mark.parametrize("character", ["x", "\u00e9", "\\", "\x01", "\U0001f600"])
def test_largest_request_fits_a_frame_or_is_refused(character: str) -> None:
    """No accepted command is too large for the link, however it is encoded."""
    size = 100 * KIB // len(character.encode())
    spec = a_spec(**an_argv("echo", *[character * size] * 19))
    if character == "\x01":
        with pytest.raises(RequestTooLarge, match="once encoded"):
            spec.encode("")
    else:
        assert len(spec.encode("")) <= MAX_DAEMON_PAYLOAD


def test_made_up_ids_are_acceptable_and_differ() -> None:
    """An id of ours passes our own check."""
    ids = {a_spec(exec_id=new_exec_id()).exec_id for _ in range(100)}

    assert len(ids) == 100


@pytest.mark.parametrize(
    ("line", "reason", "code", "signal"),
    [
        ("true", Reason.EXITED, 0, None),
        ("exit 255", Reason.EXITED, 255, None),
        ("signal 11", Reason.SIGNALLED, None, 11),
        ("die", Reason.SANDBOX_LOST, None, None),
        ("lie exit twice", Reason.EXITED, 0, None),
        ("lie signal 65", Reason.SANDBOX_LOST, None, None),
    ],
)
async def test_end_is_told_as_it_was(
    line: str, reason: Reason, code: int | None, signal: int | None, session: Session
) -> None:
    """Reason, code and signal are what happened, and nothing is made up."""
    status = await started(session, shell=line).wait()

    assert (status.reason, status.code, status.signal) == (reason, code, signal)
    assert bool(status.hint) == (reason != Reason.EXITED)


async def test_command_is_as_long_as_the_kernel_takes(session: Session, guests: FakeGuests) -> None:
    """A line and a vector of nearly 2 MiB reach the guest whole; listings show their beginning."""
    line = "say " + "x" * 1970 * KIB
    vectors = [["say", *["x" * 127 * KIB] * 15], ["say", *["x"] * 30_000]]
    for n, fields in enumerate(({"shell": line}, *(an_argv(*words) for words in vectors))):
        execution = started(session, **fields, exec_id=f"e{n}")
        assert len(execution.details.command) == 200
        await execution.wait()

    lines = [command.line for command in guests.commands]
    assert lines == [line, *(" ".join(words) for words in vectors)]


async def test_large_commands_wait_for_room(start_sessions: StartSessions) -> None:
    """Many at once, which the link could not hold together, all run, and nobody loses a sandbox."""
    sessions = await start_sessions(max_running=32, max_running_in_all=32)
    session, _ = await opened(sessions)

    async def run(number: int) -> None:
        spec = a_spec(**an_argv("say", *["x" * 100 * KIB] * 19), exec_id=f"m{number}")
        execution, _ = await sessions.check_and_start_exec(session.id, spec)
        await execution.wait()

    await asyncio.gather(*map(run, range(16)))
    assert session.is_active


async def test_large_commands_of_a_shell_do_not_pile_up(start_sessions: StartSessions) -> None:
    """What waits for its shell is bounded in bytes, not only in number."""
    session, _ = await opened(await start_sessions(max_running=32, max_running_in_all=32))
    started(session, shell="sleep", shell_name="main")
    line = "x" * 1900 * KIB

    def queue_many() -> None:
        for n in range(8):
            started(session, shell=line, shell_name="main", exec_id=f"m{n}")

    with pytest.raises(ExecLimitReached, match="wait for their shells"):
        queue_many()
    started(session, shell="true", shell_name="main", exec_id="small")


async def test_refused_command_never_began(session: Session) -> None:
    """A command that could not start is an error, in both ways of reading."""
    for n, read in enumerate((Exec.wait, batches)):
        execution = started(session, shell="refuse no such directory", exec_id=f"e{n}")
        with pytest.raises(CommandNotStartable, match="no such directory"):
            await read(execution)
    assert len(session.execs) == 0


async def test_command_without_a_process_may_be_tried_again(session: Session) -> None:
    """What another try may cure is told apart from what it cannot."""
    for why, seconds in ((NO_PROCESS, RETRY_SECONDS), ("no such directory", None)):
        with pytest.raises(CommandNotStartable) as caught:
            await started(session, shell=f"refuse {why}", exec_id=f"e{seconds}").wait()
        assert caught.value.retry_after_seconds == seconds


async def test_swept_command_says_so(session: Session, guests: FakeGuests) -> None:
    """A command that ended along with a runaway one is told apart from a plain signal."""
    runaway = started(session, exec_id="runaway", shell="sleep; echo runaway")
    execution = started(session, shell="sleep")
    command = await guests.wait_for("sleep")
    runaway.end(Reason.TIMED_OUT)
    await runaway.wait()
    command.guest.exit(command, Ending.SIGNAL, 9, Cause.SWEPT)

    assert (await execution.wait()).reason == Reason.SWEPT


async def test_guest_that_ends_a_command_at_its_deadline_is_believed(
    session: Session, guests: FakeGuests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that was stopped over a deadline learns that the guest kept it."""
    execution = started(session, shell="sleep", timeout_seconds=0.05)
    command = await guests.wait_for("sleep")
    monkeypatch.setattr(execution, "end", lambda reason: None)  # as if it came too late
    await asyncio.sleep(0.06)
    command.guest.exit(command, Ending.SIGNAL, 9, Cause.DEADLINE)

    assert (await execution.wait()).reason == Reason.TIMED_OUT


@pytest.mark.parametrize("remarks", [Remark.COMPANY, Remark.COMPANY | Remark.HINDERED])
async def test_exit_says_what_earlier_commands_left_running(
    remarks: Remark, session: Session, guests: FakeGuests
) -> None:
    """Also if all went well: whoever reads the end should know who else was there."""
    execution = started(session, shell="sleep")
    command = await guests.wait_for("sleep")
    command.guest.say(frames.encode_remarks(command.channel, remarks))
    command.guest.exit(command, Ending.CODE, 0)

    status = await execution.wait()
    assert (status.reason, status.code) == (Reason.EXITED, 0)
    assert "earlier commands" in status.hint
    assert ("were ended" in status.hint) == (Remark.HINDERED in remarks)


@pytest.mark.parametrize("cause", [Cause.SWEPT, Cause.KILLED, Cause.DEADLINE])
async def test_guest_cannot_claim_a_kill_that_nobody_asked_for(
    cause: Cause, session: Session, guests: FakeGuests
) -> None:
    """Why a command ended is not for the guest to say."""
    execution = started(session, shell="sleep")
    command = await guests.wait_for("sleep")
    command.guest.exit(command, Ending.SIGNAL, 9, cause)

    assert (await execution.wait()).reason == Reason.SANDBOX_LOST


async def test_first_reason_to_end_counts(session: Session) -> None:
    """What ends a command first is what ended it."""
    execution = started(session, shell="stubborn")
    execution.end(Reason.TIMED_OUT)
    execution.end(Reason.SESSION_CLOSED)

    assert (await execution.wait()).reason == Reason.TIMED_OUT


async def test_own_exit_beats_a_late_time_out(session: Session, guests: FakeGuests) -> None:
    """A command that had ended by itself when the kill came is not called timed out."""
    execution = started(session, shell="stubborn")
    command = await guests.wait_for("stubborn")
    execution.end(Reason.TIMED_OUT)
    command.guest.exit(command, Ending.CODE, 0)

    assert (await execution.wait()).reason == Reason.EXITED


async def test_captured_output_is_cut_in_the_middle(session: Session) -> None:
    """Beyond the cap the beginning and the end are kept, and every byte is counted."""
    execution = started(session, shell="flood 5000000; echo end", is_kept=False, capture_bytes=1000)
    status = await execution.wait()

    stdout = execution.output.excerpt(Stream.STDOUT, 1000)
    assert len(stdout.data) == 1000
    assert stdout.data.endswith(b"end\n")
    assert stdout.omitted_bytes == 5_000_004 - 1000
    assert status.stdout_bytes == 5_000_004


async def test_output_that_is_not_kept_cannot_be_followed(session: Session) -> None:
    """A reader is told that there is nothing for it, and the command goes on."""
    execution = started(session, shell="sleep", is_kept=False)
    with pytest.raises(ExecNotFound, match=execution.id):
        await batches(execution)

    assert execution.exit is None


async def test_command_without_a_reader_is_not_held_back(
    session: Session, guests: FakeGuests
) -> None:
    """What nobody reads is kept, and the guest's window comes back but for less than two steps."""
    line = f"flood {8 * WINDOW}; sleep"
    execution = started(session, shell=line)
    command = await guests.wait_for(line)
    await eventually(lambda: command.flood_left == 0)
    await heard_everything(session)

    assert execution.length(Stream.STDOUT) == 8 * WINDOW
    assert WINDOW - 2 * ACK_STEP - MAX_CHUNK < command.window <= WINDOW


async def test_reader_that_leaves_gives_back_what_it_held(
    session: Session, guests: FakeGuests
) -> None:
    """Whoever leaves gives back exactly the room that was taken, and the command runs on."""
    line = f"flood {8 * WINDOW}; sleep"
    execution = started(session, shell=line, survives_disconnect=True)
    reading = execution.follow()
    await anext(reading)
    command = await guests.wait_for(line)
    await eventually(lambda: command.is_held_back)
    await reading.aclose()  # type: ignore[attr-defined]  # it is a generator
    execution.abandon()
    await eventually(lambda: command.flood_left == 0)
    await heard_everything(session)

    assert execution.exit is None
    assert WINDOW - 2 * ACK_STEP - MAX_CHUNK < command.window <= WINDOW


async def test_reader_that_does_not_read_holds_the_command_back(
    session: Session, guests: FakeGuests
) -> None:
    """No more than a window is sent beyond what a reader took, and it is all there later."""
    line = f"flood {4 * WINDOW}"
    execution = started(session, shell=line)
    reading = execution.follow()
    seen = [await anext(reading)]
    command = await guests.wait_for(line)
    await eventually(lambda: command.is_held_back)
    await heard_everything(session)
    assert WINDOW <= command.unread_bytes <= WINDOW + MAX_CHUNK + FRAME_COST

    seen += [batch async for batch in reading]
    chunks = [chunk for batch in seen for chunk in batch.chunks]
    assert all(isinstance(chunk, Chunk) for chunk in chunks)
    assert sum(len(chunk.data) for chunk in chunks if isinstance(chunk, Chunk)) == 4 * WINDOW
    assert [batch.exit is not None for batch in seen] == [False] * (len(seen) - 1) + [True]


async def test_command_for_a_guest_that_stops_reading_is_lost(
    start_sessions: StartSessions, guests: FakeGuests
) -> None:
    """A guest that takes nothing off our hands is cut off, and every command is told."""
    session, _ = await opened(await start_sessions(max_running=200, max_running_in_all=200))
    first = started(session, shell="sleep")
    (await guests.wait_for("sleep")).guest.stop_reading()

    def send_much() -> None:
        for n in range(190):
            started(session, **an_argv("echo", "x" * 60 * KIB), exec_id=f"m{n}")

    with pytest.raises(SandboxLost, match="stopped reading"):
        send_much()
    status = await first.wait()
    assert (status.reason, "stopped reading" in status.hint) == (Reason.SANDBOX_LOST, True)
