"""Random histories: workers that die, are cut off or paused, and failovers that forget writes.

After every step it is asked who would serve each session at that moment: never two. And any worker
is asked for one that somebody serves: it may not know, but it never says that there is none.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field

from sandboxd.cluster.contract import (
    ClaimWaits,
    Fenced,
    Holding,
    Mine,
    Origin,
    OwnershipUnknown,
    PlaceState,
    ReleaseState,
    WorkerIdTaken,
)
from sandboxd.cluster.directory import SharedDirectory
from sandboxd.cluster.holdings import Holdings
from sandboxd.cluster.store import StoreUnavailable
from tests.cluster.model import LEASES, Wire, World, thread, worker
from tests.cluster.servers import RedisServer
from tests.scale import SCALE

WORKERS = 4
SESSIONS = 6
STEPS = 250
FINDS = 3
"""How often a session is asked for after each step."""


Step = Callable[["Host"], Coroutine[None, None, None]]


@dataclass
class Host:
    """A machine: its daemon may be dead or stopped; its registry outlives both."""

    name: str
    directory: SharedDirectory
    wire: Wire
    is_alive: bool = True
    paused_until: float = 0.0
    beats_at: float = 0.0


@dataclass
class Figures:
    failovers: int = 0
    claims: int = 0
    taken: int = 0
    commits: int = 0
    waits: int = 0
    slow: int = 0
    found: int = 0
    not_known: int = 0
    denied: list[str] = field(default_factory=list)
    """Sessions that somebody served, and a worker said that they are not there."""
    violations: list[str] = field(default_factory=list)


class History:
    def __init__(self, world: World, seed: int, figures: Figures) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.seed = seed
        self.figures = figures
        self.hosts: list[Host] = []
        self.step = 0
        self.under_way: list[tuple[asyncio.Task[None], asyncio.Event, SharedDirectory]] = []
        self.waiting: set[SharedDirectory] = set()
        self.released: set[str] = set()
        """Sessions whose owner may have given them up, although it does not know."""

    async def run(self) -> None:
        for number in range(WORKERS):
            name = f"w{number}"
            directory, wire = worker(self.world, name)
            self.hosts.append(Host(name, directory, wire))
        for _ in range(8):
            for host in self.hosts:
                await self.beat(host)
            await self.world.pass_time(LEASES.renew_seconds)
        for self.step in range(STEPS):
            await self.one_step()
            await self.answer_some(0.3)
            self.look()
            for _ in range(FINDS):
                await self.find_one()
        await self.answer_some(1)

    async def one_step(self) -> None:
        await self.world.pass_time(self.random.choice((0.0, 0.1, 0.5, 1.0, 2.0)))
        for host in self.hosts:
            if self.is_running(host):
                host.directory.membership.check()
                if self.world.now >= host.beats_at:
                    await self.beat(host)
        host = self.random.choice(self.hosts)
        steps, weights = zip(*self.possible(), strict=True)
        await self.random.choices(steps, weights)[0](host)

    def possible(self) -> list[tuple[Step, int]]:
        """What can happen to a worker, and how often of a hundred times."""
        return [
            (self.claim, 45),
            (self.claim_slowly, 6),
            (self.commit_slowly, 4),
            (self.commit, 20),
            (self.release, 5),
            (self.cut, 4),
            (self.kill, 2),
            (self.restart, 5),
            (self.pause, 3),
            (self.lose_answers, 2),
            (self.stall, 2),
            (self.fail_over, 2),
        ]

    async def cut(self, host: Host) -> None:
        host.wire.is_cut = not host.wire.is_cut

    async def kill(self, host: Host) -> None:
        host.is_alive = False

    async def pause(self, host: Host) -> None:
        """As by SIGSTOP: nothing runs, and its clock goes on."""
        host.paused_until = self.world.now + self.random.uniform(1, 40)

    async def lose_answers(self, host: Host) -> None:
        host.wire.loses_answers = not host.wire.loses_answers

    async def stall(self, host: Host) -> None:
        await self.world.pass_time(self.random.uniform(5, 25))

    async def fail_over(self, host: Host) -> None:
        self.figures.failovers += 1
        await self.world.fail_over(self.random.randint(2, 6))

    async def claim_slowly(self, host: Host) -> None:
        await self.begin_slowly(host, self.claim)

    async def commit_slowly(self, host: Host) -> None:
        await self.begin_slowly(host, self.commit)

    async def begin_slowly(self, host: Host, operation: Step) -> None:
        """Its message or its answer stays on the way for some steps."""
        if host.directory in self.waiting or not self.is_running(host):
            return
        self.waiting.add(host.directory)
        event = asyncio.Event()
        host.wire.slow, host.wire.is_slow_on_the_way = event, self.random.random() < 0.3
        running = asyncio.get_running_loop().create_task(operation(host))
        await asyncio.wait([running], timeout=0.005)
        host.wire.slow = None
        self.under_way.append((running, event, host.directory))
        self.figures.slow += 1

    async def answer_some(self, share: float) -> None:
        for entry in list(self.under_way):
            if self.random.random() < share:
                running, event, directory = entry
                event.set()
                await running
                self.under_way.remove(entry)
                self.waiting.discard(directory)

    def is_running(self, host: Host) -> bool:
        return host.is_alive and self.world.now >= host.paused_until

    async def beat(self, host: Host) -> None:
        host.beats_at = self.world.now + LEASES.renew_seconds * self.random.uniform(0.5, 1.2)
        with suppress(StoreUnavailable, WorkerIdTaken):
            await host.directory.membership.beat()

    async def claim(self, host: Host) -> None:
        # A worker makes one claim of a thread at a time: a second would wait for the first.
        if not self.is_running(host) or (host.directory in self.waiting and host.wire.slow is None):
            return
        try:
            answer = await host.directory.claim(thread(self.random.randrange(SESSIONS)))
        except OwnershipUnknown:
            return
        if isinstance(answer, Mine):
            self.figures.claims += 1
            self.figures.taken += answer.origin is Origin.TAKEN
        self.figures.waits += isinstance(answer, ClaimWaits)

    async def commit(self, host: Host) -> None:
        for held in self.served(host)[:1]:
            with suppress(Fenced, OwnershipUnknown):
                head = f"{host.name} {self.step}"
                await host.directory.commit(held.session_id, held.epoch, head, held.seq + 1)
                self.figures.commits += 1

    async def release(self, host: Host) -> None:
        for held in self.served(host)[:1]:
            with suppress(Fenced, OwnershipUnknown):
                state = self.random.choice(list(ReleaseState))
                self.released.add(held.session_id)
                await host.directory.release(held.session_id, held.epoch, state, keep_seconds=60)

    async def restart(self, host: Host) -> None:
        """The daemon is killed and started again, and finds what its registry knows."""
        holdings = host.directory._holdings
        host.directory, wire = worker(self.world, host.name)
        wire.is_cut = host.wire.is_cut
        host.wire, host.is_alive, host.paused_until = wire, True, 0.0
        for batch in holdings.batches(100):
            for held in batch:
                host.directory._holdings.add(held)
        await self.beat(host)

    def served(self, host: Host) -> list[Holding]:
        """What it would serve: a paused worker serves nothing before it looks at its clock."""
        if not self.is_running(host) or not host.directory.is_serving:
            return []
        holdings: Holdings = host.directory._holdings
        return [held for batch in holdings.batches(100) for held in batch]

    async def find_one(self) -> None:
        host = self.random.choice(self.hosts)
        served = [held for one in self.hosts for held in self.served(one)]
        kept = [held for held in served if held.session_id not in self.released]
        if not kept or not self.is_running(host):
            return
        held = self.random.choice(kept)
        try:
            place = await host.directory.find(held.session_id)
        except OwnershipUnknown:
            self.figures.not_known += 1
            return
        self.figures.found += 1
        if place is None or place.state is not PlaceState.HELD:
            self.figures.denied.append(f"seed {self.seed} step {self.step}: {held} {place}")

    def look(self) -> None:
        owners: dict[object, list[str]] = {}
        for host in self.hosts:
            # A paused worker counts as well: it may have looked at its clock just before.
            if host.is_alive and host.directory.is_serving:
                for batch in host.directory._holdings.batches(100):
                    for held in batch:
                        owners.setdefault(held.thread, []).append(host.name)
        for key, names in owners.items():
            if len(names) > 1:
                self.figures.violations.append(f"seed {self.seed} step {self.step}: {key} {names}")


async def run(server: RedisServer, histories: int, *, with_barrier: bool) -> Figures:
    figures = Figures()
    world = World(server.port, with_barrier=with_barrier)
    for seed in range(histories):
        await world.begin()
        await History(world, seed, figures).run()
        if not with_barrier and figures.violations:
            break
    await world.end()
    return figures


async def test_never_two_serve_one_session(redis_server: RedisServer) -> None:
    histories = max(1, round(10 * SCALE))
    figures = await run(redis_server, histories, with_barrier=True)

    print(
        f"random histories of ownership: {histories} with {figures.failovers} failovers, "
        f"{figures.claims} claims, {figures.taken} takeovers, {figures.commits} commits, "
        f"{figures.waits} claims that waited, {figures.slow} late answers, "
        f"{len(figures.violations)} with two owners; asked for a session that is served: "
        f"{figures.found} found, {figures.not_known} not known, {len(figures.denied)} denied "
        f"(scale {SCALE:g})"
    )
    assert figures.failovers > histories
    assert figures.taken > histories
    assert figures.found > histories
    assert figures.violations == []
    assert figures.denied == []


async def test_without_the_barrier_two_serve(redis_server: RedisServer) -> None:
    """The histories are hard enough to find what the barrier prevents."""
    figures = await run(redis_server, 200, with_barrier=False)

    assert figures.violations
