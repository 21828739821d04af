"""What a link does for a guest that keeps the rules, and when one stops doing so."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from unittest.mock import AsyncMock

import pytest

from sandboxd.guest import frames
from sandboxd.guest.frames import (
    Ack,
    Cause,
    Ending,
    ExecState,
    Exited,
    Kind,
    Remark,
    StartFailure,
    Stream,
)
from sandboxd.link import LinkClosed, connection
from tests.fakes.output_frame import encode_output
from tests.unit.link_rig import Heard, Rig, Timers

BYE = Exited(Ending.CODE, Cause.ITSELF, 0, 0, 0)


async def test_half_a_frame_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that has begun must end in time, and further single bytes win no time."""
    timers = Timers(monkeypatch)
    rig = Rig()
    _, heard = rig.start()
    frame = encode_output(1, Stream.STDOUT, 0, b"x" * 100)
    for byte in frame[:-1]:
        rig.receive(bytes([byte]))

    assert timers.pending == len(timers.set) == 1
    timers.expire(0)
    assert heard.ends == ["lost: the guest sent half a frame and no more"]


async def test_steady_flow_is_not_taken_for_half_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that keep coming are in time, though no piece of the stream ends with one."""
    timers = Timers(monkeypatch)
    rig = Rig()
    number, heard = rig.start()
    data = b"".join(encode_output(number, Stream.STDOUT, n, b"x") for n in range(20))
    size = len(data) // 20
    rig.receive(data[:5])
    for n in range(19):
        rig.receive(data[5 + size * n : 5 + size * (n + 1)])
    timers.expire(0)

    assert heard.ends == []
    assert (len(heard.output), timers.pending) == (19, 1)


async def test_silence_between_frames_is_no_offence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a frame ends its deadline."""
    timers = Timers(monkeypatch)
    rig = Rig()
    output = encode_output(rig.start()[0], Stream.STDOUT, 0, b"x")
    rig.receive(output[:4])
    rig.receive(output[4:])

    assert (timers.pending, rig.link.is_open) == (0, True)


async def test_greeting_gives_the_settings_and_waits_for_ready() -> None:
    """A guest learns its workspace after its hello, and commands wait for its ready."""
    rig = Rig(is_greeted=False)
    prepared = []

    async def prepare() -> dict[str, object]:
        prepared.append(True)
        return {"workspace": "/w"}

    greeting = asyncio.ensure_future(rig.link.greet(prepare))
    await asyncio.sleep(0)
    assert prepared == []
    rig.receive(frames.encode_hello(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    (welcome,) = rig.wire.frames()
    assert json.loads(bytes(welcome.payload)) == {"workspace": "/w", "takes_remarks": True}
    assert not greeting.done()
    rig.receive(frames.encode(Kind.READY))
    await greeting


async def test_window_counts_bytes_and_frames_and_grows_by_what_is_acknowledged() -> None:
    """A guest that stays within its window may send for ever."""
    rig = Rig()
    number, heard = rig.start()
    chunk = b"x" * frames.MAX_CHUNK
    for n in range(64):
        rig.receive(encode_output(number, Stream.STDOUT, n * len(chunk), chunk))
        rig.link.acknowledge(
            number, Ack(Stream.STDOUT, (n + 1) * len(chunk), len(chunk) + frames.FRAME_COST)
        )

    assert rig.link.is_open
    assert len(heard.output) == 64 * len(chunk)
    assert len([f for f in rig.wire.frames() if f.kind == Kind.ACK]) == 64


async def test_output_that_came_together_is_passed_on_together() -> None:
    """Neighbouring frames of a stream are one piece; what was said between them stays between, and
    what came before a broken rule still counts."""
    rig = Rig()
    one, heard = rig.start()
    other, bystander = rig.start()
    said = [
        encode_output(one, Stream.STDOUT, 0, b"ab"),
        encode_output(one, Stream.STDOUT, 2, b"c"),
        encode_output(one, Stream.STDERR, 0, b"e"),
        encode_output(other, Stream.STDOUT, 0, b"x"),
        encode_output(one, Stream.STDOUT, 3, b"d"),
        frames.encode_exited(one, BYE._replace(stdout_bytes=4, stderr_bytes=1)),
        encode_output(other, Stream.STDOUT, 1, b"y"),
        encode_output(other, Stream.STDOUT, 9, b"a lie"),
    ]
    rig.receive(b"".join(said))

    assert heard.pieces == [
        (Stream.STDOUT, 0, b"abc", 2),
        (Stream.STDERR, 0, b"e", 1),
        (Stream.STDOUT, 3, b"d", 1),
    ]
    assert heard.ends == [BYE._replace(stdout_bytes=4, stderr_bytes=1)]
    assert bystander.pieces == [(Stream.STDOUT, 0, b"x", 1), (Stream.STDOUT, 1, b"y", 1)]
    assert rig.closed == ["the guest broke the protocol: output out of order"]


async def test_nobody_hears_output_after_the_loss() -> None:
    """When passing a piece on ends the link, what was gathered behind it is not passed on."""
    rig = Rig()
    first, heard = rig.start()
    second, other = rig.start()
    heard.on_output = lambda *_: rig.link.close("for a reason")  # type: ignore[method-assign]
    rig.receive(
        encode_output(first, Stream.STDOUT, 0, b"a") + encode_output(second, Stream.STDOUT, 0, b"b")
    )

    assert other.ends == ["lost: for a reason"]
    assert other.pieces == []


async def test_pieces_stay_as_they_are_when_more_is_read() -> None:
    """Nothing that was passed on changes with the next read, which goes to the same buffer."""
    rig = Rig()
    number, heard = rig.start()
    sizes = [1, 100, frames.MAX_CHUNK, 5000]
    data = [bytes([65 + n]) * size for n, size in enumerate(sizes)]
    offset = 0
    for piece in data:
        rig.receive(encode_output(number, Stream.STDOUT, offset, piece))
        offset += len(piece)

    assert [piece for _, _, piece, _ in heard.pieces] == data


async def test_event_loops_do_not_share_a_buffer() -> None:
    """Two daemons in one process, each in a thread of its own, read at the same time."""
    link = Rig().link
    elsewhere = await asyncio.to_thread(link.get_buffer, -1)

    assert link.get_buffer(-1) is link.get_buffer(-1)
    assert elsewhere is not link.get_buffer(-1)


async def test_channels_have_windows_of_their_own() -> None:
    """A noisy exec does not use up what another may send."""
    rig = Rig()
    noisy, _ = rig.start()
    quiet, heard = rig.start()
    chunk = b"x" * frames.MAX_CHUNK
    for n in range(frames.WINDOW // frames.MAX_CHUNK):
        rig.receive(encode_output(noisy, Stream.STDOUT, n * len(chunk), chunk))
    rig.receive(encode_output(quiet, Stream.STDERR, 0, b"still here"))

    assert (rig.link.is_open, heard.output) == (True, b"still here")


async def test_guest_that_does_not_read_is_cut_off() -> None:
    """What is not taken off our hands is bounded."""
    rig = Rig()
    _, heard = rig.start()
    rig.wire.unsent_bytes = connection.MAX_UNSENT_BYTES + 1

    with pytest.raises(LinkClosed, match="stopped reading"):
        rig.start()
    assert heard.ends == ["lost: the guest stopped reading"]


async def test_guest_that_makes_no_room_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for room gets it when the guest has read, or learns that it does not read."""
    monkeypatch.setattr(connection, "READ_SECONDS", 0.01)
    rig = Rig()
    _, heard = rig.start()
    await rig.link.wait_for_room()
    rig.link.pause_writing()
    waiting = asyncio.create_task(rig.link.wait_for_room())
    await asyncio.sleep(0)
    rig.link.resume_writing()
    await waiting

    rig.link.pause_writing()
    with pytest.raises(LinkClosed, match="stopped reading"):
        await rig.link.wait_for_room()
    assert heard.ends == ["lost: the guest stopped reading"]


async def test_acknowledging_to_a_guest_that_does_not_read_is_no_error() -> None:
    """It cuts such a guest off too, but whoever acknowledges has nothing to handle."""
    rig = Rig()
    number, heard = rig.start()
    rig.wire.unsent_bytes = connection.MAX_UNSENT_BYTES + 1

    rig.link.acknowledge(number, Ack(Stream.STDOUT, 0, 1))
    assert heard.ends == ["lost: the guest stopped reading"]


async def test_start_on_a_closed_link_leaves_nothing_behind() -> None:
    """A command that was not handed over is refused to its caller and told nothing else."""
    rig = Rig()
    rig.link.close("over")
    heard = Heard()

    with pytest.raises(LinkClosed, match="over"):
        rig.link.start(b"{}", heard)
    rig.link.close("again")
    assert (heard.ends, rig.closed) == ([], ["over"])


async def test_ping_is_answered_or_told() -> None:
    """A ping returns at its pong, and is told when the guest is gone."""
    rig = Rig()
    first = asyncio.ensure_future(rig.link.ping())
    second = asyncio.ensure_future(rig.link.ping())
    await asyncio.sleep(0)
    asked = rig.wire.frames()
    rig.receive(frames.encode(Kind.PONG, payload=bytes(asked[0].payload)))
    await first
    rig.link.connection_lost(None)

    with pytest.raises(LinkClosed, match="went away"):
        await second


async def test_pong_twice_cuts_the_guest_off() -> None:
    """One ping has one answer."""
    rig = Rig()
    ping = asyncio.ensure_future(rig.link.ping())
    await asyncio.sleep(0)
    (asked,) = rig.wire.frames()
    rig.receive(2 * frames.encode(Kind.PONG, payload=bytes(asked.payload)))

    await ping
    assert "was not sent" in (rig.link.closed_because or "")


async def test_refusal_cannot_break_out_of_a_line() -> None:
    """Text of a guest reaches logs and callers without control characters."""
    rig = Rig()
    number, heard = rig.start()
    text = "no\n[error] \x1b[31mfake\x00 %s\u202e".encode() + b"\xff"
    rig.receive(frames.encode(Kind.REFUSED, number, b"\0" + text))

    (told,) = heard.ends
    assert str(told).isprintable()
    assert rig.link.is_open


async def test_start_and_kind_of_a_refusal_reach_the_channel() -> None:
    """A command that runs is a process of the sandbox; one that does not has a kind of failure."""
    rig = Rig()
    number, heard = rig.start()
    refused, told = rig.start()
    rig.receive(frames.encode_started(number, 77))
    rig.receive(frames.encode_refused(refused, StartFailure.NO_DIRECTORY, "no"))

    assert (heard.pids, told.pids, told.ends) == ([77], [], ["refused: NO_DIRECTORY: no"])
    assert rig.link.is_open


async def test_earlier_guest_gets_what_it_understands() -> None:
    """One of an earlier release reports no starts, refuses in words and takes smaller requests."""
    rig = Rig(is_greeted=False)
    hello = struct.pack("!HIB", frames.START_REPORTS_VERSION - 1, 1, 0)
    rig.receive(frames.encode(Kind.HELLO, payload=hello) + frames.encode(Kind.READY))
    number, heard = rig.start()
    rig.receive(frames.encode(Kind.REFUSED, number, b"no process could be started (x)"))

    assert heard.ends == ["refused: NO_PROCESS: no process could be started (x)"]
    assert not rig.link.reports_starts
    with pytest.raises(ValueError, match="over the frame limit"):
        rig.link.start(b" " * (rig.link.max_request_bytes + 1), Heard())
    assert rig.link.max_request_bytes < Rig().link.max_request_bytes


async def test_guest_may_end_a_command_that_is_overdue() -> None:
    """By itself, and others along with it, as if it had been asked to."""
    rig = Rig()
    overdue, swept = Heard(), Heard()
    rig.link.start(b"{}", swept, 60.0)
    rig.link.start(b"{}", overdue, 0.0)
    ends = [Exited(Ending.SIGNAL, cause, 9, 0, 0) for cause in (Cause.SWEPT, Cause.DEADLINE)]
    for number, end in enumerate(ends, 1):
        rig.receive(frames.encode_exited(number, end))

    assert [*swept.ends, *overdue.ends] == ends
    assert rig.link.is_open


async def test_remarks_come_before_the_end() -> None:
    """They are passed on as they are."""
    rig = Rig()
    number, heard = rig.start()
    rig.receive(frames.encode_remarks(number, Remark.COMPANY) + frames.encode_exited(number, BYE))

    assert (heard.remarks, heard.ends) == (Remark.COMPANY, [BYE])


async def test_nothing_is_heard_after_the_end() -> None:
    """Frames behind a broken rule, in the same piece or later, are not handled."""
    rig = Rig()
    number, heard = rig.start()
    bad = frames.encode(Kind.READY)
    rig.receive(bad + encode_output(number, Stream.STDOUT, 0, b"late"))
    rig.receive(frames.encode_exited(number, BYE))

    assert heard.output == b""
    assert len(heard.ends) == 1


RUNS = ExecState(None, 10, 0, b"label")


async def greeted_again(*said: bytes) -> tuple[Rig, asyncio.Task[Mapping[int, ExecState]]]:
    """A link to a guest that had one before and says this of its execs."""
    rig = Rig(is_greeted=False)
    greeting = asyncio.create_task(rig.link.greet(AsyncMock(return_value={})))
    rig.receive(frames.encode_hello(1, is_resumed=True) + b"".join(said))
    await asyncio.wait([greeting], timeout=1.0)
    return rig, greeting


async def test_resumed_guest_tells_its_execs_and_goes_on_with_them() -> None:
    """Output follows from what we have on, within a fresh window; new execs get new numbers."""
    ready = frames.encode(Kind.READY)
    rig, greeting = await greeted_again(frames.encode_state(7, RUNS), ready)
    assert greeting.result() == {7: RUNS}
    heard = Heard()
    rig.link.resume(7, heard, {Stream.STDOUT: 4, Stream.STDERR: 0})
    rig.receive(encode_output(7, Stream.STDOUT, 4, b"456789") + frames.encode_input_taken(7, 99))
    rig.receive(frames.encode_exited(7, BYE._replace(stdout_bytes=10)))

    assert (bytes(heard.output), heard.input_taken, len(heard.ends)) == (b"456789", [99], 1)
    assert rig.link.is_open
    assert rig.start()[0] == 8


async def test_resumed_guest_may_skip_what_it_no_longer_has() -> None:
    """Output goes on behind what both have lost, and the channel is called with how much it is."""
    rig, _ = await greeted_again(frames.encode_state(7, RUNS), frames.encode(Kind.READY))
    heard = Heard()
    rig.link.resume(7, heard, {Stream.STDOUT: 2, Stream.STDERR: 0})
    rig.receive(frames.encode_skipped(7, Stream.STDOUT, 9))
    rig.receive(encode_output(7, Stream.STDOUT, 9, b"9"))
    rig.receive(frames.encode_exited(7, BYE._replace(stdout_bytes=10)))

    assert (heard.skips, bytes(heard.output)) == ([(Stream.STDOUT, 7)], b"9")
    assert (len(heard.ends), rig.link.is_open) == (1, True)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(frames.encode_skipped(7, Stream.STDOUT, 11), id="beyond what there was"),
        pytest.param(frames.encode_skipped(7, Stream.STDOUT, 2), id="nothing"),
        pytest.param(frames.encode_skipped(7, Stream.STDERR, 1), id="of an empty stream"),
        pytest.param(
            frames.encode_skipped(7, Stream.STDOUT, 5) + frames.encode_skipped(7, Stream.STDOUT, 6),
            id="twice",
        ),
        pytest.param(frames.encode_skipped(8, Stream.STDOUT, 5), id="of a new exec"),
        pytest.param(frames.encode(Kind.SKIPPED, 7, b"\x03" + bytes(8)), id="unknown stream"),
    ],
)
async def test_skip_out_of_order_cuts_the_guest_off(said: bytes) -> None:
    """A guest may skip once, behind a resume, up to where it was then."""
    rig, _ = await greeted_again(frames.encode_state(7, RUNS), frames.encode(Kind.READY))
    rig.link.resume(7, Heard(), {Stream.STDOUT: 2, Stream.STDERR: 0})
    rig.start()
    rig.receive(said)

    assert not rig.link.is_open


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(2 * frames.encode_state(7, RUNS), id="twice"),
        pytest.param(frames.encode_state(0, RUNS), id="of the link"),
        pytest.param(frames.encode_state(2**32 - 1, RUNS), id="of the last channel"),
        pytest.param(frames.encode(Kind.READY) + frames.encode_state(7, RUNS), id="after ready"),
        pytest.param(
            b"".join(frames.encode_state(n + 1, RUNS) for n in range(frames.MAX_EXECS + 1)),
            id="too many",
        ),
        pytest.param(encode_output(7, Stream.STDOUT, 0, b"x"), id="output before resume"),
    ],
)
async def test_execs_told_out_of_order_cut_the_guest_off(said: bytes) -> None:
    """What a resumed guest says of its execs is believed once, in time and in bounds."""
    rig, greeting = await greeted_again(said)
    greeting.exception()

    assert not rig.link.is_open
