"""A Jupyter kernel to compare with, in a virtual environment that ends with the measurement."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.client import CommandFailed

PEER = Path(__file__).with_name("kernel_peer.py")
INSTALL_SECONDS = 600.0
ANSWER_SECONDS = 120.0


class Kernel:
    """Measures on request."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def start(self) -> float:
        """Seconds from the start of a kernel to its first result."""
        return await self._ask("start")

    async def run(self) -> float:
        """Seconds of `1 + 1` in a kernel that runs."""
        return await self._ask("run")

    async def ready(self) -> None:
        await self._answer()

    async def _ask(self, word: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        return float(await self._answer())

    async def _answer(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(ANSWER_SECONDS):
            line = await self._process.stdout.readline()
        if not line:
            raise CommandFailed("the Jupyter kernel ended")
        return line.decode()


@asynccontextmanager
async def running() -> AsyncIterator[Kernel]:
    """A kernel of the same Python as ours."""
    with tempfile.TemporaryDirectory(prefix="sandboxd-bench-", dir="/tmp") as directory:
        python = f"{directory}/bin/python"
        await _run(sys.executable, "-m", "venv", directory)
        await _run(python, "-m", "pip", "install", "--quiet", "ipykernel", "jupyter_client")
        process = await asyncio.create_subprocess_exec(
            *(python, PEER),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        kernel = Kernel(process)
        try:
            await kernel.ready()
            yield kernel
        finally:
            assert process.stdin is not None
            process.stdin.close()
            async with asyncio.timeout(ANSWER_SECONDS):
                await process.wait()


async def _run(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(*words)
    async with asyncio.timeout(INSTALL_SECONDS):
        if await process.wait() != 0:
            raise CommandFailed(f"{' '.join(words[1:])} failed")
