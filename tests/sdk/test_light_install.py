"""The plain install: two dependencies, a quick import, and every protobuf there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.daemon_process import DaemonProcess

ROOT = Path(__file__).parents[2]
ALLOWED = {"sandboxd", "grpcio", "protobuf", "typing-extensions"}
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
USE = """
import sys
from sandboxd_client import SandboxClient, SessionClosedError
with SandboxClient(server_url=sys.argv[1]) as client:
    client.get_or_create_session(user_id="light", thread_id=sys.argv[2])
    assert client.execute("echo hello")["stdout"] == "hello\\n"
    assert client.sandbox.commands.run("echo more", on_stdout=str).stdout == "more\\n"
    client.sandbox.kill()
    try:
        client.execute("true")
    except SessionClosedError as error:
        assert error.reason == "SESSION_CLOSED"
    else:
        raise AssertionError("a closed session took a command")
"""
IMPORT_TIME = """
import subprocess, sys, time
def seconds(code):
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begin
nothing, grpc, ours = (min(seconds(code) for _ in range(5)) for code in (
    "pass", "import grpc.aio", "import sandboxd_client"))
print(f"import sandboxd_client: {(ours - nothing) * 1000:.0f} ms, "
      f"{(ours - nothing) / (grpc - nothing):.2f} times import grpc.aio")
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with nothing but the wheel and what it brings."""
    directory = tmp_path_factory.mktemp("light")
    source = directory / "source"  # a build leaves things beside what it builds
    for name in ("sandboxd", "client_py", "protos"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [*PIP, "wheel", "--no-deps", "--wheel-dir", directory, source], check=True, timeout=120
    )
    (wheel,) = directory.glob("sandboxd-*.whl")
    venv = directory / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    install(venv / "bin" / "python", str(wheel))
    return venv / "bin" / "python"


def install(python: Path, *what: str) -> None:
    subprocess.run([*PIP, "--python", python, "install", *what], check=True, timeout=120)


def installed(python: Path) -> dict[str, str]:
    program = (
        "import importlib.metadata, json;"
        "found = importlib.metadata.distributions();"
        "print(json.dumps({one.name.lower().replace('_', '-'): one.version for one in found}))"
    )
    versions: dict[str, str] = json.loads(run(python, program))
    return versions


def run(python: Path, program: str, *arguments: str) -> str:
    done = subprocess.run(
        [python, "-I", "-W", "error", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_brings_two_libraries_and_imports_quickly(python: Path) -> None:
    """grpcio, protobuf and what they need, none of the daemon; local mode says what is missing."""
    assert set(installed(python)) <= ALLOWED

    print(run(python, IMPORT_TIME).strip())
    loaded = run(python, "import sys, sandboxd_client; print(*sorted(sys.modules))").split()
    assert not [one for one in loaded if one == "sandboxd" or one.startswith("sandboxd.")]
    told = run(
        python,
        "from sandboxd_client import *\n"
        "try: SandboxClient(mode='local').get_or_create_session('a', 'b')\n"
        "except LocalModeError as error: print(error)",
    )
    assert "sandboxd[daemon]" in told


def test_an_extra_comes_as_its_message_says(python: Path) -> None:
    """Though no index has the package: it is installed, and only the extra is not."""
    program = python.with_name("sandboxd")

    def sandboxd() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=60, check=False
        )

    missing = sandboxd()
    found = re.search(r"pip install '(.*)'", missing.stderr)
    assert (missing.returncode, found is not None) == (1, True), missing.stderr
    assert found is not None
    install(python, found[1])
    assert sandboxd().stdout.startswith("sandboxd, version ")


@pytest.mark.parametrize("version", ["5.29", "6", "7"])
@pytest.mark.asyncio(loop_scope="session")
async def test_it_works_with_protobuf(
    version: str, python: Path, sdk_daemon: DaemonProcess
) -> None:
    """Commands, streams and errors against a real daemon, with warnings as errors."""
    following = str(int(version.split(".")[0]) + 1)
    install(python, f"protobuf>={version},<{'5.30' if version == '5.29' else following}")
    assert re.match(rf"{re.escape(version)}\.", installed(python)["protobuf"])

    run(python, USE, f"unix:{sdk_daemon.socket}", f"protobuf-{version}")
