"""The files of one session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from sandboxd.files.archive import Compression, TarMade, TarSpec, TarUnpacked
from sandboxd.files.entries import (
    Changes,
    Edited,
    Entry,
    GlobResult,
    GrepResult,
    Listing,
    MadeDirectory,
    TextRead,
    Uploaded,
)
from sandboxd.files.paths import FilePath
from sandboxd.files.requests import EditSpec, FileSettings, GrepSpec, TextSpec, UploadSpec
from sandboxd.link import GuestLink


class HasGuest(Protocol):
    """What is needed of a sandbox."""

    @property
    def link(self) -> GuestLink: ...


class Download(Protocol):
    """A file on its way out: iterate it once, to the end; then `sent_bytes` and `sha256` are of
    what was sent. FileChanged if it became shorter meanwhile."""

    entry: Entry
    sent_bytes: int
    sha256: bytes

    def __aiter__(self) -> AsyncIterator[bytes]: ...


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
        raise NotImplementedError

    async def upload(self, spec: UploadSpec, chunks: AsyncIterator[bytes]) -> Uploaded:
        """FileExists, NotAFile, FileNotFound, NotADirectory, FileTooLarge, WorkspaceFull,
        ChecksumMismatch. What can be known before the first chunk is raised before it is asked
        for."""
        raise NotImplementedError

    def download(
        self, path: FilePath, *, offset: int = 0, length: int = 0
    ) -> AbstractAsyncContextManager[Download]:
        """FileNotFound, NotAFile on entering; chunks of up to 1 MiB. A length of 0 means all."""
        raise NotImplementedError

    async def list(
        self, path: FilePath, *, recursive: bool = False, page_size: int = 1000, after: bytes = b""
    ) -> Listing:
        """FileNotFound, NotADirectory."""
        raise NotImplementedError

    async def stat(self, path: FilePath, *, follow_links: bool = False) -> Entry:
        """FileNotFound."""
        raise NotImplementedError

    async def make_directory(
        self, path: FilePath, *, make_parents: bool = False, mode: int = 0o755
    ) -> MadeDirectory:
        """FileExists (as something else), FileNotFound, NotADirectory, WorkspaceFull."""
        raise NotImplementedError

    async def move(self, path: FilePath, new_path: FilePath, *, replace: bool = False) -> Entry:
        """FileNotFound, FileExists, NotADirectory, ProtectedPath."""
        raise NotImplementedError

    async def remove(
        self, path: FilePath, *, recursive: bool = False, ignore_missing: bool = False
    ) -> int:
        """How many were removed. FileNotFound, DirectoryNotEmpty, ProtectedPath."""
        raise NotImplementedError

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
