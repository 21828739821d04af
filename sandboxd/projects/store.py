"""Projects on the disk: rows about files, their content, and a directory that sessions see.

::

    index.sqlite                  which files a project has
    blobs/<user>/<ab>/<cdef...>   content
    projects/<random>/            one directory for each project:
      project.json                  whose it is, in case the index is lost
      files/<name>                  names of the content (hard links); what sandboxes see
    unfinished/                   what has no lasting name yet; emptied at start

The rows decide. A file is in `files/` before its row is saved and until after its row is deleted,
so a crash leaves at most a name without a row, which the next start removes.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sqlite3
import threading
import time
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from pathlib import Path

import structlog

from sandboxd.errors import (
    DiskSpaceLow,
    FileExists,
    FileNotFound,
    ProjectFull,
    ProjectNotFound,
    StateNotSaved,
)
from sandboxd.projects import names
from sandboxd.projects.blobs import Blobs, Upload, digest_of, sync_directory
from sandboxd.projects.content_types import HEAD_BYTES, mime_type_of
from sandboxd.projects.index import Index
from sandboxd.projects.records import (
    Added,
    OnConflict,
    Outcome,
    Project,
    ProjectFile,
    ProjectKey,
    ProjectLimits,
    Usage,
)

log = structlog.get_logger()

_FILES = "files"
_DESCRIPTION = "project.json"
_OPEN_TO_ALL = 0o755


class ProjectStore:
    """All projects of a daemon. Its methods block, and may be called from any thread."""

    def __init__(self, directory: Path, limits: ProjectLimits) -> None:
        """Open it, and finish what a crash has interrupted; IndexTooNew, sqlite3.Error, OSError."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._projects_dir = directory / "projects"
        self._unfinished = directory / "unfinished"
        for part in (self._projects_dir, self._unfinished):
            part.mkdir(mode=0o700, exist_ok=True)
        self._limits = limits
        self._blobs = Blobs(directory / "blobs", self._unfinished)
        self._lock = threading.Lock()
        self._index = Index.open(directory / "index.sqlite")
        try:
            self._mend()
        except BaseException:
            self._index.close()
            raise
        self._views = {project.key: self._view(project) for project in self._index.projects()}
        """For a look without a wait; changed under the lock."""

    def close(self) -> None:
        with self._lock:
            self._index.close()

    def view(self, key: ProjectKey) -> Path | None:
        """The directory with the files of a project; None if the project does not exist. Does not
        block."""
        return self._views.get(key)

    @property
    def free_bytes(self) -> int:
        """Free space of the filesystem."""
        state = os.statvfs(self._directory)
        return state.f_bavail * state.f_frsize

    # --- projects ---

    def create(self, key: ProjectKey) -> tuple[Project, bool]:
        """Make a project, unless it exists; returns whether it is new. ProjectFull."""
        with self._changing():
            if (found := self._index.project(key)) is not None:
                return found, False
            usage = self._index.usage(key.user_id)
            if usage.projects >= self._limits.user_projects:
                limit = self._limits.user_projects
                raise ProjectFull(f"This user has {limit} projects", limit)
            project = Project(
                key=key, directory=secrets.token_hex(16), created_at=_rounded(time.time())
            )
            self._make_directory(project)
            self._index.add_project(project)
            self._views[key] = self._view(project)
            return project, True

    def get(self, key: ProjectKey) -> Project:
        with self._changing():
            return self._found(key)

    def list(self, user_id: str, after: str, size: int) -> Sequence[Project]:
        """Projects of a user in the order of their ids, from after this one."""
        with self._changing():
            return self._index.page_of_projects(user_id, after, size)

    def usage(self, user_id: str) -> Usage:
        with self._changing():
            usage = self._index.usage(user_id)
            return usage._replace(stored=self._index.stored_bytes(user_id))

    def delete(self, key: ProjectKey) -> Project:
        """Delete a project with its files; sessions that show it see an empty directory."""
        with self._changing():
            project = self._found(key)
            digests = {file.digest for file in self._index.files(key)}
            with self._index.transaction():
                self._index.delete_project(key)
            del self._views[key]
            self._delete_directory(self._projects_dir / project.directory)
            for digest in digests:
                self._discard_unused(key.user_id, digest)
            return project

    # --- files ---

    def begin(self, key: ProjectKey, name: str, size: int) -> Upload:
        """A place for content of at least this size. ProjectNotFound, ProjectFull.

        A file of the same name leaves room for it: it may be the same file, or be replaced.
        """
        with self._changing():
            project, found = self._found(key), self._index.file(key, names.key(name))
            self._check_bytes(project, size - (found.size if found else 0))
        with self._reported():
            return Upload(self._unfinished / secrets.token_hex(16))

    def add(
        self, key: ProjectKey, name: str, upload: Upload, on_conflict: OnConflict, mime_type: str
    ) -> Added:
        """Add a file to a project, under a name with a number if it has to be another name.

        ProjectNotFound, ProjectFull, FileExists. In any case nothing is left of the upload.
        """
        try:
            with self._reported():
                digest = upload.finish()
            with self._changing():
                project = self._found(key)
                chosen, earlier = self._choose(key, name, digest, on_conflict)
                if earlier is not None and earlier.digest == digest:
                    return Added(earlier, Outcome.UNCHANGED)
                file = ProjectFile(chosen, digest, upload.size, mime_type, _rounded(time.time()))
                self._check_room(project, file, earlier)
                self._blobs.store(key.user_id, digest, upload.path)
                self._put(project, file, earlier)
                outcome = Outcome.CREATED if earlier is None else Outcome.REPLACED
                return Added(file, outcome)
        finally:
            upload.discard()

    def files(self, key: ProjectKey, after: str, size: int) -> Sequence[ProjectFile]:
        """Files in the order of their names, from after the file with this key."""
        with self._changing():
            self._found(key)
            return self._index.files(key, after, size)

    def open_file(self, key: ProjectKey, name: str) -> tuple[ProjectFile, int]:
        """A file, and a descriptor to read it, which stays valid if the file is deleted."""
        with self._changing():
            file = self._found_file(key, name)
            path = self._blobs.path(key.user_id, file.digest)
            return file, os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def delete_file(self, key: ProjectKey, name: str) -> ProjectFile:
        with self._changing():
            file = self._found_file(key, name)
            project = self._found(key)
            with self._index.transaction():
                self._index.delete_file(key, names.key(file.name))
            (self._view(project) / file.name).unlink(missing_ok=True)
            self._discard_unused(key.user_id, file.digest)
            return file

    def _found(self, key: ProjectKey) -> Project:
        project = self._index.project(key)
        if project is None:
            raise ProjectNotFound(key.project_id)
        return project

    def _found_file(self, key: ProjectKey, name: str) -> ProjectFile:
        self._found(key)
        file = self._index.file(key, names.key(name))
        if file is None or file.name != unicodedata.normalize("NFC", name):
            raise FileNotFound(name)
        return file

    def _choose(
        self, key: ProjectKey, name: str, digest: str, on_conflict: OnConflict
    ) -> tuple[str, ProjectFile | None]:
        """The name for a new file, and the file that it replaces or is."""
        found = self._index.file(key, names.key(name))
        if found is None or found.digest == digest or on_conflict is OnConflict.REPLACE:
            return name, found
        if on_conflict is OnConflict.FAIL:
            raise FileExists(name)
        for number in range(1, self._limits.project_files + 1):
            candidate = names.numbered(name, number)
            found = self._index.file(key, names.key(candidate))
            if found is None or found.digest == digest:
                return candidate, found
        raise self._has_most_files()

    def _check_room(self, project: Project, file: ProjectFile, earlier: ProjectFile | None) -> None:
        limits = self._limits
        more = file.size - (earlier.size if earlier else 0)
        if earlier is None and project.files >= limits.project_files:
            raise self._has_most_files()
        self._check_bytes(project, more)

    def _check_bytes(self, project: Project, more: int) -> None:
        limits = self._limits
        if project.size + more > limits.project_bytes:
            problem = f"The project would have more than {limits.project_bytes} bytes"
            raise ProjectFull(problem, limits.project_bytes)
        if self._index.usage(project.key.user_id).size + more > limits.user_bytes:
            problem = f"The projects of this user would have more than {limits.user_bytes} bytes"
            raise ProjectFull(problem, limits.user_bytes)

    def _has_most_files(self) -> ProjectFull:
        limit = self._limits.project_files
        return ProjectFull(f"The project has {limit} files", limit)

    def _put(self, project: Project, file: ProjectFile, earlier: ProjectFile | None) -> None:
        """Show a file and save its row; if that fails, the earlier one is shown again."""
        user_id, shown = project.key.user_id, self._view(project) / file.name
        try:
            with self._index.transaction():
                self._index.put_file(project.key, names.key(file.name), file)
                self._blobs.link(user_id, file.digest, shown)
        except BaseException:
            if earlier is None or earlier.name != file.name:
                shown.unlink(missing_ok=True)
            elif not self._blobs.is_shown(user_id, earlier.digest, shown):
                self._blobs.link(user_id, earlier.digest, shown)
            self._discard_unused(user_id, file.digest)
            raise
        if earlier is not None:
            if earlier.name != file.name:  # in another spelling
                (self._view(project) / earlier.name).unlink(missing_ok=True)
            self._discard_unused(user_id, earlier.digest)

    def _discard_unused(self, user_id: str, digest: str) -> None:
        if not self._index.names_digest(user_id, digest):
            self._blobs.discard(user_id, digest)

    # --- directories ---

    def _view(self, project: Project) -> Path:
        return self._projects_dir / project.directory / _FILES

    def _make_directory(self, project: Project) -> None:
        made = self._unfinished / project.directory
        made.mkdir(mode=0o700)
        view = made / _FILES
        view.mkdir()
        view.chmod(_OPEN_TO_ALL)  # whatever the umask is
        description = made / _DESCRIPTION
        with description.open("x") as file:
            json.dump({**project.key._asdict(), "created_at": project.created_at}, file)
            file.flush()
            os.fsync(file.fileno())
        made.rename(self._projects_dir / project.directory)
        sync_directory(self._projects_dir)

    def _delete_directory(self, directory: Path) -> None:
        gone = self._unfinished / secrets.token_hex(16)
        try:
            directory.rename(gone)
        except FileNotFoundError:
            return
        _remove(gone)

    # --- after a crash ---

    def _mend(self) -> None:
        for path in self._unfinished.iterdir():
            _remove(path)
        known = {project.directory: project for project in self._index.projects()}
        for directory in self._projects_dir.iterdir():
            if directory.name not in known:
                self._restore(directory)
        for project in known.values():
            self._mend_project(project)
        users = {project.key.user_id for project in self._index.projects()}
        swept = self._blobs.sweep({user_id: self._index.digests(user_id) for user_id in users})
        if swept:
            log.info("projects.content_swept", files=swept)

    def _mend_project(self, project: Project) -> None:
        """Show exactly the files that the rows name."""
        user_id, view = project.key.user_id, self._view(project)
        if not view.is_dir():
            self._delete_directory(self._projects_dir / project.directory)
            self._make_directory(project)
        files = {file.name: file for file in self._index.files(project.key)}
        for entry in view.iterdir():
            if entry.name not in files:
                _remove(entry)
        for name, file in files.items():
            has_blob = self._blobs.path(user_id, file.digest).is_file()
            if not has_blob and not self._blobs.recover(user_id, file.digest, view / name):
                log.error("project_file.lost", digest=file.digest)
                self._index.delete_file(project.key, names.key(name))
                (view / name).unlink(missing_ok=True)
            elif not self._blobs.is_shown(user_id, file.digest, view / name):
                self._blobs.link(user_id, file.digest, view / name)

    def _restore(self, directory: Path) -> None:
        """Make rows for a directory without any: the index was lost, or a delete was cut short."""
        project = _described(directory)
        if project is None or self._index.project(project.key) is not None:
            self._delete_directory(directory)
            return
        count = 0
        with self._index.transaction():
            self._index.add_project(project)
            for entry in (directory / _FILES).iterdir():
                if not entry.is_file():
                    continue
                file = _read_file(entry)
                if not self._blobs.path(project.key.user_id, file.digest).is_file():
                    self._blobs.recover(project.key.user_id, file.digest, entry)
                self._index.put_file(project.key, names.key(file.name), file)
                count += 1
        log.warning("project.restored", directory=directory.name, files=count)

    # --- errors ---

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock, self._reported():
            yield

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise failures of the disk as errors that callers know."""
        try:
            yield
        except sqlite3.Error as error:
            log.error("projects.index_failed", error=str(error))
            raise StateNotSaved(
                "The daemon cannot use its index of projects, so nothing was changed; try again in "
                "a few seconds. If it happens again, an operator should check the daemon's log.",
                retry_after_seconds=2.0,
            ) from error
        except OSError as error:
            if error.errno in (ENOSPC, EDQUOT):
                raise DiskSpaceLow from error
            raise


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _rounded(seconds: float) -> float:
    return round(seconds, 6)


def _described(directory: Path) -> Project | None:
    """The project of a directory; None if it does not say."""
    try:
        fields = json.loads((directory / _DESCRIPTION).read_text())
        key = ProjectKey(str(fields["user_id"]), str(fields["project_id"]))
        if not (directory / _FILES).is_dir():
            return None
        return Project(key=key, directory=directory.name, created_at=float(fields["created_at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_file(path: Path) -> ProjectFile:
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    state = path.stat()
    return ProjectFile(
        path.name, digest_of(path), state.st_size, mime_type_of(path.name, head), state.st_mtime
    )
