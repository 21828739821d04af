"""Standard input of this process, which may be a terminal."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import threading
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

STDIN = 0
CHUNK_BYTES = 64 << 10
CHUNKS_AHEAD = 4
DETACH = b"\x10\x11"
"""Ctrl-P Ctrl-Q, as in other tools."""


class StandardInput:
    """Reads files, pipes and terminals in a thread that does not keep the process from ending."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(CHUNKS_AHEAD)
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The input, piece by piece, to its end."""
        threading.Thread(target=self._read, name="standard input", daemon=True).start()
        while chunk := await self._chunks.get():
            self._room.release()
            yield chunk

    def _read(self) -> None:
        chunk = b"-"
        while chunk:
            self._room.acquire()
            try:
                chunk = os.read(STDIN, CHUNK_BYTES)
            except OSError:
                chunk = b""  # a terminal that is gone, or no input at all
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop has ended


async def everything() -> bytes:
    """All of the input, once it has ended."""
    return b"".join([chunk async for chunk in StandardInput().chunks()])


class DetachKeys:
    """Finds the detach keys in typed input, even if they arrive one by one."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, typed: bytes) -> tuple[bytes, bool]:
        """The bytes to send, and whether the detach keys were typed."""
        text = self._held + typed
        before, keys, _ = text.partition(DETACH)
        if keys:
            return before, True
        self._held = DETACH[:1] if text.endswith(DETACH[:1]) else b""
        return text.removesuffix(self._held) if self._held else text, False


def is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def screen_size() -> tuple[int, int]:
    """Rows and columns."""
    size = os.get_terminal_size(STDIN)
    # A terminal of unknown size reports 0.
    return size.lines or 24, size.columns or 80


@contextmanager
def raw() -> Iterator[None]:
    """Raw mode until the block ends: every key is passed on unchanged."""
    with _restored():
        tty.setraw(STDIN, termios.TCSADRAIN)  # keep what was typed ahead
        yield


@contextmanager
def single_keys() -> Iterator[None]:
    """Keys arrive at once and are not echoed, but Ctrl-C still interrupts."""
    with _restored():
        tty.setcbreak(STDIN, termios.TCSADRAIN)
        yield


@contextmanager
def _restored() -> Iterator[None]:
    before = termios.tcgetattr(STDIN)
    try:
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)
