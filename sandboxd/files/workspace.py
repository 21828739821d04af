"""The files of one session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandboxd.files import text
from sandboxd.files.answers import entries_and_end, entry_and_end, one_entry, removed_count
from sandboxd.files.archive import Compression, TarSpec, TarUnpacked
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
from sandboxd.files.requests import Chunk, EditSpec, FileSettings, GrepSpec, TextSpec, UploadSpec
from sandboxd.files.search import found_lines
from sandboxd.files.tarring import TarDownload, TarUpload
from sandboxd.files.transfer import Download, Upload
from sandboxd.files.watching import changes_told
from sandboxd.files.worker import WorkerGone
from sandboxd.guest.files.codec import Kind


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
        self._crew = Crew(sandbox, settings, project)
        self._errands = Errands(self._crew, settings, has_project=project is not None)

    async def aclose(self) -> None:
        """Wait for what cancelled calls have left to be ended; a second at most."""
        await self._crew.aclose()

    async def upload(self, spec: UploadSpec, chunks: AsyncIterator[Chunk]) -> Uploaded:
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
        self,
        path: FilePath,
        *,
        recursive: bool = False,
        page_size: int = 1000,
        after: bytes = b"",
        as_they_come: Callable[[Sequence[Entry]], None] = lambda _: None,
    ) -> Listing:
        """FileNotFound, NotADirectory. The entries are also given to `as_they_come`, while further
        ones are looked at; they count for nothing if this raises."""
        fields: dict[str, Any] = {
            "recursive": recursive,
            "page_size": page_size,
            "after": after.decode(errors="surrogateescape"),
            "seconds": self._settings.search_seconds,
        }
        async with self._errands.look("list", path, **fields) as worker:
            entries, figures = await entries_and_end(
                worker, page_size, self._search_patience, as_they_come
            )
        files, size, complete, has_more, free_bytes, free_files = figures
        return Listing(
            entries=entries,
            next_after=entries[-1].path if has_more and entries else b"",
            total_files=files,
            total_bytes=size,
            complete=bool(complete),
            usage=self._usage(free_bytes, free_files),
        )

    def _usage(self, free_bytes: int, free_files: int) -> Usage:
        """Of what a caller can have: a filesystem has some of both for itself."""
        max_bytes, max_files = self._settings.workspace_bytes, self._settings.workspace_files
        return Usage(
            used_bytes=max(0, max_bytes - free_bytes),
            max_bytes=max_bytes,
            used_files=max(0, max_files - free_files),
            max_files=max_files,
            max_file_bytes=self._settings.max_file_bytes,
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
        return await self._errands.change(
            "remove", path, removed_count, recursive=recursive, ignore_missing=ignore_missing
        )

    async def read_text(
        self, path: FilePath, *, first_line: int = 1, max_lines: int = 0, max_bytes: int = 256 << 10
    ) -> TextRead:
        """FileNotFound, NotAFile."""
        fields: dict[str, Any] = {
            "first_line": first_line,
            "max_lines": max_lines,
            "max_bytes": max_bytes,
            "seconds": self._settings.search_seconds,
        }
        async with self._errands.look("read_text", path, **fields) as worker:
            return await text.read(worker, max_bytes)

    async def write_text(self, spec: TextSpec) -> Entry:
        """As upload; InvalidRequest for a line beyond the end of the file. Links are followed, and
        lines stay lines: where the text does not end with a newline and more follows, one is
        added."""
        write = text.TextWrite(spec, self._settings)
        write.check()
        return await self._errands.change(
            "write_text",
            spec.path,
            write.send,
            size=len(write.data),
            first_line=spec.first_line,
            line_count=spec.line_count,
            replace=spec.replace,
            make_parents=spec.make_parents,
        )

    async def edit_text(self, spec: EditSpec) -> Edited:
        """FileNotFound, NotAFile, TextNotFound, FileTooLarge (over 16 MiB). Links are followed."""
        edit = text.TextEdit(spec)
        return await self._errands.change(
            "edit_text",
            spec.path,
            edit.send,
            old_size=len(edit.old),
            expected=spec.expected_count,
        )

    async def grep(self, spec: GrepSpec) -> GrepResult:
        """FileNotFound; InvalidRequest for a pattern that is no regular expression."""
        fields: dict[str, Any] = {
            "pattern": spec.pattern,
            "regex": spec.regex,
            "ignore_case": spec.ignore_case,
            "glob": spec.glob,
            "max_matches": spec.max_matches,
            "seconds": self._settings.search_seconds,
        }
        async with self._errands.look("grep", spec.path, **fields) as worker:
            return await found_lines(worker, spec.max_matches, self._search_patience)

    async def glob(self, path: FilePath, pattern: str, *, max_entries: int = 1000) -> GlobResult:
        """FileNotFound, NotADirectory."""
        fields: dict[str, Any] = {
            "pattern": pattern,
            "max_entries": max_entries,
            "seconds": self._settings.search_seconds,
        }
        async with self._errands.look("glob", path, **fields) as worker:
            entries, (complete, *_) = await entries_and_end(
                worker, max_entries, self._search_patience
            )
        return GlobResult(entries=entries, complete=bool(complete))

    @asynccontextmanager
    async def watch(
        self, path: FilePath, *, recursive: bool = False, gather_seconds: float = 0.05
    ) -> AsyncIterator[AsyncIterator[Changes]]:
        """From entering on, changes are told. FileNotFound, NotADirectory."""
        fields: dict[str, Any] = {"recursive": recursive, "gather": gather_seconds}
        async with self._errands.look("watch", path, is_watch=True, **fields) as worker:
            await worker.expect(Kind.READY)
            yield changes_told(worker)

    async def upload_tar(self, spec: TarSpec, chunks: AsyncIterator[bytes]) -> TarUnpacked:
        """FileNotFound, NotADirectory, InvalidArchive, WorkspaceFull. A member that is too large
        for a file is one of those refused."""
        upload = TarUpload(spec, chunks, self._settings)
        return await self._errands.change(
            "unpack",
            spec.path,
            upload.send,
            replace=spec.replace,
            max_file_bytes=self._settings.max_file_bytes,
        )

    @asynccontextmanager
    async def download_tar(
        self, path: FilePath, *, compression: Compression = Compression.NONE
    ) -> AsyncIterator[TarDownload]:
        """FileNotFound, NotADirectory on entering."""
        async with self._errands.look("pack", path) as worker:
            await worker.expect(Kind.READY)
            yield TarDownload(worker, compression)

    @property
    def _search_patience(self) -> float:
        return self._settings.search_seconds + self._settings.idle_seconds


def _project_area(settings: FileSettings, directory: Path) -> ProjectArea:
    name = f"{settings.workspace_dir}/{settings.project_area.decode()}"
    max_bytes, max_files = settings.project_limits
    return ProjectArea(directory=directory, name=name, max_bytes=max_bytes, max_files=max_files)
