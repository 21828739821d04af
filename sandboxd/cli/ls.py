"""`sandboxd ls`: files of a session."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sandboxd.cli import table
from sandboxd.cli.failure import call
from sandboxd.cli.place import RemotePlace
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client import FileInfo

HEADER = ("MODE", "SIZE", "MODIFIED", "NAME")


@click.command("ls")
@click.argument("place", metavar="SESSION[:PATH]")
@click.option("-R", "--recursive", is_flag=True, help="Also what is in its directories.")
@target_options
@json_option
def command(place: str, recursive: bool, target: Target, as_json: bool) -> None:
    """List files of a SESSION's workspace."""
    remote = RemotePlace.parse(place) or RemotePlace(place, "")

    async def work() -> Sequence[FileInfo]:
        async with target.sandbox(remote.session) as sandbox:
            found = await sandbox.files.stat(remote.path, follow_links=True)
            if found.type != "directory":
                return [found]
            return await sandbox.files.list(remote.path, recursive=recursive)

    found = call(work())
    if as_json:
        table.show_document(found)
        return
    table.show(HEADER, (_row(one, recursive) for one in found))


def _row(one: FileInfo, recursive: bool) -> Sequence[object]:
    name = one.path if recursive else one.name
    marks = {"directory": "/", "symlink": f" -> {one.link_target}"}
    modified = one.modified[:19].replace("T", " ")
    return one.permissions, table.size(one.size_bytes), modified, name + marks.get(one.type, "")
