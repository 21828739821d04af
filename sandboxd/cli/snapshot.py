"""`sandboxd snapshot`: take, list, compare and restore snapshots of sessions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from sandboxd.cli import diff, table
from sandboxd.cli.failure import FAILED, Failure, call
from sandboxd.cli.progress import ProgressLine
from sandboxd.cli.snapshot_name import HELP, snapshot_name
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client import SessionInfo, SnapshotCheck, SnapshotInfo
from sandboxd_client.connection import Connection
from sandboxd_client.methods.snapshots import VERIFY_SNAPSHOTS
from sandboxd_proto.v1 import snapshot_service_pb2 as pb

HEADER = ("NUMBER", "AGE", "CAUSE", "TURN", "LABEL", "FILES", "SIZE", "STORED", "CHANGES")


@click.group("snapshot", epilog=HELP)
def command() -> None:
    """Take, list, compare and restore snapshots of the workspace of a SESSION."""


@command.command("create")
@click.argument("session")
@click.option("--label", default="", help="Name to find it by.")
@click.option("--one-moment", is_flag=True, help="Stop running commands for it if that is needed.")
@target_options
@json_option
def create(session: str, label: str, one_moment: bool, target: Target, as_json: bool) -> None:
    """Take a snapshot of a SESSION, and print its number."""

    async def work() -> SnapshotInfo:
        async with target.sandbox(session) as sandbox:
            return await sandbox.snapshots.create(
                label, consistency="one_moment" if one_moment else "whole_files"
            )

    _show_new(call(work()), as_json)


@command.command("list")
@click.argument("session")
@target_options
@json_option
def list_(session: str, target: Target, as_json: bool) -> None:
    """List the snapshots of a SESSION, newest first."""

    async def work() -> Sequence[SnapshotInfo]:
        async with target.sandbox(session) as sandbox:
            return await sandbox.snapshots.list()

    found = call(work())
    if as_json:
        table.show_document(found)
    else:
        table.show(HEADER, map(_row, found))


@command.command("show", epilog=HELP)
@click.argument("session")
@click.argument("snapshot")
@target_options
@json_option
def show(session: str, snapshot: str, target: Target, as_json: bool) -> None:
    """Describe a SNAPSHOT of a SESSION."""
    name = snapshot_name(snapshot)

    async def work() -> SnapshotInfo:
        async with target.sandbox(session) as sandbox:
            return await sandbox.snapshots.get(name)

    info = call(work())
    if as_json:
        table.show_document(info)
        return
    for key, value in info.items():
        click.echo(f"{key:14}{table.printable(str(value))}")


@command.command("cat", epilog=HELP)
@click.argument("session")
@click.argument("snapshot")
@click.argument("path")
@target_options
def cat(session: str, snapshot: str, path: str, target: Target) -> None:
    """Print a file as it was in a SNAPSHOT of a SESSION."""
    name = snapshot_name(snapshot)

    async def work() -> bytes:
        async with target.sandbox(session) as sandbox:
            return await sandbox.snapshots.read(name, path)

    sys.stdout.buffer.write(call(work()))
    sys.stdout.buffer.flush()


@command.command("restore", epilog=HELP)
@click.argument("session")
@click.argument("snapshot")
@target_options
def restore(session: str, snapshot: str, target: Target) -> None:
    """Rewind a SESSION: its commands end, and its files are as in the SNAPSHOT.

    What it has now is kept as a snapshot, so that a rewind can be rewound.
    """
    name = snapshot_name(snapshot)

    async def work() -> SessionInfo:
        async with target.sandbox(session) as sandbox:
            return await sandbox.rewind(snapshot=name)

    info = call(work())
    click.echo(
        f"restored @{info.restored_snapshot}; the session is on incarnation {info.incarnation}",
        err=True,
    )


@command.command("fork", epilog=HELP)
@click.argument("session")
@click.argument("snapshot", required=False)
@click.option("--thread", "threads", multiple=True, help="Thread of a fork; may be repeated.")
@click.option("--count", type=click.IntRange(1, 100), default=1, help="Number of forks.")
@target_options
@json_option
def fork(
    session: str,
    snapshot: str | None,
    threads: Sequence[str],
    count: int,
    target: Target,
    as_json: bool,
) -> None:
    """Open new threads with the files of a SNAPSHOT, or of now; print their sessions."""
    name = snapshot_name(snapshot) if snapshot is not None else None

    async def work() -> Sequence[SessionInfo]:
        async with target.sandbox(session) as sandbox:
            return await sandbox.fork_many(count, thread_ids=threads or None, snapshot=name)

    forks = call(work())
    if as_json:
        table.show_document(forks)
        return
    for info in forks:
        click.echo(f"{info.session_id}  {table.printable(f'{info.user_id}/{info.thread_id}')}")


@command.command("delete")
@click.argument("session")
@click.argument("numbers", metavar="NUMBER...", nargs=-1, required=True, type=click.IntRange(1))
@target_options
def delete(session: str, numbers: Sequence[int], target: Target) -> None:
    """Delete snapshots of a SESSION; others stay complete."""

    async def work() -> int:
        async with target.sandbox(session) as sandbox:
            return sum([await sandbox.snapshots.delete(number) for number in numbers])

    click.echo(f"{call(work())} snapshots deleted", err=True)


@command.command("export", epilog=HELP)
@click.argument("session")
@click.argument("snapshot")
@click.argument("file", type=click.Path(path_type=Path))
@target_options
def export(session: str, snapshot: str, file: Path, target: Target) -> None:
    """Write the files of a SNAPSHOT to a tar FILE on this machine."""
    name = snapshot_name(snapshot)

    async def work() -> str:
        async with target.sandbox(session) as sandbox:
            with ProgressLine(file.name, None) as progress:
                return await sandbox.snapshots.export_to(name, file, on_progress=progress.add)

    click.echo(call(work()))


@command.command("import")
@click.argument("session")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--label", default="", help="Name to find it by.")
@target_options
@json_option
def import_(session: str, file: Path, label: str, target: Target, as_json: bool) -> None:
    """Make a snapshot of a SESSION from a tar FILE on this machine, and print its number."""
    if not file.is_file():
        raise Failure(f"{file} is not a file", FAILED)
    size = file.stat().st_size

    async def work() -> SnapshotInfo:
        async with target.sandbox(session) as sandbox:
            with ProgressLine(file.name, size) as progress:
                return await sandbox.snapshots.import_from(file, label, on_progress=progress.add)

    _show_new(call(work()), as_json)


@command.command("verify")
@click.argument("session", required=False)
@target_options
def verify(session: str | None, target: Target) -> None:
    """Check that everything that snapshots need is there, of a SESSION or of all; for admins."""

    async def work() -> SnapshotCheck:
        session_id = await target.session_id(session) if session else ""
        async with target.connection() as connection:
            return await _verified(connection, session_id)

    found = call(work())
    for problem in found.problems:
        click.echo(table.printable(problem))
    click.echo(
        f"{found.snapshots} snapshots, {table.size(found.content_bytes)} in {found.objects} "
        f"objects, {found.problem_count} problems",
        err=True,
    )
    if found.problem_count:
        raise SystemExit(FAILED)


command.add_command(diff.command, "diff")


async def _verified(connection: Connection, session_id: str) -> SnapshotCheck:
    request = pb.VerifySnapshotsRequest(session_id=session_id)
    seconds = connection.timeouts.transfer
    return SnapshotCheck.of(await connection.call(VERIFY_SNAPSHOTS, request, timeout=seconds))


def _show_new(info: SnapshotInfo, as_json: bool) -> None:
    if as_json:
        table.show_document(info)
        return
    click.echo(info.number)
    moving = f", {len(info.moving_files)} files changed meanwhile" if info.moving_files else ""
    click.echo(
        f"{info.files} files, {table.size(info.size_bytes)}, "
        f"{table.size(info.stored_bytes)} stored{moving}",
        err=True,
    )


def _row(info: SnapshotInfo) -> Sequence[object]:
    return (
        f"@{info.number}",
        table.since(info.created_at),
        info.cause,
        info.turn_id or "-",
        info.label or "-",
        info.files,
        table.size(info.size_bytes),
        table.size(info.stored_bytes),
        f"+{info.added} ~{info.changed} -{info.removed}",
    )
