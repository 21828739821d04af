"""Logins of the web console, and how long they last."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.access import Logins
from sandboxd.access import logins as module
from sandboxd.access.caller import HOST
from sandboxd.access.shares import LOGIN_CODES, LOGINS


class Clock:
    """The wall clock of the module under test."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def logins(tmp_path: Path, clock: Clock) -> Logins:
    return Logins(tmp_path / "logins.json", None)


def test_code_is_valid_for_a_minute(logins: Logins, clock: Clock) -> None:
    """And not at its end."""
    early, late = logins.new_code(HOST), logins.new_code(HOST)
    clock.now += module.CODE_SECONDS - 1
    assert logins.redeem(early) is not None
    clock.now += 1
    assert logins.redeem(late) is None


def test_login_ends_when_nobody_uses_it(logins: Logins, clock: Clock, tmp_path: Path) -> None:
    """Each use gives it the whole time again; a restart does not."""
    key = logins.redeem(logins.new_code(HOST))
    assert key is not None
    for _ in range(3):
        clock.now += module.IDLE_SECONDS - 1
        assert logins.find(key) is HOST
    clock.now += module.IDLE_SECONDS + 1
    restarted = Logins(tmp_path / "logins.json", None)
    restarted.load()
    assert restarted.find(key) is None
    assert logins.find(key) is None
    clock.now -= module.IDLE_SECONDS
    assert logins.find(key) is None


def test_logins_and_codes_are_bounded(logins: Logins, clock: Clock) -> None:
    """What was not used for longest goes first."""
    codes = [logins.new_code(HOST) for _ in range(LOGIN_CODES.total + 1)]
    assert logins.redeem(codes[0]) is None
    first = logins.redeem(codes[1])
    assert first is not None
    for _ in range(LOGINS.total):
        clock.now += 0.01
        last = logins.redeem(logins.new_code(HOST))
    assert logins.find(first) is None
    assert last is not None
    assert logins.find(last) is HOST
