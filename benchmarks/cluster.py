"""What it costs to reach a session through another worker of a cluster than the one that has it.

    python -m benchmarks.cluster [--rounds N]

Starts a Redis and two daemons of its own. With ENVOY, the path of an Envoy binary, a call through
Envoy is measured, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from google.rpc import error_details_pb2
from grpc import StatusCode, aio
from grpc_status import rpc_status

from benchmarks.client import CommandFailed
from benchmarks.daemon import Daemon, DaemonFailed, free_port, running
from benchmarks.engine import Engine, EngineError
from benchmarks.facts import facts
from benchmarks.race import Contestant, median, milliseconds, race
from benchmarks.table import Group, render
from sandboxd_proto.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    exec_service_pb2,
    exec_service_pb2_grpc,
)

if TYPE_CHECKING:
    from sandboxd_proto.v1.cluster_service_pb2_grpc import ClusterServiceAsyncStub
    from sandboxd_proto.v1.exec_service_pb2_grpc import ExecServiceAsyncStub

WORKERS = ("one", "two")
REDIRECT = ("sandboxd-accept-redirect", "1")
START_SECONDS = 30.0
SECONDS = 60.0
COMMAND = "true"


class Route:
    """A channel to a worker, or to what stands before it, with the metadata of its calls."""

    def __init__(self, target: str, *metadata: tuple[str, str]) -> None:
        self.channel = aio.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)])
        self._execs = cast(
            "ExecServiceAsyncStub", exec_service_pb2_grpc.ExecServiceStub(self.channel)
        )
        self._metadata = metadata

    async def run(self, session_id: str) -> float:
        """Seconds of a Run."""
        request = exec_service_pb2.ExecRequest(session_id=session_id, shell=COMMAND)
        began = time.perf_counter()
        answer = await self._execs.Run(request, metadata=self._metadata, timeout=SECONDS)
        seconds = time.perf_counter() - began
        if answer.exit.code:
            raise CommandFailed(f"{COMMAND!r} ended with {answer.exit.code}")
        return seconds


async def _redirected(refusing: Route, session_id: str) -> float:
    """Seconds of a Run that is refused, and then sent over a new channel to where it belongs."""
    began = time.perf_counter()
    try:
        await refusing.run(session_id)
    except aio.AioRpcError as error:
        owner = Route(_address(error), REDIRECT)
    else:
        raise CommandFailed("the worker did not redirect")
    await owner.run(session_id)
    seconds = time.perf_counter() - began
    await owner.channel.close()
    return seconds


def _address(error: aio.AioRpcError) -> str:
    status = rpc_status.from_call(cast("Any", error))
    info = error_details_pb2.ErrorInfo()
    for detail in status.details if status is not None else ():
        if detail.Unpack(info) and info.reason == "OWNED_ELSEWHERE":
            return str(info.metadata["address"])
    raise error


async def _opened(worker: Daemon) -> str:
    """A session. After the start of Redis, workers that may exist are waited for."""
    give_up_at = time.monotonic() + START_SECONDS
    while True:
        try:
            return await worker.client.open("routes")
        except aio.AioRpcError as error:
            is_over = time.monotonic() > give_up_at
            if is_over or error.code() is not StatusCode.UNAVAILABLE:
                raise DaemonFailed(error.details() or "no session could be opened") from error


async def _measured(workers: Sequence[Daemon], envoy: str, rounds: int) -> Group:
    session_id = await _opened(workers[0])
    cluster = cast(
        "ClusterServiceAsyncStub",
        cluster_service_pb2_grpc.ClusterServiceStub(Route(workers[0].tcp_target).channel),
    )
    request = cluster_service_pb2.FindSessionRequest(session_id=session_id)
    place = await cluster.FindSession(request, timeout=SECONDS)
    other = next(one for one in workers if one.tcp_target != place.address)
    direct = Route(place.address)
    forwarded = Route(other.tcp_target)
    refusing = Route(other.tcp_target, REDIRECT)
    after = Route(place.address, REDIRECT)
    calls = {
        "direct": lambda: direct.run(session_id),
        "forwarded by the other worker": lambda: forwarded.run(session_id),
        "redirected, the first call": lambda: _redirected(refusing, session_id),
        "redirected, from then on": lambda: after.run(session_id),
    }
    with _envoy(envoy, workers) as target:
        if target:
            named = Route(target, ("sandboxd-worker", place.worker))
            calls["through Envoy to the owner"] = lambda: named.run(session_id)
        contestants = [Contestant(name=name, call=call) for name, call in calls.items()]
        samples = await race(contestants, rounds=rounds, seconds=SECONDS)
    base = samples["direct"]
    rows = {
        name: {**milliseconds(found, 50, 90), "of_direct": median(found) / median(base)}
        for name, found in samples.items()
    }
    return Group("Run `true` in a session of another worker", rows)


@contextmanager
def _redis(directory: Path, port: int) -> Iterator[None]:
    options = ("--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--dir", str(directory))
    with subprocess.Popen(
        ["redis-server", "--port", str(port), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as server:
        try:
            _wait_for(port)
            yield
        finally:
            server.kill()


@contextmanager
def _envoy(binary: str, workers: Sequence[Daemon]) -> Iterator[str]:
    """Its address; empty without a binary."""
    if not binary:
        yield ""
        return
    port = free_port()
    ports = {name: int(one.tcp_target.rpartition(":")[2]) for name, one in _named(workers)}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(_envoy_settings(port, ports), file)
        file.flush()
        options = ("--disable-hot-restart", "--concurrency", "1", "--log-level", "error")
        with subprocess.Popen([binary, "-c", file.name, *options]) as server:
            try:
                _wait_for(port)
                yield f"127.0.0.1:{port}"
            finally:
                server.terminate()


def _named(workers: Sequence[Daemon]) -> Iterator[tuple[str, Daemon]]:
    return zip(WORKERS, workers, strict=True)


def _envoy_settings(port: int, workers: dict[str, int]) -> dict[str, Any]:
    """The worker that the metadata names gets the call."""
    types = "type.googleapis.com/envoy.extensions"
    route = {"match": {"prefix": "/"}, "route": {"cluster_header": "sandboxd-worker"}}
    manager = {
        "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "codec_type": "HTTP2",
        "route_config": {
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}],
        },
        "http_filters": [
            {
                "name": "router",
                "typed_config": {"@type": f"{types}.filters.http.router.v3.Router"},
            }
        ],
    }
    filters = [{"name": "http", "typed_config": manager}]
    listener = {
        "name": "bench",
        "address": _socket_address(port),
        "filter_chains": [{"filters": filters}],
    }
    return {
        "static_resources": {
            "listeners": [listener],
            "clusters": [_envoy_cluster(name, at) for name, at in workers.items()],
        }
    }


def _envoy_cluster(name: str, port: int) -> dict[str, Any]:
    kind = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    options = {
        "@type": f"type.googleapis.com/{kind}",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    endpoint = {"endpoint": {"address": _socket_address(port)}}
    return {
        "name": name,
        "type": "STATIC",
        "typed_extension_protocol_options": {kind: options},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _socket_address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _wait_for(port: int) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > give_up_at:
                raise DaemonFailed(f"nothing listens on port {port}") from None
            time.sleep(0.02)


async def cluster(engine: Engine, *, rounds: int) -> Group:
    """The table, of two workers and a Redis of their own."""
    envoy = os.environ.get("ENVOY", "")
    with tempfile.TemporaryDirectory(prefix="sandboxd-bench-", dir="/tmp") as name:
        directory, port = Path(name), free_port()
        key = directory / "key"
        key.write_text("k" * 64)
        settings = {
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(port),
            "SANDBOXD_CLUSTER_KEY_FILE": str(key),
            "SANDBOXD_SNAPSHOTS": "false",
            "SANDBOXD_CONSOLE_PORT": "0",
            "SANDBOXD_HTTP_ADDRESS": "",
        }

        def worker(number: int) -> Any:
            own = {
                "WORKER_ID": WORKERS[number],
                "SANDBOXD_UID_START": str(3_000_000 + number * 4096),
            }
            return running(
                pool_size=1, max_pool_size=4, engine=engine, settings={**settings, **own}
            )

        with _redis(directory, port):
            async with worker(0) as one, worker(1) as two:
                await one.wait_until_warm()
                await two.wait_until_warm()
                return await _measured((one, two), envoy, rounds)


async def _run(rounds: int) -> None:
    engine = Engine()
    try:
        print("  ".join(f"{name} {value}" for name, value in facts(engine).items()), end="\n\n")
        print(render(await cluster(engine, rounds=rounds)))
    finally:
        engine.remove_leftovers()
        engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="calls by each way")
    arguments = parser.parse_args()
    try:
        asyncio.run(_run(arguments.rounds))
    except (CommandFailed, DaemonFailed, EngineError) as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    main()
