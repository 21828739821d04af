"""Project files: a directory of the host for each sandbox, in which it is mounted read-only.

No command can change anything below it, so the daemon can use paths there.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from sandboxd.workspaces import unknown
from sandboxd.workspaces.thread_work import run_in_thread

log = structlog.get_logger()

_ID = re.compile("[0-9a-f]{16}")
_DEADLINE_SECONDS = 60.0
_OPEN_TO_ALL = 0o755
_TRASH = ".trash"
"""Suffix of what is being deleted."""


class ProjectDirectories:
    """Makes and deletes project directories, and moves files between them. Nothing else may be in
    `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def make(self, project_id: str = "") -> str:
        """Make an empty directory, unless the one with this id exists; returns the id."""
        project_id = project_id or secrets.token_hex(8)
        path = self.path(project_id)
        if not path.is_dir():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.mkdir()
            path.chmod(_OPEN_TO_ALL)  # whatever the umask is
        return project_id

    def path(self, project_id: str) -> Path:
        if not _ID.fullmatch(project_id):
            raise ValueError(f"{project_id!r} is not the id of a project directory")
        return self._directory / project_id

    async def move(self, source_id: str, target_id: str) -> None:
        """Move all files from one directory to another in which none of their names exist; if that
        fails, none is moved.

        A missing source has no files. After a crash, the move can be repeated.
        """
        source, target = self.path(source_id), self.path(self.make(target_id))
        await run_in_thread(
            partial(_move, source, target),
            seconds=_DEADLINE_SECONDS,
            undo=lambda moved: _move_back(moved, target, source),
        )

    async def copy(self, source_id: str, target_id: str) -> None:
        """Copy all files from one directory to another in which none of their names exist.

        After an error or a cancel the target has a part of them.
        """
        source, target = self.path(source_id), self.path(self.make(target_id))
        await run_in_thread(partial(_copy, source, target), seconds=_DEADLINE_SECONDS)

    async def delete(self, project_id: str) -> None:
        """Delete a directory, if it exists."""
        await run_in_thread(partial(self._delete, project_id), seconds=_DEADLINE_SECONDS)

    async def sweep(self, keep: Collection[str]) -> int:
        """Delete all directories but those to keep, and move aside those with files; returns how
        many."""
        return await run_in_thread(partial(self._sweep, frozenset(keep)), seconds=_DEADLINE_SECONDS)

    async def delete_unknown(self, seconds: float) -> float | None:
        """Delete directories that were moved aside longer ago than this; returns the seconds until
        the next one is due, None if there is no other."""
        return await run_in_thread(
            partial(self._delete_unknown, seconds), seconds=_DEADLINE_SECONDS
        )

    def _delete(self, project_id: str) -> None:
        trash = self._directory / f"{project_id}{_TRASH}"
        try:
            self.path(project_id).rename(trash)
        except FileNotFoundError:
            return
        _remove(trash)

    def _sweep(self, keep: Collection[str]) -> int:
        found = list(self._directory.glob("*"))
        stale = [path for path in found if path.name not in {*keep, unknown.DIRECTORY}]
        for path in stale:
            if path.suffix != _TRASH and any(path.iterdir()):
                unknown.move_aside(path)
            else:
                _remove(path)
        return len(stale)

    def _delete_unknown(self, seconds: float) -> float | None:
        old, next_seconds = unknown.outdated(self._directory, seconds)
        for path in old:
            _remove(path)
            log.warning("workspace.unknown_deleted", path=path.name)
        return next_seconds


def _move(source: Path, target: Path) -> list[str]:
    """Move all entries; returns their names."""
    moved: list[str] = []
    try:
        for name in os.listdir(source):
            os.rename(source / name, target / name)
            moved.append(name)
    except FileNotFoundError:
        if source.is_dir():
            _move_back(moved, target, source)
            raise
    except OSError:
        _move_back(moved, target, source)
        raise
    return moved


def _copy(source: Path, target: Path) -> None:
    """No command writes there, so nothing in it is a link or a device."""
    with suppress(FileNotFoundError):  # a missing source has no files
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)


def _move_back(names: Collection[str], source: Path, target: Path) -> None:
    for name in names:
        try:
            os.rename(source / name, target / name)
        except OSError as error:
            log.error("project_files.not_moved_back", error=str(error))


def _remove(top: Path) -> None:
    """Delete a tree of any depth. Each directory in it is first moved beside the top, so that no
    path becomes too long and no recursion is needed."""
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        directory.chmod(0o700)  # otherwise only root could go on
        with os.scandir(directory) as found:
            entries = list(found)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                beside = top.with_name(f"{secrets.token_hex(8)}{_TRASH}")
                os.rename(entry.path, beside)
                waiting.append(beside)
            else:
                os.unlink(entry.path)
        directory.rmdir()
