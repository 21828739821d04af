"""Opens and resets that are under way."""

from __future__ import annotations

import asyncio
from typing import NoReturn, cast

import pytest

from sandboxd.sessions.session import Session
from sandboxd.sessions.transitions import Transitions

KEY = ("ada", "t1")


async def forever() -> Session:
    await asyncio.Event().wait()
    raise AssertionError


async def at_once() -> Session:
    return cast(Session, None)


async def fails() -> NoReturn:
    raise KeyError


async def test_transition_is_under_way_until_its_end() -> None:
    """Only its own thread has it, and no longer when its result arrives."""
    transitions = Transitions()
    task = transitions.start_reset(KEY, at_once())
    assert transitions.resetting(KEY) is task
    assert transitions.opening(KEY) is None
    assert [transitions.is_under_way(key) for key in (KEY, ("bob", "t1"))] == [True, False]
    await task

    assert not transitions.is_under_way(KEY)
    assert transitions.tasks == []


async def test_cancel_before_the_first_step_ends_a_transition() -> None:
    """A task that never began does not block its thread."""
    transitions = Transitions()
    tasks = [transitions.start_reset(KEY, forever()), transitions.start_open(KEY, fails())]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert not transitions.is_under_way(KEY)


async def test_actions_wait_for_the_transition_of_their_thread() -> None:
    """Each action runs once, however the transition ends; without one it runs at once."""
    transitions = Transitions()
    done: list[str] = []
    transitions.when_done(KEY, lambda: done.append("at once"))
    task = transitions.start_open(KEY, fails())
    transitions.when_done(KEY, lambda: done.append("first"))
    transitions.when_done(KEY, lambda: done.append("second"))
    transitions.when_done(("bob", "t1"), lambda: done.append("other"))
    assert done == ["at once", "other"]
    with pytest.raises(KeyError):
        await task

    assert done == ["at once", "other", "first", "second"]
