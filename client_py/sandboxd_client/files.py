"""Files of a sandbox."""

from __future__ import annotations

import asyncio
import io
import os
import posixpath
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, overload

from sandboxd_client.arguments import checked
from sandboxd_client.cancellation import run_or_undo
from sandboxd_client.errors import (
    InvalidRequestError,
    MissingFileError,
    NotADirectoryInSandboxError,
)
from sandboxd_client.file_arguments import (
    content_of,
    file_types,
    positive,
    posix,
    where,
)
from sandboxd_client.file_streams import AsyncFileStream, AsyncFileWatch, open_stream
from sandboxd_client.methods.files import (
    EDIT_TEXT,
    GLOB_FILES,
    GREP_FILES,
    LIST_FILES,
    MAKE_DIRECTORY,
    MOVE_FILE,
    READ_TEXT,
    REMOVE_FILE,
    STAT_FILE,
    UPLOAD_TAR,
)
from sandboxd_client.results import (
    Content,
    FileInfo,
    GlobResult,
    GrepMatch,
    GrepResult,
    ProgressCallback,
    SandboxPath,
    TextPage,
    TransferReport,
)
from sandboxd_client.session import SessionHold
from sandboxd_client.transfers import (
    Progress,
    chunks,
    fetch_archive,
    fetch_bytes,
    fetch_file,
    send_file,
)
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import files_pb2

WRITES_AT_ONCE = 4
"""Files that `write_files` writes at the same time; a session serves a few calls at once."""


@checked
class AsyncFiles:
    """Files of the sandbox. Paths are relative to the workspace, or absolute.

    Outside of the workspace, calls can do what commands can: /tmp and /var/tmp can be written, the
    rest only read. A path is text, a path object, or the bytes of a name that is not UTF-8.

    Example:
        await sandbox.files.write("notes.txt", "hello")
        print(await sandbox.files.read("notes.txt"))
    """

    def __init__(self, hold: SessionHold) -> None:
        self._hold = hold

    @overload
    async def read(
        self,
        path: SandboxPath,
        *,
        format: Literal["text"] = "text",
        offset: int = 0,
        length: int | None = None,
    ) -> str: ...

    @overload
    async def read(
        self,
        path: SandboxPath,
        *,
        format: Literal["bytes"],
        offset: int = 0,
        length: int | None = None,
    ) -> bytes: ...

    @overload
    async def read(
        self,
        path: SandboxPath,
        *,
        format: Literal["stream"],
        offset: int = 0,
        length: int | None = None,
    ) -> AsyncFileStream: ...

    async def read(
        self,
        path: SandboxPath,
        *,
        format: Literal["text", "bytes", "stream"] = "text",
        offset: int = 0,
        length: int | None = None,
    ) -> str | bytes | AsyncFileStream:
        """The content of a file, as text (UTF-8, anything else replaced), as bytes, or as a stream
        of bytes; from byte `offset` on, at most `length` bytes.

        Example:
            await sandbox.files.write("data.bin", b"\\x00\\x01\\x02")
            print(await sandbox.files.read("data.bin", format="bytes", offset=1, length=1))
        """
        count = 0 if length is None else positive("length", length)
        if format == "stream":
            return await open_stream(self._hold, path, offset=offset, length=count)
        data = await fetch_bytes(self._hold, where(path), offset=offset, length=count)
        return data.decode("utf-8", "replace") if format == "text" else data

    async def read_lines(
        self, path: SandboxPath, *, first_line: int = 1, max_lines: int = 0, max_bytes: int = 0
    ) -> TextPage:
        """Some lines of a text file, which may be large: at most `max_lines`, and at most
        `max_bytes` (256 KiB by default, up to 4 MiB).

        Example:
            await sandbox.files.write("log.txt", "one\\ntwo\\nthree\\n")
            print((await sandbox.files.read_lines("log.txt", first_line=2, max_lines=1)).text)
        """
        request = pb.ReadTextRequest(
            session_id=self._hold.id,
            first_line=first_line,
            max_lines=max_lines,
            max_bytes=max_bytes,
            **where(path),
        )
        page = await self._hold.connection.call(READ_TEXT, request)
        return TextPage(
            page.text,
            page.first_line,
            page.line_count,
            page.total_lines,
            page.truncated,
            page.invalid_utf8,
        )

    async def write(
        self,
        path: SandboxPath,
        data: Content,
        *,
        mode: int = 0,
        overwrite: bool = True,
    ) -> FileInfo:
        """Write a file atomically; missing parent directories are created.

        A file that is replaced keeps its permissions unless `mode` is given; a link is followed.
        Without `overwrite`, a file or a link at the path is FileExistsInSandboxError. `data` may
        also be an open file, which is read to its end; for large files use `upload`.

        If the connection is lost, the file is sent again. Without `overwrite` the file may then
        exist because an earlier attempt succeeded and its answer was lost:
        FileExistsInSandboxError with `may_have_begun`.

        Example:
            info = await sandbox.files.write("src/main.py", "print('hi')")
            print(info.path, info.size_bytes)
        """
        content = await content_of(data)
        header = self._header(path, size=len(content), mode=mode, overwrite=overwrite)
        written = await send_file(self._hold, header, io.BytesIO(content), Progress(None))
        return FileInfo.of(written.entry)

    async def write_files(
        self,
        files: Mapping[str, str | bytes] | Sequence[tuple[SandboxPath, str | bytes]],
        *,
        overwrite: bool = True,
    ) -> Sequence[FileInfo]:
        """Write several files, each as `write` does, a few at the same time.

        The first error ends it; files that were written by then stay.

        Example:
            for info in await sandbox.files.write_files({"a.txt": "1", "d/b.txt": "2"}):
                print(info.path)
        """
        wanted = list(files.items() if isinstance(files, Mapping) else files)
        paths = [posixpath.normpath(os.fsdecode(posix(path))) for path, _ in wanted]
        if len(set(paths)) < len(paths):
            raise InvalidRequestError("files: a path is in it twice; name each file once")
        written: dict[int, FileInfo] = {}
        ahead = iter(enumerate(wanted))

        async def write_some() -> None:
            for place, (path, data) in ahead:
                written[place] = await self.write(path, data, overwrite=overwrite)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(WRITES_AT_ONCE):
                    group.create_task(write_some())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [written[place] for place in range(len(wanted))]

    async def list(
        self, path: SandboxPath = "", *, recursive: bool = False, depth: int | None = None
    ) -> Sequence[FileInfo]:
        """The entries of a directory, sorted by path; with `depth`, of as many levels of
        directories, and with `recursive`, of all.

        Example:
            for entry in await sandbox.files.list(recursive=True):
                print(entry.path, entry.type, entry.size_bytes)
        """
        levels = 0 if depth is None else positive("depth", depth)
        found: list[FileInfo] = []
        token = ""
        while True:
            request = pb.ListFilesRequest(
                session_id=self._hold.id,
                recursive=recursive,
                depth=levels,
                page_token=token,
                **where(path),
            )
            page = await self._hold.connection.call(LIST_FILES, request)
            found += map(FileInfo.of, page.entries)
            token = page.next_page_token
            if not token:
                return found

    async def stat(self, path: SandboxPath = "", *, follow_links: bool = False) -> FileInfo:
        """Describe one entry.

        Example:
            print((await sandbox.files.stat("outputs")).type)
        """
        request = pb.StatFileRequest(
            session_id=self._hold.id, follow_links=follow_links, **where(path)
        )
        return FileInfo.of((await self._hold.connection.call(STAT_FILE, request)).entry)

    async def exists(self, path: SandboxPath) -> bool:
        """Whether something exists at a path.

        Example:
            print(await sandbox.files.exists("missing.txt"))
        """
        try:
            await self.stat(path)
        except (MissingFileError, NotADirectoryInSandboxError):
            return False
        return True

    async def remove(
        self, path: SandboxPath, *, recursive: bool = True, ignore_missing: bool = False
    ) -> int:
        """Remove an entry, a directory with its content; returns the number of removed entries.

        Example:
            await sandbox.files.write("old/notes.txt", "hello")
            await sandbox.files.remove("old")
        """
        request = pb.RemoveFileRequest(
            session_id=self._hold.id,
            recursive=recursive,
            ignore_missing=ignore_missing,
            **where(path),
        )
        return (await self._hold.connection.call(REMOVE_FILE, request)).removed

    async def rename(
        self,
        path: SandboxPath,
        new_path: SandboxPath,
        *,
        replace: bool = False,
        make_parents: bool = False,
    ) -> FileInfo:
        """Move or rename an entry. `replace` replaces a file at the new path; `make_parents`
        creates missing directories on it.

        Example:
            await sandbox.files.write("a.txt", "hello")
            await sandbox.files.rename("a.txt", "letters/b.txt", make_parents=True)
        """
        request = pb.MoveFileRequest(
            session_id=self._hold.id,
            replace=replace,
            make_parents=make_parents,
            **where(path),
            **where(new_path, "new_path"),
        )
        return FileInfo.of((await self._hold.connection.call(MOVE_FILE, request)).entry)

    async def make_dir(self, path: SandboxPath) -> bool:
        """Create a directory and missing parents; False if it already existed.

        Example:
            await sandbox.files.make_dir("data/raw")
        """
        request = pb.MakeDirectoryRequest(
            session_id=self._hold.id, make_parents=True, **where(path)
        )
        return (await self._hold.connection.call(MAKE_DIRECTORY, request)).created

    async def edit(
        self,
        path: SandboxPath,
        old_text: str,
        new_text: str,
        *,
        replace_all: bool = False,
        expected_count: int | None = None,
    ) -> int:
        """Replace an exact piece of text; returns the number of replacements.

        The text must occur `expected_count` times, once by default; with `replace_all`, at least
        once.

        Example:
            await sandbox.files.write("hello.py", "print('hello')")
            await sandbox.files.edit("hello.py", "hello", "goodbye")
        """
        request = pb.EditTextRequest(
            session_id=self._hold.id,
            old_text=old_text,
            new_text=new_text,
            replace_all=replace_all,
            expected_count=expected_count or 0,
            **where(path),
        )
        return (await self._hold.connection.call(EDIT_TEXT, request)).replaced

    async def grep(
        self,
        pattern: str,
        path: SandboxPath = "",
        *,
        regex: bool = False,
        ignore_case: bool = False,
        glob: str = "",
        exclude_dirs: Sequence[str] = (),
        max_matches: int = 1000,
    ) -> GrepResult:
        """Lines in files that contain a text or match a regular expression.

        `glob` chooses files as `glob()` does; `exclude_dirs` names directories that are not
        searched, such as `.git` or `*.egg-info`.

        Example:
            await sandbox.files.write("app.log", "ok\\nerror: disk\\n")
            for match in (await sandbox.files.grep("error", glob="*.log")).matches:
                print(match.path, match.line_number, match.line)
        """
        request = pb.GrepFilesRequest(
            session_id=self._hold.id,
            pattern=pattern,
            regex=regex,
            ignore_case=ignore_case,
            glob=glob,
            exclude_dirs=exclude_dirs,
            max_matches=max_matches,
            **where(path),
        )
        found = await self._hold.connection.call(GREP_FILES, request)
        matches = tuple(
            GrepMatch(match.path, match.line_number, match.line) for match in found.matches
        )
        return GrepResult(matches, found.complete)

    async def glob(
        self,
        pattern: str,
        path: SandboxPath = "",
        *,
        types: Sequence[str] = (),
        skip_hidden: bool = False,
        exclude_dirs: Sequence[str] = (),
        max_entries: int = 1000,
    ) -> GlobResult:
        """Entries whose path matches a pattern: `*` and `?` within a name, `[a-z]`, `{py,md}`, and
        `**` for any number of directories.

        `types` chooses entries by type: `file`, `directory`, `symlink` and so on. With
        `skip_hidden`, only a dot in the pattern matches the dot of a hidden name. `exclude_dirs`
        names directories to leave out.

        Example:
            found = await sandbox.files.glob("**/*.{py,md}", types=["file"], exclude_dirs=[".git"])
            print([entry.path for entry in found.entries])
        """
        request = pb.GlobFilesRequest(
            session_id=self._hold.id,
            pattern=pattern,
            types=file_types(types),
            skip_hidden=skip_hidden,
            exclude_dirs=exclude_dirs,
            max_entries=max_entries,
            **where(path),
        )
        found = await self._hold.connection.call(GLOB_FILES, request)
        return GlobResult(tuple(map(FileInfo.of, found.entries)), found.complete)

    def watch_dir(self, path: SandboxPath = "", *, recursive: bool = True) -> AsyncFileWatch:
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
        path: SandboxPath | None = None,
        *,
        overwrite: bool = True,
        on_progress: ProgressCallback | None = None,
    ) -> FileInfo:
        """Upload a local file; `path` defaults to its own name.

        If the connection is lost, the file is sent again, as with `write`.

        Example:
            await sandbox.files.upload("report.csv", "data/report.csv")
        """
        opening = asyncio.to_thread(open, local_path, "rb")
        with await run_or_undo(opening, closed) as source:
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
        path: SandboxPath,
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
        named = where(path)
        target = await asyncio.to_thread(local_target, path, local_path)
        making = asyncio.to_thread(unfinished_beside, target)
        with await run_or_undo(making, removed) as content:
            try:
                await fetch_file(self._hold, named, content, Progress(on_progress))
                content.flush()
                os.replace(content.name, target)
            except BaseException:
                os.unlink(content.name)
                raise
        return target

    async def upload_dir(
        self,
        local_path: str | os.PathLike[str],
        path: SandboxPath = "",
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
            return await self.upload_archive(archive, path, on_progress=on_progress)

    async def upload_archive(
        self,
        source: IO[bytes],
        path: SandboxPath = "",
        *,
        on_progress: ProgressCallback | None = None,
    ) -> TransferReport:
        """Extract a tar archive, an open file, into a directory. Members that would leave the
        directory are refused.

        It is sent once: if the connection is lost, a part of it may have arrived.

        Example:
            with open("project.tar", "rb") as archive:
                print((await sandbox.files.upload_archive(archive, "project")).entries)
        """
        header = pb.UploadTarHeader(
            session_id=self._hold.id, incarnation=self._hold.incarnation, **where(path)
        )

        async def parts() -> AsyncIterator[pb.UploadTarRequest]:
            yield pb.UploadTarRequest(header=header)
            progress, position = Progress(on_progress), 0
            async for chunk in chunks(source):
                yield pb.UploadTarRequest(chunk=chunk)
                position += len(chunk)
                await progress.reached(position)

        done = await self._hold.connection.send(UPLOAD_TAR, parts(), session_id=self._hold.id)
        return TransferReport(done.extracted, _refused(done.refused), done.refused_count)

    async def download_dir(
        self,
        path: SandboxPath,
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
            report = await self.download_archive(path, archive, on_progress=on_progress)
            archive.seek(0)
            refused = await asyncio.to_thread(_unpack, archive, Path(local_path))
        return TransferReport(
            report.entries - len(refused),
            (*report.refused, *refused),
            report.refused_count + len(refused),
        )

    async def download_archive(
        self,
        path: SandboxPath,
        target: IO[bytes],
        *,
        on_progress: ProgressCallback | None = None,
    ) -> TransferReport:
        """Write a directory with its content to an open file, as a tar archive that keeps modes,
        times and links. What cannot be read is left out and reported.

        If the connection is lost, the file is truncated and the download restarts.

        Example:
            with open("outputs.tar", "wb") as archive:
                print((await sandbox.files.download_archive("outputs", archive)).entries)
        """
        end = await fetch_archive(self._hold, where(path), target, Progress(on_progress))
        return TransferReport(end.members, _refused(end.skipped), end.skipped_count)

    def _header(
        self, path: SandboxPath, *, size: int, mode: int, overwrite: bool
    ) -> pb.UploadHeader:
        return pb.UploadHeader(
            session_id=self._hold.id,
            mode=mode,
            size_bytes=size,
            overwrite=pb.OVERWRITE_POLICY_REPLACE if overwrite else pb.OVERWRITE_POLICY_FAIL,
            make_parents=True,
            incarnation=self._hold.incarnation,
            **where(path),
        )


def local_target(path: SandboxPath, local_path: str | os.PathLike[str] | None) -> str:
    name = posixpath.basename(os.fsdecode(posix(path)))
    if local_path is None:
        return name
    return os.path.join(local_path, name) if os.path.isdir(local_path) else os.fspath(local_path)


def unfinished_beside(target: str) -> IO[bytes]:
    """A new file in the same directory, to be renamed when it is complete."""
    directory, name = os.path.split(os.path.abspath(target))
    return tempfile.NamedTemporaryFile(dir=directory, prefix=f".{name}.", delete=False)


async def closed(file: IO[bytes]) -> None:
    file.close()


async def removed(file: IO[bytes]) -> None:
    file.close()
    os.unlink(file.name)


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
