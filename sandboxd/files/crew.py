"""The workers of one session: how many at once, where they run, how each is ended."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from sandboxd.errors import FileBusy, FileWorkInterrupted, SandboxLost
from sandboxd.files.requests import FileSettings
from sandboxd.files.worker import Worker, WorkerGone, socket_pair
from sandboxd.guest.files.area import Area
from sandboxd.guest.files.worker import serve
from sandboxd.link import GuestLink, LinkClosed
from sandboxd.tasks import Tasks

log = structlog.get_logger()

CLEAN_UP_SECONDS = 1.0
"""For a worker that writes and is given up, to remove what it has begun."""


class HasGuest(Protocol):
    """What is needed of a sandbox."""

    @property
    def link(self) -> GuestLink: ...


@dataclass(frozen=True)
class ProjectArea:
    """The host's directory behind the area that only the API can write to. No command can change
    it, so workers on it run here, as threads."""

    directory: Path
    name: str
    """What commands see it as."""
    max_bytes: int
    max_files: int

    def serve(self, connection: socket.socket) -> None:
        with connection:
            root = os.open(self.directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                used_bytes, used_files = self._used()
                area = Area(
                    root,
                    os.fsencode(self.name),
                    is_shared=True,
                    room_bytes=max(0, self.max_bytes - used_bytes),
                    room_files=max(0, self.max_files - used_files),
                )
                serve(area, connection)
            finally:
                os.close(root)

    def _used(self) -> tuple[int, int]:
        size = count = 0
        for directory, names, files in os.walk(self.directory):
            count += len(names) + len(files)
            for name in files:
                with suppress(FileNotFoundError):  # removed by another worker
                    size += os.lstat(os.path.join(directory, name)).st_blocks * 512
        return size, count


class Crew:
    """Starts workers for one sandbox, not too many at once."""

    def __init__(
        self, sandbox: HasGuest, settings: FileSettings, project: ProjectArea | None
    ) -> None:
        self._link = sandbox.link
        self._settings = settings
        self._project = project
        self._free = asyncio.Semaphore(settings.max_workers)
        self._free_watches = asyncio.Semaphore(settings.max_watches)
        self._endings = Tasks()

    @asynccontextmanager
    async def worker(
        self, request: Mapping[str, object], *, in_project: bool = False, is_watch: bool = False
    ) -> AsyncIterator[Worker]:
        """A worker that has been given its request. FileWorkInterrupted if it does not keep to
        what it should do, SandboxLost if its sandbox is gone."""
        limit = self._free_watches if is_watch else None
        await self._take(limit, self._settings.max_watches)
        try:
            await self._take(self._free, self._settings.max_workers)
        except BaseException:
            _give_back(limit)
            raise

        def give_back() -> None:
            self._free.release()
            _give_back(limit)

        try:
            worker, end = await self._start(in_project)
        except BaseException:
            give_back()
            raise
        writes = request.get("writes") is True
        try:
            await worker.request(request)
            yield worker
        except WorkerGone as error:
            if self._link.closed_because is not None:
                raise SandboxLost(self._link.closed_because) from error
            log.info("file_worker.gone", operation=request.get("operation"), why=str(error))
            raise FileWorkInterrupted from error
        finally:
            if worker.has_ended or not writes:
                worker.close()
                end()
                give_back()
            else:
                self._endings.spawn(self._end(worker, end, give_back), "file_worker.end")

    async def aclose(self) -> None:
        """Wait for the workers that were given up; a second at most."""
        await self._endings.finish()

    async def _take(self, limit: asyncio.Semaphore | None, figure: int) -> None:
        if limit is None:
            return
        try:
            async with asyncio.timeout(self._settings.wait_seconds):
                await limit.acquire()
        except TimeoutError:
            raise FileBusy(figure) from None

    async def _start(self, in_project: bool) -> tuple[Worker, Callable[[], None]]:
        ours, its = socket_pair()
        try:
            if in_project:
                assert self._project is not None
                thread = threading.Thread(target=self._project.serve, args=(its,), daemon=True)
                thread.start()
                return Worker(ours, self._settings.idle_seconds), lambda: None
            try:
                number = await self._link.start_worker(its)
            finally:
                its.close()
        except LinkClosed as error:
            ours.close()
            raise SandboxLost(str(error)) from error
        except TimeoutError as error:
            ours.close()
            raise FileWorkInterrupted from error
        except BaseException:
            ours.close()
            raise
        return Worker(ours, self._settings.idle_seconds), lambda: self._link.end_worker(number)

    async def _end(
        self, worker: Worker, end: Callable[[], None], give_back: Callable[[], None]
    ) -> None:
        """Of one that writes and was given up: it gets the time to leave nothing behind."""
        try:
            worker.no_more()
            await worker.gone(CLEAN_UP_SECONDS)
        finally:
            worker.close()
            end()
            give_back()


def _give_back(limit: asyncio.Semaphore | None) -> None:
    if limit is not None:
        limit.release()
