"""Sends workers to where paths are, and brings back what they say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from sandboxd.errors import FileWorkInterrupted, InvalidRequest, ProtectedPath
from sandboxd.files.crew import Crew
from sandboxd.files.failures import error_of
from sandboxd.files.paths import FilePath
from sandboxd.files.requests import FileSettings
from sandboxd.files.worker import Worker, WorkerFailed
from sandboxd.guest.files.codec import Failure

T = TypeVar("T")


class Errands:
    def __init__(self, crew: Crew, settings: FileSettings, *, has_project: bool) -> None:
        self._crew = crew
        self._settings = settings
        self._has_project = has_project

    @asynccontextmanager
    async def look(
        self, operation: str, path: FilePath, *, is_watch: bool = False, **fields: object
    ) -> AsyncIterator[Worker]:
        """A worker in the sandbox that changes nothing."""
        request = {**self._request(operation, path, path), **fields}
        try:
            async with self._crew.worker(request, is_watch=is_watch) as worker:
                yield worker
        except WorkerFailed as error:
            raise error_of(error.failed, str(path), self._settings) from error

    async def change(
        self,
        operation: str,
        path: FilePath,
        work: Callable[[Worker], Awaitable[T]],
        **fields: object,
    ) -> T:
        """Have `work` done with a worker that may write: in the sandbox, or in the project area
        where the path is there. If links lead there that is found out on the way, before `work`
        has got an answer, and it begins anew."""
        try:
            if self._is_in_project(path):
                below = FilePath(path.parts[1:])
                return await self._write(operation, path, below, work, fields, in_project=True)
            try:
                return await self._write(operation, path, path, work, fields)
            except WorkerFailed as error:
                if error.failed.failure != Failure.IN_PROJECT or not self._has_project:
                    raise
                below = _below_project(error.failed.path)
            return await self._write(operation, path, below, work, fields, in_project=True)
        except WorkerFailed as error:
            raise error_of(error.failed, str(path), self._settings) from error

    async def move(
        self,
        path: FilePath,
        new_path: FilePath,
        work: Callable[[Worker], Awaitable[T]],
        *,
        replace: bool,
    ) -> T:
        ends = (path, new_path)
        in_project = [self._is_in_project(end) for end in ends]
        if any(in_project) and not all(in_project):
            raise ProtectedPath(str(path), "cannot be moved between project_files and the rest")
        if all(in_project):
            ends = (FilePath(path.parts[1:]), FilePath(new_path.parts[1:]))
        try:
            try:
                return await self._move(new_path, ends, work, replace, all(in_project))
            except WorkerFailed as error:
                if error.failed.failure != Failure.IN_PROJECT or not self._has_project:
                    raise
                old, _, new = error.failed.path.partition(b"\0")
                ends = (_below_project(old), _below_project(new))
            return await self._move(new_path, ends, work, replace, True)
        except WorkerFailed as error:
            about = new_path if error.failed.failure == Failure.EXISTS else path
            raise error_of(error.failed, str(about), self._settings) from error

    async def _move(
        self,
        shown: FilePath,
        ends: tuple[FilePath, FilePath],
        work: Callable[[Worker], Awaitable[T]],
        replace: bool,
        in_project: bool,
    ) -> T:
        fields = {"new_path": _text(ends[1]), "replace": replace}
        return await self._write("move", shown, ends[0], work, fields, in_project=in_project)

    async def _write(
        self,
        operation: str,
        shown: FilePath,
        path: FilePath,
        work: Callable[[Worker], Awaitable[T]],
        fields: dict[str, object],
        *,
        in_project: bool = False,
    ) -> T:
        request = {**self._request(operation, shown, path, in_project=in_project), **fields}
        async with self._crew.worker({**request, "writes": True}, in_project=in_project) as worker:
            return await work(worker)

    def _request(
        self, operation: str, shown: FilePath, path: FilePath, *, in_project: bool = False
    ) -> dict[str, object]:
        request: dict[str, object] = {
            "operation": operation,
            "path": _text(path),
            "shown": _text(shown),
        }
        if not in_project:
            request["protected"] = [name.decode() for name in self._settings.layout]
            if self._has_project:
                request["project"] = self._settings.project_area.decode()
        return request

    def _is_in_project(self, path: FilePath) -> bool:
        return self._has_project and path.parts[:1] == (self._settings.project_area,)


def _text(path: FilePath) -> str:
    return path.raw.decode(errors="surrogateescape")


def _below_project(told: bytes) -> FilePath:
    """The worker says where links lead, and is not believed further than that."""
    try:
        return FilePath.parse("", told, workspace="/", may_be_workspace=True)
    except InvalidRequest as error:
        raise FileWorkInterrupted from error
