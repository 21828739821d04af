"""The projects of all users, as callers use them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from sandboxd.access import current_caller
from sandboxd.access.shares import PROJECT_WORK
from sandboxd.errors import (
    ChecksumMismatch,
    DiskSpaceLow,
    FileTooLarge,
    ProjectFull,
    StateNotSaved,
)
from sandboxd.projects import names
from sandboxd.projects.blobs import Upload
from sandboxd.projects.content_types import HEAD_BYTES, ContentTypes
from sandboxd.projects.index import IndexTooNew
from sandboxd.projects.records import (
    Added,
    OnConflict,
    Project,
    ProjectFile,
    ProjectKey,
    ProjectLimits,
    Usage,
)
from sandboxd.projects.store import ProjectStore
from sandboxd.workspaces.thread_work import run_in_thread
from sandboxd.workspaces.user_threads import UserThreads

log = structlog.get_logger()

T = TypeVar("T")

WORK_SECONDS = 60.0
"""How long the disk may take for one step of a call."""
START_SECONDS = 120.0
"""How long the disk may take at the start, when every file is looked at."""
READ_BYTES = 1 << 20
THREADS = 4
"""Steps of calls that work on the disk at once."""


@dataclass(frozen=True, kw_only=True)
class ProjectSettings:
    directory: Path
    limits: ProjectLimits
    allowed_types: Collection[str]
    """As `ContentTypes` takes them."""
    reserve_bytes: int
    """Free space of the host's disk that is left alone."""


@dataclass(frozen=True, kw_only=True)
class NewFile:
    """What a caller says about a file before its content."""

    key: ProjectKey
    name: str
    on_conflict: OnConflict = OnConflict.RENAME
    size: int | None = None
    sha256: bytes | None = None
    """Absent if the caller does not know, as the size."""


class ProjectsUnusable(Exception):
    """The directory cannot be used; the text says why."""


class Projects:
    """Checks who may do what, keeps the limits, and leaves the disk to threads.

    A caller sees only the projects of its user. A cancelled call leaves nothing behind; one that is
    cancelled when its work is done has done it.
    """

    def __init__(self, store: ProjectStore, settings: ProjectSettings) -> None:
        self._store = store
        self._settings = settings
        self._limits = settings.limits
        self._types = ContentTypes(settings.allowed_types)
        # Not those of the event loop: uploads that wait for the disk would delay sandboxes.
        self._threads = UserThreads(PROJECT_WORK, THREADS, "projects")
        self._arriving: Counter[str] = Counter()
        """Bytes of uploads that are under way, by user."""

    @classmethod
    async def open(cls, settings: ProjectSettings) -> Projects:
        """ProjectsUnusable."""
        try:
            store = await run_in_thread(
                partial(ProjectStore, settings.directory, settings.limits),
                seconds=START_SECONDS,
                undo=ProjectStore.close,
            )
        except (OSError, sqlite3.Error, IndexTooNew) as error:
            raise ProjectsUnusable(str(error)) from error
        return cls(store, settings)

    async def aclose(self) -> None:
        await self._threads.run_now(self._store.close, seconds=WORK_SECONDS)
        self._threads.shutdown(wait=False)

    @property
    def limits(self) -> ProjectLimits:
        return self._limits

    def view(self, key: ProjectKey) -> Path | None:
        """The directory with the files of a project; None if the project does not exist."""
        return self._store.view(key)

    # --- projects ---

    async def create(self, key: ProjectKey) -> tuple[Project, bool]:
        """Make a project, unless it exists; returns whether it is new. ProjectFull."""
        self._check_caller(key.user_id)
        return await self._in_thread(key.user_id, partial(self._store.create, key))

    async def get(self, key: ProjectKey) -> Project:
        """ProjectNotFound."""
        self._check_caller(key.user_id)
        return await self._in_thread(key.user_id, partial(self._store.get, key))

    async def list(
        self, user_id: str, *, page_size: int, after: str = ""
    ) -> tuple[Sequence[Project], str | None]:
        """A page of projects after this id, and the id that the next page begins after."""
        self._check_caller(user_id)
        work = partial(self._store.list, user_id, after, page_size + 1)
        found = await self._in_thread(user_id, work)
        page = found[:page_size]
        return page, page[-1].key.project_id if len(found) > page_size else None

    async def usage(self, user_id: str) -> Usage:
        self._check_caller(user_id)
        return await self._in_thread(user_id, partial(self._store.usage, user_id))

    async def delete(self, key: ProjectKey) -> Project:
        """Delete a project with its files; ProjectNotFound."""
        self._check_caller(key.user_id)
        return await self._in_thread(key.user_id, partial(self._store.delete, key))

    # --- files ---

    async def upload(self, wanted: NewFile, chunks: AsyncIterator[bytes | memoryview]) -> Added:
        """Store a file. The chunks have to limit how long they wait.

        ProjectNotFound, ProjectFull, FileExists, FileTooLarge, FileTypeNotAllowed,
        ChecksumMismatch, DiskSpaceLow. What is known before the first chunk is raised before that
        is read.
        """
        self._check_caller(wanted.key.user_id)
        name = names.clean(wanted.name)
        self._types.check_name(name)
        self._check_size(name, wanted.size or 0)
        begin = partial(self._store.begin, wanted.key, name, wanted.size or 0)
        upload = await self._in_thread(wanted.key.user_id, begin, undo=Upload.discard)
        try:
            with self._counted(wanted.key.user_id) as count:
                await self._receive(upload, name, wanted, chunks, count)
                mime_type = self._types.check(name, upload.head)
                return await self._in_thread(
                    wanted.key.user_id,
                    partial(
                        self._store.add, wanted.key, name, upload, wanted.on_conflict, mime_type
                    ),
                )
        except BaseException:
            # Shielded: a second cancel must not stop the clean-up of what the first interrupted.
            discarding = self._threads.run_now(upload.discard, seconds=WORK_SECONDS)
            await asyncio.shield(discarding)
            raise

    async def _receive(
        self,
        upload: Upload,
        name: str,
        wanted: NewFile,
        chunks: AsyncIterator[bytes | memoryview],
        count: Callable[[int], None],
    ) -> None:
        async for chunk in chunks:
            size = upload.size + len(chunk)
            self._check_size(name, size)
            if wanted.size is not None and size > wanted.size:
                raise _mismatch(name, "size", wanted.size, size)
            count(len(chunk))
            self._check_space(len(chunk))
            is_head_complete = upload.size < HEAD_BYTES <= size
            await self._in_thread(wanted.key.user_id, partial(upload.write, chunk))
            if is_head_complete:
                self._types.check(name, upload.head)
        if wanted.size is not None and upload.size != wanted.size:
            raise _mismatch(name, "size", wanted.size, upload.size)
        if wanted.sha256 is not None and upload.sha256 != wanted.sha256:
            raise _mismatch(name, "checksum", wanted.sha256.hex(), upload.sha256.hex())

    def _check_size(self, name: str, size: int) -> None:
        if size > self._limits.max_file_bytes:
            raise FileTooLarge(name, limit_bytes=self._limits.max_file_bytes, size_bytes=size)

    def _check_space(self, more: int) -> None:
        free, reserve = self._store.free_bytes, self._settings.reserve_bytes
        if free - more < reserve:
            raise DiskSpaceLow(free, reserve)

    @contextmanager
    def _counted(self, user_id: str) -> Iterator[Callable[[int], None]]:
        """Count the bytes of an upload: what is under way may not exceed the limit either."""
        counted = 0

        def count(size: int) -> None:
            nonlocal counted
            if self._arriving[user_id] + size > self._limits.user_bytes:
                raise ProjectFull(
                    "The uploads of this user that are under way have more than "
                    f"{self._limits.user_bytes} bytes",
                    self._limits.user_bytes,
                )
            self._arriving[user_id] += size
            counted += size

        try:
            yield count
        finally:
            self._arriving[user_id] -= counted
            if not self._arriving[user_id]:
                del self._arriving[user_id]

    async def list_files(
        self, key: ProjectKey, *, page_size: int, after: str = ""
    ) -> tuple[Sequence[ProjectFile], str | None]:
        """A page of files after a place, and the place of its last one if more follow."""
        self._check_caller(key.user_id)
        work = partial(self._store.files, key, after, page_size + 1)
        found = await self._in_thread(key.user_id, work)
        page = found[:page_size]
        return page, names.key(page[-1].name) if len(found) > page_size else None

    @asynccontextmanager
    async def download(
        self, key: ProjectKey, name: str
    ) -> AsyncIterator[tuple[ProjectFile, AsyncIterator[bytes]]]:
        """ProjectNotFound, FileNotFound on entering."""
        self._check_caller(key.user_id)
        file, descriptor = await self._in_thread(
            key.user_id,
            partial(self._store.open_file, key, name),
            undo=lambda opened: os.close(opened[1]),
        )
        try:
            yield file, self._read(key.user_id, descriptor)
        finally:
            os.close(descriptor)

    async def _read(self, user_id: str, descriptor: int) -> AsyncIterator[bytes]:
        while data := await self._in_thread(user_id, partial(os.read, descriptor, READ_BYTES)):
            yield data

    async def delete_file(self, key: ProjectKey, name: str) -> ProjectFile:
        """ProjectNotFound, FileNotFound."""
        self._check_caller(key.user_id)
        return await self._in_thread(key.user_id, partial(self._store.delete_file, key, name))

    def _check_caller(self, user_id: str) -> None:
        current_caller().check_acts_for(user_id)

    async def _in_thread(
        self, user_id: str, work: Callable[[], T], undo: Callable[[T], object] | None = None
    ) -> T:
        try:
            return await self._threads.run(user_id, work, seconds=WORK_SECONDS, undo=undo)
        except TimeoutError as error:
            log.error("projects.disk_is_slow", error=str(error))
            raise StateNotSaved(
                "The disk with the projects does not answer; try again later, and list the files "
                "to see what was done. An operator should check the host's disk.",
                retry_after_seconds=10.0,
            ) from error


def _mismatch(name: str, what: str, announced: object, arrived: object) -> ChecksumMismatch:
    return ChecksumMismatch(name, what=what, announced=str(announced), arrived=str(arrived))
