"""The two commands of the README, as a newcomer uses them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEFAULT_STATE = Path(os.environ.get("SANDBOXD_STATE_DIR", "/var/lib/sandboxd"))


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """Settings of a daemon beside any other on this machine."""
    directory = Path(tempfile.mkdtemp(prefix="sbx-"))
    state = directory / "state"
    state.mkdir()
    (state / "runtime").symlink_to(DEFAULT_STATE / "runtime")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        **os.environ,
        "SANDBOXD_STATE_DIR": str(state),
        "SANDBOXD_RUN_DIR": str(directory / "run"),
        "PORT": str(port),
        "POOL_SIZE": "2",
        "MIN_POOL_SIZE": "1",
    }
    yield settings
    script("stop", settings)
    shutil.rmtree(directory)


def script(name: str, environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [ROOT / "scripts" / name, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def containers(environment: dict[str, str]) -> list[str]:
    instance = (Path(environment["SANDBOXD_STATE_DIR"]) / "instance").read_text()
    return subprocess.run(
        ["docker", "ps", "-aq", "--filter", f"label=sandboxd.instance={instance}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()


def pasted(line: str) -> str:
    return subprocess.run(
        ["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    ).stdout


def test_run_detached_shows_itself_and_the_lines_it_prints_work(
    environment: dict[str, str],
) -> None:
    """`run --detach` proves itself, prints lines that work as pasted, and `stop` leaves nothing."""
    shown = script("run", environment, "--detach")
    assert re.search(r"session opened in [\d.]+ ms", shown)
    assert "hello from Linux" in shown
    curl = next(line for line in shown.splitlines() if " curl " in line)
    python = next(line for line in shown.splitlines() if "/python -c" in line)
    assert json.loads(pasted(curl))["outcome"] == "OPEN_OUTCOME_CREATED"
    assert len(pasted(python).split("\n\n")[0].splitlines()) == 1
    assert len(pasted(python).strip().splitlines()) == 2  # the file of the first time is there

    again = script("run", environment, "--detach")
    assert "already runs" in again
    script("stop", environment)
    assert containers(environment) == []
    assert not (Path(environment["SANDBOXD_RUN_DIR"]) / "sandboxd.sock").exists()
    script("stop", environment)


def test_run_in_the_foreground_ends_cleanly_on_ctrl_c(environment: dict[str, str]) -> None:
    """Ctrl-C ends `run` with exit code 0 and no container left."""
    with subprocess.Popen(
        [ROOT / "scripts" / "run"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background ignores it, and a shell cannot undo that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            assert process.stdout is not None
            shown = []
            for line in process.stdout:
                shown.append(line)
                if "Ctrl-C stops it" in line:
                    break
            assert "Ctrl-C stops it" in shown[-1], "".join(shown)
            process.send_signal(signal.SIGINT)
            process.stdout.read()

            assert process.wait(timeout=60) == 0
        finally:
            process.terminate()  # or leaving the block would wait for it
    assert containers(environment) == []
