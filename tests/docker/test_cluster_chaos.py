"""Three workers under load while processes die or stop and networks are cut."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import grpc
import pytest

from sandboxd_client import AsyncSandbox, SandboxError, Timeouts
from sandboxd_proto.v1 import cluster_service_pb2, session_service_pb2
from tests.docker.cluster_load import RETRYABLE, Caller, Conversation, Refusal, Watcher, went_back
from tests.docker.cluster_nodes import LEASE, Node, Nodes, running_nodes
from tests.scale import SCALE

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.calm,  # leases end on time, whatever else the machine does
    pytest.mark.timeout(600 + 400 * SCALE),
]

CONVERSATIONS = 6
WATCHERS = 3
SEED = int(os.environ.get("TEST_SEED", "20"))
CALM_SECONDS = 2.0
UNKNOWN = Refusal(grpc.StatusCode.UNAVAILABLE, "OWNERSHIP_UNKNOWN")
RESTART_LEASE = 30.0
"""Outlasts a restart on a busy machine, too: otherwise others take the sessions, as they should."""
LOSSES, LOSS_SECONDS = 10, 0.2
CALLERS = 3
LONG = LEASE + 2.0
"""Longer than a worker is given before others take its sessions."""


class Chaos:
    """Faults, one after the other, and how long it took until their sessions were served again."""

    def __init__(self, nodes: Nodes, load: list[Conversation], choices: random.Random) -> None:
        self._nodes = nodes
        self._load = load
        self._random = choices
        self.taken_over: list[float] = []
        self.taken_during_failover: list[float] = []
        """The same where Redis failed over, or had not settled, meanwhile: claims wait then."""
        self.taken_after: dict[str, list[float]] = {}
        """Both by fault."""
        self.asked: Counter[Refusal] = Counter()
        """How those were refused that asked for a session until it was taken over."""
        self.done: Counter[str] = Counter()
        self._fault = ""

    @property
    def faults(self) -> list[Callable[[Node], Awaitable[None]]]:
        return [
            self.killed_and_restarted,
            self.killed_for_long,
            self.stopped_shortly,
            self.stopped_for_long,
            self.redis_primary_killed,
            self.redis_primary_paused,
            self.cut_from_redis_shortly,
            self.cut_from_redis_for_long,
            self.cut_from_peers,
            self.cut_from_all,
            self.objects_unreachable,
            self.ways_back_cut,
            self.clock_stepped,
        ]

    async def go_through(self, rounds: int) -> None:
        for _ in range(rounds):
            faults = self.faults
            self._random.shuffle(faults)
            for fault in faults:
                node = await self._choose()
                print(f"cluster chaos: {time.monotonic():.2f} {fault.__name__} {node.name}")
                self._fault = fault.__name__
                await fault(node)
                self.done[fault.__name__] += 1
                await asyncio.sleep(CALM_SECONDS)

    async def killed_and_restarted(self, node: Node) -> None:
        await node.daemon.signal(signal.SIGKILL)
        await node.daemon.start()

    async def killed_for_long(self, node: Node) -> None:
        owned = await self._owned_by(node)
        began = time.monotonic()
        await node.daemon.signal(signal.SIGKILL)
        await self._note_takeovers(node, owned, began)
        await node.daemon.start()

    async def stopped_shortly(self, node: Node) -> None:
        """Its connections may be over when it goes on, its lease is not always."""
        assert node.daemon.process is not None
        node.daemon.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(LEASE * self._random.uniform(0.3, 0.9))
            await self._reset(node)
        finally:
            node.daemon.process.send_signal(signal.SIGCONT)

    async def stopped_for_long(self, node: Node) -> None:
        owned = await self._owned_by(node)
        began = time.monotonic()
        assert node.daemon.process is not None
        node.daemon.process.send_signal(signal.SIGSTOP)
        try:
            await self._note_takeovers(node, owned, began)
        finally:
            node.daemon.process.send_signal(signal.SIGCONT)

    async def redis_primary_killed(self, _node: Node) -> None:
        primary = await self._nodes.primary()
        await asyncio.to_thread(primary.kill)
        await asyncio.sleep(LEASE)
        await asyncio.to_thread(primary.start)

    async def redis_primary_paused(self, _node: Node) -> None:
        """Long enough for sentinels to promote another; then there are two for a moment."""
        primary = await self._nodes.primary()
        primary.pause()
        try:
            await asyncio.sleep(self._random.uniform(0.5, LEASE))
        finally:
            primary.resume()

    async def cut_from_redis_shortly(self, node: Node) -> None:
        node.redis.cut()
        await asyncio.sleep(LEASE * self._random.uniform(0.2, 0.7))
        await node.redis.mend()

    async def cut_from_redis_for_long(self, node: Node) -> None:
        owned = await self._owned_by(node)
        began = time.monotonic()
        node.redis.cut()
        await self._note_takeovers(node, owned, began)
        await node.redis.mend()

    async def cut_from_peers(self, node: Node) -> None:
        node.peers.cut()
        await asyncio.sleep(LEASE)
        await node.peers.mend()

    async def cut_from_all(self, node: Node) -> None:
        """From Redis and from the other workers."""
        node.redis.cut()
        node.peers.cut()
        await asyncio.sleep(LEASE * self._random.uniform(0.3, 0.9))
        await node.peers.mend()
        await node.redis.mend()

    async def objects_unreachable(self, _node: Node) -> None:
        """No connection gets an answer before it is lost."""
        self._nodes.objects.cut()
        for _ in range(2 * LOSSES):
            await asyncio.sleep(LOSS_SECONDS)
            await self._nodes.objects.reset()
        await self._nodes.objects.mend()

    async def ways_back_cut(self, node: Node) -> None:
        """To clients and to other workers, while calls run."""
        for _ in range(LOSSES):
            await self._reset(node)
            await asyncio.sleep(LOSS_SECONDS * self._random.random())
            node.way_back.cut()
            await asyncio.sleep(LOSS_SECONDS * self._random.random())
            await node.way_back.mend()

    async def _reset(self, node: Node) -> None:
        """What is connected to it, or by it, is connected no longer."""
        await asyncio.gather(node.way_back.reset(), node.peers.reset(), node.redis.reset())

    async def clock_stepped(self, node: Node) -> None:
        """By an hour, forth or back, and then to the right time again."""
        node.step_clock(self._random.choice((-3600, 3600)))
        await asyncio.sleep(LEASE)
        node.step_clock(0)

    async def _choose(self) -> Node:
        """A worker that has sessions to lose, if there is one."""
        workers = list(self._nodes.all.values())
        self._random.shuffle(workers)
        for worker in workers:
            if await self._owned_by(worker):
                return worker
        return workers[0]

    async def _owned_by(self, node: Node) -> list[Conversation]:
        owned = []
        for one in self._load:
            if not one.session_id:
                continue
            request = cluster_service_pb2.FindSessionRequest(session_id=one.session_id)
            try:
                found = await node.cluster.FindSession(request, timeout=10)
            except grpc.aio.AioRpcError:
                continue  # it is being moved, or was closed
            if found.worker == node.name and not found.parked:
                owned.append(one)
        return owned

    async def _note_takeovers(self, away: Node, owned: list[Conversation], began: float) -> None:
        """Wait until a worker that is away has lost its sessions, and they are served elsewhere."""
        live = [one for one in self._nodes.all.values() if one is not away]
        until = asyncio.ensure_future(asyncio.sleep(LONG))
        era = await self._nodes.era()
        taken = [
            self._taken_over(one.thread, one.session_id, one.incarnation, live) for one in owned
        ]
        async with asyncio.timeout(180):
            found = [at - began for at in await asyncio.gather(*taken) if at is not None]
            await until
        is_quiet = era is not None and era == await self._nodes.era()
        shown = ", ".join(f"{one:.1f}" for one in sorted(found))
        during = "" if is_quiet else ", during a failover of Redis"
        print(f"cluster chaos: {time.monotonic():.2f} taken over after {shown or '-'} s{during}")
        (self.taken_over if is_quiet else self.taken_during_failover).extend(found)
        self.taken_after.setdefault(self._fault, []).extend(found)

    async def _taken_over(
        self, thread: str, session_id: str, incarnation: int, live: list[Node]
    ) -> float | None:
        """When a live worker has opened a session anew; None if it was closed meanwhile."""
        request = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id=thread)
        while True:
            node = self._random.choice(live)
            try:
                opened = await node.api.sessions.OpenSession(request, timeout=60)
                if opened.session.session_id != session_id:
                    return None
                if opened.session.incarnation > incarnation:
                    return time.monotonic()
            except grpc.aio.AioRpcError as error:
                self.asked[Refusal.of(error)] += 1
            await asyncio.sleep(0.05)


async def test_chaos() -> None:
    """No session is served by two, no acknowledged snapshot is lost, every error can be retried
    and says what is wrong, no log has a stack, and when all is well again every worker answers for
    every session."""
    choices = random.Random(SEED)
    async with running_nodes(SANDBOXD_AUTO_SNAPSHOT="commands") as nodes:
        workers = list(nodes.all.values())
        load = [
            Conversation(f"chaos-{n}", workers, random.Random(SEED + n))
            for n in range(CONVERSATIONS)
        ]
        watchers = [Watcher(load, random.Random(SEED - n)) for n in range(1, WATCHERS + 1)]
        callers = [
            Caller(f"calls-{n}", workers, random.Random(SEED * 2 + n)) for n in range(CALLERS)
        ]
        is_over = asyncio.Event()
        chaos = Chaos(nodes, load, choices)
        try:
            async with asyncio.TaskGroup() as group:
                for one in (*load, *watchers, *callers):
                    group.create_task(one.go_on(is_over))
                await chaos.go_through(max(1, round(SCALE)))
                is_over.set()
            for one in load:
                await one.settle()
        finally:
            _report(chaos, load)
            _report_calls(callers)
            stacks = [found for worker in workers for found in worker.stacks()]
            print(f"cluster chaos: {len(stacks)} stacks in logs")
            for found in stacks:
                print(f"cluster chaos: {found}")
    assert [found for one in (*callers, *watchers) for found in one.untold] == []
    assert stacks == []
    assert went_back([found for one in (*load, *watchers) for found in one.seen]) == []
    assert [found for one in load for found in one.two_owners()] == []
    assert [found for one in load for found in one.unexpected] == []
    assert [found for found in chaos.asked if tuple(found) not in RETRYABLE] == []
    assert sum(one.snapshots for one in load) > 0
    assert chaos.taken_over or chaos.taken_during_failover


def _report(chaos: Chaos, load: list[Conversation]) -> None:
    errors: Counter[Refusal] = Counter()
    for one in load:
        errors.update(one.errors)
    said = ", ".join(f"{count} {key.code.name} {key.reason}" for key, count in errors.items())
    print(
        f"cluster chaos: {sum(chaos.done.values())} faults; "
        f"{sum(len(one.acknowledged) for one in load)} commands, "
        f"{sum(one.snapshots for one in load)} snapshots, {sum(one.opened for one in load)} opens, "
        f"{sum(one.closed for one in load)} closes acknowledged; "
        f"{sum(len(one.two_owners()) for one in load)} with two owners; "
        f"{sum(len(one.unexpected) for one in load)} other failures"
    )
    for found in (found for one in load for found in one.unexpected):
        print(f"cluster chaos: {found}")
    ends = sum(one.unobserved for one in load)
    print(f"cluster chaos: retried: {said}, {ends} commands whose end was not seen")
    for when, times in (
        ("with Redis well", chaos.taken_over),
        ("during a failover of Redis", chaos.taken_during_failover),
    ):
        seconds = sorted(times) or [0.0]
        print(
            f"cluster chaos: {len(times)} sessions taken over {when}, {seconds[0]:.1f} to "
            f"{seconds[-1]:.1f} s after the fault (median {seconds[len(seconds) // 2]:.1f} s), "
            f"lease {LEASE:g} s"
        )
    for fault, times in chaos.taken_after.items():
        said = ", ".join(f"{one:.1f}" for one in sorted(times))
        print(f"cluster chaos: taken over after {fault}: {said} s")


def _report_calls(callers: list[Caller]) -> None:
    made, refused = Counter[str](), Counter[tuple[str, Refusal]]()
    for one in callers:
        made.update(one.made)
        refused.update(one.refused)
    said = ", ".join(f"{count} {name}" for name, count in made.items())
    print(f"cluster chaos: calls of every kind answered: {said}")
    for (name, key), count in sorted(refused.items(), key=str):
        print(f"cluster chaos: refused: {count} {name} {key.code.name} {key.reason}")


async def test_rolling_restart() -> None:
    """Every worker is stopped and started again in place, one after the other, while SDK clients
    work through all of them: no call fails after what the SDK repeats, and no session moves."""
    nodes_running = running_nodes(RESTART_LEASE, SANDBOXD_KEEP_SESSIONS="true")
    async with nodes_running as nodes, AsyncExitStack() as stack:
        workers = list(nodes.all.values())
        clients = []
        for number in range(CONVERSATIONS):
            target = workers[number % len(workers)].target
            thread = f"rolling-{number}"
            sandbox = await AsyncSandbox.open(
                "ada", thread, server_url=target, timeouts=Timeouts(reconnect=60)
            )
            clients.append(Client(await stack.enter_async_context(sandbox)))
        is_over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for one in clients:
                group.create_task(one.go_on(is_over))
            for _ in range(max(1, round(SCALE / 2))):
                for worker in workers:
                    await asyncio.sleep(CALM_SECONDS)
                    await worker.daemon.stop()
                    await worker.daemon.start()
            await asyncio.sleep(CALM_SECONDS)
            is_over.set()
        for one in clients:
            await one.check()
            await one.sandbox.kill()  # or it would outlive its worker, which keeps sessions
        failed = [error for one in clients for error in one.failed]
        print(
            f"cluster chaos: rolling restart of {len(workers)} workers, "
            f"{sum(one.number for one in clients)} SDK calls, {len(failed)} failed"
        )
        assert failed == []


class Client:
    """Appends a numbered line at a time, through the SDK."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self.sandbox = sandbox
        self.number = 0
        self.failed: list[str] = []

    async def go_on(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            self.number += 1
            try:
                await self.sandbox.commands.run(f"echo {self.number} >> log", check=True)
            except SandboxError as error:
                self.failed.append(f"{time.monotonic():.2f} {self.number} {error!r}")
            await asyncio.sleep(0.05)

    async def check(self) -> None:
        """All it wrote is there, each line once."""
        done = await self.sandbox.commands.run("cat log", check=True)
        assert done.stdout.split() == [str(n + 1) for n in range(self.number)]


async def test_redis_is_gone() -> None:
    """Workers serve what they own until their lease nearly ends, then refuse, and come back by
    themselves."""
    async with running_nodes() as nodes:
        node = nodes.all["a"]
        one = Conversation("alone", [node], random.Random(SEED))
        await one.settle()
        began = time.monotonic()
        for server in nodes.redis.servers:
            server.pause()
        served: list[float] = []
        try:
            async with asyncio.timeout(60):
                while not one.errors[UNKNOWN]:
                    count = len(one.acknowledged)
                    await one.command_again()
                    if len(one.acknowledged) > count:
                        served.append(time.monotonic() - began)
        finally:
            for server in nodes.redis.servers:
                server.resume()
        back = time.monotonic()
        await one.settle()
        assert served
        assert one.unexpected == []
        assert {line.line.incarnation for line in one.acknowledged} == {1}
        print(
            f"cluster chaos: without Redis, served for {served[-1]:.1f} s of a lease of "
            f"{LEASE:g} s, then refused; served again {time.monotonic() - back:.1f} s after it "
            "came back"
        )
