"""`scripts/cluster`, as someone uses it who wants to try a cluster."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT = 280

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="sbx-") as directory:
        settings = {
            **os.environ,
            "CLUSTER_DIR": f"{directory}/cluster",
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


def spaces(status: str) -> set[str]:
    """The network namespaces that it names."""
    return set(re.findall(r" in (\S+), log ", status))


def left(instances: list[str], environment: dict[str, str]) -> list[str]:
    """Containers of these workers."""
    found = []
    for instance in instances:
        label = f"label=sandboxd.instance={instance}"
        found += run(["docker", "ps", "-aq", "--filter", label], environment).split()
    return found


def instances_of(environment: dict[str, str]) -> list[str]:
    directory = Path(environment["CLUSTER_DIR"])
    return [path.read_text() for path in directory.glob("worker*/state/instance")]


def is_running(pid: int) -> bool:
    """Not so if it has ended, and only waits for its parent to notice."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def network_of(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")


def test_up_and_down(environment: dict[str, str]) -> None:
    """The command that it prints works through Envoy, its session is there through every worker, a
    second `up` starts nothing, and `down` leaves no process, container, namespace or file. No two
    workers are in one network, and none is in ours."""
    said = cluster(environment, "up", "--workers", "3")
    first = processes(said)
    assert sorted(first) == ["objects", "redis", "router", "worker1", "worker2", "worker3"]
    networks = {name: network_of(pid) for name, pid in first.items()}
    assert networks["objects"] == networks["redis"]
    assert len({*networks.values(), network_of(os.getpid())}) == len(first)
    command = shlex.split(said.splitlines()[-1])
    assert run(command, environment) == "hello\n"
    directory = Path(environment["CLUSTER_DIR"])
    for number in (1, 2, 3):
        socket = directory / f"worker{number}" / "run" / "sandboxd.sock"
        command[command.index("--url") + 1] = f"unix:{socket}"
        assert run([*command[:-1], "cat file"], environment) == "hello\n"
    cluster(environment, "up", "--workers", "3")
    status = cluster(environment, "status")
    assert processes(status) == first
    instances = instances_of(environment)
    assert len(instances) == 3
    assert len(spaces(status)) == 4
    cluster(environment, "down")
    assert [pid for pid in first.values() if is_running(pid)] == []
    assert not directory.exists()
    assert [name for name in spaces(status) if Path("/run/netns", name).exists()] == []
    assert left(instances, environment) == []
    assert "nothing runs" in cluster(environment, "status")


def test_down_after_kills(environment: dict[str, str]) -> None:
    """Also what was killed leaves nothing behind, and what lost its entry is found."""
    said = cluster(environment, "up", "--workers", "1")
    run(shlex.split(said.splitlines()[-1]), environment)
    found = processes(said)
    instances = instances_of(environment)
    for name in ("worker1", "redis"):
        os.kill(found[name], signal.SIGKILL)
    directory = Path(environment["CLUSTER_DIR"])
    (directory / "router" / "pid").unlink()  # as if `up` had been killed before it was written
    cluster(environment, "down")
    assert [pid for pid in found.values() if is_running(pid)] == []
    assert not directory.exists()
    assert [name for name in spaces(said) if Path("/run/netns", name).exists()] == []
    assert left(instances, environment) == []
