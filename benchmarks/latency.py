"""How long a short command takes, for every way to run it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from benchmarks.client import BlockingClient, Client
from benchmarks.daemon import Daemon
from benchmarks.engine import Engine
from benchmarks.peer import Peer
from benchmarks.race import Contestant, median, milliseconds, race
from benchmarks.table import Group

COMMANDS = ("true", "echo hi", "echo hi | cat")
HOST = "host subprocess"
DOCKER_EXEC = "docker exec (API), a sandbox"
"""In a container with the isolation of a sandbox, so that only the method differs."""
DOCKER_EXEC_PLAIN = "docker exec (API), a plain one"
RUN_UNIX = "Run, unix socket"
EXEC_UNIX = "Exec, unix socket"
BARE = "bare grpc.aio call"
DOCKER_EVERY = 5
IN_A_ROW = 10


def host(command: str) -> float:
    """Seconds of the command as a plain subprocess."""
    began = time.perf_counter()
    subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    return time.perf_counter() - began


async def latency(
    daemon: Daemon, engine: Engine, peer: Peer, *, rounds: int, seconds: float
) -> list[Group]:
    """One group per command, each measured for `rounds` or at most about `seconds`; the second
    group is the first command again, without a pause between calls."""
    image = (await daemon.client.status()).engine.image_id
    async with AsyncExitStack() as stack:
        plain = stack.enter_context(engine.container(image))
        blocking = BlockingClient(daemon.unix_target)
        stack.callback(blocking.close)
        over_tcp = Client(daemon.tcp_target)
        stack.push_async_callback(over_tcp.close)
        session = await daemon.client.open("latency")
        stack.push_async_callback(daemon.client.end, session)
        await daemon.wait_until_warm()
        sandbox = engine.containers(daemon.container_label)[0]
        groups = []
        for command in COMMANDS:
            contestants = [
                *_others(command, peer),
                *_by_docker(command, engine, {DOCKER_EXEC: sandbox, DOCKER_EXEC_PLAIN: plain}),
                *_ours(command, session, daemon.client, over_tcp, blocking),
            ]
            samples = await race(contestants, rounds=rounds, seconds=seconds)
            groups.append(_group(f"latency of `{command}`", samples))
            if command == COMMANDS[0]:
                rows = [_in_a_row(contestant) for contestant in contestants]
                samples = await race(rows, rounds=max(1, rounds // IN_A_ROW), seconds=seconds)
                groups.append(_group(f"`{command}`, {IN_A_ROW} times in a row", samples))
        return groups


def _others(command: str, peer: Peer) -> list[Contestant]:
    async def on_host() -> float:
        return host(command)

    return [
        Contestant(name=HOST, call=on_host),
        Contestant(name=BARE, call=peer.echo),
    ]


def _by_docker(command: str, engine: Engine, containers: Mapping[str, str]) -> list[Contestant]:
    async def by_docker(container: str) -> float:
        return engine.exec(container, command)

    return [
        Contestant(
            name=name,
            call=partial(by_docker, container),
            every=DOCKER_EVERY,
            aftermath_seconds=0.05,
        )
        for name, container in containers.items()
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


def _in_a_row(contestant: Contestant) -> Contestant:
    return replace(contestant, every=1, in_a_row=IN_A_ROW // contestant.every)


def _group(title: str, samples: dict[str, list[float]]) -> Group:
    base = median(samples[HOST])
    rows = {
        name: {**milliseconds(values, 50, 95, 99), "of_host": median(values) / base}
        for name, values in samples.items()
    }
    return Group(title, rows)
