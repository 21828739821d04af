"""Sessions of several daemons over fake engines, listed by any of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd.service.transport import forwarding
from sandboxd_client import AsyncSandboxClient
from sandboxd_proto.v1 import session_pb2, session_service_pb2
from tests.cli.command_line import CommandLine
from tests.cluster.nodes import Node, Start, open_thread, until
from tests.cluster.proxy import Proxy
from tests.cluster.servers import RedisServer
from tests.ports import free_port
from tests.service.client import refused

ACTIVE = session_pb2.SESSION_STATE_ACTIVE
CLOSED = session_pb2.SESSION_STATE_CLOSED
TOKENS = {"ada": new_token(), "bob": new_token()}
Response = session_service_pb2.ListSessionsResponse


class Linked(Node):
    """A daemon that others reach through a network that can be cut."""

    def __init__(self, node: Node, way: Proxy) -> None:
        super().__init__(node.daemon, node.api, node.engine)
        self.way = way


@pytest.fixture
async def nodes(start: Start, short_dir: Path) -> AsyncIterator[list[Linked]]:
    """Three that know the tokens."""
    file = short_dir / "tokens"
    users = [(Caller(name=one, scope=Scope.USER, user_id=one), TOKENS[one]) for one in TOKENS]
    file.write_text("\n".join(line(caller, hash_of(token)) for caller, token in users))
    file.chmod(0o600)
    found: list[Linked] = []
    for name in ("a", "b", "c"):
        port = free_port()
        way = Proxy(port)
        await way.start()
        address = f"127.0.0.1:{way.port}"
        node = await start(name, tokens_file=file, port=port, advertise=address)
        found.append(Linked(node, way))
    yield found
    for one in found:
        await one.way.stop()


async def spread(nodes: Sequence[Node]) -> list[str]:
    """Two sessions on every worker, in turns; t0 and t3 are on the first, and so on."""
    opened = []
    for number in range(2 * len(nodes)):
        # As if another worker had placed it there.
        node, placed = nodes[number % len(nodes)], [("sandboxd-hop", "1")]
        answer = await open_thread(node, f"t{number}", metadata=placed)
        opened.append(answer.session.session_id)
    assert [node.daemon.sessions.active_count for node in nodes] == [2] * len(nodes)
    return opened


async def list_at(
    node: Node, *, metadata: Any = (), timeout: float = 60, **fields: Any
) -> Response:
    request = session_service_pb2.ListSessionsRequest(**fields)
    return await node.api.sessions.ListSessions(request, timeout=timeout, metadata=metadata)


async def complete(node: Node, **fields: Any) -> Response:
    return await lacking([], node, **fields)


async def lacking(missing: Sequence[str], node: Node, **fields: Any) -> Response:
    """A page on which exactly these workers are missing; others that are slow on a busy host are
    asked again."""
    found: list[Response] = []

    async def is_so() -> bool:
        found.append(await list_at(node, **fields))
        assert set(missing) <= set(found[-1].missing_workers)
        return list(found[-1].missing_workers) == missing

    await until(is_so)
    return found[-1]


def ids(response: Response) -> list[str]:
    return [one.session_id for one in response.sessions]


async def test_every_worker_lists_all_sessions(nodes: list[Linked]) -> None:
    """In the order of their creation; also for a caller that would rather be sent elsewhere."""
    opened = await spread(nodes)
    for node in nodes:
        assert ids(await complete(node)) == opened
        follows = [("sandboxd-accept-redirect", "1")]
        assert ids(await complete(node, metadata=follows)) == opened
        usage = await complete(node, with_usage=True, state=ACTIVE)
        assert ids(usage) == opened


async def test_a_forwarded_listing_is_of_one_worker(nodes: list[Linked]) -> None:
    """Or workers would ask each other without end; together they have every session once."""
    opened = await spread(nodes)
    parts = [await list_at(node, metadata=[("sandboxd-hop", "1")]) for node in nodes]
    assert [len(part.sessions) for part in parts] == [
        node.daemon.sessions.active_count for node in nodes
    ]
    assert sorted(one for part in parts for one in ids(part)) == sorted(opened)


async def test_pages_of_several_workers(nodes: list[Linked]) -> None:
    """Each page from another worker: the token of one is good at every other. Filters hold."""
    opened = await spread(nodes)
    closing = session_service_pb2.CloseSessionRequest(session_id=opened[1])
    await nodes[0].api.sessions.CloseSession(closing, timeout=60)
    for state, expected in (
        (session_pb2.SESSION_STATE_UNSPECIFIED, opened),
        (ACTIVE, [one for one in opened if one != opened[1]]),
        (CLOSED, [opened[1]]),
    ):
        for size in (1, 3, 100):
            found: list[str] = []
            token, turn = "", 0
            while turn == 0 or token:
                page = await complete(
                    nodes[turn % 3], page_size=size, page_token=token, state=state
                )
                assert len(page.sessions) <= size
                found += ids(page)
                token, turn = page.next_page_token, turn + 1
            assert found == expected


async def test_requests_that_are_not_valid_are_refused(nodes: list[Linked]) -> None:
    """As by a daemon alone; no other worker is asked."""
    for wrong in ({"page_token": "wrong"}, {"page_size": 1001}, {"state": 99}):
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"):
            await list_at(nodes[0], **wrong)
    assert all("ListSessions" not in calls_of(node) for node in nodes[1:])


def calls_of(node: Node) -> Any:
    node.daemon.journal.flush()
    return node.daemon.journal.statistics.calls


async def test_a_caller_sees_only_its_own(nodes: list[Linked]) -> None:
    """On every worker: the others learn who asks, and no token."""
    opened = await spread(nodes)
    clients = {
        name: AsyncSandboxClient(
            server_url=f"grpc://127.0.0.1:{nodes[0].daemon.config.port}", token=token
        )
        for name, token in TOKENS.items()
    }
    for name, client in clients.items():
        async with client:
            for asked in ("", "ada", "bob"):
                found = await client.list_sessions(user_id=asked)
                while found.missing_workers:  # the host was busy
                    found = await client.list_sessions(user_id=asked)
                is_own = name == "ada" and asked in ("", "ada")
                assert len(found) == (len(opened) if is_own else 0)


async def test_a_worker_that_does_not_answer_is_named(nodes: list[Linked]) -> None:
    """The rest is listed, page by page, and each page says what it lacks. The same request returns
    a complete page once the worker answers again."""
    opened = await spread(nodes)
    missing = [one for one in opened if nodes[2].daemon.sessions.has(one)]
    await complete(nodes[0])
    nodes[2].way.cut()
    found: list[str] = []
    token, is_first = "", True
    while is_first or token:
        page = await lacking(["c"], nodes[0], page_size=2, page_token=token)
        found += ids(page)
        token, is_first = page.next_page_token, False
    assert found == [one for one in opened if one not in missing]
    await nodes[2].way.mend()
    assert ids(await complete(nodes[0], page_size=2)) == opened[:2]


async def test_the_command_line_warns(nodes: list[Linked]) -> None:
    """On standard error, and nothing else changes. A session is found by user and thread, whichever
    worker has it; one that is not found may be on a worker that is missing."""
    opened = await spread(nodes)
    sandboxd = CommandLine(nodes[0].daemon.config.api_socket)
    shown = await sandboxd("session", "show", "ada/t1", "--json")
    assert shown.document["session_id"] == opened[1]
    nodes[2].way.cut()
    warning = "warning: worker c does not answer; its sessions may be missing\n"
    for words in (("session", "list", "-q"), ("top", "--once"), ("session", "show", "ada/t2")):

        async def warns(words: Sequence[str] = words) -> bool:
            ran = await sandboxd(*words)
            assert "warning: worker" in ran.stderr
            if not ran.stderr.startswith(warning):
                return False  # the host was busy
            assert (opened[0] in ran.stdout, opened[2] in ran.stdout) == (
                "show" not in words,
                False,
            )
            assert ran.code == (3 if "show" in words else 0)
            return True

        await until(warns)


async def test_the_caller_gets_its_answer_in_time(nodes: list[Linked]) -> None:
    """A worker that stands still uses up only a part of the caller's time."""
    await spread(nodes)
    await complete(nodes[0])
    nodes[2].way.cut()

    async def is_answered() -> bool:
        try:
            return "c" in (await list_at(nodes[0], timeout=2)).missing_workers
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            return False  # the host was busy

    await until(is_answered)


async def test_a_lost_worker_is_named(nodes: list[Linked]) -> None:
    """It is not asked: others may have its sessions by then. Those are listed as the others say."""
    opened = await spread(nodes)
    lost = nodes[2]
    threads = {f"t{n}": one for n, one in enumerate(opened) if lost.daemon.sessions.has(one)}
    membership = lost.daemon.sessions.ownership.directory.membership  # type: ignore[attr-defined]
    await membership.stop()
    thread, session_id = next(iter(threads.items()))

    async def is_taken() -> bool:
        try:
            return bool((await open_thread(nodes[0], thread)).session.incarnation == 2)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False

    await until(is_taken)

    async def is_listed() -> bool:
        found = await list_at(nodes[1])
        if list(found.missing_workers) != ["c"]:
            return False  # it is not noticed yet, or another did not answer in time
        known = {one.session_id: one for one in found.sessions}
        assert known[session_id].incarnation == 2
        return set(opened) - set(threads.values()) | {session_id} == set(known)

    await until(is_listed)


async def test_without_redis_known_workers_are_asked(
    nodes: list[Linked], redis: RedisServer
) -> None:
    """A listing needs it only to learn who is there."""
    opened = await spread(nodes)
    await complete(nodes[0])
    redis.pause()
    assert ids(await complete(nodes[0])) == opened
    redis.resume()


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
async def test_clock_that_differs(
    seconds: float, nodes: list[Linked], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement about the caller is dated again, and nothing is missing."""
    opened = await spread(nodes)
    monkeypatch.setattr(forwarding, "clock", lambda: time.time() + seconds)
    assert ids(await complete(nodes[0])) == opened


async def test_a_cancelled_listing_asks_nobody_any_longer(nodes: list[Linked]) -> None:
    """The calls to the others end with that of the caller."""
    await complete(nodes[0])
    nodes[2].way.cut()
    call = asyncio.ensure_future(list_at(nodes[0]))
    await until(_is_asking)
    call.cancel()

    async def is_over() -> bool:
        return not await _is_asking()

    await until(is_over)
    assert call.cancelled()


async def _is_asking() -> bool:
    """Whether a question to another worker is under way."""
    return any("Listing._with_others" in repr(task.get_coro()) for task in asyncio.all_tasks())
