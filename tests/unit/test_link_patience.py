"""A daemon that stood still reads what has arrived before it calls a guest late."""

from __future__ import annotations

import asyncio

import pytest

from sandboxd.guest import frames
from sandboxd.guest.frames import Kind, Stream
from sandboxd.link import LinkClosed, patient_timeout
from sandboxd.link.connection import FRAME_SECONDS, PING_SECONDS, SWEEP_REPORT_SECONDS
from sandboxd.link.patience import GRACE_SECONDS, LATE_SECONDS
from tests.fakes.output_frame import encode_output
from tests.unit.link_rig import Clock, Rig

MOMENT = 0.001
SECONDS = 3.0


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
async def rig(clock: Clock) -> Rig:
    return Rig()


# --- reports of a kill ---


async def killed(rig: Rig, clock: Clock) -> int:
    """A command that was killed a while ago."""
    number, _ = rig.start()
    rig.link.kill(number)
    clock.advance(SECONDS)
    return number


async def test_kill_asks_for_reports(rig: Rig) -> None:
    """A guest learns how often to report; one that knows nothing of it is just asked to kill."""
    number, _ = rig.start()
    rig.link.kill(number)

    (_, kill) = rig.wire.frames()
    assert (kill.kind, kill.channel) == (Kind.KILL, number)
    assert frames.decode_kill(kill.payload) == SWEEP_REPORT_SECONDS


async def test_reports_of_a_kill_reach_its_exec(rig: Rig, clock: Clock) -> None:
    """Each one, and no other exec hears of them."""
    _, bystander = rig.start()
    number, heard = rig.start()
    rig.link.kill(number)
    for report in range(1, 4):
        clock.advance(SWEEP_REPORT_SECONDS)
        rig.receive(frames.encode_sweeping(number, report))

    assert (heard.sweep_reports, bystander.sweep_reports) == (3, 0)
    assert rig.link.is_open


@pytest.mark.parametrize("numbers", [(0,), (2,), (1, 1), (1, 3), (1, 2, 1), (2**32 - 1,)], ids=str)
async def test_reports_of_a_kill_come_in_order(
    rig: Rig, clock: Clock, numbers: tuple[int, ...]
) -> None:
    """One that is left out, repeated or made up cuts the guest off."""
    number = await killed(rig, clock)
    rig.receive(b"".join(frames.encode_sweeping(number, report) for report in numbers))

    assert "report of a kill out of order" in (rig.link.closed_because or "")


async def test_reports_of_a_kill_cannot_be_a_flood(rig: Rig, clock: Clock) -> None:
    """More of them than there was time for cut the guest off."""
    number = await killed(rig, clock)
    most = round(2 * SECONDS / SWEEP_REPORT_SECONDS)
    rig.receive(b"".join(frames.encode_sweeping(number, n + 1) for n in range(most)))
    assert rig.link.is_open
    rig.receive(frames.encode_sweeping(number, most + 1))

    assert "more often than they may come" in (rig.link.closed_because or "")


async def test_kill_by_an_earlier_daemon_is_not_reported(clock: Clock) -> None:
    """A guest reports to the daemon that asked for it; to another it is a lie."""
    rig = Rig(is_greeted=False)
    state = frames.ExecState(None, 0, 0, b"")
    rig.receive(frames.encode_hello(1, is_resumed=True) + frames.encode_state(7, state))
    _, heard = rig.start()
    rig.link.resume(7, heard, {Stream.STDOUT: 0, Stream.STDERR: 0})
    rig.receive(frames.encode_sweeping(7, 1))

    assert "was not asked to kill" in (rig.link.closed_because or "")


# --- waits for a guest ---


async def test_rest_of_a_frame_that_has_arrived_is_read_first(rig: Rig, clock: Clock) -> None:
    """A frame that is whole is in time, though its end was not read in time."""
    number, heard = rig.start()
    frame = encode_output(number, Stream.STDOUT, 0, b"whole")
    rig.receive(frame[:7])
    with rig.unread(frame[7:]):
        clock.advance(FRAME_SECONDS)
    clock.advance(2 * FRAME_SECONDS)

    assert (bytes(heard.output), rig.link.is_open) == (b"whole", True)


async def test_half_a_frame_has_a_grace_after_the_daemon_stood_still(
    rig: Rig, clock: Clock
) -> None:
    """The guest had no time to send the rest; it gets some, and no more than that."""
    number, heard = rig.start()
    rig.receive(encode_output(number, Stream.STDOUT, 0, b"whole")[:7])
    clock.stand_still(10 * FRAME_SECONDS)
    assert rig.link.is_open
    clock.advance(GRACE_SECONDS)

    assert heard.ends == ["lost: the guest sent half a frame and no more"]


async def test_next_half_frame_that_has_arrived_has_a_time_of_its_own(
    rig: Rig, clock: Clock
) -> None:
    """What is read first may end one frame and begin another."""
    number, heard = rig.start()
    frame = encode_output(number, Stream.STDOUT, 0, b"x")
    following = encode_output(number, Stream.STDOUT, 1, b"y")
    rig.receive(frame[:7])
    with rig.unread(frame[7:] + following[:7]):
        clock.advance(FRAME_SECONDS)
    clock.advance(FRAME_SECONDS - MOMENT)
    assert rig.link.is_open
    clock.advance(2 * MOMENT)

    assert (bytes(heard.output), rig.link.is_open) == (b"x", False)


async def test_pong_that_has_arrived_is_read_first(rig: Rig, clock: Clock) -> None:
    """A guest that has answered is alive."""
    ping = asyncio.ensure_future(rig.link.ping())
    await asyncio.sleep(0)
    (asked,) = rig.wire.frames()
    with rig.unread(frames.encode(Kind.PONG, payload=bytes(asked.payload))):
        clock.advance(PING_SECONDS)

    await ping


async def test_ping_has_a_deadline(rig: Rig, clock: Clock) -> None:
    """A guest that does not answer is told apart from one that is gone, and may answer late."""
    ping = asyncio.ensure_future(rig.link.ping())
    await asyncio.sleep(0)
    (asked,) = rig.wire.frames()
    clock.advance(PING_SECONDS)
    with pytest.raises(TimeoutError):
        await ping
    rig.receive(frames.encode(Kind.PONG, payload=bytes(asked.payload)))

    assert rig.link.is_open


async def test_reading_first_ends_with_a_lie(rig: Rig, clock: Clock) -> None:
    """What has arrived is checked like everything else, and nothing behind a lie is read."""
    number, heard = rig.start()
    rig.receive(b"\0")
    lie = frames.encode(Kind.READY)
    with rig.unread(lie[1:] + encode_output(number, Stream.STDOUT, 0, b"late")):
        clock.advance(FRAME_SECONDS)

    assert "ready out of order" in (rig.link.closed_because or "")
    assert heard.output == b""


async def test_reading_first_leaves_the_end_of_a_guest_to_its_transport(rig: Rig) -> None:
    """A connection that the guest has closed is not closed twice."""
    with rig.unread(b""):
        rig.link.read_pending()
    rig.link.read_pending()
    assert rig.closed == []
    rig.link.connection_lost(None)
    rig.link.read_pending()

    assert rig.closed == ["the guest went away"]
    with pytest.raises(LinkClosed):
        await rig.link.ping()


@pytest.mark.parametrize("late_by", [0.0, LATE_SECONDS / 2])
async def test_patient_timeout_ends_a_wait(clock: Clock, late_by: float) -> None:
    """It is a timeout like another while the daemon runs."""
    with pytest.raises(TimeoutError):
        async with patient_timeout(SECONDS):
            clock.advance(SECONDS - MOMENT)
            clock.stand_still(MOMENT + late_by)
            await asyncio.get_running_loop().create_future()


async def test_patient_timeout_does_not_count_a_stand_still(clock: Clock) -> None:
    """What came while the daemon stood still is handled before the wait is over."""
    async with patient_timeout(SECONDS):
        clock.stand_still(10 * SECONDS)
        await asyncio.sleep(0)
        clock.advance(GRACE_SECONDS - MOMENT)
        await asyncio.sleep(0)
    clock.advance(SECONDS)
