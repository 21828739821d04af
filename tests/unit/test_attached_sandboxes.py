"""Sandboxes that show directories of the host: attached to a warm one, or bound at a start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from errno import EPERM
from pathlib import Path

import pytest

from sandboxd.engine.contract import BindMount
from sandboxd.errors import EngineFailed, PoolExhausted
from sandboxd.isolation.attachment import AttachFailed, Attachment, Possibility, Way
from sandboxd.isolation.uids import UidRange
from sandboxd.pool.pool import Patience, WarmPool
from sandboxd.pool.pools import Pools
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sandboxes.settings import SandboxSettings
from tests.fakes import settings as settings_for_tests
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests, FakeProcess
from tests.fakes.settings import NEVER
from tests.fakes.waiting import eventually

DIRECTORIES = (
    Attachment(Path("/srv/set"), "/usr/local/lib/python3.11/dist-packages"),
    Attachment(Path("/srv/view"), "/workspace/project_files"),
)


class Rig:
    """A pool on a host that can attach, or one that cannot."""

    def __init__(
        self, engine: FakeEngine, guests: FakeGuests, settings: SandboxSettings, uids: UidRange
    ) -> None:
        self.engine = engine
        self.guests = guests
        self._settings = settings
        self._uids = uids

    @asynccontextmanager
    async def pool(self, way: Way, *, target: int = 1, maximum: int = 4) -> AsyncIterator[WarmPool]:
        host = Host(uids=self._uids, attaching=Possibility(way))
        maker = self.guests.maker(self.engine, self._settings, host)
        settings = settings_for_tests.of_pool(target=target, maximum=maximum)
        environment = settings_for_tests.of_environment()
        async with Pools(maker, [environment], settings, sweep_seconds=NEVER) as pools:
            if target:
                await pools.default.wait_until_warm()
            yield pools.default

    def attached(self, sandbox: Sandbox) -> list[Attachment]:
        assert isinstance(sandbox.process, FakeProcess)
        return sandbox.process.attached

    def bound(self, sandbox: Sandbox) -> list[BindMount]:
        """What the container has at the targets, in the order of their paths."""
        targets = {one.target for one in DIRECTORIES}
        binds = self.engine.specs[sandbox.container_id].binds
        found = [bind for bind in binds if bind.target in targets]
        return sorted(found, key=lambda bind: bind.target)


@pytest.fixture
def rig(
    engine: FakeEngine, guests: FakeGuests, sandbox_settings: SandboxSettings, uids: UidRange
) -> Rig:
    return Rig(engine, guests, sandbox_settings, uids)


async def test_a_warm_sandbox_gets_them(rig: Rig) -> None:
    """Nothing is started for that."""
    async with rig.pool(Way.ATTACHED) as pool:
        sandbox = await pool.acquire(attachments=DIRECTORIES)

        assert rig.attached(sandbox) == list(DIRECTORIES)
        assert (pool.figures.hits, pool.figures.misses) == (1, 0)
        other = await pool.acquire()
        assert rig.attached(other) == []


async def test_a_host_that_cannot_attach_starts_a_sandbox_with_them(rig: Rig) -> None:
    """They are read-only binds of the container, in place of what would be bound there; warm
    sandboxes stay for others."""
    async with rig.pool(Way.BOUND) as pool:
        sandbox = await pool.acquire(attachments=DIRECTORIES)

        assert rig.attached(sandbox) == []
        assert rig.bound(sandbox) == [
            BindMount(source=one.source, target=one.target) for one in DIRECTORIES
        ]
        assert (pool.figures.warm, pool.figures.hits, pool.figures.misses) == (1, 0, 1)


async def test_the_maximum_holds_for_bound_ones(rig: Rig) -> None:
    """A warm sandbox makes room for one that is started, and nobody gets one too many."""
    async with rig.pool(Way.BOUND, maximum=1) as pool:
        first = await pool.acquire(attachments=DIRECTORIES)
        await eventually(lambda: len(rig.engine.live) == 1)

        with pytest.raises(PoolExhausted):
            await pool.acquire(attachments=DIRECTORIES, patience=Patience.NONE)

        pool.destroy(first)
        await pool.acquire(attachments=DIRECTORIES)


def refuse(*_: object) -> None:
    raise AttachFailed("mount", OSError(EPERM, "Operation not permitted"))


async def test_a_sandbox_that_cannot_show_them_is_destroyed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody gets a sandbox that lacks what was asked for."""
    async with rig.pool(Way.ATTACHED) as pool:
        monkeypatch.setattr(FakeProcess, "attach", refuse)

        with pytest.raises(EngineFailed, match="doctor"):
            await pool.acquire(attachments=DIRECTORIES)

        assert pool.figures.in_use == 0
        await eventually(lambda: len(rig.engine.live) == pool.figures.warm == 1)


async def test_an_opener_that_gives_up_leaves_no_sandbox(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancel while the kernel attaches waits for it, and the sandbox is destroyed."""
    is_attaching, may_end = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        is_attaching.set()
        assert may_end.wait(20)

    async with rig.pool(Way.ATTACHED) as pool:
        monkeypatch.setattr(FakeProcess, "attach", slow)
        acquiring = asyncio.ensure_future(pool.acquire(attachments=DIRECTORIES))
        await eventually(is_attaching.is_set)
        acquiring.cancel()
        await asyncio.sleep(0)
        assert not acquiring.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await acquiring

        assert pool.figures.in_use == 0
        await eventually(lambda: len(rig.engine.live) == pool.figures.warm == 1)


async def test_a_start_that_cannot_show_them_leaves_nothing(
    maker: SandboxMaker, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The container that was started is removed."""
    monkeypatch.setattr(FakeProcess, "attach", refuse)
    with pytest.raises(EngineFailed):
        await maker.make(settings_for_tests.of_environment(), None, DIRECTORIES)

    assert not engine.live
