"""`scripts/cluster`, as someone uses it who wants to try a cluster."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PORTS = 8
TIMEOUT = 280

pytestmark = pytest.mark.timeout(900)


def free_ports() -> int:
    """The first of some ports that nobody listens on, one after the other."""
    for first in range(42000, 60000, PORTS):
        probes = [socket.socket() for _ in range(PORTS)]
        try:
            for offset, probe in enumerate(probes):
                probe.bind(("127.0.0.1", first + offset))
        except OSError:
            continue
        finally:
            for probe in probes:
                probe.close()
        return first
    raise AssertionError("no free ports")


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="sbx-") as directory:
        settings = {
            **os.environ,
            "CLUSTER_DIR": f"{directory}/cluster",
            "CLUSTER_PORT": str(free_ports()),
            "CLUSTER_UID": "5000000",
            "POOL_SIZE": "1",
            "MIN_POOL_SIZE": "0",
            "MAX_POOL_SIZE": "4",
            "MAX_WORKSPACE_SIZE_MB": "64",
        }
        try:
            yield settings
        finally:
            cluster(settings, "down")


def cluster(environment: dict[str, str], *arguments: str) -> str:
    return run([str(ROOT / "scripts" / "cluster"), *arguments], environment)


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def processes(status: str) -> dict[str, int]:
    return {
        name: int(pid) for name, pid in re.findall(r"^(\w+)  runs, pid (\d+)", status, re.MULTILINE)
    }


def test_up_and_down(environment: dict[str, str]) -> None:
    """The command that it prints works, its session is there through every worker, a second `up`
    starts nothing, and `down` leaves no process, container or file."""
    said = cluster(environment, "up", "--workers", "3")
    first = processes(said)
    assert sorted(first) == ["objects", "redis", "worker1", "worker2", "worker3"]
    command = shlex.split(said.splitlines()[-1])
    assert run(command, environment) == "hello\n"
    port = int(environment["CLUSTER_PORT"])
    for number in (1, 2, 3):
        command[command.index("--url") + 1] = f"127.0.0.1:{port + 1 + number}"
        assert run([*command[:-1], "cat file"], environment) == "hello\n"
    cluster(environment, "up", "--workers", "3")
    assert processes(cluster(environment, "status")) == first
    directory = Path(environment["CLUSTER_DIR"])
    instances = [path.read_text() for path in directory.glob("worker*/state/instance")]
    assert len(instances) == 3
    cluster(environment, "down")
    assert [pid for pid in first.values() if Path(f"/proc/{pid}").exists()] == []
    assert not directory.exists()
    for instance in instances:
        label = f"label=sandboxd.instance={instance}"
        assert run(["docker", "ps", "-aq", "--filter", label], environment) == ""
    assert "nothing runs" in cluster(environment, "status")
