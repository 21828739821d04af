"""Settings that are small, quick and generous unless a test says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandboxd.access import Quotas, UserLimits
from sandboxd.config import Config
from sandboxd.environments.environment import DEFAULT_ENVIRONMENT, Environment
from sandboxd.execs.policy import CommandPolicies
from sandboxd.execs.records import ExecRecords, Labels
from sandboxd.execs.session_execs import ExecSettings, SharedExecState
from sandboxd.policy import OPEN, Policy
from sandboxd.pool.pool import PoolSettings
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.sessions.session import SessionSettings
from sandboxd.spool import SpoolBudget, SpoolSettings
from tests.fakes.engine import DEFAULT_IMAGE

MIB = 1 << 20
NEVER = 3600.0


def of_sandboxes(directory: Path) -> SandboxSettings:
    return SandboxSettings(
        instance="test",
        runtime=None,
        network_mode="none",
        runtime_dir=directory,
        guest_dir=directory,
        links_dir=directory / "links",
        projects_dir=directory / "projects",
        user="sandboxuser",
        seccomp="{}",
        workspace_dir="/workspace",
    )


def of_environment(name: str = DEFAULT_ENVIRONMENT, **limits: Any) -> Environment:
    usual: dict[str, Any] = {
        "image": DEFAULT_IMAGE,
        "memory_bytes": 64 * MIB,
        "cpu_quota_us": 0,
        "max_processes": 16,
        "max_open_files": 64,
        "max_file_bytes": MIB,
        "workspace_bytes": MIB,
        "workspace_files": 16,
        "write_bytes_per_second": 0,
        "project_bytes": MIB,
        "project_files": 16,
        "tmp_bytes": MIB,
    }
    return Environment(name=name, **{**usual, **limits})


def of_pool(**settings: Any) -> PoolSettings:
    generous = {"target": 0, "maximum": 32, "concurrency": 4, "wait_seconds": 5.0}
    return PoolSettings(**{**generous, "health_seconds": NEVER, **settings})


def of_sessions(**settings: Any) -> SessionSettings:
    patient = {"idle_seconds": NEVER, "memory_seconds": NEVER, "workspace_dir": "/workspace"}
    return SessionSettings(**{**patient, **settings})


def of_execs(
    directory: Path, *, policy: Policy = OPEN, max_running_in_all: int = 64, **settings: Any
) -> SharedExecState:
    """What execs share; settings may be replaced by name."""
    (directory / "execs").mkdir(exist_ok=True)
    patient: dict[str, Any] = {
        "session_spool_bytes": 64 * MIB,
        "max_running": 4,
        "memory_seconds": NEVER,
    }
    exec_settings = ExecSettings(
        spools=SpoolSettings(directory=directory / "spool"), **{**patient, **settings}
    )
    records = ExecRecords(directory / "execs")
    return SharedExecState(
        exec_settings,
        Labels(b"secret"),
        records,
        SpoolBudget(256 * MIB),
        CommandPolicies({OPEN.name: OPEN, policy.name: policy}.values(), default=policy.name),
        Quotas(UserLimits(running_execs_in_all=max_running_in_all)),
    )


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
        console_port=0,
        http_address="",
        command_policy="open",  # fake guests have commands of their own
    )


def without_policy(config: Config) -> Config:
    """The same, of an operator who has set no command policy."""
    names = config.model_fields_set - {"command_policy"}
    return Config(**{name: getattr(config, name) for name in names})
