"""The files of a set: copied out of the build, so that nothing in them is as a stranger made it."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

FILE_MODE, PROGRAM_MODE, DIRECTORY_MODE = 0o444, 0o555, 0o555
INTERPRETER = b"#!/usr/bin/env python3\n"
_DROPPED = frozenset([".lock"])
"""Files in the topmost directory that only uv needs."""
_CHUNK_BYTES = 1 << 20
_MAX_DEPTH = 64
_PYTHON_LINE = re.compile(rb"#![^\n]{0,250}python[0-9.]*[^\n]{0,60}\n")
_libc = ctypes.CDLL(None, use_errno=True)


class TreeUnsafe(Exception):
    """There is something else than files and directories; the text names it."""


class TreeTooLarge(Exception):
    """It has more bytes or files than allowed; the text says how many."""


class TreeSize(NamedTuple):
    size_bytes: int
    """Space on the disk."""
    files: int


def copy(
    source: Path,
    target: Path,
    *,
    max_bytes: int,
    max_files: int,
    programs: str = "",
    on_progress: Callable[[int], None] = lambda _: None,
) -> TreeSize:
    """Copy a tree that another user has written to a new directory; blocks.

    The copy belongs to the daemon's user and can be changed by nobody: plain files and directories
    without set-id bits and without links to anywhere. Scripts of Python in the directory `programs`
    run with whatever Python is in the sandbox. Everything is on the disk when this returns.
    """
    copying = _Copying(max_bytes, max_files, programs, on_progress)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(source, flags)
    try:
        target.mkdir(mode=0o700)
        copying.directory(opened, target, "", depth=0)
    finally:
        os.close(opened)
    _sync(target)
    return TreeSize(copying.size_bytes, copying.files)


def delete(tree: Path) -> None:
    """Delete a copied tree, which a user other than root has to make writable first; blocks."""
    if os.geteuid() != 0:
        for directory, _, _ in os.walk(tree):
            os.chmod(directory, 0o700)
    shutil.rmtree(tree, ignore_errors=True)


class _Copying:
    """One copy under way, with what it has counted so far."""

    def __init__(
        self, max_bytes: int, max_files: int, programs: str, on_progress: Callable[[int], None]
    ) -> None:
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._programs = f"{programs}/" if programs else None
        self._on_progress = on_progress
        self.size_bytes = 0
        self.files = 0

    def directory(self, opened: int, target: Path, shown: str, *, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise TreeUnsafe(f"{shown!r} is {_MAX_DEPTH} directories deep")
        for name in sorted(os.listdir(opened)):
            if depth == 0 and name in _DROPPED:
                continue
            self._entry(opened, name, target / name, f"{shown}/{name}".lstrip("/"), depth=depth)
        target.chmod(DIRECTORY_MODE)
        self._count(target.stat())

    def _entry(self, parent: int, name: str, target: Path, shown: str, *, depth: int) -> None:
        found = os.lstat(name, dir_fd=parent)
        if stat.S_ISLNK(found.st_mode):
            raise TreeUnsafe(f"{shown!r} is a symbolic link")
        if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
            raise TreeUnsafe(f"{shown!r} is neither a file nor a directory")
        if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
            raise TreeUnsafe(f"{shown!r} has a set-id bit")
        # What is opened is what is copied: no link is followed if the name means another now.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        opened = os.open(name, flags, dir_fd=parent)
        try:
            mode = os.fstat(opened).st_mode
            if stat.S_ISDIR(mode):
                target.mkdir(mode=0o700)
                self.directory(opened, target, shown, depth=depth + 1)
            elif stat.S_ISREG(mode):
                is_program = self._programs is not None and shown.startswith(self._programs)
                self._file(opened, target, mode, is_program=is_program)
            else:
                raise TreeUnsafe(f"{shown!r} is neither a file nor a directory")
        finally:
            os.close(opened)

    def _file(self, source: int, target: Path, mode: int, *, is_program: bool) -> None:
        with open(target, "xb") as copy:
            chunk = os.read(source, _CHUNK_BYTES)
            if is_program and (line := _PYTHON_LINE.match(chunk)):
                chunk = INTERPRETER + chunk[line.end() :]
            while chunk:
                if self.size_bytes + copy.tell() + len(chunk) > self._max_bytes:
                    raise self._too_large()
                copy.write(chunk)
                chunk = os.read(source, _CHUNK_BYTES)
            copy.flush()
            os.fchmod(copy.fileno(), PROGRAM_MODE if mode & 0o111 else FILE_MODE)
            self._count(os.fstat(copy.fileno()))

    def _count(self, made: os.stat_result) -> None:
        self.files += 1
        self.size_bytes += max(made.st_blocks * 512, made.st_size)
        if self.files > self._max_files:
            raise TreeTooLarge(f"more than {self._max_files} files")
        if self.size_bytes > self._max_bytes:
            raise self._too_large()
        self._on_progress(self.files)

    def _too_large(self) -> TreeTooLarge:
        return TreeTooLarge(f"more than {self._max_bytes >> 20} MiB")


def _sync(directory: Path) -> None:
    """Write the filesystem of a directory to the disk: after a power cut, a set that has its name
    has its files."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(opened) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(opened)
