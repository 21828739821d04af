"""`sandboxd ...` in a process of its own, as a user has it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 60


@dataclass(frozen=True)
class Ran:
    """How it ended and what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """What it printed for programs."""
        assert self.code == 0, self
        return json.loads(self.stdout)


class CommandLine:
    """Runs commands against one daemon."""

    def __init__(self, socket: Path) -> None:
        self.environment = {**os.environ, "SANDBOXD_URL": f"unix:{socket}"}

    async def __call__(self, *words: str, stdin: bytes = b"") -> Ran:
        async with self.started(*words) as process, asyncio.timeout(SECONDS):
            stdout, stderr = await process.communicate(stdin)
        assert process.returncode is not None
        return Ran(process.returncode, stdout.decode(), stderr.decode())

    @asynccontextmanager
    async def started(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """While it runs; ended with the block."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sandboxd",
            *words,
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
