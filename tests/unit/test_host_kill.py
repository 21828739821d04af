"""When the host ends the sandbox of a guest that does not end a command."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sandboxd.execs import host_kill
from sandboxd.execs.exec import Reason
from sandboxd.execs.host_kill import LIMIT_SECONDS, MAX_LOAD, STEP_SECONDS, HostKill
from sandboxd.guest import frames
from sandboxd.guest.frames import Cause, Ending, Exited
from sandboxd.link import connection
from sandboxd.link.connection import SWEEP_REPORT_SECONDS
from sandboxd.link.patience import GRACE_SECONDS, MAX_GRACES
from sandboxd.sessions.sessions import Sessions
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.unit.link_rig import Clock, Heard, Rig
from tests.unit.test_execs import a_spec
from tests.unit.test_sessions import opened

MOMENT = 0.001
DIED = Exited(Ending.SIGNAL, Cause.KILLED, 9, 0, 0)


class Killed(Heard):
    """A command that the guest was asked to end."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self.number, _ = rig.start(self)
        rig.link.kill(self.number)
        self.kills = 0
        self.is_frozen = False
        self._host_kill = HostKill(rig.link, self._kill, lambda: self.is_frozen)

    def _kill(self) -> None:
        self.kills += 1

    def on_sweeping(self) -> None:
        super().on_sweeping()
        self._host_kill.extend()

    def on_exited(self, exited: Exited) -> None:
        super().on_exited(exited)
        self._host_kill.cancel()


SetLoad = Callable[[str], None]


@pytest.fixture(autouse=True)
def set_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SetLoad:
    """Sets the load of a host with one processor, which has nothing to do at first."""
    path = tmp_path / "loadavg"

    def set_load(text: str) -> None:
        path.write_text(f"{text} 4711\n")

    monkeypatch.setattr(host_kill, "LOAD_FILE", path)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    set_load("0.10 0.20 0.30 1/200")
    return set_load


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
async def rig(clock: Clock) -> Rig:
    return Rig()


@pytest.fixture
async def killed(rig: Rig) -> Killed:
    return Killed(rig)


async def test_silent_guest_has_one_step(clock: Clock, killed: Killed) -> None:
    """A guest that says nothing, as an older one or one that hangs, loses its sandbox promptly."""
    clock.advance(STEP_SECONDS - MOMENT)
    assert killed.kills == 0
    clock.advance(2 * MOMENT)

    assert killed.kills == 1


async def test_each_report_wins_another_step(clock: Clock, rig: Rig, killed: Killed) -> None:
    """A guest that is still ending a command is not shot, however many steps that takes."""
    for number in range(1, 11):
        clock.advance(STEP_SECONDS - MOMENT)
        rig.receive(frames.encode_sweeping(killed.number, number))
    assert (killed.sweep_reports, killed.kills) == (10, 0)
    rig.receive(frames.encode_exited(killed.number, DIED))
    clock.advance(2 * LIMIT_SECONDS)

    assert (killed.kills, killed.ends) == (0, [DIED])


async def test_reports_for_ever_end_at_the_limit(clock: Clock, rig: Rig, killed: Killed) -> None:
    """Whatever a guest reports, and however often, it wins no time beyond the limit."""
    began, number = clock.now, 0
    while not killed.kills:
        clock.advance(SWEEP_REPORT_SECONDS)
        if not killed.kills:
            number += 1
            rig.receive(frames.encode_sweeping(killed.number, number))

    assert clock.now - began <= LIMIT_SECONDS + SWEEP_REPORT_SECONDS
    assert rig.link.is_open, "only the kill ends it, as nothing it said was out of order"


async def test_report_that_arrives_at_the_limit_wins_nothing(
    clock: Clock, rig: Rig, killed: Killed
) -> None:
    """A report that is read just before the kill does not put it off once the limit is reached."""
    for number in range(1, 21):
        clock.advance(LIMIT_SECONDS / 20 - MOMENT)
        rig.receive(frames.encode_sweeping(killed.number, number))
    with rig.unread(frames.encode_sweeping(killed.number, 21)):
        clock.advance(STEP_SECONDS)

    assert (killed.sweep_reports, killed.kills) == (21, 1)


@pytest.mark.parametrize(
    ("load", "factor"),
    [
        pytest.param("0.00 9.00 9.00 1/200", 1.0, id="nothing to do"),
        pytest.param("2.00 0.00 0.00 1/200", 2.0, id="busy for a minute"),
        pytest.param("0.10 0.00 0.00 3/200", 3.0, id="busy just now"),
        pytest.param("90.0 0.00 0.00 200/200", MAX_LOAD, id="overloaded"),
    ],
)
async def test_step_grows_with_the_load_of_the_host(
    clock: Clock, rig: Rig, set_load: SetLoad, load: str, factor: float
) -> None:
    """Where everything takes longer, so may the guest, within a bound."""
    set_load(load)
    killed = Killed(rig)
    clock.advance(factor * STEP_SECONDS - MOMENT)
    assert killed.kills == 0
    clock.advance(2 * MOMENT)

    assert killed.kills == 1


async def test_load_is_that_of_each_processor(
    monkeypatch: pytest.MonkeyPatch, set_load: SetLoad
) -> None:
    """Eight processes that want to run keep eight processors busy and no more."""
    set_load("8.00 0.00 0.00 2/200")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)

    assert host_kill.host_load() == 1.0


async def test_end_that_has_arrived_is_read_before_the_kill(
    clock: Clock, rig: Rig, killed: Killed
) -> None:
    """A guest that has answered is not late, whether or not the daemon has read the answer."""
    with rig.unread(frames.encode_exited(killed.number, DIED)):
        clock.advance(LIMIT_SECONDS)

    assert (killed.kills, killed.ends) == (0, [DIED])


async def test_report_that_has_arrived_is_read_before_the_kill(
    clock: Clock, rig: Rig, killed: Killed
) -> None:
    """It wins a step as one that was read in time does."""
    with rig.unread(frames.encode_sweeping(killed.number, 1)):
        clock.advance(2 * STEP_SECONDS - MOMENT)
        assert killed.kills == 0
    clock.advance(2 * MOMENT)

    assert killed.kills == 1


async def test_daemon_that_stood_still_gives_the_guest_time(
    clock: Clock, rig: Rig, killed: Killed
) -> None:
    """Time in which the daemon did not run does not count against a guest, which may not have run
    either."""
    clock.stand_still(10 * LIMIT_SECONDS)
    clock.advance(GRACE_SECONDS - MOMENT)
    assert killed.kills == 0
    rig.receive(frames.encode_exited(killed.number, DIED))
    clock.advance(LIMIT_SECONDS)

    assert killed.kills == 0


async def test_daemon_that_stood_still_waits_for_a_bounded_time(
    clock: Clock, killed: Killed
) -> None:
    """A guest that hangs loses its sandbox also where the daemon stands still again and again."""
    for _ in range(MAX_GRACES):
        clock.stand_still(1.0)
        assert killed.kills == 0
    clock.stand_still(1.0)

    assert killed.kills == 1


class Meter:
    """Counts how often the quota was lifted."""

    full = ""

    def __init__(self) -> None:
        self.lifts = 0

    def begin(self) -> None: ...

    def end(self, reading: object) -> None: ...

    def lift_quota(self) -> None:
        self.lifts += 1

    def close(self) -> None: ...


async def test_dying_processes_have_the_processor_for_as_long_as_they_are_reported(
    start_sessions: Callable[..., Awaitable[Sessions]],
    guests: FakeGuests,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The quota is lifted for a while only, so each report lifts it again."""
    monkeypatch.setattr(connection, "SWEEP_REPORT_SECONDS", 0.0)
    session, _ = await opened(await start_sessions())
    assert session.sandbox is not None
    meter = Meter()
    session.sandbox.meter = meter  # type: ignore[assignment]
    execution, _ = session.start_exec(a_spec(shell="stubborn"))
    command = await guests.wait_for("stubborn")
    execution.end(Reason.TIMED_OUT)
    assert meter.lifts == 1
    for number in (1, 2):
        command.guest.say(frames.encode_sweeping(command.channel, number))

    await eventually(lambda: meter.lifts == 3)


async def test_commands_that_are_stopped_are_waited_for(clock: Clock, killed: Killed) -> None:
    """They cannot die before they go on; from then on the guest has its time."""
    killed.is_frozen = True
    for _ in range(100):
        clock.advance(STEP_SECONDS)
    assert killed.kills == 0
    killed.is_frozen = False
    clock.advance(2 * STEP_SECONDS)

    assert killed.kills == 1
