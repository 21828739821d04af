"""Three daemons on one engine, with a real Redis and a real object service."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from sandboxd_proto.v1 import cluster_service_pb2 as pb
from sandboxd_proto.v1 import (
    cluster_service_pb2_grpc,
    session_pb2,
    session_service_pb2,
    snapshot_service_pb2,
    snapshot_service_pb2_grpc,
)
from tests.cluster.servers import RedisServer, running_redis
from tests.docker.commands import run
from tests.docker.daemon_process import Api, DaemonProcess, served
from tests.ports import free_port
from tests.snapshots.object_server import BUCKET, object_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
    pytest.mark.alone,  # leases end on time, whatever else the machine does
]

LEASE = 5.0
PATIENCE = 120.0
RECREATED = session_service_pb2.OPEN_OUTCOME_RECREATED
UNPARKED = session_service_pb2.OPEN_OUTCOME_UNPARKED


@dataclass
class Node:
    name: str
    daemon: DaemonProcess
    api: Api

    @property
    def cluster(self) -> cluster_service_pb2_grpc.ClusterServiceStub:
        return cluster_service_pb2_grpc.ClusterServiceStub(self.api.channel)


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture(scope="module")
def objects() -> Iterator[str]:
    with object_server() as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(
    redis: RedisServer, objects: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, Node]]:
    keys = Path(tmp_path_factory.mktemp("keys"))
    (keys / "cluster").write_text("c" * 64)
    (keys / "snapshots").write_text("5" * 64)
    async with AsyncExitStack() as stack:
        found = {}
        for name in ("a", "b", "c"):
            daemon = DaemonProcess(
                HOST="127.0.0.1",
                PORT=str(free_port()),
                WORKER_ID=name,
                REDIS_HOST="127.0.0.1",
                REDIS_PORT=str(redis.port),
                SANDBOXD_CLUSTER_KEY_FILE=str(keys / "cluster"),
                SANDBOXD_SNAPSHOT_KEY_FILE=str(keys / "snapshots"),
                SANDBOXD_SNAPSHOT_STORE=f"s3://{BUCKET}/cluster",
                SANDBOXD_SNAPSHOT_STORE_ENDPOINT=objects,
                AWS_ACCESS_KEY_ID="test",
                AWS_SECRET_ACCESS_KEY="test",
                SANDBOXD_LEASE_SECONDS=f"{LEASE:g}",
                SANDBOXD_AUTO_SNAPSHOT="commands",
                SANDBOXD_GRACE_SECONDS="60",
                MAX_POOL_SIZE="8",
            )
            await stack.enter_async_context(served(daemon))
            api = await stack.enter_async_context(daemon.api())
            found[name] = Node(name, daemon, api)
        yield found


async def open_thread(node: Node, thread: str) -> session_service_pb2.OpenSessionResponse:
    request = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id=thread)
    return await node.api.sessions.OpenSession(request, timeout=60)


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    """Look until it is true; a call that may be repeated counts as no."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                if await look():
                    return
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            await asyncio.sleep(0.05)


async def owner_of(nodes: dict[str, Node], session_id: str) -> Node:
    request = pb.FindSessionRequest(session_id=session_id)
    return nodes[(await nodes["a"].cluster.FindSession(request, timeout=30)).worker]


def others(nodes: dict[str, Node], node: Node) -> list[Node]:
    return [one for one in nodes.values() if one is not node]


async def test_a_session_is_used_through_every_worker(nodes: dict[str, Node]) -> None:
    """A file that is written through one is read through the others."""
    session_id = (await open_thread(nodes["a"], "shared")).session.session_id
    await run(nodes["a"].api, session_id, "echo 0 > log")
    for number, node in enumerate(nodes.values(), 1):
        await run(node.api, session_id, f"echo {number} >> log")
    answer = await run(nodes["c"].api, session_id, "cat log")
    assert answer.stdout.data == b"0\n1\n2\n3\n"
    listed = await nodes["b"].cluster.ListWorkers(pb.ListWorkersRequest(), timeout=30)
    assert [(one.id, one.state) for one in listed.workers] == [
        (name, pb.WORKER_STATE_READY) for name in nodes
    ]


async def test_new_sessions_are_spread(nodes: dict[str, Node]) -> None:
    """Opened through one worker, they do not all stay there."""
    opened = [await open_thread(nodes["a"], f"spread-{n}") for n in range(6)]
    owners = {(await owner_of(nodes, one.session.session_id)).name for one in opened}
    assert len(owners) > 1
    for one in opened:
        request = session_service_pb2.CloseSessionRequest(session_id=one.session.session_id)
        await nodes["a"].api.sessions.CloseSession(request, timeout=60)


async def test_lost_worker(nodes: dict[str, Node]) -> None:
    """Its session is opened elsewhere with the files of the last snapshot, as recreated; when it
    comes back it has destroyed what it had of it."""
    session = (await open_thread(nodes["a"], "lost")).session
    owner = await owner_of(nodes, session.session_id)
    other = others(nodes, owner)[0]
    await run(owner.api, session.session_id, "echo kept > file")
    await commit(owner, session.session_id)
    killed = time.monotonic()
    await owner.daemon.signal(signal.SIGKILL)
    answers = []

    async def opens() -> bool:
        answers.append(await open_thread(other, "lost"))
        return True

    await until(opens)
    seconds = time.monotonic() - killed
    taken = answers[-1]
    assert (taken.outcome, taken.session.incarnation) == (RECREATED, 2)
    assert taken.session.session_id == session.session_id
    answer = await run(other.api, session.session_id, "cat file; echo more >> file")
    assert answer.stdout.data == b"kept\n"
    await owner.daemon.start()

    async def is_one() -> bool:
        answer = await run(owner.api, session.session_id, "cat file")
        return bool(answer.stdout.data == b"kept\nmore\n")

    await until(is_one)
    assert (await owner_of(nodes, session.session_id)).name != owner.name

    async def has_let_go() -> bool:
        status = await owner.api.status()
        held = len(await asyncio.to_thread(containers, owner.daemon))
        return bool(status.active_sessions == 0 and held <= status.pool.target + 1)

    await until(has_let_go)
    print(f"cluster: taken over {seconds:.1f} s after kill -9, lease {LEASE:g} s")


def containers(daemon: DaemonProcess) -> list[str]:
    label = f"label=sandboxd.instance={daemon.instance}"
    command = ["docker", "ps", "--all", "--quiet", "--filter", label]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.split()


async def commit(node: Node, session_id: str) -> None:
    """Return when others would continue from what the session has now."""
    stub = snapshot_service_pb2_grpc.SnapshotServiceStub(node.api.channel)
    taken = await stub.CreateSnapshot(
        snapshot_service_pb2.CreateSnapshotRequest(session_id=session_id), timeout=60
    )
    number = taken.snapshot.number

    async def is_known() -> bool:
        request = pb.FindSessionRequest(session_id=session_id)
        found = await node.cluster.FindSession(request, timeout=30)
        return bool(found.committed_snapshot >= number)

    await until(is_known)


async def test_restart_in_place_moves_nothing(nodes: dict[str, Node]) -> None:
    """A worker that is killed and started again within its lease keeps its sessions, and their
    commands go on."""
    session = (await open_thread(nodes["a"], "restart")).session
    owner = await owner_of(nodes, session.session_id)
    await run(owner.api, session.session_id, "(sleep 3; echo done > late) & echo begun > early")
    await owner.daemon.signal(signal.SIGKILL)
    await owner.daemon.start()
    other = others(nodes, owner)[0]

    async def is_done() -> bool:
        answer = await run(other.api, session.session_id, "cat early late")
        return bool(answer.stdout.data == b"begun\ndone\n")

    await until(is_done)
    assert (await owner_of(nodes, session.session_id)).name == owner.name


async def test_drain(nodes: dict[str, Node]) -> None:
    """Sessions leave a worker and are opened elsewhere with their files, as unparked; it gets no
    new ones until the drain is taken back."""
    session = (await open_thread(nodes["a"], "drained")).session
    owner = await owner_of(nodes, session.session_id)
    await run(owner.api, session.session_id, "echo kept > file")
    progress = [one async for one in owner.cluster.DrainWorker(pb.DrainWorkerRequest())]
    assert (progress[-1].left, progress[-1].failed) == (0, 0)
    assert progress[-1].moved >= 1
    answers = []

    async def opens_elsewhere() -> bool:
        answers.append(await open_thread(owner, "drained"))
        return True

    await until(opens_elsewhere)
    assert answers[-1].outcome == UNPARKED
    assert (await owner_of(nodes, session.session_id)).name != owner.name
    answer = await run(owner.api, session.session_id, "cat file")
    assert answer.stdout.data == b"kept\n"
    async for _ in owner.cluster.DrainWorker(pb.DrainWorkerRequest(cancel=True)):
        pass


async def test_a_drain_that_is_taken_back_stops(nodes: dict[str, Node]) -> None:
    """Whoever takes it back: a session whose command runs stays where it is."""
    session = (await open_thread(nodes["a"], "busy")).session
    owner = await owner_of(nodes, session.session_id)
    await run(owner.api, session.session_id, "echo kept > file")
    running = asyncio.ensure_future(
        run(owner.api, session.session_id, "until [ -e go ]; do sleep 0.05; done", timeout=100)
    )

    async def is_running() -> bool:
        return bool((await owner.api.status()).running_execs)

    await until(is_running)
    drain = owner.cluster.DrainWorker(pb.DrainWorkerRequest())
    listing = pb.ListWorkersRequest()

    async def drains() -> bool:
        workers = (await owner.cluster.ListWorkers(listing, timeout=30)).workers
        return {one.id: one.state for one in workers}[owner.name] == pb.WORKER_STATE_DRAINING

    await until(drains)
    async for _ in owner.cluster.DrainWorker(pb.DrainWorkerRequest(cancel=True)):
        pass
    progress = [one async for one in drain]
    assert progress[-1].left >= 1
    await run(owner.api, session.session_id, "touch go")
    assert (await running).exit.code == 0
    assert (await owner_of(nodes, session.session_id)).name == owner.name


async def test_a_parked_session_is_described_and_closed(nodes: dict[str, Node]) -> None:
    """Through any worker; its thread gets a new session then, without the files."""
    session = (await open_thread(nodes["a"], "parked")).session
    owner = await owner_of(nodes, session.session_id)
    other = others(nodes, owner)[0]
    await run(owner.api, session.session_id, "echo kept > file")
    snapshots = snapshot_service_pb2_grpc.SnapshotServiceStub(other.api.channel)
    await snapshots.ParkSession(
        snapshot_service_pb2.ParkSessionRequest(session_id=session.session_id), timeout=60
    )

    async def is_parked() -> bool:
        request = pb.FindSessionRequest(session_id=session.session_id)
        return bool((await other.cluster.FindSession(request, timeout=30)).parked)

    await until(is_parked)
    asked = session_service_pb2.GetSessionRequest(session_id=session.session_id)
    described = (await other.api.sessions.GetSession(asked, timeout=30)).session
    assert described.state == session_pb2.SESSION_STATE_PARKED
    closing = session_service_pb2.CloseSessionRequest(session_id=session.session_id)
    await other.api.sessions.CloseSession(closing, timeout=60)
    fresh = (await open_thread(other, "parked")).session
    assert fresh.session_id != session.session_id
    answer = await run(other.api, fresh.session_id, "ls")
    assert b"file" not in answer.stdout.data.split()
