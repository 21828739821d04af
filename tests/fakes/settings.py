"""Settings that are small, quick and generous unless a test says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandboxd.config import Config
from sandboxd.exec_records import ExecRecords, Labels
from sandboxd.exec_shelf import ExecHouse, ShelfSettings
from sandboxd.files import FileSettings
from sandboxd.pool import PoolSettings
from sandboxd.sandbox import SandboxSettings
from sandboxd.sessions import SessionSettings
from sandboxd.spool import SpoolBudget, SpoolSettings
from tests.fakes.engine import DEFAULT_IMAGE

MIB = 1 << 20
NEVER = 3600.0


def of_sandboxes(directory: Path) -> SandboxSettings:
    return SandboxSettings(
        instance="test",
        image=DEFAULT_IMAGE,
        runtime=None,
        network_mode="none",
        runtime_dir=directory,
        guest_dir=directory,
        links_dir=directory / "links",
        projects_dir=directory / "projects",
        user="sandboxuser",
        seccomp="{}",
        write_bytes_per_second=0,
        workspace_dir="/workspace",
        workspace_bytes=MIB,
        workspace_files=16,
        max_file_bytes=MIB,
        memory_bytes=64 * MIB,
        cpu_quota_us=0,
        max_processes=16,
        max_open_files=64,
    )


def of_pool(**settings: Any) -> PoolSettings:
    generous = {"target": 0, "maximum": 32, "concurrency": 4, "wait_seconds": 5.0}
    intervals = {"health_seconds": NEVER, "sweep_seconds": NEVER}
    return PoolSettings(**{**generous, **intervals, **settings})


def of_sessions(**settings: Any) -> SessionSettings:
    files = FileSettings(
        workspace_dir="/workspace", max_file_bytes=MIB, workspace_bytes=MIB, workspace_files=16
    )
    patient = {"idle_seconds": NEVER, "memory_seconds": NEVER, "files": files}
    return SessionSettings(**{**patient, **settings})


def of_execs(directory: Path, **settings: Any) -> ExecHouse:
    """Where execs are kept; settings of the shelves may be replaced by name."""
    (directory / "execs").mkdir(exist_ok=True)
    patient: dict[str, Any] = {
        "session_spool_bytes": 64 * MIB,
        "max_running": 4,
        "max_running_in_all": 64,
        "memory_seconds": NEVER,
    }
    shelves = ShelfSettings(
        spools=SpoolSettings(directory=directory / "spool"), **{**patient, **settings}
    )
    records = ExecRecords(directory / "execs")
    return ExecHouse(shelves, Labels(b"secret"), records, SpoolBudget(256 * MIB))


def of_daemon(directory: Path) -> Config:
    """A small daemon on a unix socket, with directories of its own and a runtime to be found."""
    runtime = directory / "runtime" / "bin"
    runtime.mkdir(parents=True)
    (runtime / "python3.11").touch()
    return Config(
        host="",
        state_dir=directory / "state",
        run_dir=directory / "run",
        guest_runtime=runtime.parent,
        pool_size=1,
        min_pool_size=0,
        max_pool_size=4,
        open_queue=0,
        drain_seconds=0.0,
        workspace_backend="memory",
        examine=False,
        command_policy="open",  # fake guests have commands of their own
    )
