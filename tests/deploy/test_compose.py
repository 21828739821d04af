"""The compose file, as docker-compose reads it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.settings import check
from tests.deploy.tools import DEPLOY

FILE = DEPLOY / "compose" / "compose.yml"
TRY = DEPLOY / "compose" / "try" / "docker-compose.yml"
STORE = "s3://bucket/prefix"
WORKERS = ("worker1", "worker2")


def read(file: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("docker-compose")
    assert program, "run tests/install_packages first"
    environment = {"PATH": os.environ["PATH"], **variables}
    command = [program, "-f", file, "config"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def parsed(found: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert found.returncode == 0, found.stderr
    content: dict[str, Any] = yaml.safe_load(found.stdout)
    return content


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return parsed(read(FILE, SANDBOXD_SNAPSHOT_STORE=STORE))


def environment_of(service: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in service["environment"].items()}


def test_a_misspelt_key_is_refused(tmp_path: Path) -> None:
    """The check is one that can fail."""
    broken = tmp_path / "compose.yml"
    broken.write_text(FILE.read_text().replace("cap_drop: [ALL]", "cap_drob: [ALL]"))
    shutil.copy(FILE.parent / "parts.yml", tmp_path)
    found = read(broken, SANDBOXD_SNAPSHOT_STORE=STORE)

    assert found.returncode != 0
    assert "cap_drob" in found.stderr


def test_a_store_has_to_be_named() -> None:
    """Without one, a session could not move to another worker."""
    found = read(FILE)

    assert found.returncode != 0
    assert "set it to s3://BUCKET/PREFIX" in found.stderr


@pytest.mark.parametrize("name", WORKERS)
def test_daemons_accept_their_settings(project: dict[str, Any], name: str) -> None:
    config = check(environment_of(project["services"][name]))

    assert config.worker_id == name
    assert config.keep_sessions
    assert config.snapshot_store == STORE


def test_workers_share_nothing_that_is_one_daemons_own(project: dict[str, Any]) -> None:
    """Directories, uids, names and addresses differ; secrets and the store do not."""
    first, second = (check(environment_of(project["services"][name])) for name in WORKERS)
    for name in ("worker_id", "state_dir", "run_dir"):
        assert getattr(first, name) != getattr(second, name)
    assert first.sandbox_uid_start + first.sandbox_uid_count <= second.sandbox_uid_start
    assert first.snapshot_key_file == second.snapshot_key_file
    assert first.snapshot_store == second.snapshot_store


@pytest.mark.parametrize("name", WORKERS)
def test_the_engine_sees_what_a_worker_mounts(project: dict[str, Any], name: str) -> None:
    """State and sockets have the same path inside and outside, and mounts pass both ways."""
    service = project["services"][name]
    config = check(environment_of(service))
    shared = {
        mount["target"]: mount["source"]
        for mount in service["volumes"]
        if isinstance(mount, dict) and mount.get("bind", {}).get("propagation") == "rshared"
    }

    assert all(source == target for target, source in shared.items())
    for path in (config.state_dir, config.run_dir, config.runtime_dir):
        assert any(path.is_relative_to(target) for target in shared), path
    assert service["pid"] == "host"


@pytest.mark.parametrize("name", WORKERS)
def test_workers_have_the_capabilities_of_the_service(project: dict[str, Any], name: str) -> None:
    """No more than the systemd unit has, which is tested with all that a daemon does."""
    unit = (DEPLOY / "systemd" / "sandboxd.service").read_text()
    (line,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    service = project["services"][name]

    assert {f"CAP_{one}" for one in service["cap_add"]} == set(line.split())
    assert service["cap_drop"] == ["ALL"]
    assert "privileged" not in service


def test_secrets_are_files(project: dict[str, Any]) -> None:
    """No service has one in its environment, and all that are named are defined."""
    defined = project["secrets"]
    assert all(Path(one["file"]).parent == FILE.parent / "secrets" for one in defined.values())
    for name, service in project["services"].items():
        used = {
            one["source"] if isinstance(one, dict) else one for one in service.get("secrets", [])
        }
        assert used <= defined.keys(), name
        for variable, value in (service.get("environment") or {}).items():
            if any(word in variable for word in ("KEY", "PASSWORD", "TOKEN", "SECRET")):
                assert str(value).startswith("/run/secrets/"), variable
                assert Path(str(value)).name in used, variable


def test_only_envoy_can_be_reached(project: dict[str, Any]) -> None:
    """On port 8000 of loopback; Redis is in a network without a way out."""
    services = project["services"]
    published = {name: one["ports"] for name, one in services.items() if one.get("ports")}
    assert published == {"envoy": ["127.0.0.1:8000:8000/tcp"]}
    assert list(services["redis"]["networks"]) == ["workers"]
    assert project["networks"]["workers"]["internal"] is True


def test_the_cluster_to_try_is_for_this_host_only() -> None:
    """One port, on loopback, which is that of the coordinator and can be chosen; volumes are its
    own."""
    found = parsed(read(TRY, TRY_PORT="8123"))
    published = {name: one["ports"] for name, one in found["services"].items() if one.get("ports")}
    assert published == {"coordinator": ["127.0.0.1:8123:8000/tcp"]}
    assert "secrets" not in found
    for name in WORKERS:
        config = check(environment_of(found["services"][name]))
        assert config.state_dir.is_relative_to("/var/lib/docker/volumes/sandboxd-try/_data")


def test_redis_keeps_what_it_is_told(project: dict[str, Any]) -> None:
    redis = project["services"]["redis"]
    assert "appendonly yes" in redis["command"][-1]
    assert redis["volumes"] == ["redis:/data:rw"]


def test_envoy_knows_all_workers_by_their_ids(project: dict[str, Any]) -> None:
    """What the list of workers is made from is what the workers are called."""
    command = project["services"]["clusters"]["command"]
    listed = dict(
        part.split("=", 1) for part in command if not part.startswith("-") and "=" in part
    )
    for name in WORKERS:
        environment = environment_of(project["services"][name])
        assert listed.pop(environment["WORKER_ID"]) == environment["SANDBOXD_ADVERTISE"]
    assert listed == {}


def test_files_that_are_mounted_are_there(project: dict[str, Any]) -> None:
    mounted = project["services"]["envoy"]["volumes"]
    for volume in mounted:
        source = Path(volume.split(":")[0])
        assert not source.is_absolute() or source.is_file(), source
