"""A terminal with a program in it, as a person would have it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

SECONDS = 30


class Screen:
    """The person's side: types, looks, and changes the size of the window."""

    def __init__(self, descriptor: int, process: asyncio.subprocess.Process) -> None:
        self._descriptor = descriptor
        self._shown = bytearray()
        self._looked_at = 0
        self.process = process

    @property
    def modes(self) -> list[object]:
        """How the terminal is set."""
        return termios.tcgetattr(self._descriptor)

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        _set_size(self._descriptor, rows, columns)

    async def shows(self, text: str) -> str:
        """Wait for a text after the one before; returns what was shown up to it."""
        wanted = text.encode()
        try:
            async with asyncio.timeout(SECONDS):
                while wanted not in self._shown[self._looked_at :]:
                    await self._read()
        except TimeoutError:
            raise AssertionError(f"no {text!r} in {bytes(self._shown)!r}") from None
        end = self._shown.index(wanted, self._looked_at) + len(wanted)
        seen, self._looked_at = self._shown[self._looked_at : end], end
        return seen.decode(errors="replace")

    async def ends(self) -> int:
        async with asyncio.timeout(SECONDS):
            return await self.process.wait()

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._descriptor, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._descriptor)
        self._shown += os.read(self._descriptor, 65536)


@asynccontextmanager
async def on_screen(
    program: Sequence[str], env: Mapping[str, str], *, rows: int = 30, columns: int = 100
) -> AsyncIterator[Screen]:
    """Run a program with the terminal as its own; ended with the block."""
    ours, theirs = pty.openpty()
    _set_size(ours, rows, columns)
    process = await asyncio.create_subprocess_exec(
        *program,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        # The terminal has to be the controlling one, or nobody is told of a new size.
        preexec_fn=lambda: os.login_tty(0),
    )
    try:
        yield Screen(ours, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(theirs)
        os.close(ours)


def _set_size(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
