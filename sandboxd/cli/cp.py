"""`sandboxd cp`: copy files and directories to and from a session."""

from __future__ import annotations

import os
import posixpath
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import click

from sandboxd.cli.failure import FAILED, USAGE, Failure, call
from sandboxd.cli.pipes import STANDARD, from_standard_input, to_standard_output
from sandboxd.cli.place import RemotePlace
from sandboxd.cli.progress import ProgressLine
from sandboxd.cli.table import printable, size
from sandboxd.cli.target import Target, target_options
from sandboxd_client import AsyncSandbox, FileInfo, MissingFileError, TransferReport

TAR_BLOCK = 512


@click.command("cp")
@click.argument("source", metavar="FROM")
@click.argument("destination", metavar="TO")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
@click.option("-r", "-R", "--recursive", is_flag=True, help="Copy directories; always on.")
@target_options
def command(source: str, destination: str, quiet: bool, recursive: bool, target: Target) -> None:
    """Copy a file or a directory; one of FROM and TO is SESSION:PATH.

    Like cp -r: if TO is a directory, the copy is put into it; otherwise TO is its new name. FROM/.
    is the content of a directory. The other one may be -, for a file on standard input or output.
    Put ./ before a local path that looks like SESSION:PATH.

    \b
    sandboxd cp report.csv ada/42:
    sandboxd cp ada/42:outputs ./results
    sandboxd cp ada/42:data.json - | jq .
    """
    here, there = RemotePlace.parse(source), RemotePlace.parse(destination)
    if here and there:
        raise Failure("FROM or TO must be on this machine; copy to a local path first", USAGE)
    if there and source == STANDARD:
        report = call(_upload_input(target, there))
    elif there:
        report = call(_upload(target, Source.at(source), there))
    elif here and destination == STANDARD:
        sys.exit(call(_download_to_output(target, here)))
    elif here:
        report = call(_download(target, here, destination))
    else:
        raise Failure("FROM or TO must be SESSION:PATH, for example ada/42:data.csv", USAGE)
    if not quiet:
        click.echo(report, err=True)


@dataclass(frozen=True)
class Source:
    """What to upload, as it was when the command started."""

    path: Path
    name: str
    is_directory: bool
    is_content: bool
    """Whether to send the content of the directory and not the directory itself."""
    size_bytes: int

    @classmethod
    def at(cls, text: str) -> Self:
        path = Path(text)
        if not path.exists():
            raise Failure(f"{text} does not exist", FAILED)
        is_directory = path.is_dir()
        return cls(
            path,
            path.resolve().name,
            is_directory,
            is_directory and _is_content(text),
            _tar_size(path) if is_directory else path.stat().st_size,
        )


async def _upload(target: Target, source: Source, to: RemotePlace) -> str:
    async with target.sandbox(to.session, opens=True) as sandbox:
        goal = to.path if source.is_content else await _inside(sandbox, to, source.name)
        with ProgressLine(source.name, source.size_bytes) as progress:
            if source.is_directory:
                report = await sandbox.files.upload_dir(source.path, goal, on_progress=progress.add)
                return _summary(report, f"{to.session}:{goal}")
            written = await sandbox.files.upload(source.path, goal, on_progress=progress.add)
            return f"{size(written.size_bytes)} to {to.session}:{printable(written.path)}"


async def _upload_input(target: Target, to: RemotePlace) -> str:
    if to.is_directory:
        raise Failure("give the file a name: SESSION:PATH, not a directory", USAGE)
    async with target.sandbox(to.session, opens=True) as sandbox:
        with ProgressLine(to.path, None) as progress:
            written = await from_standard_input(sandbox, to.path, progress.add)
        return f"{size(written.size_bytes)} to {to.session}:{printable(written.path)}"


async def _download_to_output(target: Target, source: RemotePlace) -> int:
    async with target.sandbox(source.session, continues=True) as sandbox:
        found = await sandbox.files.stat(source.path, follow_links=True)
        if found.type == "directory":
            raise Failure("a directory cannot be written to standard output", USAGE)
        return await to_standard_output(sandbox, source.path)


async def _download(target: Target, source: RemotePlace, destination: str) -> str:
    async with target.sandbox(source.session, continues=True) as sandbox:
        found = await sandbox.files.stat(source.path, follow_links=True)
        goal = _here(destination, source, found)
        if found.type == "directory":
            with ProgressLine(found.name or "workspace", None) as progress:
                report = await sandbox.files.download_dir(
                    source.path, goal, on_progress=progress.add
                )
            return _summary(report, os.fspath(goal))
        with ProgressLine(found.name, found.size_bytes) as progress:
            await sandbox.files.download(source.path, goal, on_progress=progress.add)
        return f"{size(found.size_bytes)} to {goal}"


async def _inside(sandbox: AsyncSandbox, to: RemotePlace, name: str) -> str:
    """Path of the copy: inside `to` if that is a directory, otherwise `to` itself."""
    is_directory = to.is_directory
    if not is_directory:
        try:
            is_directory = (
                await sandbox.files.stat(to.path, follow_links=True)
            ).type == "directory"
        except MissingFileError:
            pass  # then the path is the new name
    return posixpath.join(to.path, name) if is_directory else to.path


def _here(destination: str, source: RemotePlace, found: FileInfo) -> Path:
    path = Path(destination)
    name = posixpath.basename(source.path.rstrip("/")) or found.name
    is_content = found.type == "directory" and (_is_content(source.path) or not name)
    is_directory = path.is_dir() or (destination.endswith("/") and found.type != "directory")
    if is_directory and not path.is_dir():
        raise Failure(f"{destination} is not a directory", FAILED)
    return path / name if is_directory and not is_content else path


def _is_content(path: str) -> bool:
    return path in (".", "") or path.endswith("/.")


def _tar_size(directory: Path) -> int:
    """Approximate size of the archive of a directory."""
    total = 0
    for parent, directories, files in os.walk(directory):
        total += TAR_BLOCK * (len(directories) + len(files))
        for name in files:
            length = os.lstat(os.path.join(parent, name)).st_size
            total += -(-length // TAR_BLOCK) * TAR_BLOCK
    return total


def _summary(report: TransferReport, where: str) -> str:
    lines = [f"{report.entries} entries to {printable(where)}"]
    lines += [f"left out: {printable(name)}: {printable(why)}" for name, why in report.refused]
    if report.refused_count > len(report.refused):
        lines.append(f"left out: {report.refused_count - len(report.refused)} more")
    return "\n".join(lines)
