"""Exec: what a caller sees of a command, from its start to its one end."""

from __future__ import annotations

import asyncio
import itertools

import grpc
import pytest

from sandboxd.daemon.composition import Daemon
from sandboxd.guest.frames import FRAME_COST, MAX_CHUNK, WINDOW
from sandboxd_proto.v1 import exec_pb2, exec_service_pb2, session_pb2, session_service_pb2
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.service.client import Api, events, refused

MIB = 1 << 20
GRPC_BUFFERS = 8 * MIB
"""Room for what client and server of a stream hold by themselves."""


async def test_short_command_answers_in_one_message(api: Api) -> None:
    """Start, output and exit of a short command come as one batch."""
    call = api.exec(await api.open_id(), "echo hi; exit 3", exec_id="mine")
    (response,) = [response async for response in call]

    started, stdout, exited = response.events
    assert started.started.exec_id == "mine"
    assert (stdout.stdout.offset, stdout.stdout.data) == (0, b"hi\n")
    assert (exited.exited.code, exited.exited.reason) == (3, exec_pb2.EXIT_REASON_EXITED)
    assert (exited.exited.stdout_bytes, exited.exited.stderr_bytes) == (3, 0)
    assert exited.exited.hint == ""


async def test_stream_is_in_order_and_has_one_end(api: Api) -> None:
    """`started` first, offsets without a gap, exactly one `exited`, and that is the last."""
    line = f"echo a; err b; flood {3 * MIB}; err c; signal 6"
    seen = [event async for event in events(api.exec(await api.open_id(), line))]
    kinds = [event.WhichOneof("event") for event in seen]

    assert (kinds[0], kinds[-1]) == ("started", "exited")
    assert (kinds.count("started"), kinds.count("exited")) == (1, 1)
    for stream, size in (("stdout", 3 * MIB + 2), ("stderr", 4)):
        pieces = [getattr(event, stream) for event in seen if event.WhichOneof("event") == stream]
        ends = itertools.accumulate(len(piece.data) for piece in pieces)
        assert [piece.offset for piece in pieces] == [0, *ends][:-1]
        assert sum(len(piece.data) for piece in pieces) == size
        assert getattr(seen[-1].exited, f"{stream}_bytes") == size
    assert seen[-1].exited.signal == 6
    assert seen[-1].exited.reason == exec_pb2.EXIT_REASON_SIGNALLED


async def test_started_does_not_wait_for_output(api: Api, guests: FakeGuests) -> None:
    """Whoever starts a quiet command hears at once that it runs."""
    call = api.exec(await api.open_id(), "sleep")
    response = await call.read()

    assert [event.WhichOneof("event") for event in response.events] == ["started"]
    assert response.events[0].started.exec_id.startswith("exe_")
    call.cancel()


async def test_command_that_cannot_start_is_an_error(api: Api) -> None:
    """No event is sent for a command that never ran."""
    call = api.exec(await api.open_id(), "refuse there is no directory 'x'")
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "COMMAND_NOT_STARTABLE") as refusal:
        await call.read()

    assert "no directory 'x'" in refusal.message


async def test_slow_reader_holds_the_command_back(api: Api, guests: FakeGuests) -> None:
    """A reader that stops makes the command wait, not the daemon grow; the deadline still holds."""
    line = f"flood {64 * MIB}"
    call = api.exec(await api.open_id(), line, timeout=0.5)
    await call.read()
    command = await guests.wait_for(line)
    await eventually(lambda: not command.is_running)

    assert command.kills == 1
    sent = sum(command.sent.values())
    assert sent < WINDOW + GRPC_BUFFERS
    assert command.unread_bytes <= WINDOW + MAX_CHUNK + FRAME_COST
    last = [event async for event in events(call)][-1]
    assert last.exited.reason == exec_pb2.EXIT_REASON_TIMED_OUT
    assert last.exited.stdout_bytes == sent


async def test_slow_reader_does_not_slow_another_command(api: Api, guests: FakeGuests) -> None:
    """Commands of one session do not wait for each other's readers."""
    session_id = await api.open_id()
    slow = api.exec(session_id, f"flood {64 * MIB}")
    await slow.read()
    command = await guests.wait_for(f"flood {64 * MIB}")
    await eventually(lambda: command.is_held_back)

    assert (await api.run(session_id, "echo quick")).stdout.data == b"quick\n"
    slow.cancel()


async def test_time_out_keeps_partial_output(api: Api, guests: FakeGuests) -> None:
    """A command that takes too long is ended, and what it had said is delivered."""
    call = api.exec(await api.open_id(), "echo partial; sleep", timeout=0.05)
    seen = [event async for event in events(call)]

    assert b"".join(event.stdout.data for event in seen) == b"partial\n"
    exited = seen[-1].exited
    assert (exited.reason, exited.signal) == (exec_pb2.EXIT_REASON_TIMED_OUT, 9)
    assert "longer timeout" in exited.hint
    assert 0.05 <= exited.duration.seconds + exited.duration.nanos / 1e9 < 2.0
    assert guests.command("echo partial; sleep").kills == 1


async def test_guest_that_ignores_a_kill_is_killed_by_the_host(
    api: Api, guests: FakeGuests, engine: FakeEngine
) -> None:
    """A time-out holds against a guest that does not help; the sandbox pays for it."""
    session_id = await api.open_id()
    seen = [event async for event in events(api.exec(session_id, "stubborn", timeout=0.05))]
    process = guests.command("stubborn").guest.process

    assert seen[-1].exited.reason == exec_pb2.EXIT_REASON_TIMED_OUT
    assert seen[-1].exited.WhichOneof("outcome") is None
    assert process is not None
    assert process.kills >= 1
    session = await api.get(session_id)
    assert session.state == session_pb2.SESSION_STATE_LOST
    assert "did not end a command in time" in session.end_reason


@pytest.mark.parametrize("way", ["container", "guest", "liar"])
async def test_lost_sandbox_ends_the_command_and_can_be_reopened(
    way: str, api: Api, guests: FakeGuests, engine: FakeEngine
) -> None:
    """A stream of a lost sandbox still has its end, and the session comes back under its id."""
    session_id = await api.open_id()
    call = api.exec(session_id, "echo before; sleep")
    await call.read()
    guest = (await guests.wait_for("echo before; sleep")).guest
    if way == "container":
        guests.lose(next(id_ for id_, one in guests.by_container.items() if one is guest))
    elif way == "guest":
        guest.drop()
    else:
        guest.say(b"\xff" * 64)
    seen = [event async for event in events(call)]

    assert seen[-1].exited.reason == exec_pb2.EXIT_REASON_SANDBOX_LOST
    assert "open the session again" in seen[-1].exited.hint
    assert (await api.get(session_id)).state == session_pb2.SESSION_STATE_LOST
    with refused(grpc.StatusCode.ABORTED, "SANDBOX_LOST") as refusal:
        await api.run(session_id, "true")
    assert "open the session again" in refusal.message
    again = await api.open()
    assert again.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
    assert (again.session.session_id, again.session.incarnation) == (session_id, 2)
    assert (await api.run(session_id, "echo new")).stdout.data == b"new\n"


async def test_disconnect_kills_by_default(api: Api, guests: FakeGuests, daemon: Daemon) -> None:
    """A command whose caller goes away is ended."""
    call = api.exec(await api.open_id(), "sleep")
    await call.read()
    call.cancel()
    command = await guests.wait_for("sleep")
    await eventually(lambda: command.kills == 1)

    await eventually(lambda: daemon.sessions.running_exec_count == 0)


async def test_disconnect_may_let_the_command_run_on(
    api: Api, guests: FakeGuests, daemon: Daemon
) -> None:
    """With KEEP_RUNNING it goes on without a reader, to its own end, and is not held back."""
    line = f"echo first; flood {8 * MIB}; sleep"
    call = api.exec(
        await api.open_id(), line, on_disconnect=exec_service_pb2.ON_DISCONNECT_KEEP_RUNNING
    )
    await call.read()
    call.cancel()
    command = await guests.wait_for(line)
    await eventually(lambda: command.flood_left == 0)

    assert (command.kills, command.is_running) == (0, True)
    assert daemon.sessions.running_exec_count == 1


async def test_many_commands_share_one_session(api: Api) -> None:
    """Streams side by side do not mix, and each has its own end."""
    session_id = await api.open_id()

    async def output(number: int) -> bytes:
        call = api.exec(session_id, f"echo {number}; flood 300000; exit {number}")
        seen = [event async for event in events(call)]
        assert seen[-1].exited.code == number
        return b"".join(event.stdout.data for event in seen)

    outputs = await asyncio.gather(*(output(number) for number in range(20)))
    assert outputs == [f"{number}\n".encode() + b"x" * 300_000 for number in range(20)]
