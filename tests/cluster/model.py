"""Workers as objects over a real Redis, with clocks and failures that a test decides about.

The scripts are those of the product; only where they read the time, and which run it is, a key of
the test stands in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from redis.asyncio import Redis

from sandboxd.cluster import scripts
from sandboxd.cluster.contract import ThreadKey
from sandboxd.cluster.directory import SharedDirectory
from sandboxd.cluster.redis_directory import RedisStore
from sandboxd.cluster.settings import ClusterSettings, LeaseSettings, RedisSettings
from sandboxd.cluster.store import StoreUnavailable

KEY = b"0123456789abcdef0123456789abcdef"
NAME = "model"
BASE = "{" + NAME + "}"
TEST_CLOCK = "local function clock() return tonumber(redis.call('GET', KEYS[1] .. ':now')) end\n"
TEST_RUN_ID = "local function run_id() return redis.call('GET', KEYS[1] .. ':run') end\n"
NO_BARRIER = "local function barrier() return 0 end\n"


def scripts_of_the_model(*, with_barrier: bool = True) -> dict[str, str]:
    texts = scripts.all_scripts()
    for name, text in texts.items():
        changed = text.replace(scripts.CLOCK, TEST_CLOCK).replace(scripts.RUN_ID, TEST_RUN_ID)
        assert changed != text
        texts[name] = changed if with_barrier else changed.replace(scripts.BARRIER, NO_BARRIER)
    return texts


class World:
    """Time, the store, and what the store had before."""

    def __init__(self, port: int, *, with_barrier: bool = True) -> None:
        self.redis = Redis(host="127.0.0.1", port=port)
        settings = RedisSettings(port=port, call_seconds=30)
        self.store = RedisStore(settings, NAME, scripts_of_the_model(with_barrier=with_barrier))
        self.now = 1_000_000.0
        self.offset = 0.0
        """How much the clock of the store is ahead of those of the workers."""
        self.past: list[dict[bytes, bytes]] = []
        """The store after each of the last writes."""
        self.runs = 0
        self.is_down = False

    async def begin(self) -> None:
        await self.redis.flushall()
        self.past = []
        self.runs += 1
        await self.redis.set(BASE + ":run", f"run{self.runs}")
        await self.pass_time(0)

    async def pass_time(self, seconds: float) -> None:
        self.now += seconds
        await self.redis.set(BASE + ":now", int((self.now + self.offset) * 1000))

    async def note_write(self) -> None:
        found: list[bytes] = await self.redis.keys()  # type: ignore[assignment]
        keys = [key for key in found if not key.endswith((b":now", b":run"))]
        state: dict[bytes, bytes] = {}
        if keys:
            async with self.redis.pipeline(transaction=False) as pipeline:
                for key in keys:
                    pipeline.dump(key)
                state = dict(zip(keys, await pipeline.execute(), strict=True))
        self.past = [*self.past[-8:], state]

    async def fail_over(self, forgotten: int) -> None:
        """Another server goes on, and lacks the last writes."""
        kept = self.past[: len(self.past) - forgotten] or self.past[:1]
        await self.redis.flushall()
        async with self.redis.pipeline(transaction=False) as pipeline:
            for key, dump in kept[-1].items() if kept else ():
                pipeline.restore(key, 0, dump)
            await pipeline.execute()
        self.past = kept
        self.runs += 1
        await self.redis.set(BASE + ":run", f"run{self.runs}")
        await self.pass_time(0)

    async def end(self) -> None:
        await self.store.aclose()
        await self.redis.aclose()


class Wire:
    """The store as one worker reaches it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_cut = False
        self.loses_answers = False
        self.slow: asyncio.Event | None = None
        """Claims, commits and releases are answered when this is set."""
        self.is_slow_on_the_way = False
        """They reach the store only then, too."""

    async def run(
        self, script: str, common: Mapping[str, object], arguments: Mapping[str, object]
    ) -> bytes:
        slow = self.slow if script in ("claim", "commit", "release") else None
        if slow is not None and self.is_slow_on_the_way:
            await slow.wait()
        if self.is_cut or self._world.is_down:
            raise StoreUnavailable("cut")
        reply = await self._world.store.run(script, common, arguments)
        if script not in scripts.READING:
            await self._world.note_write()
        if slow is not None:
            await slow.wait()
        if self.loses_answers:
            raise StoreUnavailable("the answer was lost")
        return reply

    async def aclose(self) -> None:
        """The world closes the store."""


LEASES = LeaseSettings()


def worker(
    world: World, worker_id: str, *, instance: str = "", leases: LeaseSettings = LEASES
) -> tuple[SharedDirectory, Wire]:
    """A worker whose renewals the test makes itself."""
    wire = Wire(world)
    settings = ClusterSettings(
        worker_id=worker_id,
        address=f"{worker_id}:50051",
        instance=instance or f"host of {worker_id}",
        cluster_key=KEY,
        name=NAME,
        leases=leases,
    )
    return SharedDirectory(wire, settings, lambda: world.now), wire


def thread(number: int) -> ThreadKey:
    return ThreadKey("user", f"thread {number}")
