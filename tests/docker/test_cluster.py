"""Three daemons on one engine, with a real Redis and a real object service."""

from __future__ import annotations

import asyncio
import secrets
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
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
from tests.cluster.proxy import Proxy
from tests.cluster.servers import RedisServer, running_redis
from tests.docker.commands import run
from tests.docker.daemon_process import Api, DaemonProcess, served
from tests.ports import free_port
from tests.snapshots.object_server import BUCKET, object_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
    pytest.mark.calm,  # leases end on time, whatever else the machine does
]

LEASE = 8.0
PATIENCE = 120.0
RECREATED = session_service_pb2.OPEN_OUTCOME_RECREATED
UNPARKED = session_service_pb2.OPEN_OUTCOME_UNPARKED


@dataclass
class Node:
    name: str
    daemon: DaemonProcess
    api: Api
    redis: Proxy
    """Its way to Redis."""

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
            network = Proxy(redis.port)
            await network.start()
            stack.push_async_callback(network.stop)
            daemon = DaemonProcess(
                HOST="127.0.0.1",
                PORT=str(free_port()),
                WORKER_ID=name,
                REDIS_HOST="127.0.0.1",
                REDIS_PORT=str(network.port),
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
            found[name] = Node(name, daemon, api, network)
        yield found


async def open_thread(node: Node, thread: str) -> session_service_pb2.OpenSessionResponse:
    request = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id=thread)
    return await node.api.sessions.OpenSession(request, timeout=60)


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    """Look until it is true; a call that may be repeated counts as no, and so does a session whose
    owner is thought to be lost: it may have started more slowly than its lease lasts."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                if await look():
                    return
            except grpc.aio.AioRpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED):
                    raise
            await asyncio.sleep(0.05)


async def owner_of(nodes: dict[str, Node], session_id: str) -> Node:
    request = pb.FindSessionRequest(session_id=session_id)
    found: list[str] = []

    async def is_known() -> bool:
        found.append((await nodes["a"].cluster.FindSession(request, timeout=30)).worker)
        return True

    await until(is_known)
    return nodes[found[-1]]


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
        return bool(held <= status.active_sessions + status.pool.target + 1)

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


async def test_stopped_worker_has_its_files_again(nodes: dict[str, Node]) -> None:
    """After a plain stop and start its sessions are stopped, whichever worker is asked, and go on
    there with their files, whichever worker opens them."""
    session = (await open_thread(nodes["a"], "stopped")).session
    owner = await owner_of(nodes, session.session_id)
    other = others(nodes, owner)[0]
    await run(owner.api, session.session_id, "echo kept > file")
    await owner.daemon.stop()
    await owner.daemon.start()

    async def is_told() -> bool:
        request = session_service_pb2.ListSessionsRequest(thread_id="stopped")
        (listed,) = (await other.api.sessions.ListSessions(request, timeout=30)).sessions
        asked = session_service_pb2.GetSessionRequest(session_id=session.session_id)
        described = (await other.api.sessions.GetSession(asked, timeout=30)).session
        return {listed.state, described.state} == {session_pb2.SESSION_STATE_STOPPED}

    await until(is_told)
    again = await open_thread(other, "stopped")
    assert (again.outcome, again.workspace_kept) == (RECREATED, True)
    assert (again.session.session_id, again.session.incarnation) == (session.session_id, 2)
    assert (await owner_of(nodes, session.session_id)).name == owner.name
    assert (await run(other.api, session.session_id, "cat file")).stdout.data == b"kept\n"


async def test_cut_off_worker_stops_its_commands(nodes: dict[str, Node]) -> None:
    """Until it knows which sessions it has lost, also if it is killed and started again meanwhile:
    the commands of those end then, and those of the others go on."""
    owned: dict[str, list[str]] = {name: [] for name in nodes}
    for number in range(2 * len(nodes) + 1):
        opened = await open_thread(nodes["a"], f"paused-{number}")
        owner = await owner_of(nodes, opened.session.session_id)
        owned[owner.name].append(f"paused-{number}")
        if len(owned[owner.name]) == 2:
            break
    lost, kept = owned[owner.name]
    other = others(nodes, owner)[0]
    pids, ids = {}, {}
    for thread in (lost, kept):
        ids[thread] = (await open_thread(owner, thread)).session.session_id
        mark = f"9{secrets.randbelow(10**8):08}"
        await run(owner.api, ids[thread], f"echo here > file; nohup sleep {mark} >/dev/null 2>&1 &")
        pids[thread] = await host_pid(f"sleep\0{mark}\0")
        await commit(owner, ids[thread])
    assert not any(map(is_stopped, pids.values()))

    async def are_stopped() -> bool:
        return all(map(is_stopped, pids.values()))

    owner.redis.cut()
    cut = time.monotonic()
    await until(are_stopped)
    seconds = time.monotonic() - cut
    print(f"cluster: commands stopped {seconds:.1f} s after the cut, lease {LEASE:g} s")

    async def is_taken() -> bool:
        return (await open_thread(other, lost)).outcome == RECREATED

    await until(is_taken)
    await owner.daemon.signal(signal.SIGKILL)
    await owner.daemon.start()
    await until(are_stopped)
    await owner.redis.mend()

    async def is_served() -> bool:
        answer = await run(owner.api, ids[kept], "cat file")
        return bool(answer.stdout.data == b"here\n")

    await until(is_served)

    async def goes_on() -> bool:
        return not is_stopped(pids[kept]) and not await asyncio.to_thread(exists, pids[lost])

    await until(goes_on)
    assert (await owner_of(nodes, ids[kept])).name == owner.name
    assert (await owner_of(nodes, ids[lost])).name != owner.name


async def host_pid(command_line: str) -> int:
    """The process that has it, as the host numbers it."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await asyncio.to_thread(pids_of, command_line)):
            await asyncio.sleep(0.05)
    return found[0]


def pids_of(command_line: str) -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if file.read_bytes() == command_line.encode():
                found.append(int(file.parent.name))
    return found


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def is_stopped(pid: int) -> bool:
    """Whether the kernel has stopped the cgroup of a process."""
    groups = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    for _, controllers, path in groups:
        if controllers == "freezer":
            state = Path("/sys/fs/cgroup/freezer", path.lstrip("/"), "freezer.state")
            return state.read_text().strip() == "FROZEN"
    path = next(path for _, controllers, path in groups if not controllers)
    events = Path("/sys/fs/cgroup", path.lstrip("/"), "cgroup.events").read_text()
    return "frozen 1" in events


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
