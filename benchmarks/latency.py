"""How long a short command takes, by every way to run it."""

from __future__ import annotations

import subprocess
import time
from contextlib import AsyncExitStack

from benchmarks.client import BlockingClient, Client
from benchmarks.daemon import Daemon
from benchmarks.engine import Engine
from benchmarks.peer import Peer
from benchmarks.race import Contestant, median, milliseconds, race
from benchmarks.table import Group

COMMANDS = ("true", "echo hi", "echo hi | cat")
HOST = "host subprocess"
DOCKER_EXEC = "docker exec (API)"
RUN_UNIX = "Run, unix socket"
EXEC_UNIX = "Exec, unix socket"
BARE = "bare grpc.aio call"
DOCKER_EVERY = 5


def host(command: str) -> float:
    """Seconds of the command as a plain subprocess."""
    began = time.perf_counter()
    subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    return time.perf_counter() - began


async def latency(
    daemon: Daemon, engine: Engine, peer: Peer, *, rounds: int, seconds: float
) -> list[Group]:
    """One group per command, each measured for `rounds` or at most about `seconds`."""
    image = (await daemon.client.status()).engine.image_id
    async with AsyncExitStack() as stack:
        container = stack.enter_context(engine.container(image))
        blocking = BlockingClient(daemon.unix_target)
        stack.callback(blocking.close)
        over_tcp = Client(daemon.tcp_target)
        stack.push_async_callback(over_tcp.close)
        session = await daemon.client.open("latency")
        stack.push_async_callback(daemon.client.end, session)
        await daemon.wait_until_warm()
        groups = []
        for command in COMMANDS:
            contestants = [
                *_others(command, engine, container, peer),
                *_ours(command, session, daemon.client, over_tcp, blocking),
            ]
            samples = await race(contestants, rounds=rounds, seconds=seconds)
            groups.append(_group(command, samples))
        return groups


def _others(command: str, engine: Engine, container: str, peer: Peer) -> list[Contestant]:
    async def on_host() -> float:
        return host(command)

    async def by_docker() -> float:
        return engine.exec(container, command)

    return [
        Contestant(name=HOST, call=on_host),
        Contestant(name=BARE, call=peer.echo),
        Contestant(name=DOCKER_EXEC, call=by_docker, every=DOCKER_EVERY, aftermath_seconds=0.05),
    ]


def _ours(
    command: str, session: str, over_unix: Client, over_tcp: Client, blocking: BlockingClient
) -> list[Contestant]:
    async def run_blocking() -> float:
        return blocking.run(session, command)

    return [
        Contestant(name=RUN_UNIX, call=lambda: over_unix.run(session, command)),
        Contestant(name="Run, unix socket, blocking client", call=run_blocking),
        Contestant(name="Run, TCP", call=lambda: over_tcp.run(session, command)),
        Contestant(name=EXEC_UNIX, call=lambda: over_unix.exec(session, command)),
        Contestant(name="Exec, TCP", call=lambda: over_tcp.exec(session, command)),
    ]


def _group(command: str, samples: dict[str, list[float]]) -> Group:
    base = median(samples[HOST])
    rows = {
        name: {**milliseconds(values, 50, 95, 99), "of_host": median(values) / base}
        for name, values in samples.items()
    }
    return Group(f"latency of `{command}`", rows)
