"""Files of a sandbox's workspace."""

from __future__ import annotations

import asyncio
import io
import os
import posixpath
import tarfile
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, overload

from sandboxd_client import methods
from sandboxd_client.errors import (
    ConnectionLostError,
    InvalidRequestError,
    MissingFileError,
)
from sandboxd_client.results import (
    FileEvent,
    FileInfo,
    GlobResult,
    GrepMatch,
    GrepResult,
    ProgressCallback,
    TextPage,
    TransferReport,
)
from sandboxd_client.session import SessionHold
from sandboxd_client.transfers import Progress, chunks, fetch_archive, fetch_file, send_file
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import files_pb2

_KINDS = {
    pb.FILE_CHANGE_KIND_CREATED: "created",
    pb.FILE_CHANGE_KIND_MODIFIED: "modified",
    pb.FILE_CHANGE_KIND_REMOVED: "removed",
    pb.FILE_CHANGE_KIND_MOVED: "moved",
}


class AsyncFiles:
    """Files of the workspace. Paths are relative to it, or absolute below it.

    Example:
        await sandbox.files.write("notes.txt", "hello")
        print(await sandbox.files.read("notes.txt"))
    """

    def __init__(self, hold: SessionHold) -> None:
        self._hold = hold

    @overload
    async def read(self, path: str, *, format: Literal["text"] = "text") -> str: ...

    @overload
    async def read(self, path: str, *, format: Literal["bytes"]) -> bytes: ...

    async def read(self, path: str, *, format: Literal["text", "bytes"] = "text") -> str | bytes:
        """The content of a file, as text (UTF-8) or bytes.

        Example:
            await sandbox.files.write("data.bin", b"\\x00\\x01")
            print(await sandbox.files.read("data.bin", format="bytes"))
        """
        content = io.BytesIO()
        await fetch_file(self._hold, path, content, Progress(None))
        data = content.getvalue()
        return data.decode("utf-8", "replace") if format == "text" else data

    async def read_lines(self, path: str, *, first_line: int = 1, max_lines: int = 0) -> TextPage:
        """Some lines of a text file, which may be large.

        Example:
            await sandbox.files.write("log.txt", "one\\ntwo\\nthree\\n")
            print((await sandbox.files.read_lines("log.txt", first_line=2, max_lines=1)).text)
        """
        request = pb.ReadTextRequest(
            session_id=self._hold.id, path=path, first_line=first_line, max_lines=max_lines
        )
        page = await self._hold.connection.call(methods.READ_TEXT, request)
        return TextPage(
            page.text, page.first_line, page.line_count, page.total_lines, page.truncated
        )

    async def write(
        self,
        path: str,
        data: str | bytes,
        *,
        mode: int = 0,
        overwrite: bool = True,
    ) -> FileInfo:
        """Write a file atomically; missing parent directories are created.

        If the connection is lost, the file is sent again. Without `overwrite` the file may then
        exist because an earlier attempt succeeded and its answer was lost:
        FileExistsInSandboxError with `may_have_begun`.

        Example:
            info = await sandbox.files.write("src/main.py", "print('hi')")
            print(info.path, info.size_bytes)
        """
        content = data.encode() if isinstance(data, str) else data
        header = self._header(path, size=len(content), mode=mode, overwrite=overwrite)
        written = await send_file(self._hold, header, io.BytesIO(content), Progress(None))
        return FileInfo.of(written.entry)

    async def list(self, path: str = "", *, recursive: bool = False) -> Sequence[FileInfo]:
        """The entries of a directory, sorted by path.

        Example:
            for entry in await sandbox.files.list(recursive=True):
                print(entry.path, entry.type, entry.size_bytes)
        """
        found: list[FileInfo] = []
        token = ""
        while True:
            request = pb.ListFilesRequest(
                session_id=self._hold.id, path=path, recursive=recursive, page_token=token
            )
            page = await self._hold.connection.call(methods.LIST_FILES, request)
            found += map(FileInfo.of, page.entries)
            token = page.next_page_token
            if not token:
                return found

    async def stat(self, path: str = "", *, follow_links: bool = False) -> FileInfo:
        """Describe one entry.

        Example:
            print((await sandbox.files.stat("outputs")).type)
        """
        request = pb.StatFileRequest(session_id=self._hold.id, path=path, follow_links=follow_links)
        return FileInfo.of((await self._hold.connection.call(methods.STAT_FILE, request)).entry)

    async def exists(self, path: str) -> bool:
        """Whether something exists at a path.

        Example:
            print(await sandbox.files.exists("missing.txt"))
        """
        try:
            await self.stat(path)
        except MissingFileError:
            return False
        return True

    async def remove(
        self, path: str, *, recursive: bool = True, ignore_missing: bool = False
    ) -> int:
        """Remove an entry, a directory with its content; returns the number of removed entries.

        Example:
            await sandbox.files.write("old/notes.txt", "hello")
            await sandbox.files.remove("old")
        """
        request = pb.RemoveFileRequest(
            session_id=self._hold.id,
            path=path,
            recursive=recursive,
            ignore_missing=ignore_missing,
        )
        return (await self._hold.connection.call(methods.REMOVE_FILE, request)).removed

    async def rename(self, path: str, new_path: str, *, replace: bool = False) -> FileInfo:
        """Move or rename an entry.

        Example:
            await sandbox.files.write("a.txt", "hello")
            await sandbox.files.rename("a.txt", "b.txt")
        """
        request = pb.MoveFileRequest(
            session_id=self._hold.id, path=path, new_path=new_path, replace=replace
        )
        return FileInfo.of((await self._hold.connection.call(methods.MOVE_FILE, request)).entry)

    async def make_dir(self, path: str) -> bool:
        """Create a directory and missing parents; False if it already existed.

        Example:
            await sandbox.files.make_dir("data/raw")
        """
        request = pb.MakeDirectoryRequest(session_id=self._hold.id, path=path, make_parents=True)
        return (await self._hold.connection.call(methods.MAKE_DIRECTORY, request)).created

    async def edit(
        self,
        path: str,
        old_text: str,
        new_text: str,
        *,
        replace_all: bool = False,
        expected_count: int = 1,
    ) -> int:
        """Replace an exact piece of text; returns the number of replacements.

        Example:
            await sandbox.files.write("hello.py", "print('hello')")
            await sandbox.files.edit("hello.py", "hello", "goodbye")
        """
        request = pb.EditTextRequest(
            session_id=self._hold.id,
            path=path,
            old_text=old_text,
            new_text=new_text,
            replace_all=replace_all,
            expected_count=expected_count,
        )
        return (await self._hold.connection.call(methods.EDIT_TEXT, request)).replaced

    async def grep(
        self,
        pattern: str,
        path: str = "",
        *,
        regex: bool = False,
        ignore_case: bool = False,
        glob: str = "",
        max_matches: int = 1000,
    ) -> GrepResult:
        """Lines in files that contain a text or match a regular expression.

        Example:
            await sandbox.files.write("app.log", "ok\\nerror: disk\\n")
            for match in (await sandbox.files.grep("error", glob="*.log")).matches:
                print(match.path, match.line_number, match.line)
        """
        request = pb.GrepFilesRequest(
            session_id=self._hold.id,
            path=path,
            pattern=pattern,
            regex=regex,
            ignore_case=ignore_case,
            glob=glob,
            max_matches=max_matches,
        )
        found = await self._hold.connection.call(methods.GREP_FILES, request)
        matches = tuple(
            GrepMatch(match.path, match.line_number, match.line) for match in found.matches
        )
        return GrepResult(matches, found.complete)

    async def glob(self, pattern: str, path: str = "", *, max_entries: int = 1000) -> GlobResult:
        """Entries whose path matches a pattern; `**` matches any number of directories.

        Example:
            print([entry.path for entry in (await sandbox.files.glob("**/*.py")).entries])
        """
        request = pb.GlobFilesRequest(
            session_id=self._hold.id, path=path, pattern=pattern, max_entries=max_entries
        )
        found = await self._hold.connection.call(methods.GLOB_FILES, request)
        return GlobResult(tuple(map(FileInfo.of, found.entries)), found.complete)

    def watch_dir(self, path: str = "", *, recursive: bool = True) -> AsyncFileWatch:
        """Changes below a directory as they happen, until the block ends.

        Example:
            async with sandbox.files.watch_dir() as changes:
                await sandbox.files.write("new.txt", "hello")
                async for change in changes:
                    print(change.kind, change.path)
                    break
        """
        return AsyncFileWatch(self._hold, path, recursive=recursive)

    async def upload(
        self,
        local_path: str | os.PathLike[str],
        path: str | None = None,
        *,
        overwrite: bool = True,
        on_progress: ProgressCallback | None = None,
    ) -> FileInfo:
        """Upload a local file; `path` defaults to its own name.

        If the connection is lost, the file is sent again, as with `write`.

        Example:
            await sandbox.files.upload("report.csv", "data/report.csv")
        """
        with await asyncio.to_thread(open, local_path, "rb") as source:
            facts = os.fstat(source.fileno())
            header = self._header(
                path or Path(local_path).name,
                size=facts.st_size,
                mode=facts.st_mode & 0o777,
                overwrite=overwrite,
            )
            written = await send_file(self._hold, header, source, Progress(on_progress))
        return FileInfo.of(written.entry)

    async def download(
        self,
        path: str,
        local_path: str | os.PathLike[str] | None = None,
        *,
        on_progress: ProgressCallback | None = None,
    ) -> str:
        """Download a file atomically; `local_path` defaults to the current directory.

        If the connection is lost, the download resumes, or restarts if size or modification time
        show that the file has changed.

        Example:
            await sandbox.files.write("report.csv", "a,b")
            print(await sandbox.files.download("report.csv", "report.csv"))
        """
        target = await asyncio.to_thread(local_target, path, local_path)
        with await asyncio.to_thread(unfinished_beside, target) as content:
            try:
                await fetch_file(self._hold, path, content, Progress(on_progress))
                content.flush()
                os.replace(content.name, target)
            except BaseException:
                os.unlink(content.name)
                raise
        return target

    async def upload_dir(
        self,
        local_path: str | os.PathLike[str],
        path: str = "",
        *,
        on_progress: ProgressCallback | None = None,
    ) -> TransferReport:
        """Upload a directory with its content, as one archive.

        It is sent once: if the connection is lost, a part of it may have arrived.

        Example:
            report = await sandbox.files.upload_dir("project", "project")
            print(report.entries, report.refused)
        """
        with tempfile.TemporaryFile() as archive:
            await asyncio.to_thread(_pack, Path(local_path), archive)
            archive.seek(0)
            header = pb.UploadTarHeader(
                session_id=self._hold.id, path=path, incarnation=self._hold.incarnation
            )

            async def parts() -> AsyncIterator[pb.UploadTarRequest]:
                yield pb.UploadTarRequest(header=header)
                progress, position = Progress(on_progress), 0
                async for chunk in chunks(archive):
                    yield pb.UploadTarRequest(chunk=chunk)
                    position += len(chunk)
                    await progress.reached(position)

            done = await self._hold.connection.send(methods.UPLOAD_TAR, parts())
        return TransferReport(done.extracted, _refused(done.refused), done.refused_count)

    async def download_dir(
        self,
        path: str,
        local_path: str | os.PathLike[str],
        *,
        on_progress: ProgressCallback | None = None,
    ) -> TransferReport:
        """Download a directory with its content. Entries that would leave `local_path` are refused.

        If the connection is lost, the download restarts; nothing is written before it is complete.

        Example:
            await sandbox.commands.run("echo hello > outputs/result.txt")
            print((await sandbox.files.download_dir("outputs", "results")).entries)
        """
        with tempfile.TemporaryFile() as archive:
            end = await fetch_archive(self._hold, path, archive, Progress(on_progress))
            archive.seek(0)
            refused = await asyncio.to_thread(_unpack, archive, Path(local_path))
        skipped = (*_refused(end.skipped), *refused)
        count = end.skipped_count + len(refused)
        return TransferReport(end.members - len(refused), skipped, count)

    def _header(self, path: str, *, size: int, mode: int, overwrite: bool) -> pb.UploadHeader:
        return pb.UploadHeader(
            session_id=self._hold.id,
            path=path,
            mode=mode,
            size_bytes=size,
            overwrite=pb.OVERWRITE_POLICY_REPLACE if overwrite else pb.OVERWRITE_POLICY_FAIL,
            make_parents=True,
            incarnation=self._hold.incarnation,
        )


class AsyncFileWatch:
    """Changes below a directory as they happen; see `files.watch_dir`.

    Example:
        async with sandbox.files.watch_dir() as changes:
            await sandbox.files.write("new.txt", "hello")
            print((await anext(changes)).path)
    """

    def __init__(self, hold: SessionHold, path: str, *, recursive: bool) -> None:
        request = pb.WatchFilesRequest(session_id=hold.id, path=path, recursive=recursive)
        self._responses = hold.connection.stream(methods.WATCH_FILES, request)
        self._changes = self._translated()

    async def __aenter__(self) -> AsyncFileWatch:
        """Start the watch; from here on no change is missed."""
        first = await anext(self._responses, None)
        if first is None or not first.watching:
            raise ConnectionLostError("The watch failed before it began; watch again.")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncFileWatch:
        return self

    async def __anext__(self) -> FileEvent:
        return await anext(self._changes)

    async def aclose(self) -> None:
        """End the watch.

        Example:
            changes = sandbox.files.watch_dir()
            await changes.aclose()
        """
        await self._changes.aclose()
        await self._responses.aclose()

    async def _translated(self) -> AsyncGenerator[FileEvent, None]:
        async for response in self._responses:
            if response.overflow:
                yield FileEvent("overflow", "")
            for change in response.changes:
                yield FileEvent(
                    _KINDS[change.kind], change.path, change.old_path, change.is_directory
                )
        raise ConnectionLostError("The watch was interrupted; list the directory and watch again.")


def local_target(path: str, local_path: str | os.PathLike[str] | None) -> str:
    name = posixpath.basename(path)
    if local_path is None:
        return name
    return os.path.join(local_path, name) if os.path.isdir(local_path) else os.fspath(local_path)


def unfinished_beside(target: str) -> IO[bytes]:
    """A new file in the same directory, to be renamed when it is complete."""
    directory, name = os.path.split(os.path.abspath(target))
    return tempfile.NamedTemporaryFile(dir=directory, prefix=f".{name}.", delete=False)


def _pack(directory: Path, archive: IO[bytes]) -> None:
    if not directory.is_dir():
        raise InvalidRequestError(f"local_path: {directory} is not a directory")
    with tarfile.open(fileobj=archive, mode="w|") as tar:
        for entry in sorted(directory.iterdir()):
            tar.add(entry, arcname=entry.name, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member without the names of this machine's users and groups."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _unpack(archive: IO[bytes], directory: Path) -> list[tuple[str, str]]:
    """Extract files, directories and links that stay in the directory; report the others."""
    refused: list[tuple[str, str]] = []
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for member in tar:
            try:
                tar.extract(member, directory, filter="data")
            except tarfile.FilterError as error:
                refused.append((member.name, str(error)))
    return refused


def _refused(members: Iterable[files_pb2.RefusedMember]) -> tuple[tuple[str, str], ...]:
    return tuple((member.name, member.why) for member in members)
