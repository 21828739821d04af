"""Commands of a sandbox that are stopped and go on, or die."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from sandboxd.engine.contract import ContainerId
from sandboxd.isolation.cgroups import CommandGroup
from sandboxd.sandboxes.kept_files import Claim, KeptFiles
from sandboxd.sandboxes.sandbox import Sandbox
from tests.fakes.settings import of_environment
from tests.fakes.waiting import eventually


class Group:
    """Notes down what happens to it."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.may_freeze = threading.Event()
        self.may_freeze.set()
        self.error: OSError | None = None

    def freeze(self) -> None:
        assert self.may_freeze.wait(60)
        self.steps.append("freeze")
        if self.error is not None:
            raise self.error

    def thaw(self) -> None:
        self.steps.append("thaw")

    def kill_frozen(self) -> None:
        self.steps.append("kill")


class Connected(Sandbox):
    """Without a guest, and lost only when it is cut off."""

    @property
    def is_lost(self) -> bool:
        return self.lost_because is not None


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
async def sandbox(group: Group) -> Sandbox:
    made = Connected(of_environment(), Claim("s1", 1, KeptFiles()), ContainerId("c1"))
    made.measure(cast("CommandGroup", group), None, None)
    return made


async def until_at_rest(sandbox: Any) -> None:
    await eventually(lambda: sandbox._freezing is None)


async def test_the_last_wish_counts(sandbox: Sandbox, group: Group) -> None:
    """Also if it comes while the one before is being fulfilled."""
    group.may_freeze.clear()
    sandbox.freeze_commands(is_frozen=True)
    await asyncio.sleep(0)
    assert sandbox.is_frozen
    sandbox.freeze_commands(is_frozen=False)
    assert sandbox.is_frozen, "it is about to be, and only then goes on"
    group.may_freeze.set()
    await until_at_rest(sandbox)
    assert group.steps == ["freeze", "thaw"]
    assert not sandbox.is_frozen


async def test_what_is_cut_off_dies_before_it_goes_on(sandbox: Sandbox, group: Group) -> None:
    """Its commands must not run on when another worker has the session."""
    sandbox.freeze_commands(is_frozen=True)
    await until_at_rest(sandbox)
    sandbox.cut_off("another worker has it now")
    assert group.steps == ["freeze", "kill"]
    assert not sandbox.is_frozen


async def test_what_is_cut_off_while_it_freezes_dies_too(sandbox: Sandbox, group: Group) -> None:
    """Nothing stays behind that cannot end."""
    group.may_freeze.clear()
    sandbox.freeze_commands(is_frozen=True)
    await asyncio.sleep(0)
    sandbox.cut_off("another worker has it now")
    group.may_freeze.set()
    await until_at_rest(sandbox)
    assert group.steps[-1] == "kill"


async def test_a_group_that_cannot_be_stopped_is_tried_again(
    sandbox: Sandbox, group: Group
) -> None:
    """With the next wish; nothing else is harmed."""
    group.error = FileNotFoundError("no freezer")
    sandbox.freeze_commands(is_frozen=True)
    await until_at_rest(sandbox)
    sandbox.freeze_commands(is_frozen=False)
    await until_at_rest(sandbox)
    assert group.steps == ["freeze", "thaw"]
    assert not sandbox.is_frozen
