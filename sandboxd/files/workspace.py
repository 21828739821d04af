"""The files of one session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from sandboxd.files import text
from sandboxd.files.answers import (
    ChangePace,
    receive_changes,
    receive_entries,
    receive_entry,
    receive_last_entry,
    receive_matches,
    receive_removed_count,
)
from sandboxd.files.archives import TarDownload, TarSpec, TarUnpacked, TarUpload
from sandboxd.files.compression import Compression
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
from sandboxd.files.operations import FileOperations, OverWork
from sandboxd.files.paths import FilePath
from sandboxd.files.patterns import excluded_names, expanded
from sandboxd.files.project_area import ProjectArea
from sandboxd.files.requests import Chunk, EditSpec, FileSettings, GrepSpec, TextSpec, UploadSpec
from sandboxd.files.transfer import Download, Upload
from sandboxd.guest.files.codec import Kind
from sandboxd.guest.files.new_file import NEW_MODE
from sandboxd.link import GuestLink
from sandboxd.link.workers import WorkerGone
from sandboxd.workspaces.layout import PROJECT_FILES


class WorkspaceFiles:
    """The files of one sandbox.

    Every call may raise SandboxLost, FileBusy, FileWorkInterrupted, OutsideWorkspace and
    FileNotPermitted besides the errors in its docstring. A cancelled call leaves nothing behind, in
    the sandbox or here. The iterators of chunks have to limit how long they wait.
    """

    def __init__(
        self,
        link: GuestLink,
        settings: FileSettings,
        project_dir: Path | None = None,
        over_work: OverWork = nullcontext,
        moves: Callable[[], int] = lambda: 0,
    ) -> None:
        """`project_dir` is the host's directory that is mounted read-only as the project area.
        Without it, the project area is a directory of the workspace like any other. `over_work`
        limits the processor time of a worker, `moves` counts how often workers were moved for
        that."""
        self._settings = settings
        project = _project_area(settings, project_dir) if project_dir else None
        self._operations = FileOperations(link, settings, project, over_work, moves)
        self._change_pace = ChangePace()

    async def aclose(self) -> None:
        """Wait until the workers of cancelled calls have ended; a second at most."""
        await self._operations.aclose()

    async def upload(self, spec: UploadSpec, chunks: AsyncIterator[Chunk]) -> Uploaded:
        """FileExists, NotAFile, FileNotFound, NotADirectory, FileTooLarge, WorkspaceFull,
        ChecksumMismatch. An error that is known before the first chunk is raised before that is
        read. Links are followed, unless nothing is to be replaced."""
        upload = Upload(spec, chunks, self._settings)
        upload.check()
        return await self._operations.change(
            "upload",
            spec.path,
            upload.send,
            mode=NEW_MODE if spec.mode is None else spec.mode,
            keep_mode=spec.mode is None,
            size=spec.size,
            replace=spec.replace,
            make_parents=spec.make_parents,
        )

    @asynccontextmanager
    async def download(
        self, path: FilePath, *, offset: int = 0, length: int = 0
    ) -> AsyncIterator[Download]:
        """FileNotFound, NotAFile on entering; chunks of up to 1 MiB. A length of 0 means all."""
        fields = {"offset": offset, "length": length}
        async with self._operations.reading("download", path, **fields) as worker:
            entry = await receive_entry(worker)
            if entry.type != FileType.FILE:
                raise WorkerGone("it sent something that is not a file")
            yield Download(worker, entry, offset=offset, length=length)

    async def list(
        self,
        path: FilePath,
        *,
        recursive: bool = False,
        depth: int = 0,
        page_size: int = 1000,
        after: bytes = b"",
        on_entries: Callable[[Sequence[Entry]], None] = lambda _: None,
    ) -> Listing:
        """FileNotFound, NotADirectory. A depth of 0 means 1, or all levels with `recursive`.
        `on_entries` gets the entries too, as they arrive; they are void if this raises."""
        fields: dict[str, Any] = {
            "recursive": depth > 1 or (recursive and not depth),
            "depth": depth if depth > 1 else 0,
            "page_size": page_size,
            "after": after.decode(errors="surrogateescape"),
            "seconds": self._settings.search_seconds,
        }
        async with self._operations.reading("list", path, **fields) as worker:
            entries, figures = await receive_entries(
                worker, page_size, self._search_patience, on_entries
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
        """What callers have used; the filesystem's own bytes and files do not count."""
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
        async with self._operations.reading("stat", path, follow_links=follow_links) as worker:
            return (await receive_last_entry(worker))[0]

    async def make_directory(
        self, path: FilePath, *, make_parents: bool = False, mode: int = 0o755
    ) -> MadeDirectory:
        """FileExists (if it is not a directory), FileNotFound, NotADirectory, WorkspaceFull."""
        entry, (created, *_) = await self._operations.change(
            "make_directory", path, receive_last_entry, make_parents=make_parents, mode=mode
        )
        return MadeDirectory(entry=entry, created=bool(created))

    async def move(
        self,
        path: FilePath,
        new_path: FilePath,
        *,
        replace: bool = False,
        make_parents: bool = False,
    ) -> Entry:
        """FileNotFound, FileExists, NotADirectory, ProtectedPath."""
        entry, _ = await self._operations.move(
            path, new_path, receive_last_entry, replace=replace, make_parents=make_parents
        )
        return entry

    async def remove(
        self, path: FilePath, *, recursive: bool = False, ignore_missing: bool = False
    ) -> int:
        """Returns the number of removed entries. FileNotFound, DirectoryNotEmpty, ProtectedPath."""
        return await self._operations.change(
            "remove",
            path,
            receive_removed_count,
            recursive=recursive,
            ignore_missing=ignore_missing,
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
        async with self._operations.reading("read_text", path, **fields) as worker:
            return await text.read(worker, max_bytes)

    async def write_text(self, spec: TextSpec) -> Entry:
        """Raises what `upload` does, and InvalidRequest for a line beyond the end of the file.
        Links are followed. Where the text does not end with a newline and more lines follow, one is
        added."""
        write = text.TextWrite(spec, self._settings)
        write.check()
        return await self._operations.change(
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
        """FileNotFound, NotAFile, TextNotFound, FileTooLarge (over 16 MiB, or over the size limit
        of files or 64 MiB afterwards). Links are followed."""
        edit = text.TextEdit(spec)
        return await self._operations.change(
            "edit_text",
            spec.path,
            edit.send,
            old_size=len(edit.old),
            expected=spec.expected_count,
            max_file_bytes=self._settings.max_file_bytes,
        )

    async def grep(self, spec: GrepSpec) -> GrepResult:
        """FileNotFound; InvalidRequest for an invalid expression or pattern."""
        fields: dict[str, Any] = {
            "globs": expanded(spec.glob, "glob") if spec.glob else [],
            "exclude_dirs": excluded_names(spec.exclude_dirs, "exclude_dirs"),
            "pattern": spec.pattern,
            "regex": spec.regex,
            "ignore_case": spec.ignore_case,
            "glob": spec.glob,
            "max_matches": spec.max_matches,
            "seconds": self._settings.search_seconds,
        }
        async with self._operations.reading("grep", spec.path, **fields) as worker:
            return await receive_matches(worker, spec.max_matches, self._search_patience)

    async def glob(
        self,
        path: FilePath,
        pattern: str,
        *,
        types: Collection[FileType] = (),
        skip_hidden: bool = False,
        exclude_dirs: Sequence[str] = (),
        max_entries: int = 1000,
    ) -> GlobResult:
        """FileNotFound, NotADirectory; InvalidRequest for an invalid pattern. No types: all."""
        fields: dict[str, Any] = {
            "pattern": pattern,
            "patterns": expanded(pattern, "pattern"),
            "types": [int(type_) for type_ in types],
            "skip_hidden": skip_hidden,
            "exclude_dirs": excluded_names(exclude_dirs, "exclude_dirs"),
            "max_entries": max_entries,
            "seconds": self._settings.search_seconds,
        }
        async with self._operations.reading("glob", path, **fields) as worker:
            entries, (complete, *_) = await receive_entries(
                worker, max_entries, self._search_patience
            )
        return GlobResult(entries=entries, complete=bool(complete))

    @asynccontextmanager
    async def watch(
        self, path: FilePath, *, recursive: bool = False, gather_seconds: float = 0.05
    ) -> AsyncIterator[AsyncIterator[Changes]]:
        """Changes from the beginning of the block on. FileNotFound, NotADirectory."""
        fields: dict[str, Any] = {"recursive": recursive, "gather": gather_seconds}
        async with self._operations.watching(path, **fields) as worker:
            await worker.expect(Kind.READY)
            yield receive_changes(worker, self._change_pace)

    async def upload_tar(self, spec: TarSpec, chunks: AsyncIterator[bytes]) -> TarUnpacked:
        """FileNotFound, NotADirectory, InvalidArchive, WorkspaceFull. A member over the size limit
        of files is refused, the others are extracted."""
        upload = TarUpload(spec, chunks, self._settings)
        return await self._operations.change(
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
        async with self._operations.reading("pack", path) as worker:
            await worker.expect(Kind.READY)
            yield TarDownload(worker, compression)

    @property
    def _search_patience(self) -> float:
        return self._settings.search_seconds + self._settings.idle_seconds


def _project_area(settings: FileSettings, directory: Path) -> ProjectArea:
    name = f"{settings.workspace_dir}/{PROJECT_FILES}"
    max_bytes, max_files = settings.project_limits
    return ProjectArea(directory=directory, name=name, max_bytes=max_bytes, max_files=max_files)
