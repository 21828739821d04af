"""The cluster to try, started by docker-compose on a real engine.

The file is used as it is, with its keys and networks; only images are replaced by the program and
the servers of this host, and sizes by small ones.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.tools import BASE, DEPLOY, ROOT, installed, program_directories
from tests.docker.daemon_process import RUNTIME, first_uid
from tests.ports import free_port

pytestmark = pytest.mark.timeout(1200)
FILE = DEPLOY / "compose" / "try" / "docker-compose.yml"
CLIENT = """
import sys
from sandboxd_client import SandboxClient
client = SandboxClient(mode="remote")
client.get_or_create_session(user_id="user123", thread_id="conversation_abc")
print(client.execute(sys.argv[1])["stdout"], end="")
"""


def of_this_checkout() -> dict[str, Any]:
    """In place of the image of a worker: its program, from this host."""
    programs = [DEPLOY, DEPLOY / "envoy", Path(sys.executable).parent]
    path = ":".join(map(str, [*programs, "/usr/sbin:/usr/bin:/sbin:/bin"]))
    runtime = f"{RUNTIME.resolve()}:/opt/sandboxd/runtime:ro"
    return {
        "image": BASE,
        "entrypoint": ["worker_entrypoint"],
        "volumes": [*(f"{path}:{path}:ro" for path in program_directories()), runtime],
        "environment": {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
    }


def replacements(program: dict[str, Any]) -> dict[str, Any]:
    """A second file of compose: images that every host with the tests has, and quick checks."""
    envoy = installed("envoy") / "envoy" / "_bin"
    often, seldom = {"interval": "1s", "retries": 120}, {"interval": "3s", "retries": 40}
    small = {
        "SANDBOXD_EXAMINE": "false",
        "MAX_WORKSPACE_SIZE_MB": "64",
        "MIN_POOL_SIZE": "0",
        "POOL_SIZE": "1",
        **program.get("environment", {}),
    }
    workers = {
        name: {
            **program,
            "command": ["sandboxd", "serve"],
            "environment": {**small, "SANDBOXD_UID_START": str(first_uid())},
            "healthcheck": seldom,  # it starts a Python
        }
        for name in ("worker1", "worker2")
    }
    return {
        "services": {
            "keys": program,
            "connect": program,
            **workers,
            "redis": {"image": BASE, "volumes": ["/usr:/usr:ro"], "healthcheck": often},
            "coordinator": {
                "image": BASE,
                "volumes": [f"{envoy}:/opt/envoy:ro"],
                "environment": {"PATH": "/opt/envoy:/usr/bin"},
            },
        }
    }


def said_by(*command: str, **options: Any) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900, **options)
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-8000:]
    return ended.stdout


class Trial:
    def __init__(self, directory: Path, program: dict[str, Any]) -> None:
        self.name = f"sandboxd-test-{secrets.token_hex(4)}"
        self.root = Path(said_by("docker", "info", "--format", "{{.DockerRootDir}}").strip())
        self.state = self.root / "volumes" / self.name
        self._file = directory / "replacements.yml"
        self._file.write_text(yaml.safe_dump(replacements(program)))
        self._environment = {
            **os.environ,
            "TRY_NAME": self.name,
            "TRY_PORT": str(free_port()),
            "DOCKER_ROOT": str(self.root),
        }

    def compose(self, *arguments: str) -> str:
        program = shutil.which("docker-compose")
        assert program, "run tests/install_packages first"
        files = ("-p", self.name, "-f", str(FILE), "-f", str(self._file))
        return said_by(program, *files, *arguments, env=self._environment)

    def start(self) -> str:
        """The line with which a client connects."""
        self.compose("up", "-d", "--no-build")
        said_by("docker", "wait", self.compose("ps", "-q", "connect").strip())
        return self.compose("logs", "--no-log-prefix", "connect").splitlines()[-1]

    def run(self, line: str, command: str) -> str:
        """The output of a command in the session of a client that was given this line."""
        script = f'{line}; exec "$@"'
        return said_by("bash", "-c", script, "bash", sys.executable, "-c", CLIENT, command)

    def instances(self) -> list[str]:
        """Labels of the sandboxes of each worker."""
        return [
            f"label=sandboxd.instance={file.read_text()}"
            for file in self.state.glob("_data/worker*/instance")
        ]

    def left(self, *of_sandboxes: str) -> list[str]:
        """Containers, networks and volumes that are there."""
        ours = f"label=com.docker.compose.project={self.name}"
        found = [
            said_by("docker", kind, "ls", "-q", "--filter", ours) for kind in ("network", "volume")
        ]
        for label in (ours, *of_sandboxes):
            found.append(said_by("docker", "ps", "-aq", "--filter", label))
        return "".join(found).split()


@pytest.fixture
def worker_image(tmp_path: Path) -> Iterator[str]:
    """Built from deploy/Dockerfile without a registry and without an index of packages."""
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".*", "node_modules", "tests", "__pycache__")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / ".dockerignore", source)
    needed = (".[daemon,cluster]", "setuptools>=77", "async-timeout")
    said_by(sys.executable, "-m", "pip", "wheel", "--wheel-dir", "dist", *needed, cwd=source)
    name = f"sandboxd/test-worker:{secrets.token_hex(4)}"
    given = ("--build-arg", f"BASE={BASE}", "--build-arg", "PIP_NO_INDEX=1")
    build = ("docker", "build", "--network", "host", *given, "-f", "deploy/Dockerfile", "-t", name)
    said = said_by(*build, ".", cwd=source)
    yield name
    nameless = said_by("docker", "images", "--quiet", "--filter", "dangling=true").split()
    stages = {*re.findall("---> ([0-9a-f]{12})", said)} & {*nameless}
    said_by("docker", "rmi", name, *stages)


@pytest.fixture(params=["checkout", pytest.param("image", marks=pytest.mark.long)])
def program(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "image":
        return {"image": request.getfixturevalue("worker_image")}
    return of_this_checkout()


@contextmanager
def trial(directory: Path, program: dict[str, Any]) -> Iterator[Trial]:
    tried = Trial(directory, program)
    try:
        yield tried
    except BaseException as error:
        error.add_note(tried.compose("logs", "--no-color", "--tail", "40")[-20000:])
        raise
    finally:
        tried.compose("down", "-v")


def test_a_cluster_to_try_needs_nothing_but_its_file(
    tmp_path: Path, program: dict[str, Any]
) -> None:
    """The printed line is all that a client needs; a stop keeps keys and files, and `down -v`
    leaves nothing, on the engine as on the disk."""
    with trial(tmp_path, program) as tried:
        line = tried.start()
        assert tried.run(line, "echo kept > file; uname -s") == "Linux\n"
        sandboxes = tried.instances()
        assert len(sandboxes) == 2

        tried.compose("stop")
        for label in sandboxes:
            assert not said_by("docker", "ps", "-aq", "--filter", label)
        assert tried.start() == line
        assert tried.run(line, "cat file") == "kept\n"

    assert tried.left(*sandboxes) == []
    assert not tried.state.exists()
    assert str(tried.state) not in Path("/proc/mounts").read_text()
