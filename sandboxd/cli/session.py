"""`sandboxd session`: open, list, show, label, close and reset sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, get_args

import click

from sandboxd.cli import table
from sandboxd.cli.failure import USAGE, Failure, call
from sandboxd.cli.target import (
    JsonObject,
    Pairs,
    Target,
    json_option,
    target_options,
    warn_of_missing,
)
from sandboxd_client import SessionInfo, SessionList
from sandboxd_client.results import StateName
from sandboxd_client.session import close_session, in_seconds, open_session
from sandboxd_client.snapshot_results import AutoSnapshotName
from sandboxd_proto.v1.session_pb2 import SessionUsage

STATES = get_args(StateName)
GO_ON: Sequence[StateName] = ("active", "stopped", "parked")
"""States of sessions whose files are there, in the order of a list."""
HEADER = ("SESSION", "USER", "THREAD", "STATE", "RUN", "INC", "AGE", "USED", "EXPIRES")


@click.group("session")
def command() -> None:
    """Open, list, show, label, close and reset sessions."""


@command.command("open")
@click.argument("user")
@click.argument("thread")
@click.option(
    "--timeout-minutes", type=float, metavar="MINUTES", help="Idle time until it expires."
)
@click.option(
    "--label", "labels", type=Pairs(), multiple=True, help="Label to find it by; may be repeated."
)
@click.option(
    "--env",
    "env",
    type=Pairs(),
    multiple=True,
    help="Environment variable of its commands; may be repeated.",
)
@click.option("--project", default="", help="Project of the USER to see in project_files/.")
@click.option(
    "--data-source", "data_sources", multiple=True, help="Data source to query; repeatable."
)
@click.option(
    "--environment",
    "--environment-type",
    "environment",
    default="",
    metavar="NAME",
    help="Environment; `sandboxd environments list` lists them.",
)
@click.option("--package", "packages", multiple=True, help="Package to add to it; may be repeated.")
@click.option(
    "--environment-config",
    type=JsonObject(),
    metavar="JSON",
    help='What to add to it: {"packages": [...], "env_vars": {...}}; @FILE reads a file.',
)
@click.option("--policy", default="", metavar="NAME", help="Command policy of the session.")
@click.option(
    "--egress",
    "egress",
    multiple=True,
    metavar="RULE",
    help="Host that it may reach, such as *.example.com; may be repeated.",
)
@click.option(
    "--build-wait",
    type=click.FloatRange(min=0, max=3600),
    default=0.0,
    metavar="SECONDS",
    help="How long to wait for an environment or packages that are not built yet.",
)
@click.option(
    "--auto-snapshot",
    type=click.Choice(get_args(AutoSnapshotName)),
    help="Automatic snapshots: after every change, or one per turn.",
)
@click.option(
    "--park-after",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Idle time until it gives up its sandbox and keeps its files; 0 means never.",
)
@target_options
@json_option
def open_(
    user: str,
    thread: str,
    timeout_minutes: float | None,
    labels: Sequence[tuple[str, str]],
    env: Sequence[tuple[str, str]],
    project: str,
    data_sources: Sequence[str],
    environment: str,
    packages: Sequence[str],
    environment_config: dict[str, object] | None,
    policy: str,
    egress: Sequence[str],
    build_wait: float,
    auto_snapshot: AutoSnapshotName | None,
    park_after: float | None,
    target: Target,
    as_json: bool,
) -> None:
    """Open the session of a USER's THREAD, or attach to it, and print its id."""

    async def work() -> SessionInfo:
        async with target.connection() as connection:
            return await open_session(
                connection,
                user,
                thread,
                idle_seconds=in_seconds(timeout_minutes),
                metadata=dict(labels),
                env=dict(env),
                project=project,
                data_sources=data_sources,
                environment=environment,
                packages=packages or None,
                environment_config=environment_config,
                command_policy=policy,
                egress=egress or None,
                build_wait=build_wait,
                auto_snapshot=auto_snapshot,
                park_after=park_after,
            )

    info = call(work())
    if as_json:
        table.show_document(document(info))
        return
    click.echo(info.session_id)
    kept = (
        ""
        if info.status != "recreated"
        else f", files {'kept' if info.workspace_kept else 'deleted'}"
    )
    click.echo(f"{info.status}{kept}, expires in {table.until(info.expires_at)}", err=True)


@command.command("park")
@click.argument("session")
@target_options
def park(session: str, target: Target) -> None:
    """Give up the sandbox of a SESSION and keep its files, until it is opened again."""

    async def work() -> SessionInfo:
        async with target.sandbox(session) as sandbox:
            return await sandbox.park()

    info = call(work())
    click.echo(f"parked, kept for {table.until(info.expires_at)}", err=True)


@command.command("list")
@click.option("--user", default="", help="Only sessions of this user.")
@click.option("--thread", default="", help="Only sessions of this thread.")
@click.option("--state", type=click.Choice(STATES), help="Only sessions in this state.")
@click.option("-a", "--all", "is_all", is_flag=True, help="Include sessions that ended recently.")
@click.option(
    "--label",
    "labels",
    type=Pairs(),
    multiple=True,
    help="Only sessions with this label; may be repeated.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
@target_options
@json_option
def list_(
    user: str,
    thread: str,
    state: StateName | None,
    is_all: bool,
    labels: Sequence[tuple[str, str]],
    quiet: bool,
    target: Target,
    as_json: bool,
) -> None:
    """List active sessions, the last used first, then stopped and parked ones, which keep their
    files until they are opened again; with --all, then those that ended recently."""
    wanted: Sequence[StateName | None] = [state] if state or is_all else GO_ON

    async def work() -> SessionList:
        async with target.client() as client:
            lists = [
                await client.list_sessions(
                    user_id=user, thread_id=thread, state=one, metadata=dict(labels)
                )
                for one in wanted
            ]
        return SessionList(chain(*lists), chain(*(one.missing_workers for one in lists)))

    listed = call(work())
    warn_of_missing(listed)
    found = sorted(listed, key=lambda info: info.last_used_at, reverse=True)
    found.sort(key=lambda info: (*GO_ON, info.state).index(info.state))
    if as_json:
        table.show_document([document(info) for info in found])
    elif quiet:
        click.echo("".join(f"{info.session_id}\n" for info in found), nl=False)
    else:
        table.show(HEADER, map(row, found))


@command.command("show")
@click.argument("session")
@target_options
@json_option
def show(session: str, target: Target, as_json: bool) -> None:
    """Print everything about a SESSION. This does not count as use."""

    async def work() -> SessionInfo:
        async with target.client() as client:
            return await client.get_session(await target.session_id(session))

    info = call(work())
    if as_json:
        table.show_document(document(info))
        return
    for name, value in _facts(info).items():
        click.echo(f"{name:<12}{table.printable(value)}")


@command.command("label")
@click.argument("session")
@click.argument("labels", metavar="[KEY=VALUE]...", type=Pairs(), nargs=-1)
@click.option("--remove", "removed", metavar="KEY", multiple=True, help="Remove this label.")
@target_options
@json_option
def label(
    session: str,
    labels: Sequence[tuple[str, str]],
    removed: Sequence[str],
    target: Target,
    as_json: bool,
) -> None:
    """Set labels of a SESSION, or remove some; others stay."""
    if not labels and not removed:
        raise Failure("give KEY=VALUE to set a label, or --remove KEY", USAGE)

    async def work() -> SessionInfo:
        async with target.sandbox(session) as sandbox:
            return await sandbox.update_metadata(dict(labels) | dict.fromkeys(removed))

    info = call(work())
    if as_json:
        table.show_document(document(info))
    else:
        lines = (f"{key}={value}\n" for key, value in sorted(info.metadata.items()))
        click.echo("".join(lines), nl=False)


@command.command("close")
@click.argument("sessions", metavar="SESSION...", nargs=-1, required=True)
@target_options
@json_option
def close(sessions: Sequence[str], target: Target, as_json: bool) -> None:
    """End each SESSION and delete its files."""

    async def work() -> list[SessionInfo]:
        closed = []
        for session in sessions:
            session_id = await target.session_id(session)
            async with target.connection() as connection:
                closed.append(await close_session(connection, session_id))
        return closed

    _show_sessions(call(work()), as_json)


@command.command("reset")
@click.argument("session")
@target_options
@json_option
def reset(session: str, target: Target, as_json: bool) -> None:
    """Give a SESSION a fresh sandbox and delete its files, except project_files/."""

    async def work() -> SessionInfo:
        async with target.sandbox(session) as sandbox:
            return await sandbox.reset()

    _show_sessions([call(work())], as_json)


def _show_sessions(sessions: Sequence[SessionInfo], as_json: bool) -> None:
    if as_json:
        table.show_document([document(info) for info in sessions])
    else:
        table.show(HEADER, map(row, sessions))


def row(info: SessionInfo) -> Sequence[object]:
    return (
        info.session_id,
        info.user_id,
        info.thread_id,
        _state(info),
        info.running_execs,
        info.incarnation,
        table.since(info.created_at),
        "-" if info.state == "parked" else table.since(info.last_used_at),  # not known
        table.until(info.expires_at) if info.workspace_kept else "-",
    )


def _state(info: SessionInfo) -> str:
    return f"{info.state}, files kept" if info.state in GO_ON[1:] else info.state


def document(info: SessionInfo) -> Mapping[str, Any]:
    """All fields, for programs."""
    return {
        **info,
        "state": info.state,
        "last_used_at": info.last_used_at,
        "running_execs": info.running_execs,
        "end_reason": info.end_reason,
        "project_id": info.project_id,
        "data_sources": info.data_sources,
        "environment": info.environment,
        "packages": info.packages,
        "command_policy": info.command_policy,
        "limits": {
            "memory_bytes": info.limits.memory_bytes,
            "max_processes": info.limits.max_processes,
            "cpu_millis": info.limits.cpu_millis,
            "workspace_bytes": info.limits.workspace_bytes,
            "workspace_files": info.limits.workspace_files,
            "tmp_bytes": info.limits.tmp_bytes,
            "tmp_files": info.limits.tmp_files,
            "max_file_bytes": info.limits.max_file_bytes,
            "max_running_execs": info.limits.max_running_execs,
            "default_exec_timeout_seconds": info.limits.default_exec_timeout.seconds,
            "max_exec_timeout_seconds": info.limits.max_exec_timeout.seconds,
        },
        "usage": None if info.usage is None else _usage(info.usage),
    }


def _usage(usage: SessionUsage) -> Mapping[str, Any]:
    return {
        "memory_bytes": usage.memory_bytes,
        "cpu_seconds": usage.cpu_time.seconds + usage.cpu_time.nanos / 1e9,
        "processes": usage.processes,
        "workspace_bytes": usage.workspace_bytes,
        "workspace_files": usage.workspace_files,
        "tmp_bytes": usage.tmp_bytes,
        "tmp_files": usage.tmp_files,
    }


def _facts(info: SessionInfo) -> dict[str, str]:
    limits = info.limits
    labels = ", ".join(f"{key}={value}" for key, value in sorted(info.metadata.items()))
    facts = {
        "session": info.session_id,
        "user": info.user_id,
        "thread": info.thread_id,
        "state": _state(info) + (f": {info.end_reason}" if info.end_reason else ""),
        "sandbox": f"number {info.incarnation} of this session",
        "workspace": info.workspace_dir,
        "created": f"{info.created_at} ({table.since(info.created_at)} ago)",
        "commands": f"{info.running_execs} running, at most {limits.max_running_execs}",
        "limits": (
            f"{table.size(limits.memory_bytes)} memory, {limits.max_processes} processes, "
            f"{f'{limits.cpu_millis / 1000:g} cores' if limits.cpu_millis else 'all cores'}, "
            f"{table.size(limits.workspace_bytes)} and {limits.workspace_files} files, "
            f"{table.size(limits.tmp_bytes)} in /tmp and /var/tmp, "
            f"{limits.default_exec_timeout.seconds} s per command unless it sets another timeout"
        ),
    }
    if info.usage is not None:
        facts["uses"] = (
            f"{table.size(info.usage.memory_bytes)} memory, {info.usage.processes} processes, "
            f"{table.size(info.usage.workspace_bytes)} and {info.usage.workspace_files} files, "
            f"{table.size(info.usage.tmp_bytes)} in /tmp and /var/tmp"
        )
    if info.workspace_kept:
        facts["expires"] = f"{info.expires_at} (in {table.until(info.expires_at)})"
    if labels:
        facts["labels"] = labels
    if info.project_id:
        facts["project"] = info.project_id
    facts["environment"] = info.environment
    if info.packages:
        facts["packages"] = ", ".join(info.packages)
    facts["policy"] = info.command_policy
    return facts
