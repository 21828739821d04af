"""`sandboxd project`: create, fill, list and delete projects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from sandboxd.cli import table
from sandboxd.cli.failure import FAILED, USAGE, Failure, call
from sandboxd.cli.progress import ProgressLine
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client import ProjectFileInfo, ProjectInfo
from sandboxd_client.results import OnConflict

PROJECTS = ("PROJECT", "FILES", "SIZE", "AGE")
FILES = ("NAME", "SIZE", "TYPE", "AGE")


@click.group("project")
def command() -> None:
    """Create, fill, list and delete projects: files that users keep beyond sessions.

    PROJECT is USER/PROJECT. `sandboxd session open --project` opens a session that sees the files
    in project_files/.
    """


@command.command("create")
@click.argument("project")
@target_options
@json_option
def create(project: str, target: Target, as_json: bool) -> None:
    """Create a PROJECT; one that exists is left as it is."""

    async def work() -> ProjectInfo:
        async with target.client() as client:
            return await client.projects.create(*user_and_project(project))

    info = call(work())
    if as_json:
        table.show_document(info)
    else:
        click.echo(f"{info.user_id}/{info.project_id} has {info.files} files", err=True)


@command.command("upload")
@click.argument("project")
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--name", help="Name in the project; only for one FILE.")
@click.option(
    "--on-conflict",
    type=click.Choice(get_args(OnConflict)),
    default="rename",
    show_default=True,
    help="If the project has other content under a name.",
)
@target_options
@json_option
def upload(
    project: str,
    files: Sequence[Path],
    name: str | None,
    on_conflict: OnConflict,
    target: Target,
    as_json: bool,
) -> None:
    """Store each FILE in a PROJECT, and print the name that it got."""
    if name is not None and len(files) > 1:
        raise Failure("--name is for one FILE", USAGE)
    where = user_and_project(project)
    for file in files:
        if not file.is_file():
            raise Failure(f"{file} is not a file", FAILED)

    async def work() -> list[ProjectFileInfo]:
        stored = []
        async with target.client() as client:
            for file in files:
                with ProgressLine(file.name, file.stat().st_size) as progress:
                    stored.append(
                        await client.projects.upload(
                            *where, file, name, on_conflict=on_conflict, on_progress=progress.add
                        )
                    )
        return stored

    stored = call(work())
    if as_json:
        table.show_document([{**info, "status": info.status} for info in stored])
        return
    for info in stored:
        click.echo(table.printable(info.name))
        click.echo(f"{info.status}, {table.size(info.size_bytes)}, {info.mime_type}", err=True)


@command.command("list")
@click.argument("place", metavar="USER|PROJECT")
@target_options
@json_option
def list_(place: str, target: Target, as_json: bool) -> None:
    """List the projects of a USER, or the files of a PROJECT."""

    async def projects() -> Sequence[ProjectInfo]:
        async with target.client() as client:
            return await client.projects.list(place)

    async def files() -> Sequence[ProjectFileInfo]:
        async with target.client() as client:
            return await client.projects.list_files(*user_and_project(place))

    if "/" not in place:
        found = call(projects())
        rows = [
            (one.project_id, one.files, table.size(one.size_bytes), table.since(one.created_at))
            for one in found
        ]
        _show(found, PROJECTS, rows, as_json)
        return
    listed = call(files())
    lines = [
        (one.name, table.size(one.size_bytes), one.mime_type, table.since(one.created_at))
        for one in listed
    ]
    _show(listed, FILES, lines, as_json)


@command.command("download")
@click.argument("project")
@click.argument("name")
@click.argument("to", required=False)
@target_options
def download(project: str, name: str, to: str | None, target: Target) -> None:
    """Copy the file NAME of a PROJECT to this machine, and print its path."""

    async def work() -> str:
        async with target.client() as client:
            with ProgressLine(name, None) as progress:
                return await client.projects.download(
                    *user_and_project(project), name, to, on_progress=progress.add
                )

    click.echo(call(work()))


@command.command("delete")
@click.argument("project")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--with-files", is_flag=True, help="Delete a project that has files.")
@target_options
def delete(project: str, names: Sequence[str], with_files: bool, target: Target) -> None:
    """Delete files of a PROJECT, or without NAME the project itself."""
    user_id, project_id = user_and_project(project)

    async def work() -> str:
        async with target.client() as client:
            for name in names:
                await client.projects.delete_file(user_id, project_id, name)
            if names:
                return f"{len(names)} files deleted"
            info = await client.projects.get(user_id, project_id)
            if info.files and not with_files:
                raise Failure(
                    f"{project} has {info.files} files; add --with-files to delete them too", USAGE
                )
            await client.projects.delete(user_id, project_id)
            return f"{project} deleted"

    click.echo(call(work()), err=True)


def user_and_project(project: str) -> tuple[str, str]:
    user, slash, name = project.partition("/")
    if not (user and slash and name):
        raise Failure(f"{project!r} is not a valid project: use USER/PROJECT", USAGE)
    return user, name


def _show(
    document: Sequence[object],
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    as_json: bool,
) -> None:
    if as_json:
        table.show_document(document)
    else:
        table.show(header, rows)
