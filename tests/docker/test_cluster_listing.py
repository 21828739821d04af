"""Sessions of three daemons, listed by any of them, with a real Redis and a real object service."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd_client import AsyncSandboxClient
from sandboxd_proto.v1 import cluster_service_pb2 as pb
from sandboxd_proto.v1 import cluster_service_pb2_grpc, session_pb2, session_service_pb2
from tests.cluster.servers import running_redis
from tests.docker.commands import run
from tests.docker.daemon_process import Api, DaemonProcess, served
from tests.ports import free_port
from tests.snapshots.object_server import BUCKET, object_server

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
    pytest.mark.alone,  # leases end on time, whatever else the machine does
]

LEASE = 8.0
PATIENCE = 120.0
ANSWER_SECONDS = 60.0
"""Limit of a listing; one of which a part is missing takes a few seconds on a host with time."""
ACTIVE = session_pb2.SESSION_STATE_ACTIVE
PARKED = session_pb2.SESSION_STATE_PARKED
NAMES = ("a", "b", "c")
TOKENS = {"ada": new_token(), "bob": new_token()}
Response = session_service_pb2.ListSessionsResponse


@dataclass
class Node:
    name: str
    daemon: DaemonProcess
    api: Api
    address: str

    @property
    def cluster(self) -> cluster_service_pb2_grpc.ClusterServiceStub:
        return cluster_service_pb2_grpc.ClusterServiceStub(self.api.channel)

    def signal(self, number: signal.Signals) -> None:
        assert self.daemon.process is not None
        self.daemon.process.send_signal(number)

    async def list(self, **fields: Any) -> Response:
        request = session_service_pb2.ListSessionsRequest(**fields)
        return await self.api.sessions.ListSessions(request, timeout=ANSWER_SECONDS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sequence[Node]]:
    keys = Path(tmp_path_factory.mktemp("keys"))
    (keys / "cluster").write_text("c" * 64)
    (keys / "snapshots").write_text("5" * 64)
    users = [(Caller(name=one, scope=Scope.USER, user_id=one), TOKENS[one]) for one in TOKENS]
    (keys / "tokens").write_text("\n".join(line(who, hash_of(token)) for who, token in users))
    (keys / "tokens").chmod(0o600)
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(running_redis())
        objects = stack.enter_context(object_server())
        found = []
        for name in NAMES:
            port = free_port()
            daemon = DaemonProcess(
                HOST="127.0.0.1",
                PORT=str(port),
                WORKER_ID=name,
                REDIS_HOST="127.0.0.1",
                REDIS_PORT=str(redis.port),
                SANDBOXD_TOKENS_FILE=str(keys / "tokens"),
                SANDBOXD_CLUSTER_KEY_FILE=str(keys / "cluster"),
                SANDBOXD_SNAPSHOT_KEY_FILE=str(keys / "snapshots"),
                SANDBOXD_SNAPSHOT_STORE=f"s3://{BUCKET}/listing",
                SANDBOXD_SNAPSHOT_STORE_ENDPOINT=objects,
                AWS_ACCESS_KEY_ID="test",
                AWS_SECRET_ACCESS_KEY="test",
                SANDBOXD_LEASE_SECONDS=f"{LEASE:g}",
                SANDBOXD_GRACE_SECONDS="60",
                MAX_POOL_SIZE="6",
            )
            await stack.enter_async_context(served(daemon))
            api = await stack.enter_async_context(daemon.api())
            found.append(Node(name, daemon, api, f"127.0.0.1:{port}"))
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(nodes: Sequence[Node]) -> Sequence[str]:
    """A session of ada on each worker, then one of bob on each, in the order of their creation."""
    return [
        (await open_at(node, user, f"on-{node.name}")).session.session_id
        for user in TOKENS
        for node in nodes
    ]


async def open_at(node: Node, user: str, thread: str) -> session_service_pb2.OpenSessionResponse:
    """On this worker, as if another had placed it there."""
    request = session_service_pb2.OpenSessionRequest(user_id=user, thread_id=thread)
    answers = []

    async def is_open() -> bool:
        placed = [("sandboxd-hop", "1")]
        answers.append(await node.api.sessions.OpenSession(request, timeout=60, metadata=placed))
        return True

    await until(is_open)
    return answers[-1]


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    """Look until it is true; a call that may be repeated counts as no."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                if await look():
                    return
            except grpc.aio.AioRpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED):
                    raise
            await asyncio.sleep(0.05)


async def lacking(missing: Sequence[str], node: Node, **fields: Any) -> Response:
    """A page on which exactly these workers are missing; others that are slow on a busy host are
    asked again."""
    found: list[Response] = []

    async def is_so() -> bool:
        found.append(await node.list(**fields))
        return list(found[-1].missing_workers) == missing

    await until(is_so)
    return found[-1]


def ids(response: Response) -> list[str]:
    return [one.session_id for one in response.sessions]


async def test_every_worker_lists_the_same(nodes: Sequence[Node], opened: Sequence[str]) -> None:
    """All sessions, in the order of their creation, with what each uses."""
    for node in nodes:
        page = await lacking([], node, with_usage=True, state=ACTIVE)
        assert ids(page) == opened
        assert all(one.usage.processes for one in page.sessions)


async def test_pages_of_one_session(nodes: Sequence[Node], opened: Sequence[str]) -> None:
    """Each from another worker than the one before."""
    found: list[str] = []
    token = ""
    for turn in range(len(opened) + 1):
        page = await lacking([], nodes[turn % 3], page_size=1, page_token=token)
        found += ids(page)
        token = page.next_page_token
        if not token:
            break
    assert (found, token) == (opened, "")


async def test_users_see_their_own(nodes: Sequence[Node], opened: Sequence[str]) -> None:
    """Through every worker, of every worker, whatever they ask for."""
    for user, other, own in (("ada", "bob", opened[:3]), ("bob", "ada", opened[3:])):
        for node in nodes:
            client = AsyncSandboxClient(server_url=f"grpc://{node.address}", token=TOKENS[user])
            async with client:
                for asked, expected in (("", own), (user, own), (other, [])):
                    listed = await client.list_sessions(user_id=asked)
                    while listed.missing_workers:  # the host is busy
                        listed = await client.list_sessions(user_id=asked)
                    assert [one.session_id for one in listed] == expected


async def test_a_session_that_moved_is_listed_once(
    nodes: Sequence[Node], opened: Sequence[str]
) -> None:
    """As its owner says: the worker that has parked it does not learn that another opened it, and
    what it still says is left out, also where only parked sessions are asked for."""
    left, taker, asked = nodes[2], nodes[1], nodes[0]
    await run(left.api, opened[2], "echo kept > file")
    async for _ in left.cluster.DrainWorker(pb.DrainWorkerRequest(), timeout=PATIENCE):
        pass
    for node in nodes:
        page = await lacking([], node, state=PARKED)
        assert ids(page) == [opened[2], opened[5]]
        assert ids(await lacking([], node)) == opened
    taken = await open_at(taker, "ada", "on-c")
    assert (taken.session.session_id, taken.session.incarnation) == (opened[2], 2)
    for node in (asked, taker, left):
        assert ids(await lacking([], node, state=PARKED)) == [opened[5]]
        assert opened[2] in ids(await lacking([], node, state=ACTIVE))
        (one,) = [one for one in (await lacking([], node)).sessions if one.session_id == opened[2]]
        assert (one.state, one.incarnation) == (ACTIVE, 2)
    async for _ in left.cluster.DrainWorker(pb.DrainWorkerRequest(cancel=True)):
        pass


async def not_on_the_first(nodes: Sequence[Node], opened: Sequence[str]) -> list[str]:
    """Sessions that others than the first worker have open."""
    active = ids(await lacking([], nodes[1], state=ACTIVE))
    first = {opened[0], opened[3]}
    assert first < set(active)
    return [one for one in active if one not in first]


async def test_a_worker_that_stands_still_is_named(
    nodes: Sequence[Node], opened: Sequence[str]
) -> None:
    """The others are listed; it is complete again when the worker goes on."""
    stopped = nodes[0]
    rest = await not_on_the_first(nodes, opened)
    stopped.signal(signal.SIGSTOP)
    try:
        for node in nodes[1:]:
            assert ids(await lacking(["a"], node, state=ACTIVE)) == rest
    finally:
        stopped.signal(signal.SIGCONT)
    for node in nodes:
        assert ids(await lacking([], node)) == opened


async def test_a_killed_worker_is_named(nodes: Sequence[Node], opened: Sequence[str]) -> None:
    """Until it is there again, with its sessions."""
    killed = nodes[0]
    rest = await not_on_the_first(nodes, opened)
    await killed.daemon.signal(signal.SIGKILL)
    for node in nodes[1:]:
        assert ids(await lacking(["a"], node, state=ACTIVE)) == rest
    await killed.daemon.start()
    for node in nodes:
        assert ids(await lacking([], node)) == opened
