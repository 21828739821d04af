"""What operators see of a cluster: metrics, the status line, the command line."""

from __future__ import annotations

import grpc
import pytest

from sandboxd_client import AsyncSandboxClient
from tests.cli.command_line import CommandLine
from tests.cluster.nodes import Node, Start, open_thread, until
from tests.cluster.servers import RedisServer
from tests.ports import free_port
from tests.service.client import exec_request, refused
from tests.service.test_metrics import samples


@pytest.fixture
async def nodes(start: Start) -> list[Node]:
    """Two with metrics."""
    return [await start(name, metrics_port=free_port()) for name in ("a", "b")]


async def test_metrics_of_a_worker(nodes: list[Node], redis: RedisServer) -> None:
    """Claims, calls that were passed on or sent away, workers by state, and whether it serves."""
    session_id = (await open_thread(nodes[0], "t")).session.session_id
    owner = next(node for node in nodes if node.daemon.sessions.active_count)
    other = next(node for node in nodes if node is not owner)
    before = (await samples(other.daemon)).get(
        "sandboxd_cluster_routed_calls_total{way=FORWARDED}", 0
    )
    await other.api.execs.Run(exec_request(session_id, "echo"), timeout=30)
    with refused(grpc.StatusCode.UNAVAILABLE, "OWNED_ELSEWHERE"):
        await other.api.execs.Run(
            exec_request(session_id, "echo"),
            timeout=30,
            metadata=[("sandboxd-accept-redirect", "1")],
        )

    told = await samples(other.daemon)
    assert told["sandboxd_cluster_routed_calls_total{way=FORWARDED}"] == before + 1
    assert told["sandboxd_cluster_routed_calls_total{way=REDIRECTED}"] == 1
    assert told["sandboxd_cluster_serving"] == 1
    assert (await samples(owner.daemon))["sandboxd_cluster_claims_total{origin=new}"] == 1

    async def sees_both() -> bool:
        return (await samples(other.daemon))["sandboxd_cluster_workers{state=ready}"] == 2

    await until(sees_both)
    assert other.daemon.status.endswith("workers: 2 ready")

    redis.pause()
    try:

        async def is_cut_off() -> bool:
            return (await samples(other.daemon))["sandboxd_cluster_serving"] == 0

        await until(is_cut_off)
        assert other.daemon.status.endswith("cut off from the cluster")
    finally:
        redis.resume()


async def test_sdk_lists_the_workers(nodes: list[Node]) -> None:
    """For programs that watch a cluster."""
    url = f"unix:{nodes[0].daemon.config.api_socket}"
    async with AsyncSandboxClient(server_url=url) as client:
        assert [worker.id for worker in await client.workers()] == ["a", "b"]


async def test_command_line_shows_the_cluster(nodes: list[Node]) -> None:
    """Any worker lists all, and knows where a session is."""
    session_id = (await open_thread(nodes[0], "t")).session.session_id
    owner = next(node for node in nodes if node.daemon.sessions.active_count)
    for node in nodes:
        sandboxd = CommandLine(node.daemon.config.api_socket)
        listed = (await sandboxd("worker", "list")).stdout.splitlines()[1:]
        found = (await sandboxd("worker", "find", session_id, "--json")).document

        names = [line.split()[0] for line in listed]
        name = node.daemon.config.worker_id
        assert names == [f"{one}*" if one == name else one for one in ("a", "b")]
        assert all(line.split()[1] == "ready" for line in listed)
        assert all(line.split()[-1].endswith("s") for line in listed)
        assert found["worker"] == owner.daemon.config.worker_id
        assert found["address"] == f"127.0.0.1:{owner.daemon.config.port}"
