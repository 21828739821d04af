"""The agent's own files: input of commands, and the place for results."""

from __future__ import annotations

import asyncio
import inspect
import os
import posixpath
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeAlias, runtime_checkable

from sandboxd_client.integrations.conversation import Conversation


class VirtualFileError(Exception):
    """A file of the virtual file system cannot be read or written; the message is for a model."""


@runtime_checkable
class VirtualFiles(Protocol):
    """The file system of an agent; implement these two methods for your own.

    Example:
        class Attachments:
            async def read(self, path: str) -> bytes:
                return await fetch(path)  # FileNotFoundError if there is none

            async def write(self, path: str, data: bytes) -> None:
                await store(path, data)
    """

    async def read(self, path: str) -> bytes:
        """The content of a file; FileNotFoundError if there is none."""

    async def write(self, path: str, data: bytes) -> None:
        """Create or replace a file."""


@runtime_checkable
class DigestedFiles(VirtualFiles, Protocol):
    """A file system that can detect a change without reading the file."""

    async def digest(self, path: str) -> str:
        """SHA-256 of a file in hexadecimal; FileNotFoundError if there is none."""


FilesOf: TypeAlias = VirtualFiles | Callable[[Conversation], VirtualFiles]
"""One file system for all conversations, or a function that returns one for each."""


class FilesInMemory:
    """Files in a dict, for tests and for agents without storage.

    Example:
        files = FilesInMemory({"/notes.txt": b"hello"})
    """

    def __init__(self, files: Mapping[str, bytes | str] | None = None) -> None:
        self.files = {path: _as_bytes(data) for path, data in (files or {}).items()}

    async def read(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    async def write(self, path: str, data: bytes) -> None:
        self.files[path] = data


class FilesInDirectory:
    """Files of one local directory. `/` is that directory, and no path leaves it.

    Example:
        files = FilesInDirectory("/srv/agent-files/ada")
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._root = Path(directory).resolve()

    async def read(self, path: str) -> bytes:
        return await asyncio.to_thread(self._read, path)

    async def write(self, path: str, data: bytes) -> None:
        await asyncio.to_thread(self._write, path, data)

    def _read(self, path: str) -> bytes:
        try:
            return self._inside(path).read_bytes()
        except IsADirectoryError:
            raise VirtualFileError(f"{path} is a directory; name the files in it.") from None

    def _write(self, path: str, data: bytes) -> None:
        target = self._inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as content:
            try:
                content.write(data)
                content.flush()
                os.replace(content.name, target)
            except BaseException:
                os.unlink(content.name)
                raise

    def _inside(self, path: str) -> Path:
        relative = PurePosixPath("/", path).relative_to("/")
        resolved = (self._root / relative).resolve()
        if ".." in relative.parts or not resolved.is_relative_to(self._root):
            raise VirtualFileError(f"{path} leaves the virtual file system.")
        return resolved


Reader: TypeAlias = Callable[[str], "Awaitable[bytes | str] | bytes | str"]
Writer: TypeAlias = Callable[[str, bytes], "Awaitable[object] | object"]


class FilesFromFunctions:
    """Files from existing functions, such as an agent's `read_file`.

    They may be coroutine functions, and may read text. Without `write` nothing can be saved.

    Example:
        files = FilesFromFunctions(lambda path: documents[path])
    """

    def __init__(self, read: Reader, write: Writer | None = None) -> None:
        self._read = read
        self._write = write

    async def read(self, path: str) -> bytes:
        answer = self._read(path)
        return _as_bytes(await answer if inspect.isawaitable(answer) else answer)

    async def write(self, path: str, data: bytes) -> None:
        if self._write is None:
            raise VirtualFileError("Files cannot be saved here.")
        answer = self._write(path, data)
        if inspect.isawaitable(answer):
            await answer


def name_in_workspace(path: str) -> str:
    """The name of an uploaded file: the last part of its path."""
    name = posixpath.basename(path)
    if name in ("", ".", "..") or "\0" in name:
        raise VirtualFileError(f"{path!r} is not a valid path of a file.")
    return name


def _as_bytes(data: bytes | str) -> bytes:
    return data.encode() if isinstance(data, str) else data
