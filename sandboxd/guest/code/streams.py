"""Standard streams of a context: pipes at the level of descriptors, put back before each run."""

from __future__ import annotations

import sys
from _io import BufferedWriter, FileIO, TextIOWrapper
from fcntl import F_DUPFD_CLOEXEC, fcntl
from posix import O_RDONLY, close, dup2, open, set_blocking
from typing import Any

from .channel import clear_nonblocking, identity

_LINE_BUFFERED = 1  # _IOLBF


def _text(descriptor: int) -> Any:
    raw = FileIO(descriptor, "w", closefd=False)
    return TextIOWrapper(
        BufferedWriter(raw, 8192), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


class Stream:
    """One of the two output streams."""

    def __init__(self, name: str, number: int, given: int, first: int) -> None:
        self._name = name
        self._number = number
        set_blocking(given, True)
        try:
            self._kept = fcntl(given, F_DUPFD_CLOEXEC, first)
        except OSError:
            self._kept = fcntl(given, F_DUPFD_CLOEXEC, 3)
        close(given)
        self._identity = identity(self._kept)
        dup2(self._kept, number)
        self._file = _text(number)
        self._set()

    def _set(self) -> None:
        setattr(sys, self._name, self._file)
        setattr(sys, "__" + self._name + "__", self._file)

    def restore(self) -> str:
        """Make it as it was; what had happened to it, or an empty text."""
        found = []
        if identity(self._number) != self._identity:
            dup2(self._kept, self._number)
            found.append(f"descriptor {self._number} was closed or replaced")
        clear_nonblocking(self._number)
        if self._file.closed:
            self._file = _text(self._number)
            found.append(f"sys.{self._name} was closed")
            self._set()
        elif getattr(sys, self._name, None) is not self._file:
            found.append(f"sys.{self._name} was replaced")
            self._set()
        if not found:
            return ""
        return "An earlier run changed {}: {}; it was put back.".format(
            self._name, ", ".join(found)
        )

    def flush(self) -> None:
        """What code left in buffers; in its own stream too, if it replaced ours."""
        for file in (getattr(sys, self._name, None), self._file):
            try:
                file.flush()  # type: ignore[union-attr]
            except BaseException:
                continue  # closed, or not a file


class Streams:
    def __init__(self, stdout: int, stderr: int, first: int) -> None:
        self._streams = (
            Stream("stdout", 1, stdout, first),
            Stream("stderr", 2, stderr, first),
        )
        self._flush_c = _flush_of_c()
        self.restore_input()

    def restore_input(self) -> None:
        if identity(0) is None:
            null = open("/dev/null", O_RDONLY)
            if null:
                dup2(null, 0)
                close(null)
        if sys.stdin is None or sys.stdin.closed:
            sys.stdin = TextIOWrapper(FileIO(0, "r", closefd=False), encoding="utf-8")

    def restore(self) -> list[str]:
        self.restore_input()
        return [text for text in [stream.restore() for stream in self._streams] if text]

    def flush(self) -> None:
        for stream in self._streams:
            stream.flush()
        if self._flush_c is not None:
            self._flush_c(None)


def _flush_of_c() -> Any:
    """Make standard output of C line by line; its fflush, or None if Python has no ctypes."""
    try:
        from ctypes import CDLL, c_void_p
    except ImportError:
        return None
    libc = CDLL(None)
    try:
        libc.setvbuf(c_void_p.in_dll(libc, "stdout"), None, _LINE_BUFFERED, 0)
    except ValueError:
        pass  # a C library without that symbol
    return libc.fflush
