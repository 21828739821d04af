"""Execs as objects of a session: started once, looked at by anyone, acted on while they run."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from sandboxd.daemon.composition import Daemon
from sandboxd.execs import exec as exec_module
from sandboxd.guest import frames
from sandboxd.guest.frames import MAX_INPUT, Kind, Target
from sandboxd_proto.v1 import exec_pb2, exec_service_pb2
from tests.fakes.guest import FakeGuest, FakeGuests
from tests.fakes.waiting import eventually
from tests.service.client import Api, events, refused, stdout_of

StartDaemon = Callable[..., Awaitable[Daemon]]
MIB = 1 << 20
NOT_FOUND = grpc.StatusCode.NOT_FOUND
INVALID = grpc.StatusCode.INVALID_ARGUMENT
WRONG_STATE = grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture
async def session_id(api: Api) -> str:
    return await api.open_id()


# --- start, attach, wait, list ---


async def test_command_started_often_runs_once(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """Racing and late repeats find the exec of the first call."""
    racing = await asyncio.gather(*(api.start(session_id, "sleep", "e1") for _ in range(20)))
    assert sorted(answer.already_started for answer in racing) == [False] + [True] * 19
    await guests.wait_for("sleep")
    await api.signal(session_id, "e1", 15)
    await api.wait(session_id, "e1")

    late = await api.start(session_id, "sleep", "e1")
    assert (late.already_started, late.exec.exit.signal) == (True, 15)
    assert len(guests.commands) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"shell": "echo other"},
        {"shell": "sleep", "cwd": "sub"},
        {"shell": "sleep", "env": {"A": "b"}},
        {"shell": "sleep", "timeout": 7.0},
        {"shell": "sleep", "stdin": True},
        {"shell": "sleep", "shell_name": "main"},
        {"shell": "sleep", "no_output_timeout": 9.0},
        {"shell": "sleep", "merge_stderr": True},
    ],
)
async def test_other_content_under_the_same_id_is_a_conflict(
    other: dict[str, Any], api: Api, session_id: str, guests: FakeGuests
) -> None:
    """What differs in anything that matters is not taken for a repeat."""
    await api.start(session_id, "sleep", "e1")
    with refused(grpc.StatusCode.ALREADY_EXISTS, "EXEC_CONFLICT"):
        await api.start(session_id, other.pop("shell"), "e1", **other)

    await guests.wait_for("sleep")
    assert len(guests.commands) == 1


async def test_started_command_runs_on_without_anyone(
    start_daemon: StartDaemon, guests: FakeGuests
) -> None:
    """Nobody has to stay connected: what it wrote and how it ended is there for the next caller."""
    daemon = await start_daemon()
    async with Api(daemon.config.api_socket) as first:
        session_id = await first.open_id()
        await first.start(session_id, f"echo begin; flood {2 * MIB}; exit 3", "e1")
    async with Api(daemon.config.api_socket) as second:
        ended = await second.wait(session_id, "e1")
        data, status = await stdout_of(second.attach(session_id, "e1"))

    assert (ended.exit.code, ended.stdout_bytes) == (3, 2 * MIB + 6)
    assert data == b"begin\n" + b"x" * 2 * MIB
    assert status == ended.exit


async def test_readers_begin_where_they_like(api: Api, session_id: str, guests: FakeGuests) -> None:
    """Two readers at once, each from its own offsets, and both hear the same end."""
    await api.start(session_id, "echo 0123456789; err abc; sleep", "e1")
    first = api.attach(session_id, "e1", stdout_offset=4)
    second = api.attach(session_id, "e1", stdout_offset=11, stderr_offset=2)
    for call in (first, second):
        await call.read()
    await api.signal(session_id, "e1", 2)
    late = api.attach(session_id, "e1", stdout_offset=9, stderr_offset=4)

    data, status = await stdout_of(late)
    assert (data, status.signal) == (b"9\n", 2)
    for call in (first, second):
        assert [event async for event in events(call)][-1].exited == status


async def test_attach_tells_where_each_piece_belongs(api: Api, session_id: str) -> None:
    """Pieces carry their true offsets, also for a reader that begins in the middle."""
    await api.start(session_id, "echo 0123456789; err abc", "e1")
    await api.wait(session_id, "e1")
    seen = [e async for e in events(api.attach(session_id, "e1", stdout_offset=4, stderr_offset=1))]

    assert [event.WhichOneof("event") for event in seen] == [
        "started",
        "stdout",
        "stderr",
        "exited",
    ]
    assert (seen[1].stdout.offset, seen[1].stdout.data) == (4, b"456789\n")
    assert (seen[2].stderr.offset, seen[2].stderr.data) == (1, b"bc\n")


async def test_leaving_reader_ends_nothing(
    api: Api, session_id: str, guests: FakeGuests, daemon: Daemon
) -> None:
    """Whoever attached may go; the command does not notice."""
    await api.start(session_id, "sleep", "e1")
    call = api.attach(session_id, "e1")
    await call.read()
    call.cancel()
    execution = daemon.sessions.find_exec(session_id, "e1")
    await eventually(lambda: not execution.output.is_followed)

    assert guests.command("sleep").kills == 0
    assert (await api.wait(session_id, "e1", 0.0)).state == exec_pb2.EXEC_STATE_RUNNING


async def test_repeat_keeps_a_command_whose_first_caller_left(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """A client that lost its stream and called again does not lose the command to its past."""
    first = api.exec(session_id, "echo hi; sleep", exec_id="e1")
    await first.read()
    again = api.exec(session_id, "echo hi; sleep", exec_id="e1")
    await again.read()
    first.cancel()
    assert (await api.run(session_id, "true")).exit.code == 0
    command = guests.command("echo hi; sleep")
    assert (command.kills, command.is_running) == (0, True)
    again.cancel()

    await eventually(lambda: command.kills == 1)


async def test_attach_beyond_the_end_is_refused(api: Api, session_id: str) -> None:
    """An offset that was never written is a mistake of the caller."""
    await api.start(session_id, "echo hi; sleep", "e1")
    await eventually_written(api, session_id, "e1", 3)
    with refused(INVALID, "INVALID_REQUEST"):
        await api.attach(session_id, "e1", stdout_offset=4).read()
    with refused(INVALID, "INVALID_REQUEST"):
        await api.attach(session_id, "e1", stderr_offset=1).read()


async def eventually_written(api: Api, session_id: str, exec_id: str, count: int) -> None:
    call = api.attach(session_id, exec_id)
    seen = 0
    while seen < count:
        response = await call.read()
        seen += sum(len(event.stdout.data) for event in response.events)
    call.cancel()


async def test_wait_has_a_time_limit(api: Api, session_id: str) -> None:
    """When the time is over the answer is the exec as it is, and the command runs on."""
    await api.start(session_id, "sleep", "e1", timeout=20.0)
    for seconds in (0.0, 0.02):
        running = await api.wait(session_id, "e1", seconds)
        assert running.state == exec_pb2.EXEC_STATE_RUNNING
        assert not running.HasField("exit")
    waiting = asyncio.ensure_future(api.wait(session_id, "e1"))
    await api.signal(session_id, "e1", 9)

    ended = await waiting
    assert (ended.state, ended.exit.signal) == (exec_pb2.EXEC_STATE_ENDED, 9)
    assert (ended.command, ended.timeout.seconds) == ("sleep", 20)


async def test_start_is_answered_when_the_command_runs(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """With the number of its process, which listings and streams have as well; a command that is
    waited for has none."""
    started = (await api.start(session_id, "sleep", "e1")).exec
    assert started.pid == guests.command("sleep").pid
    (listed,) = (await api.list_execs(session_id)).execs
    (begun, *_) = (await api.attach(session_id, "e1").read()).events
    assert (listed.pid, begun.started.pid) == (started.pid, started.pid)

    await api.run(session_id, "true", exec_id="e2")
    assert (await api.wait(session_id, "e2")).pid == 0


async def test_start_is_answered_by_a_guest_that_reports_none(
    api: Api, session_id: str, guests: FakeGuests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest that does not say that a command runs does not hold up its start for ever."""
    monkeypatch.setattr(exec_module, "START_SECONDS", 0.05)
    monkeypatch.setattr(FakeGuest, "report_start", lambda guest, command: None)
    started = (await api.start(session_id, "sleep", "e1")).exec

    assert (started.pid, started.state) == (0, exec_pb2.EXEC_STATE_RUNNING)


async def test_start_of_a_waiting_command_is_answered_at_once(api: Api, session_id: str) -> None:
    """It has no process yet."""
    await api.start(session_id, "sleep", "e1", shell_name="main")
    waiting = (await api.start(session_id, "true", "e2", shell_name="main")).exec

    assert (waiting.pid, waiting.state) == (0, exec_pb2.EXEC_STATE_QUEUED)


async def test_sandbox_of_an_earlier_release_runs_what_it_can(
    start_daemon: StartDaemon, guests: FakeGuests
) -> None:
    """What its guest does not know is refused with what to do; nothing waits for its reports."""
    hello = struct.pack("!HIB", frames.START_REPORTS_VERSION - 1, 1, 0)
    guests.version = frames.START_REPORTS_VERSION - 1
    guests.greet = lambda guest: guest.say(frames.encode(Kind.HELLO, payload=hello))
    daemon = await start_daemon()
    async with Api(daemon.config.api_socket) as api:
        session_id = await api.open_id()
        assert (await api.start(session_id, "sleep", "e1")).exec.pid == 0
        assert (await api.run(session_id, "echo fine")).stdout.data == b"fine\n"
        with refused(WRONG_STATE, "COMMAND_NOT_STARTABLE") as refusal:
            await api.run(session_id, "true", merge_stderr=True)
        assert "2>&1" in refusal.message
        with refused(INVALID, "REQUEST_TOO_LARGE") as refusal:
            await api.run(session_id, "x" * (MIB + MIB // 2))
        assert "reset the session" in refusal.message


async def test_command_that_never_began_says_so_for_good(api: Api, session_id: str) -> None:
    """A refused command is an ended exec whose hint says why; its start, a repeat of it and its
    stream are errors."""
    for _ in range(2):
        with refused(WRONG_STATE, "COMMAND_NOT_STARTABLE") as refusal:
            await api.start(session_id, "refuse there is no such directory", "e1")
        assert dict(refusal.info.metadata) == {"kind": "other"}
    ended = await api.wait(session_id, "e1")

    assert ended.exit.WhichOneof("outcome") is None
    assert "not started: there is no such directory" in ended.exit.hint
    with refused(WRONG_STATE, "COMMAND_NOT_STARTABLE"):
        await api.attach(session_id, "e1").read()


async def test_list_pages_newest_first(api: Api, session_id: str, guests: FakeGuests) -> None:
    """Pages follow each other without gap or repeat, also when execs end in between."""
    for n in range(7):
        await api.start(session_id, "sleep", f"e{n}")
    seen, token = [], ""
    while True:
        page = await api.list_execs(
            session_id, page_size=3, page_token=token, state=exec_pb2.EXEC_STATE_RUNNING
        )
        seen += [one.exec_id for one in page.execs]
        token = page.next_page_token
        if not token:
            break
        await api.signal(session_id, seen[-1], 9)
        await api.wait(session_id, seen[-1])

    assert seen == [f"e{n}" for n in reversed(range(7))]


async def test_list_tells_states(api: Api, session_id: str, guests: FakeGuests) -> None:
    """Running, queued and ended execs are told apart, and each can be asked for alone."""
    await api.start(session_id, "echo done", "ended")
    await api.wait(session_id, "ended")
    await api.start(session_id, "sleep", "running", shell_name="main")
    await api.start(session_id, "sleep", "queued", shell_name="main")

    async def found(state: exec_pb2.ExecState.ValueType) -> list[str]:
        return [one.exec_id for one in (await api.list_execs(session_id, state=state)).execs]

    assert await found(exec_pb2.EXEC_STATE_UNSPECIFIED) == ["queued", "running", "ended"]
    assert await found(exec_pb2.EXEC_STATE_QUEUED) == ["queued"]
    assert await found(exec_pb2.EXEC_STATE_RUNNING) == ["running"]
    assert await found(exec_pb2.EXEC_STATE_ENDED) == ["ended"]
    (queued,) = (await api.list_execs(session_id, state=exec_pb2.EXEC_STATE_QUEUED)).execs
    assert queued.shell_name == "main"


async def test_command_that_waits_for_its_shell_can_be_killed(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """It never runs, and the one behind it does; other signals need a process."""
    await api.start(session_id, "sleep", "first", shell_name="main")
    for name in ("second", "third"):
        await api.start(session_id, f"echo {name}", name, shell_name="main")
    with refused(WRONG_STATE, "EXEC_ENDED"):
        await api.signal(session_id, "second", 15)

    await api.signal(session_id, "second", 9)
    await api.signal(session_id, "first", 9)

    assert (await api.wait(session_id, "second")).exit.reason == exec_pb2.EXIT_REASON_CANCELLED
    assert (await api.wait(session_id, "third")).exit.code == 0
    assert [one.request["shell"] for one in guests.commands] == ["sleep", "echo third"]


@pytest.mark.parametrize(
    "fields", [{"page_token": "x"}, {"page_token": "e1"}, {"page_size": 1001}, {"state": 9}]
)
async def test_malformed_listing_is_refused(
    fields: dict[str, Any], api: Api, session_id: str
) -> None:
    """Foreign tokens, huge pages and unknown states are told."""
    await api.start(session_id, "sleep", "e1")
    with refused(INVALID, "INVALID_REQUEST"):
        await api.list_execs(session_id, **fields)


async def test_ended_execs_are_forgotten_oldest_first(
    api: Api, session_id: str, daemon: Daemon
) -> None:
    """What is kept is bounded in number, and a forgotten id is unknown."""
    most = daemon.sessions.exec_state.settings.max_ended
    for n in range(most + 2):
        await api.run(session_id, "echo hi", exec_id=f"e{n}")
    execs = daemon.sessions.get(session_id).execs
    await eventually(lambda: len(list(execs)) == most)

    for n in range(2):
        with refused(NOT_FOUND, "EXEC_NOT_FOUND"):
            await api.read(session_id, f"e{n}")
    assert (await api.read(session_id, "e2")).data == b"hi\n"


# --- signals, input, terminals ---


async def test_signal_reaches_the_command(api: Api, session_id: str, guests: FakeGuests) -> None:
    """Number and target arrive; what it ended by is not taken for our own kill."""
    await api.start(session_id, "stubborn", "deaf")
    await api.signal(session_id, "deaf", 1, target=exec_service_pb2.SIGNAL_TARGET_LEADER)
    await api.start(session_id, "sleep", "e1")
    await api.signal(session_id, "e1", 15)

    status = (await api.wait(session_id, "e1")).exit
    assert (status.reason, status.signal) == (exec_pb2.EXIT_REASON_SIGNALLED, 15)
    assert guests.command("sleep").signals == [(15, Target.GROUP)]
    assert guests.command("stubborn").signals == [(1, Target.LEADER)]


@pytest.mark.parametrize("number", [0, -1, 65])
async def test_impossible_signal_is_refused(number: int, api: Api, session_id: str) -> None:
    """Nothing is sent that the kernel does not know."""
    await api.start(session_id, "sleep", "e1")
    with refused(INVALID, "INVALID_REQUEST"):
        await api.signal(session_id, "e1", number)


async def test_input_is_written_once_in_order(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """Repeats and overlaps are skipped, and the command sees each byte once, then the end."""
    await api.start(session_id, "cat; echo over", "e1", stdin=True)
    assert await api.write(session_id, "e1", 0, b"hello ") == 6
    assert await api.write(session_id, "e1", 0, b"hello ") == 6
    assert await api.write(session_id, "e1", 3, b"lo world") == 11
    assert await api.write(session_id, "e1", 11, b"!\n", eof=True) == 13
    data, status = await stdout_of(api.attach(session_id, "e1"))

    assert data == b"hello world!\nover\n"
    assert status.code == 0
    assert await api.write(session_id, "e1", 11, b"!\n", eof=True) == 13


async def test_writers_that_append_do_not_lose_a_byte(api: Api, session_id: str) -> None:
    """Two of them need not know of each other; after the end of the input it is refused."""
    await api.start(session_id, "cat", "e1", stdin=True)
    assert await api.write(session_id, "e1", 0, b"one ", append=True) == 4
    assert await api.write(session_id, "e1", 0, b"two ", append=True) == 8
    assert await api.write(session_id, "e1", 8, b"three ") == 14
    with refused(INVALID, "INVALID_REQUEST"):
        await api.write(session_id, "e1", 14, b"x", append=True)
    assert await api.write(session_id, "e1", 0, b"four", append=True, eof=True) == 18
    with refused(INVALID, "INVALID_REQUEST"):
        await api.write(session_id, "e1", 0, b"five", append=True)

    assert (await stdout_of(api.attach(session_id, "e1")))[0] == b"one two three four"


async def test_gap_in_the_input_is_refused(api: Api, session_id: str) -> None:
    """Bytes that would leave a hole are not taken, and the answer says where to go on."""
    await api.start(session_id, "cat", "e1", stdin=True)
    await api.write(session_id, "e1", 0, b"abc")
    with refused(INVALID, "INVALID_REQUEST") as refusal:
        await api.write(session_id, "e1", 5, b"x")

    assert "at most 3" in refusal.message
    assert await api.write(session_id, "e1", 3, b"", eof=True) == 3


async def test_input_after_its_end_is_refused(api: Api, session_id: str) -> None:
    """What was closed stays closed."""
    await api.start(session_id, "sleep", "e1", stdin=True)
    await api.write(session_id, "e1", 0, b"abc", eof=True)
    with refused(INVALID, "INVALID_REQUEST"):
        await api.write(session_id, "e1", 3, b"more")


async def test_command_that_takes_no_input_slows_its_writer_down(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """A writer waits for room, its command's guest holds little, and a large input arrives."""
    await api.start(session_id, "sleep", "deaf", stdin=True)
    assert await api.write(session_id, "deaf", 0, b"x" * MAX_INPUT) == MAX_INPUT
    writing = asyncio.ensure_future(api.write(session_id, "deaf", MAX_INPUT, b"y"))
    assert (await api.run(session_id, "true")).exit.code == 0
    assert not writing.done()
    assert len(guests.command("sleep").input) == MAX_INPUT
    await api.signal(session_id, "deaf", 9)
    with refused(WRONG_STATE, "EXEC_ENDED"):
        await writing

    await api.start(session_id, "cat", "e1", stdin=True)
    large = bytes(range(256)) * 4096
    assert await api.write(session_id, "e1", 0, large, eof=True) == MIB
    assert (await stdout_of(api.attach(session_id, "e1")))[0] == large


async def test_writer_that_gives_up_can_go_on(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """A cancelled write leaves a count that the next one can trust."""
    await api.start(session_id, "sleep; cat", "e1", stdin=True)
    data = bytes(range(256)) * 1024
    writing = asyncio.ensure_future(api.write(session_id, "e1", 0, data))
    command = await guests.wait_for("sleep; cat")
    await eventually(lambda: len(command.input) == MAX_INPUT)
    writing.cancel()
    await asyncio.wait([writing])
    command.steps.pop(0)
    command.guest.advance(command)

    assert await api.write(session_id, "e1", 0, data, eof=True) == len(data)
    assert (await stdout_of(api.attach(session_id, "e1")))[0] == data


async def test_input_for_a_command_without_one_is_refused(api: Api, session_id: str) -> None:
    """It has to be asked for at the start."""
    await api.start(session_id, "sleep", "e1")
    with refused(INVALID, "INVALID_REQUEST"):
        await api.write(session_id, "e1", 0, b"x")
    with refused(INVALID, "INVALID_REQUEST"):
        await api.write(session_id, "e1", 0, b"x" * (MIB + 1))


async def test_terminal_can_be_resized(api: Api, session_id: str, guests: FakeGuests) -> None:
    """The size at the start and each later one reach the guest; without a terminal it is told."""
    size = exec_pb2.Terminal(rows=50)
    started = await api.start(session_id, "sleep", "e1", terminal=size)
    assert (started.exec.has_terminal, started.exec.has_stdin) == (True, True)
    await api.resize(session_id, "e1", 30, 100)
    await api.start(session_id, "stubborn", "e2")
    with refused(INVALID, "INVALID_REQUEST"):
        await api.resize(session_id, "e2", 30, 100)
    with refused(INVALID, "INVALID_REQUEST"):
        await api.resize(session_id, "e1", 1001, 80)

    command = guests.command("sleep")
    assert command.request["terminal"] == {"rows": 50, "columns": 80}
    await eventually(lambda: command.sizes == [(30, 100)])


async def test_size_of_a_terminal_is_not_part_of_its_content(api: Api, session_id: str) -> None:
    """A phone and a desktop share the terminal that the first of them started."""
    await api.start(session_id, "sleep", "e1", terminal=exec_pb2.Terminal(rows=50))
    again = await api.start(session_id, "sleep", "e1", terminal=exec_pb2.Terminal(columns=40))

    assert again.already_started
    with refused(grpc.StatusCode.ALREADY_EXISTS, "EXEC_CONFLICT"):
        await api.start(session_id, "sleep", "e1")


# --- kept output ---


async def test_kept_output_is_read_by_position(api: Api, session_id: str) -> None:
    """Any part of either stream, while it runs and afterwards; beyond the end there is nothing."""
    await api.start(session_id, "echo 0123456789; err abc; sleep", "e1")
    await eventually_written(api, session_id, "e1", 11)
    part = await api.read(session_id, "e1", offset=4, max_bytes=3)
    assert (part.offset, part.data, part.total_bytes, part.ended) == (4, b"456", 11, False)
    stderr = await api.read(session_id, "e1", stream=exec_pb2.OUTPUT_STREAM_STDERR)
    assert stderr.data == b"abc\n"
    await api.signal(session_id, "e1", 9)
    await api.wait(session_id, "e1")

    beyond = await api.read(session_id, "e1", offset=999)
    assert (beyond.data, beyond.total_bytes, beyond.ended) == (b"", 11, True)
    for fields in ({"max_bytes": MIB + 1}, {"stream": 3}):
        with refused(INVALID, "INVALID_REQUEST"):
            await api.read(session_id, "e1", **fields)


async def test_kept_output_is_searched(api: Api, session_id: str) -> None:
    """Lines are found in both streams or in one, with what is around them."""
    await api.run(session_id, "echo one; echo two; echo three; err twofold", exec_id="e1")
    found = await api.search(session_id, "e1", "^t[wh]", context_lines=1)

    assert [one.line for one in found.matches] == [b"two", b"three", b"twofold"]
    assert (found.matches[0].line_number, found.matches[0].offset) == (2, 4)
    assert (list(found.matches[0].before), list(found.matches[0].after)) == ([b"one"], [b"three"])
    assert found.complete
    stderr = exec_pb2.OUTPUT_STREAM_STDERR
    only = await api.search(session_id, "e1", "two", stream=stderr)
    assert [(one.stream, one.line) for one in only.matches] == [(stderr, b"twofold")]
    assert len((await api.search(session_id, "e1", "t", max_matches=1)).matches) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"pattern": ""},
        {"pattern": "("},
        {"pattern": "x" * 1001},
        {"pattern": "x", "max_matches": 1001},
        {"pattern": "x", "context_lines": 11},
        {"pattern": "x", "stream": 7},
    ],
)
async def test_malformed_search_is_refused(
    fields: dict[str, Any], api: Api, session_id: str
) -> None:
    """What cannot be searched for is told before anything is read."""
    await api.run(session_id, "echo x", exec_id="e1")
    with refused(INVALID, "INVALID_REQUEST"):
        await api.search(session_id, "e1", **fields)


async def test_kept_output_is_previewed(api: Api, session_id: str) -> None:
    """Small output comes whole; of large output both ends, and the rest is counted."""
    await api.run(session_id, "echo small; flood 100000; err oops", exec_id="e1")
    whole = (await api.preview(session_id, "e1")).stderr
    assert (whole.head, whole.tail, whole.omitted_bytes) == (b"oops\n", b"", 0)
    cut = (await api.preview(session_id, "e1", max_bytes=1000)).stdout

    assert cut.head.startswith(b"small\n")
    assert cut.total_bytes == 100_006
    assert len(cut.head) + len(cut.tail) + cut.omitted_bytes == cut.total_bytes
    with refused(INVALID, "INVALID_REQUEST"):
        await api.preview(session_id, "e1", max_bytes=MIB + 1)


# --- errors that all of them share ---

USES: dict[str, Callable[[Api, str, str], Awaitable[Any]]] = {
    "attach": lambda api, session, name: api.attach(session, name).read(),
    "wait": lambda api, session, name: api.wait(session, name),
    "signal": lambda api, session, name: api.signal(session, name, 9),
    "write": lambda api, session, name: api.write(session, name, 0, b"x"),
    "resize": lambda api, session, name: api.resize(session, name, 1, 1),
    "read": lambda api, session, name: api.read(session, name),
    "search": lambda api, session, name: api.search(session, name, "x"),
    "preview": lambda api, session, name: api.preview(session, name),
}


@pytest.mark.parametrize("use", USES)
async def test_unknown_exec_is_told(use: str, api: Api, session_id: str) -> None:
    """Every use names what is missing: the exec, its id, or the session."""
    with refused(NOT_FOUND, "EXEC_NOT_FOUND") as refusal:
        await USES[use](api, session_id, "nobody")
    assert refusal.info.metadata["execId"] == "nobody"
    with refused(INVALID, "INVALID_REQUEST"):
        await USES[use](api, session_id, "")
    with refused(NOT_FOUND, "SESSION_NOT_FOUND"):
        await USES[use](api, "ses_nobody", "e1")


@pytest.mark.parametrize("use", ["signal", "write", "resize"])
async def test_ended_exec_cannot_be_acted_on(use: str, api: Api, session_id: str) -> None:
    """What comes too late is told as that."""
    await api.start(session_id, "true", "e1", terminal=exec_pb2.Terminal())
    await api.wait(session_id, "e1")
    with refused(WRONG_STATE, "EXEC_ENDED"):
        await USES[use](api, session_id, "e1")


@pytest.mark.parametrize("use", ["attach", "wait", "read", "search", "preview"])
async def test_execs_of_a_lost_sandbox_can_still_be_read(
    use: str, api: Api, session_id: str, guests: FakeGuests
) -> None:
    """Output and end outlive the sandbox, until the session is opened again."""
    await api.start(session_id, "echo before; sleep", "e1")
    await eventually_written(api, session_id, "e1", 7)
    guests.command("echo before; sleep").guest.drop()
    ended = await api.wait(session_id, "e1")
    assert ended.exit.reason == exec_pb2.EXIT_REASON_SANDBOX_LOST
    await USES[use](api, session_id, "e1")
    with refused(grpc.StatusCode.ABORTED, "SANDBOX_LOST"):
        await USES[use](api, session_id, "nobody")

    await api.open()
    with refused(NOT_FOUND, "EXEC_NOT_FOUND"):
        await USES[use](api, session_id, "e1")


# --- named shells, silence, limits, environment ---


async def test_commands_of_a_named_shell_run_one_after_the_other(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """In the order they came, whatever became of those before; other shells do not wait."""
    for n in range(3):
        await api.start(session_id, f"echo {n}; sleep", f"e{n}", shell_name="main")
    await api.start(session_id, "echo other; sleep", "other", shell_name="second")
    await guests.wait_for("echo other; sleep")
    assert len(guests.commands) == 2
    with refused(WRONG_STATE, "EXEC_ENDED"):
        await api.signal(session_id, "e1", 15)
    await api.signal(session_id, "e0", 9)
    await guests.wait_for("echo 1; sleep")
    assert len(guests.commands) == 3
    await api.signal(session_id, "e1", 9)

    await guests.wait_for("echo 2; sleep")
    assert guests.commands[-1].request["shell_state"] == {"name": "main"}


async def test_refused_command_does_not_block_its_shell(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """The next one gets its turn."""
    await api.start(session_id, "sleep", "e0", shell_name="main")
    await api.start(session_id, "refuse no", "e1", shell_name="main")
    await api.start(session_id, "echo mine", "e2", shell_name="main")
    await api.signal(session_id, "e0", 9)

    assert (await stdout_of(api.attach(session_id, "e2")))[0] == b"mine\n"


@pytest.mark.parametrize("position", [0, 1])
async def test_session_closed_ends_what_runs_and_what_waits(
    position: int, api: Api, session_id: str, guests: FakeGuests
) -> None:
    """Both have an end that says so, and none of the waiting ones begins."""
    for n in range(2):
        await api.start(session_id, f"echo {n}; sleep", f"e{n}", shell_name="main")
    call = api.attach(session_id, f"e{position}")
    await call.read()
    await api.close(session_id)
    _, status = await stdout_of(call)

    assert status.reason == exec_pb2.EXIT_REASON_SESSION_CLOSED
    assert "None" not in status.hint
    assert len(guests.commands) == 1


async def test_caller_of_a_waiting_command_may_leave(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """It is taken out of the line, and those behind it move up."""
    await api.start(session_id, "sleep", "e0", shell_name="main")
    call = api.exec(session_id, "echo gone", exec_id="e1", shell_name="main")
    await call.read()
    await api.start(session_id, "echo next", "e2", shell_name="main")
    call.cancel()
    assert (await api.wait(session_id, "e1")).exit.reason == exec_pb2.EXIT_REASON_CANCELLED
    await api.signal(session_id, "e0", 9)

    await api.wait(session_id, "e2")
    assert [command.line for command in guests.commands] == ["sleep", "echo next"]


async def test_waiting_command_that_is_too_large_is_refused_at_once(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """What no frame can hold does not wait for its turn, and costs nobody their sandbox."""
    await api.start(session_id, "sleep", "e0", shell_name="main")
    env = {f"V{n}": "\x01" * 100_000 for n in range(16)}
    with refused(INVALID, "REQUEST_TOO_LARGE"):
        await api.start(session_id, "true", "e1", shell_name="main", env=env)
    await api.signal(session_id, "e0", 9)

    assert (await api.wait(session_id, "e0")).exit.signal == 9
    assert (await api.run(session_id, "echo fine", shell_name="main")).stdout.data == b"fine\n"


async def test_silent_command_is_ended(api: Api, session_id: str, guests: FakeGuests) -> None:
    """One that writes nothing for its no-output timeout is ended, and its output is kept."""
    await api.start(session_id, "echo begin; sleep", "e1", no_output_timeout=0.05)
    data, status = await stdout_of(api.attach(session_id, "e1"))

    assert (data, status.reason) == (b"begin\n", exec_pb2.EXIT_REASON_NO_OUTPUT_TIMEOUT)
    assert "wrote nothing for 0.05 s" in status.hint


async def test_output_puts_off_the_end_of_a_silent_command(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """The time counts from the last output, not from the start."""
    await api.start(session_id, "cat", "e1", stdin=True, no_output_timeout=0.3)
    for n in range(30):
        await api.write(session_id, "e1", n, b"x")
        await asyncio.sleep(0.02)

    assert (await api.wait(session_id, "e1", 0.0)).state == exec_pb2.EXEC_STATE_RUNNING
    ended = await api.wait(session_id, "e1")
    assert ended.exit.reason == exec_pb2.EXIT_REASON_NO_OUTPUT_TIMEOUT


async def test_commands_of_all_sessions_are_limited(
    start_daemon: StartDaemon, guests: FakeGuests
) -> None:
    """The daemon's own limit is told, and an end anywhere makes room."""
    daemon = await start_daemon(max_running_execs_in_all=3)
    async with Api(daemon.config.api_socket) as api:
        one, two = [await api.open_id(thread=name) for name in ("t1", "t2")]
        for n, session_id in enumerate((one, two, two)):
            await api.start(session_id, "sleep", f"e{n}")
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "EXEC_LIMIT_REACHED"):
            await api.start(one, "sleep", "more")
        assert (await api.start(one, "sleep", "e0")).already_started
        await api.signal(two, "e1", 9)
        await api.wait(two, "e1")
        await api.start(one, "sleep", "more")
        await api.close(two)
        await api.close(one)

    assert daemon.sessions.exec_state.quotas.running_execs == 0


async def test_environment_of_the_session_is_under_that_of_the_command(
    api: Api, guests: FakeGuests
) -> None:
    """A command's own variables win, and a later change does not make a repeat a conflict."""
    opened = await api.open(env={"A": "session", "B": "session"})
    session_id = opened.session.session_id
    await api.start(session_id, "sleep", "e1", env={"B": "own"})
    await api.open(env={"A": "changed"})

    assert (await api.start(session_id, "sleep", "e1", env={"B": "own"})).already_started
    await api.run(session_id, "true")
    assert guests.command("sleep").request["env"] == {"A": "session", "B": "own"}
    assert guests.command("true").request["env"] == {"A": "changed", "B": "session"}
