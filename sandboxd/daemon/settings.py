"""The settings of each part of the daemon, made from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sandboxd.access import UserLimits
from sandboxd.access.shares import OUTPUT_BYTES, RUNNING_EXECS, SESSIONS, Share
from sandboxd.audit import AuditSettings
from sandboxd.audit.files import strangers_directory
from sandboxd.code.settings import CodeSettings, Limits
from sandboxd.config import Config, EnvironmentTable
from sandboxd.environments.builder import BuilderSettings
from sandboxd.environments.definition import (
    BUILT_IN,
    Definition,
    Other,
    Source,
    default_definition,
)
from sandboxd.environments.environment import DEFAULT_ENVIRONMENT, Environment, PackageKind
from sandboxd.environments.npm_client import NpmClient
from sandboxd.execs.session_execs import ExecSettings
from sandboxd.isolation import seccomp
from sandboxd.policy import STRICT
from sandboxd.pool.pool import PoolSettings
from sandboxd.projects.projects import ProjectSettings
from sandboxd.projects.records import ProjectLimits
from sandboxd.protections.report import ProtectionSettings
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.sessions.lines import AutoSnapshot, SnapshotSettings
from sandboxd.sessions.session import SessionSettings
from sandboxd.sessions.thinning import LineLimits
from sandboxd.spool import SpoolSettings
from sandboxd.workspaces.disks import DiskSettings
from sandboxd.workspaces.layout import Layout


def audit_settings(config: Config) -> AuditSettings:
    return AuditSettings(
        directory=config.audit_dir,
        file_bytes=config.audit_file_mb << 20,
        total_bytes=config.audit_total_mb << 20,
        max_files=config.audit_max_files,
        max_age_seconds=config.audit_days * 86400,
    )


def strangers_log_settings(config: Config) -> AuditSettings:
    """The log of strangers' calls, which has its own budget."""
    return AuditSettings(
        directory=strangers_directory(config.audit_dir),
        file_bytes=1 << 20,
        total_bytes=16 << 20,
        max_files=config.audit_max_files,
        max_age_seconds=config.audit_days * 86400,
    )


def disk_settings(config: Config) -> DiskSettings:
    return DiskSettings(
        directory=config.state_dir / "disks",
        mounts=config.run_dir / "mounts",
        size_bytes=config.workspace_bytes,
        max_files=config.max_total_files,
        reserve_bytes=config.disk_reserve_mb << 20,
        layout=Layout(config.workspace_layout),
    )


def sandbox_settings(config: Config, instance: str, guest_dir: Path) -> SandboxSettings:
    return SandboxSettings(
        instance=instance,
        runtime=config.container_runtime,
        network_mode=config.docker_network_mode,
        runtime_dir=config.runtime_dir.resolve(),
        guest_dir=guest_dir,
        links_dir=config.run_dir / "links",
        projects_dir=config.state_dir / "projects",
        workspace_dir=config.workspace_dir,
        layout=Layout(config.workspace_layout),
        user=config.sandbox_user,
        seccomp=seccomp.profile(),
        grace_seconds=config.grace_seconds,
        unknown_seconds=config.unknown_disk_hours * 3600,
    )


def definitions(config: Config) -> Mapping[str, Definition]:
    """What each environment is built from: the built-in ones, as the settings change them, and
    those of the settings."""
    found = {built_in.name: built_in for built_in in BUILT_IN}
    found[DEFAULT_ENVIRONMENT] = default_definition(config.container_image)
    for name, table in config.environments.items():
        found[name] = _changed(found.get(name) or Definition(name=name), table)
    return found


def _changed(known: Definition, table: EnvironmentTable) -> Definition:
    described = replace(
        known,
        description=table.description or known.description,
        packages=PackageKind(table.packages or known.packages),
    )
    if table.image is not None or table.dockerfile is not None:
        described = replace(described, python="", node="")
    if table.image is not None:
        return replace(described, image=table.image, dockerfile=None, sources=())
    if table.dockerfile is not None:
        base = Source(base=Other(name=DEFAULT_ENVIRONMENT))
        return replace(described, dockerfile=table.dockerfile, sources=(base,), image="")
    return described


def environment(config: Config, definition: Definition) -> Environment:
    """An environment whose image is not known yet, unless it is configured."""
    table = config.environments.get(definition.name) or EnvironmentTable()

    def limit(own: int | None, usual: int) -> int:
        return usual if own is None else own

    is_strict = config.command_policy == STRICT.name
    memory_bytes = limit(table.memory_limit_bytes, config.memory_limit_bytes)
    workspace_mb = limit(table.max_workspace_mb, config.max_workspace_mb)
    if config.workspace_backend == "memory":
        workspace_mb = min(workspace_mb, max(1, (memory_bytes // 4) >> 20))
    return Environment(
        name=definition.name,
        image=definition.image,
        memory_bytes=memory_bytes,
        cpu_quota_us=limit(table.cpu_quota_us, config.cpu_quota_us),
        max_processes=limit(table.max_processes, config.max_processes),
        max_open_files=limit(table.max_open_files, config.max_open_files),
        max_file_bytes=limit(table.max_file_mb, config.max_file_mb) << 20,
        workspace_bytes=workspace_mb << 20,
        workspace_files=limit(table.max_total_files, config.max_total_files),
        write_bytes_per_second=config.workspace_write_mb << 20,
        project_bytes=config.max_project_mb << 20,
        project_files=config.max_project_files,
        tmp_bytes=config.tmp_mb << 20,
        env_vars=table.env_vars,
        command_policy=table.command_policy or (definition.strict_policy if is_strict else ""),
        strict_policy=definition.strict_policy,
        min_warm=table.min_warm,
        packages=definition.packages,
    )


def builder_settings(config: Config) -> BuilderSettings:
    return BuilderSettings(
        directory=config.state_dir / "builds",
        registry_seconds=config.registry_seconds,
    )


def npm_client(config: Config) -> NpmClient:
    return NpmClient(config.state_dir / "npm", config.npm_registry or "")


def project_settings(config: Config) -> ProjectSettings:
    return ProjectSettings(
        directory=config.state_dir / "store",
        limits=ProjectLimits(
            max_file_bytes=config.max_file_bytes,
            project_files=config.max_project_files,
            project_bytes=config.max_project_mb << 20,
            user_projects=config.max_user_projects,
            user_bytes=config.max_user_projects_mb << 20,
        ),
        allowed_types=[word.strip() for word in config.project_file_types.split(",")],
        reserve_bytes=config.disk_reserve_mb << 20,
    )


def pool_settings(config: Config) -> PoolSettings:
    return PoolSettings(
        target=config.pool_size,
        minimum=config.min_pool_size,
        maximum=config.max_pool_size,
        idle_seconds=config.pool_idle_seconds,
        concurrency=config.start_concurrency,
        max_queue=config.open_queue,
        wait_seconds=config.open_wait_seconds,
        health_seconds=config.health_interval_seconds,
    )


def exec_settings(config: Config) -> ExecSettings:
    return ExecSettings(
        spools=SpoolSettings(directory=config.state_dir / "spool", max_bytes=config.spool_bytes),
        session_spool_bytes=config.session_spool_bytes,
        max_running=config.max_running_execs,
        memory_seconds=config.exec_memory_minutes * 60,
    )


def session_settings(config: Config) -> SessionSettings:
    return SessionSettings(
        idle_seconds=config.session_timeout_minutes * 60,
        memory_seconds=config.session_memory_hours * 3600,
        max_remembered=config.max_ended_sessions,
        outlive_the_daemon=config.keep_sessions,
        workspace_dir=config.workspace_dir,
        layout=Layout(config.workspace_layout),
        code=code_settings(config),
    )


def code_settings(config: Config) -> CodeSettings:
    return CodeSettings(
        limits=Limits(
            memory_bytes=config.code_memory_bytes,
            cpu_percent=config.code_cpu_percent,
            open_files=config.code_open_files,
            threads=config.code_threads,
            timeout_seconds=config.default_code_seconds,
        ),
        max_contexts=config.max_contexts,
        policies={name: {"name": name, **table} for name, table in config.code_policies.items()},
        policy=config.code_policy,
        preload=config.code_preload,
    )


def snapshot_settings(config: Config) -> SnapshotSettings:
    return SnapshotSettings(
        directory=config.state_dir,
        reserve_bytes=snapshot_reserve_bytes(config),
        limits=LineLimits(
            count=config.snapshot_turns,
            lasting=config.snapshot_turns,
            age_seconds=config.snapshot_days * 86400,
            stored_bytes=config.snapshot_session_mb << 20,
        ),
        auto=AutoSnapshot(config.auto_snapshot),
        park_seconds=config.park_after_minutes * 60,
        parks_instead_of_expiry=config.park_instead_of_expiry,
        parked_seconds=config.parked_days * 86400,
        max_user_parked=config.max_user_parked_sessions,
    )


def snapshot_reserve_bytes(config: Config) -> int:
    """Free space of the host that snapshots leave alone: they stop while there is still room for
    new workspaces. Elsewhere, they take none of it."""
    return (config.disk_reserve_mb << 20) * (1 if config.snapshot_store else 2)


def protection_settings(
    config: Config, host: Host, settings: SandboxSettings, disks_detail: str
) -> ProtectionSettings:
    """What the report on protections compares with the host."""
    return ProtectionSettings(
        cgroups=host.cgroups,
        has_disks=host.disks is not None,
        disks_detail=disks_detail,
        attaching=host.attaching,
        moving_problem=host.moving_problem,
        doors_problem=host.doors_problem,
        workspace_bytes=config.workspace_bytes,
        workspace_files=config.max_total_files,
        reserve_bytes=config.disk_reserve_mb << 20,
        seccomp_digest=seccomp.digest(settings.seccomp),
        uid_start=config.sandbox_uid_start,
        uid_count=config.sandbox_uid_count,
        user=config.sandbox_user,
        runtime=config.container_runtime,
        max_sandboxes=config.max_pool_size,
        user_sessions=user_limits(config).sessions,
        max_open_files=config.max_open_files,
    )


def user_limits(config: Config) -> UserLimits:
    def limit(chosen: int, share: Share, total: int) -> int:
        """Where there are tokens, there are users who share what there is."""
        return chosen if chosen or config.tokens_file is None else share.of(total).per_user

    running_in_all = config.max_running_execs_in_all
    return UserLimits(
        sessions=limit(config.max_user_sessions, SESSIONS, config.max_pool_size),
        running_execs=limit(config.max_user_running_execs, RUNNING_EXECS, running_in_all),
        running_execs_in_all=running_in_all,
        spool_bytes=limit(config.max_user_spool_bytes, OUTPUT_BYTES, config.total_spool_bytes),
        calls_per_second=config.user_calls_per_second,
        calls_burst=config.user_calls_burst,
    )
