"""The files of one session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from sandboxd.files.answers import entries_and_end, entry_and_end, one_entry
from sandboxd.files.archive import Compression, TarMade, TarSpec, TarUnpacked
from sandboxd.files.crew import Crew, HasGuest, ProjectArea
from sandboxd.files.entries import (
    Changes,
    Edited,
    Entry,
    FileType,
    GlobResult,
    GrepResult,
    Listing,
    MadeDirectory,
    TextRead,
    Uploaded,
    Usage,
)
from sandboxd.files.errands import Errands
from sandboxd.files.paths import FilePath
from sandboxd.files.requests import EditSpec, FileSettings, GrepSpec, TextSpec, UploadSpec
from sandboxd.files.transfer import Download, Upload
from sandboxd.files.worker import Worker, WorkerGone


class TarDownload(Protocol):
    """An archive on its way out: iterate it once, to the end; then `made` says what is in it."""

    made: TarMade

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class WorkspaceFiles:
    """Works on the files of one sandbox; made once for each, and ends with it.

    Every call may raise SandboxLost, FileBusy, FileWorkInterrupted, OutsideWorkspace and
    FileNotPermitted besides what it names. A cancelled call leaves nothing behind, in the sandbox
    or here. Chunks are waited for as long as whoever sends them allows.
    """

    def __init__(
        self, sandbox: HasGuest, settings: FileSettings, project_dir: Path | None = None
    ) -> None:
        """`project_dir`: the host's directory that is mounted read-only as the project area;
        without it that is a directory of the workspace like any other."""
        self._settings = settings
        project = _project_area(settings, project_dir) if project_dir else None
        crew = Crew(sandbox, settings, project)
        self._errands = Errands(crew, settings, has_project=project is not None)

    async def upload(self, spec: UploadSpec, chunks: AsyncIterator[bytes]) -> Uploaded:
        """FileExists, NotAFile, FileNotFound, NotADirectory, FileTooLarge, WorkspaceFull,
        ChecksumMismatch. What can be known before the first chunk is raised before it is asked
        for."""
        upload = Upload(spec, chunks, self._settings)
        upload.check()
        return await self._errands.change(
            "upload",
            spec.path,
            upload.send,
            mode=spec.mode,
            size=spec.size,
            replace=spec.replace,
            make_parents=spec.make_parents,
        )

    @asynccontextmanager
    async def download(
        self, path: FilePath, *, offset: int = 0, length: int = 0
    ) -> AsyncIterator[Download]:
        """FileNotFound, NotAFile on entering; chunks of up to 1 MiB. A length of 0 means all."""
        async with self._errands.look("download", path, offset=offset, length=length) as worker:
            entry = await one_entry(worker)
            if entry.type != FileType.FILE:
                raise WorkerGone("it sends what is no file")
            yield Download(worker, entry, offset=offset, length=length)

    async def list(
        self, path: FilePath, *, recursive: bool = False, page_size: int = 1000, after: bytes = b""
    ) -> Listing:
        """FileNotFound, NotADirectory."""
        fields: dict[str, Any] = {
            "recursive": recursive,
            "page_size": page_size,
            "after": after.decode(errors="surrogateescape"),
            "seconds": self._settings.search_seconds,
        }
        async with self._errands.look("list", path, **fields) as worker:
            entries, figures = await entries_and_end(worker, page_size)
        files, size, complete, has_more, used_bytes, used_files = figures
        return Listing(
            entries=entries,
            next_after=entries[-1].path if has_more and entries else b"",
            total_files=files,
            total_bytes=size,
            complete=bool(complete),
            usage=Usage(
                used_bytes=used_bytes,
                max_bytes=self._settings.workspace_bytes,
                used_files=used_files,
                max_files=self._settings.workspace_files,
                max_file_bytes=self._settings.max_file_bytes,
            ),
        )

    async def stat(self, path: FilePath, *, follow_links: bool = False) -> Entry:
        """FileNotFound."""
        async with self._errands.look("stat", path, follow_links=follow_links) as worker:
            return (await entry_and_end(worker))[0]

    async def make_directory(
        self, path: FilePath, *, make_parents: bool = False, mode: int = 0o755
    ) -> MadeDirectory:
        """FileExists (as something else), FileNotFound, NotADirectory, WorkspaceFull."""
        entry, (created, *_) = await self._errands.change(
            "make_directory", path, entry_and_end, make_parents=make_parents, mode=mode
        )
        return MadeDirectory(entry=entry, created=bool(created))

    async def move(self, path: FilePath, new_path: FilePath, *, replace: bool = False) -> Entry:
        """FileNotFound, FileExists, NotADirectory, ProtectedPath."""
        return (await self._errands.move(path, new_path, entry_and_end, replace=replace))[0]

    async def remove(
        self, path: FilePath, *, recursive: bool = False, ignore_missing: bool = False
    ) -> int:
        """How many were removed. FileNotFound, DirectoryNotEmpty, ProtectedPath."""
        figures = await self._errands.change(
            "remove", path, Worker.done, recursive=recursive, ignore_missing=ignore_missing
        )
        return figures[0]

    async def read_text(
        self, path: FilePath, *, first_line: int = 1, max_lines: int = 0, max_bytes: int = 256 << 10
    ) -> TextRead:
        """FileNotFound, NotAFile."""
        raise NotImplementedError

    async def write_text(self, spec: TextSpec) -> Entry:
        """As upload; FileTooLarge also where a part of a file over 64 MiB is to be replaced."""
        raise NotImplementedError

    async def edit_text(self, spec: EditSpec) -> Edited:
        """FileNotFound, NotAFile, TextNotFound, FileTooLarge."""
        raise NotImplementedError

    async def grep(self, spec: GrepSpec) -> GrepResult:
        """FileNotFound; InvalidRequest for a pattern that is no regular expression."""
        raise NotImplementedError

    async def glob(self, path: FilePath, pattern: str, *, max_entries: int = 1000) -> GlobResult:
        """FileNotFound, NotADirectory."""
        raise NotImplementedError

    def watch(
        self, path: FilePath, *, recursive: bool = False, gather_seconds: float = 0.05
    ) -> AbstractAsyncContextManager[AsyncIterator[Changes]]:
        """From entering on, changes are told. FileNotFound, NotADirectory."""
        raise NotImplementedError

    async def upload_tar(self, spec: TarSpec, chunks: AsyncIterator[bytes]) -> TarUnpacked:
        """FileNotFound, NotADirectory, InvalidArchive, FileTooLarge, WorkspaceFull."""
        raise NotImplementedError

    def download_tar(
        self, path: FilePath, *, compression: Compression = Compression.NONE
    ) -> AbstractAsyncContextManager[TarDownload]:
        """FileNotFound, NotADirectory on entering."""
        raise NotImplementedError


def _project_area(settings: FileSettings, directory: Path) -> ProjectArea:
    name = f"{settings.workspace_dir}/{settings.project_area.decode()}"
    return ProjectArea(
        directory=directory,
        name=name,
        max_bytes=_or(settings.project_bytes, settings.workspace_bytes),
        max_files=_or(settings.project_files, settings.workspace_files),
    )


def _or(figure: int | None, default: int) -> int:
    return default if figure is None else figure
