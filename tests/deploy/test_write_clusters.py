"""The program that writes Envoy's list of workers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.deploy.tools import DEPLOY, write_clusters

PROGRAM = DEPLOY / "envoy" / "write_clusters"
script = write_clusters()


def run(output: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [PROGRAM, "--output", output, *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)


def addresses(file: Path) -> dict[str, list[str]]:
    found = {}
    for cluster in json.loads(file.read_text())["resources"]:
        (locality,) = cluster["load_assignment"]["endpoints"]
        places = [one["endpoint"]["address"]["socket_address"] for one in locality["lb_endpoints"]]
        found[cluster["name"]] = [f"{one['address']}:{one['port_value']}" for one in places]
    return found


def test_workers_get_a_cluster_each_and_one_for_all(tmp_path: Path) -> None:
    """From arguments or from lines, in any order: the same file."""
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    assert run(one, "w2=worker-2.local:5001", "w1=[fd00::1]:5000").returncode == 0
    lines = "w1=[fd00::1]:5000\n\n  w2=worker-2.local:5001\n"
    assert run(other, "-", given=lines).returncode == 0

    assert addresses(one) == {
        "w1": ["fd00::1:5000"],
        "w2": ["worker-2.local:5001"],
        "any-worker": ["fd00::1:5000", "worker-2.local:5001"],
    }
    assert one.read_text() == other.read_text()
    assert one.stat().st_mode & 0o777 == 0o644


def test_workers_without_names_are_in_the_one_for_all(tmp_path: Path) -> None:
    file = tmp_path / "clusters.json"
    assert run(file, "--any", "workers.sandboxd.svc:5000").returncode == 0

    assert addresses(file) == {"any-worker": ["workers.sandboxd.svc:5000"]}


def test_only_the_cluster_of_all_is_checked_for_health() -> None:
    """A worker that drains reports that it does not serve, and has still to be reached."""
    workers = {"w1": script.Endpoint("127.0.0.1", 5000)}
    named, every = json.loads(script.clusters(workers))["resources"]

    assert "health_checks" not in named
    assert every["health_checks"][0]["grpc_health_check"] == {}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["w1"], "is not a valid worker"),
        (["=127.0.0.1:5000"], "is not a valid worker"),
        (["w 1=127.0.0.1:5000"], "is not a valid worker"),
        (["w" * 64 + "=127.0.0.1:5000"], "is not a valid worker"),
        (["any-worker=127.0.0.1:5000"], "must not be called any-worker"),
        (["w1=127.0.0.1:5000", "w1=127.0.0.1:5001"], "is named twice"),
        (["w1=127.0.0.1"], "is not a valid address"),
        (["w1=fd00::1:5000"], "is not a valid address"),
        (["w1=a/b:5000"], "is not a valid address"),
        (["w1=127.0.0.1:0"], "has no valid port"),
        (["w1=127.0.0.1:65536"], "has no valid port"),
        (["w1=127.0.0.1:\u0665"], "has no valid port"),
        (["--any", "nowhere"], "is not a valid address"),
        (["--tls-ca", "ca.crt", "w1=127.0.0.1:5000"], "need each other"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    file = tmp_path / "clusters.json"
    file.write_text("old")
    ended = run(file, *arguments)

    assert ended.returncode == 1
    assert complaint in ended.stderr
    assert ended.stderr.startswith("write_clusters: ")
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["clusters.json"]


def test_a_file_is_replaced_by_another_only_if_it_changes(tmp_path: Path) -> None:
    """It is never written in place: Envoy looks for renames, and must not read half of it."""
    file = tmp_path / "clusters.json"
    assert script.replace(file, "one")
    first = file.stat().st_ino
    with file.open() as opened:
        assert script.replace(file, "two")
        assert opened.read() == "one"
    assert file.read_text() == "two"
    second = file.stat()
    assert second.st_ino != first

    assert not script.replace(file, "two")
    assert file.stat().st_mtime_ns == second.st_mtime_ns
    assert os.listdir(tmp_path) == ["clusters.json"]


def test_nothing_is_left_behind_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "clusters.json").mkdir()
    ended = run(tmp_path / "clusters.json", "w1=127.0.0.1:5000")

    assert ended.returncode == 1
    assert os.listdir(tmp_path) == ["clusters.json"]
