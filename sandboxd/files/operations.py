"""Operations on files: each is given to a worker where its path is, and its failure is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from itertools import dropwhile
from typing import TypeAlias, TypeVar

import structlog

from sandboxd.errors import (
    FileBusy,
    FileWorkInterrupted,
    InvalidRequest,
    ProtectedPath,
    quoted,
)
from sandboxd.files.error_mapping import between_filesystems, error_of
from sandboxd.files.paths import FilePath
from sandboxd.files.project_area import ProjectArea
from sandboxd.files.requests import FileSettings
from sandboxd.files.worker import FileWorker, WorkerFailed, encoded
from sandboxd.guest.files.codec import Failure, Kind
from sandboxd.guest.frames import Purpose
from sandboxd.link import GuestLink
from sandboxd.link.workers import TooManyWorkers, WorkerGone, WorkerLimit, Workers
from sandboxd.workspaces import layout

log = structlog.get_logger()

T = TypeVar("T")

OverWork: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Limits the processor time of the workers in its block."""
NEW_FIELDS = {
    "list": ("depth",),
    "move": ("make_parents",),
    "grep": ("exclude_dirs",),
    "glob": ("types", "skip_hidden", "exclude_dirs"),
}
"""Fields that guests know since they work outside of the workspace; earlier ones ignore them."""
_BRIEF = frozenset(
    {
        "upload",
        "download",
        "list",
        "stat",
        "make_directory",
        "move",
        "remove",
        "read_text",
        "write_text",
        "edit_text",
    }
)
"""Operations after which a worker stays for the next; others set alarms, or load much."""
_ANNOUNCED = frozenset({"make_directory", "move", "remove"})
"""Those that change something before their first answer. Their worker says that it begins, or one
that was killed before it began could not be told from one that was killed later."""
CLEAN_UP_SECONDS = 1.0
"""Time for a worker that writes and is given up to remove what it has begun."""


class FileOperations:
    """The operations of one sandbox."""

    def __init__(
        self,
        link: GuestLink,
        settings: FileSettings,
        project: ProjectArea | None,
        over_work: OverWork,
        moves: Callable[[], int],
    ) -> None:
        self._link = link
        self._over_work = over_work
        self._settings = settings
        self._project = project
        limit = WorkerLimit(settings.max_workers, wait_seconds=settings.wait_seconds)
        self._watches = WorkerLimit(settings.max_watches, wait_seconds=settings.wait_seconds)
        idle_seconds = settings.idle_seconds
        self._workers, self._outside = (
            Workers(link, purpose, limit, idle_seconds=idle_seconds, moves=moves)
            for purpose in (Purpose.FILES, Purpose.FILES_ANYWHERE)
        )

    async def aclose(self) -> None:
        """Wait for workers that were given up; CLEAN_UP_SECONDS at most."""
        await self._workers.aclose()
        await self._outside.aclose()

    @asynccontextmanager
    async def reading(
        self, operation: str, path: FilePath, **fields: object
    ) -> AsyncIterator[FileWorker]:
        """A worker in the sandbox that changes nothing."""
        request = self._request(operation, path, path, fields)
        with self._reported(operation, path), self._over_work():
            async with self._at_work(operation, path, request) as worker:
                yield worker

    @asynccontextmanager
    async def watching(self, path: FilePath, **fields: object) -> AsyncIterator[FileWorker]:
        """A worker in the sandbox that watches; there are fewer of those, because they last."""
        with self._reported("watch", path):
            async with (
                self._watches.acquired(),
                self.reading("watch", path, **fields) as worker,
            ):
                yield worker

    async def change(
        self,
        operation: str,
        path: FilePath,
        work: Callable[[FileWorker], Awaitable[T]],
        **fields: object,
    ) -> T:
        """Do `work` with a worker that may write: in the sandbox, or in the project area if the
        path names it. A link does not lead there: commands make links, and what a worker in the
        sandbox says about them is not believed."""
        below = self._below_project(path)
        self._refuse_in_project(path, below)
        with self._reported(operation, path):
            if below is None:
                return await self._write(operation, path, path, work, fields)
            return await self._write(operation, path, below, work, fields, in_project=True)

    async def move(
        self,
        path: FilePath,
        new_path: FilePath,
        work: Callable[[FileWorker], Awaitable[T]],
        **fields: object,
    ) -> T:
        old, new = self._below_project(path), self._below_project(new_path)
        self._refuse_in_project(path, old)
        self._refuse_in_project(new_path, new)
        if (old is None) != (new is None):
            reason = f"cannot be moved between {layout.PROJECT_FILES} and the rest"
            raise ProtectedPath(str(path), reason)
        if path.is_outside != new_path.is_outside:
            raise between_filesystems(str(path))
        in_project = old is not None
        fields = {"new_path": _text(new or new_path), **fields}
        with self._reported("move", path, new_path):
            return await self._write(
                "move", new_path, old or path, work, fields, in_project=in_project
            )

    async def _write(
        self,
        operation: str,
        shown: FilePath,
        path: FilePath,
        work: Callable[[FileWorker], Awaitable[T]],
        fields: Mapping[str, object],
        *,
        in_project: bool = False,
    ) -> T:
        request = self._request(operation, shown, path, fields, in_project=in_project)
        with self._over_work():
            if not in_project:
                async with self._at_work(operation, path, request, CLEAN_UP_SECONDS) as worker:
                    return await work(worker)
            async with self._in_project(request) as worker:
                return await work(worker)

    @asynccontextmanager
    async def _at_work(
        self,
        operation: str,
        path: FilePath,
        request: dict[str, object],
        clean_up_seconds: float = 0.0,
    ) -> AsyncIterator[FileWorker]:
        """A worker in the sandbox that has got the request."""
        workers = self._outside if path.is_outside else self._workers
        stays = self._link.keeps_workers and _is_brief(operation, request)
        is_announced = stays and operation in _ANNOUNCED
        if stays:
            request["stay"] = True
        if is_announced:
            request["announce"] = True
        asked, patience = encoded(request), self._settings.idle_seconds
        if "seconds" in request:  # its worker may be silent for as long
            patience += self._settings.search_seconds
        async with workers.in_guest(
            clean_up_seconds=clean_up_seconds,
            request=asked if stays else b"",
            patience=patience,
        ) as worker:
            file_worker = FileWorker(worker)
            await file_worker.request(asked)
            if is_announced:
                await file_worker.expect(Kind.READY)
            yield file_worker

    @asynccontextmanager
    async def _in_project(self, request: Mapping[str, object]) -> AsyncIterator[FileWorker]:
        """A worker in the project area that has got the request."""
        assert self._project is not None
        async with self._workers.started(
            self._project.start, clean_up_seconds=CLEAN_UP_SECONDS
        ) as worker:
            file_worker = FileWorker(worker)
            await file_worker.request(encoded(request))
            yield file_worker

    @contextmanager
    def _reported(
        self, operation: str, path: FilePath, new_path: FilePath | None = None
    ) -> Iterator[None]:
        """Raise what happened to a worker as the errors that callers know."""
        try:
            yield
        except TooManyWorkers as error:
            raise FileBusy(error.limit) from error
        except WorkerGone as error:
            log.info("file_worker.gone", operation=operation, why=str(error))
            raise FileWorkInterrupted from error
        except WorkerFailed as error:
            # Earlier guests do not name the field.
            is_new = error.failed.field == b"new_path" or error.failed.failure == Failure.EXISTS
            about = new_path if is_new and new_path is not None else path
            raise error_of(error.failed, about, self._settings) from error

    def _request(
        self,
        operation: str,
        shown: FilePath,
        path: FilePath,
        fields: Mapping[str, object],
        *,
        in_project: bool = False,
    ) -> dict[str, object]:
        request: dict[str, object] = {
            "operation": operation,
            "path": _text(path),
            "shown": _text(shown),
            **fields,
        }
        if not in_project:
            self._refuse_what_is_too_new(operation, path, fields)
            request["protected"] = layout.NAMES
            if self._project is not None:
                request["project"] = layout.PROJECT_FILES
        return request

    def _refuse_in_project(self, path: FilePath, below: FilePath | None) -> None:
        """ProtectedPath for a change below the files of a project, which sessions share."""
        if below is not None and self._settings.project:
            project = quoted(self._settings.project)
            raise ProtectedPath(
                str(path),
                f"belongs to the project {project}",
                "change the files of the project instead",
            )

    def _refuse_what_is_too_new(
        self, operation: str, path: FilePath, fields: Mapping[str, object]
    ) -> None:
        if self._link.knows(Purpose.FILES_ANYWHERE):
            return
        unknown = [field for field in NEW_FIELDS.get(operation, ()) if fields.get(field)]
        if path.is_outside:
            unknown.append("path")
        if unknown:
            raise InvalidRequest(
                unknown[0],
                "the sandbox of this session was started by an earlier release, which cannot do "
                "this; use a command, or reset the session",
            )

    def _below_project(self, path: FilePath) -> FilePath | None:
        """The path from the project area on; None if the path does not name the project area."""
        parts = path.parts
        if self._settings.layout == layout.Layout.SHARED:
            parts = tuple(dropwhile(layout.AGENT_WORKSPACE.encode().__eq__, parts))
        if self._project is None or parts[:1] != (layout.PROJECT_FILES.encode(),):
            return None
        return FilePath(parts[1:])


def _is_brief(operation: str, request: Mapping[str, object]) -> bool:
    return operation in _BRIEF and not request.get("recursive")


def _text(path: FilePath) -> str:
    return path.raw.decode(errors="surrogateescape")
