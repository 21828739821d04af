"""Figures and health over HTTP."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sandboxd.daemon.composition import Daemon
from sandboxd.daemon.instance import StartRefused
from tests.ports import free_port
from tests.service.client import Api

StartDaemon = Callable[..., Awaitable[Daemon]]


@pytest.fixture
async def measured(start_daemon: StartDaemon) -> Daemon:
    return await start_daemon(metrics_port=free_port())


async def get(daemon: Daemon, path: str, **headers: str) -> tuple[int, str]:
    assert daemon.metrics is not None
    url = f"http://127.0.0.1:{daemon.metrics.port}{path}"
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as client,
        client.get(url, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def samples(daemon: Daemon) -> dict[str, float]:
    """Values by name and labels, as Prometheus writes them."""
    status, text = await get(daemon, "/metrics")
    assert status == 200
    return {
        sample.name
        + ("{" + ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items())) + "}")
        * bool(sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics_tell_what_happened(measured: Daemon) -> None:
    """Counters, gauges and histograms follow what the daemon does."""
    async with Api(measured.config.api_socket) as api:
        session_id = await api.open_id("ada", "secret-thread")
        await api.run(session_id, "echo hi")
        await api.run(session_id, "sleep", timeout=0.05)
    told = await samples(measured)

    assert told["sandboxd_sessions_active"] == 1
    assert told["sandboxd_session_opens_total{outcome=CREATED}"] == 1
    assert told["sandboxd_execs_total{ending=EXITED}"] == 1
    assert told["sandboxd_execs_total{ending=TIMED_OUT}"] == 1
    assert told["sandboxd_limit_violations_total{limit=TIMEOUT}"] == 1
    assert told["sandboxd_calls_total{method=Run}"] == 2
    assert told["sandboxd_exec_seconds_count"] == 2
    assert told["sandboxd_exec_seconds_bucket{le=+Inf}"] == 2
    assert told["sandboxd_exec_seconds_bucket{le=0.025}"] <= 1
    assert told["sandboxd_exec_seconds_sum"] >= 0.05
    assert told["sandboxd_pool_sandboxes{environment=default,state=in_use}"] == 1
    assert told["sandboxd_pool_maximum{environment=default}"] == 4
    assert told["process_open_fds"] > 0


async def test_metrics_name_no_user_and_no_session(measured: Daemon) -> None:
    """Nothing that callers choose is in the figures: whoever is on the host may read them."""
    async with Api(measured.config.api_socket) as api:
        session_id = await api.open_id("ada", "secret-thread")
        await api.run(session_id, "echo secret-command", exec_id="secret-exec")
    _, text = await get(measured, "/metrics")

    assert not re.search(f"ada|secret|{session_id}", text)


async def test_buckets_of_a_histogram_never_fall(measured: Daemon) -> None:
    """Each bucket counts what the ones before it do, as Prometheus expects."""
    async with Api(measured.config.api_socket) as api:
        session_id = await api.open_id()
        for _ in range(5):
            await api.run(session_id, "echo hi")
    told = await samples(measured)
    buckets = [value for name, value in told.items() if "exec_seconds_bucket" in name]

    assert len(buckets) > 10
    assert buckets == sorted(buckets)
    assert buckets[-1] == 5


async def test_health_says_whether_the_api_serves(measured: Daemon) -> None:
    """200 while calls are taken, 503 once the daemon leaves."""
    status, text = await get(measured, "/health")
    assert (status, json.loads(text)["status"]) == (200, "serving")
    await measured.server.announce_stop()
    status, text = await get(measured, "/health")
    assert (status, json.loads(text)["status"]) == (503, "not serving")


async def test_nothing_else_is_served(measured: Daemon) -> None:
    """Other paths are not there."""
    assert (await get(measured, "/"))[0] == 404


async def test_a_name_that_was_pointed_at_this_host_is_refused(measured: Daemon) -> None:
    """DNS rebinding: a page in a browser on this host reads no figures."""
    assert measured.metrics is not None
    port = measured.metrics.port
    for path in ("/metrics", "/health"):
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example"):
            status, text = await get(measured, path, Host=host)
            assert (status, "sandboxd_" in text) == (421, False)
        for host in ("127.0.0.1", f"localhost:{port}", "[::1]:1"):
            assert (await get(measured, path, Host=host))[0] == 200


async def test_there_is_no_listener_unless_asked_for(daemon: Daemon) -> None:
    """By default no port is opened."""
    assert daemon.metrics is None


async def test_port_in_use_keeps_the_daemon_from_starting(start_daemon: StartDaemon) -> None:
    """A listener that cannot be opened is told with the setting to change."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StartRefused, match="SANDBOXD_METRICS_PORT"):
            await start_daemon(metrics_port=taken.getsockname()[1])
