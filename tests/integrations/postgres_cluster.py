"""A PostgreSQL server of its own: a new database directory, a unix socket, no TCP port."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ACCOUNT = "postgres"
"""Comes with the package; PostgreSQL does not run as root."""
START_SECONDS = 60


@contextmanager
def running_cluster() -> Iterator[str]:
    """The connection string of a server that ends with the block, and its files with it."""
    directory = Path(tempfile.mkdtemp(prefix="sbx-pg-", dir="/tmp"))
    data, log = directory / "data", directory / "server.log"
    try:
        if os.geteuid() == 0:
            shutil.chown(directory, ACCOUNT, ACCOUNT)
        _run("initdb", "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = f"-c listen_addresses='' -c unix_socket_directories='{directory}' -c fsync=off"
        _run("pg_ctl", "start", "-w", "-t", START_SECONDS, "-D", data, "-l", log, "-o", settings)
        try:
            yield f"host={directory} user=tests dbname=postgres"
        finally:
            _run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", data)
    finally:
        shutil.rmtree(directory)


def _run(program: str, *arguments: object) -> None:
    command = [*_as_another(), str(_programs() / program), *map(str, arguments)]
    # Not a pipe: the server would hold its other end open.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=120
        )
        output.seek(0)
        assert done.returncode == 0, output.read().decode(errors="replace")


def _as_another() -> Sequence[str]:
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups"]


def _programs() -> Path:
    """Where its programs are: Debian keeps them out of PATH."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4])
    )
    found = versions[-1] if versions else shutil.which("initdb")
    assert found, "no PostgreSQL; run tests/install_packages"
    return Path(found).parent
