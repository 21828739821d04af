"""Several daemons over fake engines and a real Redis: any of them answers for every session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import grpc
import pytest
from grpc import aio

from sandboxd.access import Caller, Scope
from sandboxd.cluster.contract import WorkerState
from sandboxd.service.in_process import CallRefused, InProcessCalls
from sandboxd.service.transport import forwarding
from sandboxd_proto.v1 import exec_service_pb2, session_pb2, session_service_pb2
from tests.cluster.nodes import LEASE, PATIENCE, Node, Start, open_thread, until
from tests.cluster.proxy import Proxy
from tests.cluster.servers import RedisServer
from tests.ports import free_port
from tests.service.client import exec_request, refused

CONSOLE = Caller(name="ops", scope=Scope.ADMIN)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


async def test_every_worker_answers_for_a_session(nodes: list[Node]) -> None:
    """The same session, its commands and their output, whichever worker is asked; one sandbox."""
    opened = [await open_thread(node, "t") for node in nodes]
    ids = {answer.session.session_id for answer in opened}
    assert len(ids) == 1
    assert [answer.outcome for answer in opened][1:] == [
        session_service_pb2.OPEN_OUTCOME_ATTACHED
    ] * 2
    (session_id,) = ids
    for number, node in enumerate(nodes):
        answer = await node.api.execs.Run(exec_request(session_id, f"echo {number}"), timeout=30)
        assert answer.stdout.data == b"%d\n" % number
        call = node.api.execs.Exec(exec_request(session_id, f"echo {number}"))
        events = [event async for response in call for event in response.events]
        assert events[-1].HasField("exited")
    assert sum(node.daemon.sessions.active_count for node in nodes) == 1


async def test_racing_opens_make_one_session(nodes: list[Node]) -> None:
    """A hundred callers at three workers get one session."""
    opened = await asyncio.gather(*(open_thread(nodes[n % 3], "race") for n in range(99)))
    assert len({answer.session.session_id for answer in opened}) == 1
    assert sum(node.daemon.sessions.active_count for node in nodes) == 1


async def test_errors_come_back_as_they_are(nodes: list[Node]) -> None:
    """Code, reason and details of a refusal by the owner; what nobody has is not found."""
    session_id = (await open_thread(nodes[0], "t")).session.session_id
    for node in nodes:
        with refused(grpc.StatusCode.NOT_FOUND, "EXEC_NOT_FOUND"):
            await node.api.execs.WaitExec(
                exec_service_pb2.WaitExecRequest(session_id=session_id, exec_id="none"), timeout=30
            )
        with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
            await node.api.execs.Run(exec_request("ses_" + "0" * 24, "echo"), timeout=30)


async def test_refusal_by_another_worker_reaches_the_console(nodes: list[Node]) -> None:
    """A call within the process that is passed on ends as the owner ends it, not as INTERNAL."""
    session_id = (await open_thread(nodes[0], "t")).session.session_id
    other = next(node for node in nodes if not node.daemon.sessions.active_count)
    calls = InProcessCalls(other.daemon.server.handlers)
    call = calls.begin("/sandboxd.v1.ExecService/WaitExec", CONSOLE, peer="console")
    request = exec_service_pb2.WaitExecRequest(session_id=session_id, exec_id="none")
    await call.put(request.SerializeToString())
    with pytest.raises(CallRefused) as refused:
        async for _ in call.responses():
            pass
    assert b"EXEC_NOT_FOUND" in refused.value.status


async def test_caller_that_wants_to_is_told_the_owner(nodes: list[Node]) -> None:
    """With the metadata for it, the answer names worker and address, and nothing is done."""
    session_id = (await open_thread(nodes[0], "t")).session.session_id
    owner = next(node for node in nodes if node.daemon.sessions.active_count)
    other = next(node for node in nodes if node is not owner)
    with refused(UNAVAILABLE, "OWNED_ELSEWHERE") as refusal:
        await other.api.execs.Run(
            exec_request(session_id, "echo"),
            timeout=30,
            metadata=[("sandboxd-accept-redirect", "1")],
        )
    assert refusal.info.metadata["worker"] == owner.daemon.config.worker_id
    assert refusal.info.metadata["address"] == f"127.0.0.1:{owner.daemon.config.port}"


async def test_closed_session_is_closed_everywhere(nodes: list[Node]) -> None:
    """By any worker; the thread then gets a new session."""
    first = (await open_thread(nodes[0], "t")).session.session_id
    await nodes[1].api.sessions.CloseSession(
        session_service_pb2.CloseSessionRequest(session_id=first), timeout=30
    )

    async def gets_another() -> bool:
        return bool((await open_thread(nodes[2], "t")).session.session_id != first)

    await until(gets_another)


async def test_close_that_nobody_learns_of_is_refused(
    nodes: list[Node], redis: RedisServer
) -> None:
    """While Redis is away; when it is back, the close is done, and the thread gets a new session
    that begins anew."""
    first = (await open_thread(nodes[0], "t")).session.session_id
    owner = next(node for node in nodes if node.daemon.sessions.active_count)
    request = session_service_pb2.CloseSessionRequest(session_id=first)
    redis.pause()
    with pytest.raises(aio.AioRpcError) as caught:
        await owner.api.sessions.CloseSession(request, timeout=30)
    assert caught.value.code() is UNAVAILABLE
    redis.resume()

    async def gets_another() -> bool:
        try:
            session = (await open_thread(nodes[2], "t")).session
        except aio.AioRpcError as error:
            return _is_retryable(error)
        assert (session.session_id != first, session.incarnation) == (True, 1)
        return True

    await until(gets_another)


async def test_cancelled_call_is_cancelled_at_the_owner(nodes: list[Node]) -> None:
    """A command without an id ends with its caller, also where the call was forwarded."""
    session_id = (await open_thread(nodes[0], "t")).session.session_id
    owner = next(node for node in nodes if node.daemon.sessions.active_count)
    other = next(node for node in nodes if node is not owner)
    call = other.api.execs.Exec(exec_request(session_id, "sleep"))
    await call.read()
    assert owner.daemon.sessions.running_exec_count == 1
    call.cancel()
    await until(lambda: _is(owner.daemon.sessions.running_exec_count == 0))


async def test_statement_about_a_caller_needs_the_key(nodes: list[Node]) -> None:
    """A stranger cannot say who it is by forging the metadata of forwarded calls."""
    channel = aio.insecure_channel(f"127.0.0.1:{nodes[0].daemon.config.port}")
    async with channel:
        call = channel.unary_unary(
            "/sandboxd.v1.SessionService/WhoAmI",
            request_serializer=session_service_pb2.WhoAmIRequest.SerializeToString,
            response_deserializer=session_service_pb2.WhoAmIResponse.FromString,
        )
        for forged in (
            b"",
            b"x" * 40,
            b"\0" * 32 + b'{"name": "root"}',
            b"y" * 7_000,
        ):  # gRPC refuses beyond 8 KiB
            with refused(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"):
                await call(
                    session_service_pb2.WhoAmIRequest(),
                    timeout=30,
                    metadata=[("sandboxd-vouched-bin", forged)],
                )


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
async def test_clock_that_differs(
    seconds: float, nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose clock is an hour off has its calls answered all the same; when it is right
    again, too."""
    session_id = (await open_thread(nodes[0], "t")).session.session_id
    for off in (0.0, seconds, 0.0):
        monkeypatch.setattr(forwarding, "clock", lambda off=off: time.time() + off)
        for node in nodes:
            answer = await node.api.execs.Run(exec_request(session_id, "echo 1"), timeout=30)
            assert answer.stdout.data == b"1\n"


async def test_lost_redis_stops_serving_and_comes_back(
    nodes: list[Node], redis: RedisServer
) -> None:
    """Known sessions are served until the lease is nearly over, then refused with a typed error;
    when Redis is back, so are they."""
    session_id = (await open_thread(nodes[0], "t")).session.session_id
    owner = next(node for node in nodes if node.daemon.sessions.active_count)

    async def runs() -> bool:
        try:
            await owner.api.execs.Run(exec_request(session_id, "echo"), timeout=30)
        except aio.AioRpcError as error:
            return _is_retryable(error)
        return True

    redis.pause()
    assert await runs()
    await until(lambda: _not(runs))
    with refused(UNAVAILABLE, "OWNERSHIP_UNKNOWN"):
        await owner.api.execs.Run(exec_request(session_id, "echo"), timeout=30)
    redis.resume()
    await until(runs)
    assert owner.daemon.sessions.active_count == 1


async def test_calls_end_with_the_lease(nodes: list[Node], redis: RedisServer) -> None:
    """What a worker that is cut off would report may be of a session that another has by then: its
    calls end as if their connections had broken, through whichever worker they were made."""
    session_id = (await open_thread(nodes[0], "t")).session.session_id
    owner = next(node for node in nodes if node.daemon.sessions.active_count)
    other = next(node for node in nodes if node is not owner)
    request = exec_request(session_id, "sleep", exec_id="e1")
    await owner.api.execs.StartExec(request, timeout=30)
    attach = exec_service_pb2.AttachExecRequest(session_id=session_id, exec_id="e1")
    streams = [node.api.execs.AttachExec(attach) for node in (owner, other)]
    for stream in streams:
        await stream.read()
    waiting = asyncio.ensure_future(
        owner.api.execs.WaitExec(
            exec_service_pb2.WaitExecRequest(session_id=session_id, exec_id="e1"), timeout=90
        )
    )
    redis.pause()
    for stream in streams:
        with pytest.raises(aio.AioRpcError) as caught:
            while await stream.read() is not aio.EOF:
                pass
        assert caught.value.code() is UNAVAILABLE
    with pytest.raises(aio.AioRpcError) as caught:
        await waiting
    assert caught.value.code() is UNAVAILABLE
    redis.resume()
    await until(lambda: _is(owner.daemon.sessions.ownership.directory.holds(session_id)))
    assert owner.daemon.sessions.running_exec_count == 1  # it outlives those calls, as always


async def _not(look: Callable[[], Awaitable[bool]]) -> bool:
    return not await look()


def _is_retryable(error: aio.AioRpcError) -> bool:
    """False, so that the look is repeated; what may not be repeated is raised."""
    if error.code() is not UNAVAILABLE:
        raise error
    return False


async def _is(fact: bool) -> bool:
    return fact


async def test_sessions_of_a_lost_worker_are_opened_elsewhere(
    start: Start, nodes: list[Node]
) -> None:
    """Told as recreated, on the next incarnation; the lost one lets go of them when it is back."""
    session = (await open_thread(nodes[0], "t")).session
    owner = next(node for node in nodes if node.daemon.sessions.active_count)
    others = [node for node in nodes if node is not owner]
    membership = owner.daemon.sessions.ownership.directory.membership  # type: ignore[attr-defined]
    await membership.stop()

    async def opens() -> bool:
        try:
            answer = await open_thread(others[0], "t")
        except aio.AioRpcError as error:
            return _is_retryable(error)
        if answer.outcome == session_service_pb2.OPEN_OUTCOME_ATTACHED:
            return False  # its lease has not ended yet
        taken = answer.session
        assert (taken.session_id, taken.incarnation) == (session.session_id, 2)
        assert answer.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
        assert taken.state == session_pb2.SESSION_STATE_ACTIVE
        return True

    await until(opens)


async def test_calls_to_a_worker_that_stands_still_end_with_its_lease(
    start: Start, redis: RedisServer
) -> None:
    """An open that waits for it goes on elsewhere by itself, and other calls end as if their
    connection had broken, long before their deadlines."""
    async with AsyncExitStack() as stack:
        peers, store = Proxy(port := free_port()), Proxy(redis.port)
        for proxy in (peers, store):
            await proxy.start()
            stack.push_async_callback(proxy.stop)
        still = await start(
            "still", port=port, advertise=f"127.0.0.1:{peers.port}", redis_port=store.port
        )
        session = (await open_thread(still, "t")).session
        other = await start("other")
        await other.api.execs.Run(exec_request(session.session_id, "echo"), timeout=30)
        peers.cut()
        store.cut()
        began = time.monotonic()
        request = exec_request(session.session_id, "echo")
        running = asyncio.ensure_future(other.api.execs.Run(request, timeout=600))
        opening = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id="t")
        async with asyncio.timeout(PATIENCE):
            answer = await other.api.sessions.OpenSession(opening, timeout=600)
            with pytest.raises(aio.AioRpcError) as ended:
                await running
        assert ended.value.code() is UNAVAILABLE
        seconds = time.monotonic() - began
        assert answer.session.incarnation == 2
        assert answer.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
        print(f"an open that waited for a lost worker: {seconds:.1f} s, lease {LEASE:g} s")


async def test_a_worker_that_drains_gets_nothing_new(nodes: list[Node]) -> None:
    """From the moment at which it says so, whatever it or others knew just before."""
    directory = nodes[0].daemon.sessions.ownership.directory

    async def can_all_take_some() -> bool:
        return all(worker.load.capacity for worker in await directory.workers())

    await until(can_all_take_some)
    for node in nodes:  # so that each has looked at the workers a moment ago
        await open_thread(node, f"before-{node.daemon.config.worker_id}")
    drained = nodes[0]
    await directory.set_state(WorkerState.DRAINING)
    before = drained.daemon.sessions.active_count
    for number in range(4):
        await asyncio.gather(*(open_thread(node, f"after-{number}") for node in nodes))
    assert drained.daemon.sessions.active_count == before
