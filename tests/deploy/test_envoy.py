"""Envoy with our configuration, in front of two servers: who gets which call, and what it does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
import yaml

from tests.deploy import router as routers
from tests.deploy import worker as workers
from tests.deploy.router import ENVOY, Router
from tests.deploy.tools import write_clusters
from tests.deploy.worker import SERVICE, Worker
from tests.fakes.waiting import eventually

pytestmark = pytest.mark.xdist_group("envoy")
LIMIT = 60.0
MORE_THAN_DEFAULT = 1_200
"""Calls at once; Envoy's own limit for a cluster is 1,024."""


class Fleet:
    def __init__(self, router: Router, first: Worker, second: Worker) -> None:
        self.router, self.first, self.second = router, first, second


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with (
        workers.running("w1") as first,
        workers.running("w2") as second,
        routers.running(tmp_path, [first, second]) as router,
    ):
        yield Fleet(router, first, second)


@asynccontextmanager
async def channel_to(
    router: Router, credentials: grpc.ChannelCredentials | None = None
) -> AsyncIterator[grpc.aio.Channel]:
    # Channels of one process share connections unless they are told not to.
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", 8 << 20),
    ]
    target = f"localhost:{router.port}"
    if credentials is None:
        channel = grpc.aio.insecure_channel(target, options=options)
    else:
        channel = grpc.aio.secure_channel(target, credentials, options=options)
    async with channel:
        yield channel


def named(name: str | None) -> tuple[tuple[str, str], ...]:
    return () if name is None else (("sandboxd-worker", name),)


def call(
    channel: grpc.aio.Channel, name: str | None, method: str = "Who", timeout: float = LIMIT
) -> Any:
    method_call = channel.unary_unary(f"/{SERVICE}/{method}")
    return method_call(b"", metadata=named(name), timeout=timeout, wait_for_ready=False)


async def refusal(awaited: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await awaited
    return refused.value


async def until_it_answers(channel: grpc.aio.Channel, name: str | None, answer: bytes) -> None:
    async def look() -> bytes:
        try:
            return bytes(await call(channel, name))
        except grpc.aio.AioRpcError:
            return b""

    await Router.until(lambda found: found == answer, look)


async def test_a_name_leads_to_its_worker(fleet: Fleet) -> None:
    async with channel_to(fleet.router) as channel:
        for _ in range(20):
            assert await call(channel, "w1") == b"w1"
            assert await call(channel, "w2") == b"w2"

    assert fleet.first.calls == fleet.second.calls == 20


async def test_a_call_without_a_name_goes_to_any_worker(fleet: Fleet) -> None:
    """All are used."""
    async with channel_to(fleet.router) as channel:
        answers = {await call(channel, None) for _ in range(100)}

    assert answers == {b"w1", b"w2"}
    assert fleet.first.calls + fleet.second.calls == 100


@pytest.mark.parametrize("name", ["w3", "W1", "", "any", "api", "w1,w2", "http://w1", "x" * 4000])
async def test_an_unknown_name_is_refused(fleet: Fleet, name: str) -> None:
    """No worker is called, and the answer tells the client to forget the name."""
    async with channel_to(fleet.router) as channel:
        error = await refusal(call(channel, name))

    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    told = [*(error.initial_metadata() or ()), *(error.trailing_metadata() or ())]
    assert ("sandboxd-router", "unknown-worker") in told
    assert fleet.first.calls == fleet.second.calls == 0


async def test_a_name_cannot_be_an_address(fleet: Fleet) -> None:
    """A server that is not in the file is not reached, whatever a caller writes."""
    async with workers.running("foreign") as foreign, channel_to(fleet.router) as channel:
        for name in (f"127.0.0.1:{foreign.port}", f"localhost:{foreign.port}", "foreign"):
            assert (await refusal(call(channel, name))).code() is grpc.StatusCode.UNIMPLEMENTED
        assert foreign.calls == 0


@pytest.mark.parametrize("name", ["w1", None])
async def test_a_caller_cannot_speak_as_a_worker(fleet: Fleet, name: str | None) -> None:
    """What workers tell each other about a caller is removed; the caller's own metadata stays."""
    sent = (
        *named(name),
        ("authorization", "Bearer token"),
        ("sandboxd-turn-id", "7"),
        ("sandboxd-hop", "1"),
        ("sandboxd-vouched-bin", b"admin"),
    )
    async with channel_to(fleet.router) as channel:
        who = channel.unary_unary(f"/{SERVICE}/Who")
        answer = await who(b"", metadata=sent, timeout=LIMIT)

    worker = fleet.first if answer == b"w1" else fleet.second
    assert worker.metadata["authorization"] == "Bearer token"
    assert worker.metadata["sandboxd-turn-id"] == "7"
    assert not {"sandboxd-hop", "sandboxd-vouched-bin"} & worker.metadata.keys()


async def test_a_worker_appears_and_disappears_with_a_rename(fleet: Fleet) -> None:
    async with workers.running("w3") as third, channel_to(fleet.router) as channel:
        assert (await refusal(call(channel, "w3"))).code() is grpc.StatusCode.UNIMPLEMENTED

        await fleet.router.use(fleet.first, fleet.second, third)
        await until_it_answers(channel, "w3", b"w3")

        await fleet.router.use(fleet.first, third)

        async def is_gone() -> bool:
            try:
                await call(channel, "w2")
            except grpc.aio.AioRpcError as error:
                return error.code() is grpc.StatusCode.UNIMPLEMENTED
            return False

        await Router.until(bool, is_gone)
        assert await call(channel, "w1") == b"w1"


async def test_a_worker_that_moves_is_found_at_its_new_address(fleet: Fleet) -> None:
    async with workers.running("w2") as moved, channel_to(fleet.router) as channel:
        await fleet.router.use(fleet.first, moved)

        async def went_there() -> bool:
            await call(channel, "w2")
            return moved.calls > 0

        await Router.until(bool, went_there)


async def test_a_broken_file_changes_nothing(fleet: Fleet) -> None:
    """The workers that were known stay, until there is a file that can be read."""

    async def failures() -> int:
        found = await fleet.router.ask("/stats?format=json&filter=cds.update_(rejected|failure)")
        return sum(one.get("value", 0) for one in found["stats"])

    file = fleet.router.directory / "clusters" / "clusters.json"
    write_clusters().replace(file, '{"resources": [')
    async with channel_to(fleet.router) as channel:
        await Router.until(bool, failures)
        assert await call(channel, "w1") == b"w1"

        await fleet.router.use(fleet.first)
        assert await call(channel, "w1") == b"w1"


async def test_streams_go_both_ways_at_once(fleet: Fleet) -> None:
    """Each answer comes before the next request is sent, and large messages pass."""
    async with channel_to(fleet.router) as channel:
        stream = channel.stream_stream(f"/{SERVICE}/Echo")(metadata=named("w2"), timeout=LIMIT)
        for number in range(50):
            await stream.write(b"%d" % number)
            assert await stream.read() == b"w2:%d" % number
        large = bytes(3 << 20)
        await stream.write(large)
        assert await stream.read() == b"w2:" + large
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF


async def test_a_stream_goes_on_while_others_come_and_go(fleet: Fleet) -> None:
    """A new list does not cut off a worker that is in the old one and in the new one."""
    async with channel_to(fleet.router) as channel:
        stream = channel.stream_stream(f"/{SERVICE}/Echo")(metadata=named("w1"), timeout=LIMIT)
        await stream.write(b"before")
        assert await stream.read() == b"w1:before"
        async with workers.running("w3") as third:
            await fleet.router.use(fleet.first, third)
            await until_it_answers(channel, "w3", b"w3")
            await fleet.router.use(fleet.first)
        await stream.write(b"after")
        assert await stream.read() == b"w1:after"
        await stream.done_writing()


async def test_a_deadline_holds_and_reaches_the_worker(fleet: Fleet) -> None:
    """The caller is told, and the worker stops; it knew how much time there was."""
    async with channel_to(fleet.router) as channel:
        error = await refusal(call(channel, "w1", "Hold", timeout=1.0))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: fleet.first.cancelled == 1, timeout_seconds=LIMIT)
        assert fleet.first.seconds_left is not None
        assert fleet.first.seconds_left <= 1.0

        await call(channel, "w1", timeout=7_200.0)
        assert fleet.first.seconds_left > 7_000.0


async def test_a_cancelled_call_ends_at_the_worker(fleet: Fleet) -> None:
    async with channel_to(fleet.router) as channel:
        held = call(channel, "w1", "Hold")
        await eventually(lambda: fleet.first.held == 1, timeout_seconds=LIMIT)
        held.cancel()
        await eventually(lambda: fleet.first.cancelled == 1, timeout_seconds=LIMIT)


async def test_more_calls_at_once_than_envoy_allows_by_default(fleet: Fleet) -> None:
    """All of them are at one worker at the same time.

    They come in batches: a gRPC server refuses some of a thousand that it has not yet looked at.
    """
    async with channel_to(fleet.router) as first, channel_to(fleet.router) as second:
        calls: list[Any] = []
        while len(calls) < MORE_THAN_DEFAULT:
            for channel in (first, second):
                calls.extend(call(channel, "w1", "Hold", timeout=10 * LIMIT) for _ in range(50))
            await eventually(lambda: fleet.first.held == len(calls), timeout_seconds=LIMIT)
        fleet.first.let_go.set()
        assert set(await asyncio.gather(*calls)) == {b"w1"}


async def test_a_worker_that_drains_gets_only_calls_with_its_name(fleet: Fleet) -> None:
    """It reports that it does not serve, but its sessions are still there."""
    await fleet.first.set_healthy(False)
    async with channel_to(fleet.router) as channel:

        async def answers() -> set[bytes]:
            return {await call(channel, None) for _ in range(50)}

        await Router.until(lambda found: found == {b"w2"}, answers)
        assert await answers() == {b"w2"}
        assert await call(channel, "w1") == b"w1"


async def test_calls_without_a_name_survive_the_end_of_a_worker(tmp_path: Path) -> None:
    """A worker that cannot be connected to is passed over, once one is known that can be."""
    async with workers.running("w1") as first:
        async with workers.running("w2") as second:
            pass
        async with (
            routers.running(tmp_path, [first, second]) as router,
            channel_to(router) as channel,
        ):
            # On a busy machine the first look at the health of the first one may come too late.
            await until_it_answers(channel, None, b"w1")
            answers = [await call(channel, None) for _ in range(50)]
            assert set(answers) == {b"w1"}
            error = await refusal(call(channel, "w2"))
            assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_health_says_whether_any_worker_can_be_used(fleet: Fleet) -> None:
    """For load balancers in front, which speak HTTP; nothing else is there for them."""
    assert await fleet.router.get("/health") == 200
    assert await fleet.router.get("/") == 404
    assert await fleet.router.get(f"/{SERVICE}/Who") == 404

    await fleet.first.set_healthy(False)
    await fleet.second.set_healthy(False)
    await Router.until(lambda status: status == 503, lambda: fleet.router.get("/health"))
    async with channel_to(fleet.router) as channel:

        async def code() -> grpc.StatusCode:
            awaited = call(channel, None)
            return await awaited.code()

        # The part of Envoy that answers /health learns it a moment before the one that routes.
        await Router.until(lambda found: found is grpc.StatusCode.UNAVAILABLE, code)


async def test_no_time_limit_ends_a_long_stream(fleet: Fleet) -> None:
    """In the configuration that is in force: neither the limit of a route (15 s by default) nor
    that of silence (5 minutes)."""
    dumped = json.dumps(await fleet.router.ask("/config_dump"))
    configured = json.loads(dumped)["configs"]
    listener = next(one for one in configured if one["@type"].endswith("ListenersConfigDump"))
    manager = listener["dynamic_listeners"][0]["active_state"]["listener"]["filter_chains"][0][
        "filters"
    ][0]["typed_config"]
    assert manager["stream_idle_timeout"] == "0s"
    assert "request_timeout" not in manager
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    assert [route["route"]["timeout"] for route in routes] == ["0s", "0s"]
    for route in routes:
        limits = route["route"]["max_stream_duration"]
        assert limits == {"max_stream_duration": "0s", "grpc_timeout_header_max": "0s"}


async def test_tls_on_both_sides(tmp_path: Path) -> None:
    """Callers check Envoy, and Envoy checks the workers: one with another CA gets no call."""
    authority, stranger = trustme.CA(), trustme.CA()
    (tmp_path / "tls").mkdir()
    front = authority.issue_cert("localhost")
    front.private_key_pem.write_to_path(str(tmp_path / "tls" / "tls.key"))
    for pem in front.cert_chain_pems:
        pem.write_to_path(str(tmp_path / "tls" / "tls.crt"), append=True)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    tls = write_clusters().Tls(str(tmp_path / "ca.crt"), "workers.sandboxd")

    async with (
        workers.running("w1", server_credentials(authority, "workers.sandboxd")) as first,
        workers.running("w2", server_credentials(stranger, "workers.sandboxd")) as second,
        workers.running("w3", server_credentials(authority, "other.sandboxd")) as third,
        routers.running(
            tmp_path, [first, second, third], listeners="listeners_tls.yaml", tls=tls
        ) as router,
        channel_to(router, grpc.ssl_channel_credentials(authority.cert_pem.bytes())) as channel,
    ):
        assert await call(channel, "w1") == b"w1"
        for name in ("w2", "w3"):
            assert (await refusal(call(channel, name))).code() is grpc.StatusCode.UNAVAILABLE
        assert second.calls == third.calls == 0

        async with channel_to(router) as plain:
            error = await refusal(call(plain, "w1"))
        assert error.code() is grpc.StatusCode.UNAVAILABLE


def server_credentials(authority: trustme.CA, name: str) -> grpc.ServerCredentials:
    issued = authority.issue_cert(name)
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    return grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])


def test_both_listeners_are_the_same_but_for_tls() -> None:
    plain, tls = (
        yaml.safe_load((ENVOY / name).read_text())["resources"][0]
        for name in ("listeners.yaml", "listeners_tls.yaml")
    )
    assert plain["address"]["socket_address"].pop("port_value") == 8000
    assert tls["address"]["socket_address"].pop("port_value") == 8443
    assert tls["filter_chains"][0].pop("transport_socket")

    assert plain == tls
