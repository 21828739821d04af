"""The directory on the server's own machine that its operator shares with an agent."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


class NotShared(Exception):
    """A path that is not, or cannot be used, in the shared directory."""


class SharedDirectory:
    """Paths are followed name by name from the directory, and no link on them is followed: whoever
    can put a link there cannot make the server read or write anything else."""

    def __init__(self, directory: Path) -> None:
        self._root = Path(os.path.abspath(directory))
        if not self._root.is_dir():
            raise NotShared(f"{directory} is not a directory.")

    @contextmanager
    def opened(self, path: str) -> Iterator[IO[bytes]]:
        """A regular file, for reading."""
        with self._parent(path) as (parent, name), _described(path):
            # A pipe without a writer would block the open.
            descriptor = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent
            )
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise NotShared(f"{path} is not a file.")
                yield file

    @contextmanager
    def created(self, path: str, *, overwrite: bool) -> Iterator[IO[bytes]]:
        """A new file, which gets its name when the block ends without an error."""
        with self._parent(path) as (parent, name), _described(path):
            unfinished = f".{name[:200]}.{secrets.token_hex(8)}"
            descriptor = os.open(
                unfinished,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
                dir_fd=parent,
            )
            try:
                with open(descriptor, "wb") as file:
                    yield file
                if overwrite:
                    os.replace(unfinished, name, src_dir_fd=parent, dst_dir_fd=parent)
                else:
                    os.link(
                        unfinished,
                        name,
                        src_dir_fd=parent,
                        dst_dir_fd=parent,
                        follow_symlinks=False,
                    )
                    os.unlink(unfinished, dir_fd=parent)
            except BaseException:
                os.unlink(unfinished, dir_fd=parent)
                raise

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The directory that the path is in, and its last name."""
        *directories, name = self._names(path)
        with _described(path):
            descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for directory in directories:
                with _described(path):
                    below = os.open(
                        directory,
                        os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
                        dir_fd=descriptor,
                    )
                os.close(descriptor)
                descriptor = below
            yield descriptor, name
        finally:
            os.close(descriptor)

    def _names(self, path: str) -> tuple[str, ...]:
        wanted = Path(path)
        if wanted.is_absolute():
            if not wanted.is_relative_to(self._root):
                raise NotShared(f"{path} is not below {self._root}, the directory that is shared.")
            wanted = wanted.relative_to(self._root)
        if not wanted.parts or ".." in wanted.parts or "\0" in path:
            raise NotShared(f"{path!r} does not name a file below {self._root}.")
        return wanted.parts


@contextmanager
def _described(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise NotShared(f"{path}: links are not followed there.") from None
        raise NotShared(f"{path}: {error.strerror}.") from None
