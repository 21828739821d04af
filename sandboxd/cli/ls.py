"""`sandboxd ls`: list the files of a session."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sandboxd.cli import table
from sandboxd.cli.failure import USAGE, Failure, call
from sandboxd.cli.place import RemotePlace
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client import FileInfo

HEADER = ("MODE", "SIZE", "MODIFIED", "NAME")


@click.command("ls")
@click.argument("words", metavar="SESSION[:PATH]", nargs=-1, required=True)
@click.option("-R", "--recursive", is_flag=True, help="Include everything below its directories.")
@target_options
@json_option
def command(words: Sequence[str], recursive: bool, target: Target, as_json: bool) -> None:
    """List the files of a SESSION; also SESSION PATH."""
    remote, *others = RemotePlace.parse_all(words)
    if others:
        raise Failure("name one directory at a time", USAGE)

    async def work() -> Sequence[FileInfo]:
        async with target.sandbox(remote.session, continues=True) as sandbox:
            found = await sandbox.files.stat(remote.path, follow_links=True)
            if found.type != "directory":
                return [found]
            return await sandbox.files.list(remote.path, recursive=recursive)

    found = call(work())
    if as_json:
        table.show_document(found)
        return
    table.show(HEADER, (_row(entry, recursive) for entry in found))


def _row(entry: FileInfo, recursive: bool) -> Sequence[object]:
    name = entry.path if recursive else entry.name
    marks = {"directory": "/", "symlink": f" -> {entry.link_target}"}
    modified = entry.modified[:19].replace("T", " ")
    return (
        entry.permissions,
        table.size(entry.size_bytes),
        modified,
        name + marks.get(entry.type, ""),
    )
