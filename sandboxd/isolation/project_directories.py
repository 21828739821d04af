"""Project files: a directory of the host for each sandbox, which shows it to commands read-only.

No command can change anything below it, so the daemon may work in it with paths.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Collection
from functools import partial
from pathlib import Path

import structlog

from sandboxd.isolation.blocking import to_the_end

log = structlog.get_logger()

_ID = re.compile("[0-9a-f]{16}")
_DEADLINE_SECONDS = 60.0
_OPEN_TO_ALL = 0o755
_TRASH = ".trash"
"""Ends the name of what is being deleted."""


class ProjectDirectories:
    """Makes, empties into each other, and deletes them. Nothing else may be kept beside them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def make(self, project_id: str = "") -> str:
        """A new one, empty, or the one with this id, empty if it was gone; returns its id."""
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
        """Move all files of one into another that has none of these; all, or none if that fails.

        One that is gone has none. What was moved before a crash is not missed.
        """
        source, target = self.path(source_id), self.path(self.make(target_id))
        await to_the_end(
            partial(_move, source, target),
            seconds=_DEADLINE_SECONDS,
            undo=lambda moved: _move_back(moved, target, source),
        )

    async def delete(self, project_id: str) -> None:
        """Delete one that may be gone already."""
        await to_the_end(partial(self._delete, project_id), seconds=_DEADLINE_SECONDS)

    async def sweep(self, keep: Collection[str]) -> int:
        """Delete all but those to keep; returns how many."""
        return await to_the_end(partial(self._sweep, frozenset(keep)), seconds=_DEADLINE_SECONDS)

    def _delete(self, project_id: str) -> None:
        trash = self._directory / f"{project_id}{_TRASH}"
        try:
            self.path(project_id).rename(trash)
        except FileNotFoundError:
            return
        _remove(trash)

    def _sweep(self, keep: Collection[str]) -> int:
        found = list(self._directory.glob("*"))
        stale = [path for path in found if path.name not in keep]
        for path in stale:
            _remove(path)
        return len(stale)


def _move(source: Path, target: Path) -> list[str]:
    """Returns the names that were moved."""
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


def _move_back(names: Collection[str], source: Path, target: Path) -> None:
    for name in names:
        try:
            os.rename(source / name, target / name)
        except OSError as error:
            log.error("project_files.not_moved_back", error=str(error))


def _remove(top: Path) -> None:
    """Delete a tree of any depth: each directory in it is first moved up to the top, so that no
    path becomes long and nothing is called by itself."""
    waiting = [top]
    while waiting:
        directory = waiting.pop()
        directory.chmod(0o700)  # without which only root could go on
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
