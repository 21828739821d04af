"""How a run of code is interrupted, and when its context is killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT

import pytest

from sandboxd.execs import host_kill
from sandboxd.execs.host_kill import MAX_LOAD
from sandboxd.execs.interruption import INSISTENT_SIGNAL, KILL_SECONDS, Interruption
from sandboxd.guest import frames
from sandboxd.guest.frames import Cause, Ending, Exited, Kind
from tests.unit.link_rig import Clock, Heard, Rig

MOMENT = 0.001
STOPPED = Exited(Ending.CODE, Cause.ITSELF, 130, 0, 0)


class Run(Heard):
    """A run of code that was interrupted because its time was over."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self.number, _ = rig.start(self)
        self.kills = 0
        self._interruption = Interruption(rig.link, self.number, self._kill)

    def _kill(self) -> None:
        self.kills += 1

    def on_exited(self, exited: Exited) -> None:
        super().on_exited(exited)
        self._interruption.cancel()


SetLoad = Callable[[float], object]


@pytest.fixture(autouse=True)
def set_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SetLoad:
    """Sets the load of a host with one processor, which has nothing to do at first."""
    path = tmp_path / "loadavg"
    monkeypatch.setattr(host_kill, "LOAD_FILE", path)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    path.write_text("0.10 0.20 0.30 1/200 4711\n")
    return lambda load: path.write_text(f"{load} 0.20 0.30 1/200 4711\n")


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
async def rig(clock: Clock) -> Rig:
    return Rig()


def signals(rig: Rig) -> list[int]:
    sent = [frame for frame in rig.wire.frames() if frame.kind == Kind.SIGNAL]
    return [frames.decode_signal(frame.payload)[0] for frame in sent]


async def test_signals_come_before_the_kill(clock: Clock, rig: Rig) -> None:
    """SIGINT twice, then twice what code does not know, and only then the kill."""
    run = Run(rig)
    clock.advance(KILL_SECONDS - MOMENT)
    assert signals(rig) == [SIGINT, SIGINT, INSISTENT_SIGNAL, INSISTENT_SIGNAL]
    assert run.kills == 0
    clock.advance(2 * MOMENT)
    assert run.kills == 1


@pytest.mark.parametrize(("load", "factor"), [(8.0, 8.0), (500.0, MAX_LOAD)])
async def test_busy_host_gives_more_time(
    load: float, factor: float, clock: Clock, rig: Rig, set_load: SetLoad
) -> None:
    """Code that shares its processor with others is not killed for being slow, up to a limit."""
    set_load(load)
    run = Run(rig)
    clock.advance(KILL_SECONDS * factor - MOMENT)
    assert run.kills == 0
    clock.advance(2 * MOMENT)
    assert run.kills == 1


async def test_stop_that_has_arrived_is_read_before_the_kill(clock: Clock, rig: Rig) -> None:
    """A run that has stopped keeps its context, whether or not the daemon has read that."""
    run = Run(rig)
    with rig.unread(frames.encode_exited(run.number, STOPPED)):
        clock.advance(2 * KILL_SECONDS)
    assert (run.kills, run.ends) == (0, [STOPPED])


async def test_request_alone_kills_nothing(clock: Clock, rig: Rig) -> None:
    """An interrupt that a caller asks for leaves it to the code how it ends."""
    number, _ = rig.start()
    Interruption(rig.link, number)
    clock.advance(100 * KILL_SECONDS)
    assert len(signals(rig)) == 4
