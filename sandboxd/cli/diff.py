"""`sandboxd diff`: what changed in a session since a snapshot, or between two."""

from __future__ import annotations

import stat
from dataclasses import asdict

import click

from sandboxd.cli import table
from sandboxd.cli.failure import call
from sandboxd.cli.snapshot_name import HELP, snapshot_name
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client import SnapshotChange, SnapshotDiff

_MARKS = {"added": "A", "changed": "M", "removed": "D", "moved": "R"}


@click.command("diff", epilog=HELP)
@click.argument("session")
@click.argument("before", metavar="SNAPSHOT")
@click.argument("after", metavar="[SNAPSHOT]", required=False)
@click.option("--names", "only_names", is_flag=True, help="Only what changed, without texts.")
@click.option("--path", default="", help="Only this file, or what is below this directory.")
@target_options
@json_option
def command(
    session: str,
    before: str,
    after: str | None,
    only_names: bool,
    path: str,
    target: Target,
    as_json: bool,
) -> None:
    """Show what changed in a SESSION between two snapshots, or between one and now."""
    first = snapshot_name(before)
    second = snapshot_name(after) if after is not None else None

    async def work() -> SnapshotDiff:
        async with target.sandbox(session) as sandbox:
            return await sandbox.snapshots.diff(first, second, with_text=not only_names, path=path)

    found = call(work())
    if as_json:
        table.show_document(asdict(found))
        return
    for change in found.changes:
        click.echo(_line(change))
        if change.unified_diff:
            click.echo(_safe(change.unified_diff), nl=not change.unified_diff.endswith("\n"))
        elif change.is_binary:
            click.echo("  binary content differs")
        if change.is_cut:
            click.echo("  the text is too large to be shown completely")
    cut = ", of which the first are shown" if found.is_cut else ""
    click.echo(
        f"{found.added} added, {found.changed} changed, {found.removed} removed, "
        f"{found.moved} moved{cut}",
        err=True,
    )


def _line(change: SnapshotChange) -> str:
    moved = f" (was {table.printable(change.moved_from)})" if change.moved_from else ""
    mode = ""
    if change.old_mode and change.new_mode and change.old_mode != change.new_mode:
        mode = f" [{stat.filemode(change.old_mode)} -> {stat.filemode(change.new_mode)}]"
    return f"{_MARKS[change.kind]} {table.printable(change.path)}{moved}{mode}"


def _safe(text: str) -> str:
    """Without control characters: the text comes from a sandbox."""
    return "\n".join(
        "".join(char if char.isprintable() or char == "\t" else "\ufffd" for char in line)
        for line in text.split("\n")
    )
