"""Three daemons behind networks that can be cut, with a replicated Redis and an object service."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from redis.asyncio import Redis

from sandboxd.cluster.settings import RedisSettings
from sandboxd_proto.v1 import (
    cluster_service_pb2_grpc,
    snapshot_service_pb2_grpc,
)
from tests.cluster.proxy import Proxy, proxied
from tests.cluster.real import open_cluster
from tests.cluster.servers import RedisServer, Replicated, running_sentinels
from tests.docker.daemon_process import Api, DaemonProcess, served
from tests.hostile.compiled import compile_preload
from tests.ports import free_port
from tests.snapshots.object_server import BUCKET, object_server

LEASE = 5.0
STEPPED_CLOCK = Path(__file__).parent / "stepped_clock.c"
NAMES = ("a", "b", "c")


class RedisNetwork:
    """What one worker sees of Redis and its sentinels; it can be cut."""

    def __init__(self, redis: Replicated) -> None:
        self._servers = {one.port: Proxy(one.port) for one in redis.servers}
        self._sentinels = [Proxy(one.port, self._rewritten) for one in redis.sentinels]

    def _rewritten(self, data: bytes) -> bytes:
        """Sentinels tell where Redis is: the worker gets there through this network, too."""
        for port, proxy in self._servers.items():
            data = data.replace(_bulk(port), _bulk(proxy.port))
        return data

    @property
    def sentinels(self) -> str:
        return ",".join(f"127.0.0.1:{one.port}" for one in self._sentinels)

    @property
    def _all(self) -> list[Proxy]:
        return [*self._servers.values(), *self._sentinels]

    async def start(self) -> None:
        for proxy in self._all:
            await proxy.start()

    async def stop(self) -> None:
        for proxy in self._all:
            await proxy.stop()

    def cut(self) -> None:
        for proxy in self._all:
            proxy.cut()

    async def reset(self) -> None:
        for proxy in self._all:
            await proxy.reset()

    async def mend(self) -> None:
        for proxy in self._all:
            await proxy.mend()


def _bulk(port: int) -> bytes:
    return f"${len(str(port))}\r\n{port}\r\n".encode()


@dataclass
class Node:
    """A worker, and the networks between it and others."""

    name: str
    daemon: DaemonProcess
    api: Api
    target: str
    redis: RedisNetwork
    peers: Proxy
    clients: Api
    """Its API, behind a network of its own."""
    way_back: Proxy
    """That network."""
    clock_step: Path
    """How far its wall clock is ahead."""

    def step_clock(self, seconds: int) -> None:
        """From now on its wall clock is so many seconds ahead of ours; no other clock is."""
        with self.clock_step.open("r+b") as file:
            file.write(struct.pack("q", seconds))

    def stacks(self) -> list[str]:
        """What its log has with a stack."""
        found = []
        for line in self.daemon.log.read_text(errors="replace").splitlines():
            if line.startswith("Traceback"):
                found.append(f"{self.name}: {line}")
            elif '"exception"' in line:
                said = json.loads(line)
                errors = [(one["exc_type"], one["exc_value"]) for one in said["exception"]]
                rest = {key: said[key] for key in ("method", "message", "task") if key in said}
                found.append(f"{self.name}: {said['timestamp']} {said['event']} {rest} {errors}")
        return found

    @property
    def cluster(self) -> cluster_service_pb2_grpc.ClusterServiceStub:
        return cluster_service_pb2_grpc.ClusterServiceStub(self.api.channel)

    @property
    def snapshots(self) -> snapshot_service_pb2_grpc.SnapshotServiceStub:
        return snapshot_service_pb2_grpc.SnapshotServiceStub(self.api.channel)


@dataclass
class Nodes:
    redis: Replicated
    objects: Proxy
    all: Mapping[str, Node]

    async def primary(self) -> RedisServer:
        """The Redis that takes writes at the moment."""
        async with asyncio.timeout(60):
            while True:
                for server in self.redis.servers:
                    if await asyncio.to_thread(lambda server=server: server.is_primary):
                        return server
                await asyncio.sleep(0.1)

    async def era(self) -> str | None:
        """Names the time since Redis last failed over; None while workers still report."""
        async with Redis(port=(await self.primary()).port) as client:
            nonce, is_settled = await client.hmget("{sandboxd}:era", ["nonce", "settled"])
        return nonce.decode() if nonce is not None and is_settled == b"1" else None


@asynccontextmanager
async def running_nodes(lease: float = LEASE, **settings: str) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        keys = Path(stack.enter_context(TemporaryDirectory(prefix="sbx-keys-")))
        (keys / "cluster").write_text("c" * 64)
        (keys / "snapshots").write_text("5" * 64)
        preload = await asyncio.to_thread(compile_preload, STEPPED_CLOCK, keys, tell=print)
        redis = stack.enter_context(running_sentinels(replicas=2))
        await open_cluster(RedisSettings(sentinels=redis.addresses, replicas=1), "sandboxd")
        address = stack.enter_context(object_server())
        objects = await stack.enter_async_context(proxied(int(address.rpartition(":")[2])))
        found = {}
        for name in NAMES:
            network = RedisNetwork(redis)
            await network.start()
            stack.push_async_callback(network.stop)
            port = free_port()
            peers = await stack.enter_async_context(proxied(port))
            way_back = await stack.enter_async_context(proxied(port))
            step = keys / f"clock_step_{name}"
            step.write_bytes(struct.pack("q", 0))
            daemon = DaemonProcess(
                LD_PRELOAD=str(preload),
                CLOCK_STEP_FILE=str(step),
                HOST="127.0.0.1",
                PORT=str(port),
                SANDBOXD_ADVERTISE=f"127.0.0.1:{peers.port}",
                WORKER_ID=name,
                SANDBOXD_REDIS_SENTINELS=network.sentinels,
                SANDBOXD_CLUSTER_KEY_FILE=str(keys / "cluster"),
                SANDBOXD_SNAPSHOT_KEY_FILE=str(keys / "snapshots"),
                SANDBOXD_SNAPSHOT_STORE=f"s3://{BUCKET}/cluster",
                SANDBOXD_SNAPSHOT_STORE_ENDPOINT=f"http://127.0.0.1:{objects.port}",
                AWS_ACCESS_KEY_ID="test",
                AWS_SECRET_ACCESS_KEY="test",
                SANDBOXD_LEASE_SECONDS=f"{lease:g}",
                SANDBOXD_GRACE_SECONDS="60",
                MAX_POOL_SIZE="16",
                **settings,
            )
            await stack.enter_async_context(served(daemon))
            api = await stack.enter_async_context(daemon.api(f"127.0.0.1:{port}"))
            clients = await stack.enter_async_context(daemon.api(f"127.0.0.1:{way_back.port}"))
            found[name] = Node(
                name,
                daemon,
                api,
                f"127.0.0.1:{port}",
                network,
                peers,
                clients,
                way_back,
                step,
            )
        yield Nodes(redis, objects, found)
