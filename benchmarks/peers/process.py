"""Contenders as seen by the driver: each a process that answers with seconds, or with a reason."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS = 120.0
FAILED_SECONDS = 5.0
LAST_LINES = 300


class ContenderFailed(Exception):
    """The contender did not do it; the message says why."""


class Contender:
    """A contender whose process may be gone; then everything it is asked fails with the reason."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.version = ""
        self.tasks: Sequence[str] = ()
        self.failure = ""

    async def introduce(self) -> None:
        try:
            first = await self._answer()
        except ContenderFailed as error:
            self.failure = str(error)
        else:
            self.version, self.tasks = first["version"], first["tasks"]

    async def ask(self, task: str) -> float:
        """Seconds of one measurement."""
        if self.failure:
            raise ContenderFailed(self.failure)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{task}\n".encode())
        try:
            answer = await self._answer()
        except ContenderFailed as error:
            self.failure = str(error)
            raise
        if "error" in answer:
            raise ContenderFailed(answer["error"])
        return float(answer["seconds"])

    async def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise ContenderFailed(f"no answer within {ANSWER_SECONDS:g} s") from None
        if not line:
            raise ContenderFailed(f"its process ended: {self._last_line()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")[:LAST_LINES]

    async def stop(self) -> None:
        """It removes its containers at the end of its input; the driver removes what it leaves."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            # One that did not answer is not given much more time.
            async with asyncio.timeout(FAILED_SECONDS if self.failure else ANSWER_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def running(
    python: str | Path, module: str, given: Mapping[str, str], log: Path
) -> AsyncIterator[Contender]:
    """The contender of a module for the block; one that does not start is one that fails."""
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(python, "-m", f"benchmarks.peers.{module}", json.dumps(dict(given))),
            # SWE-ReX logs every call, in colours; what it costs is not what is compared.
            env={**os.environ, "PYTHONPATH": str(ROOT), "SWE_REX_LOG_STREAM_LEVEL": "ERROR"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C is for us; we end it
        )
    contender = Contender(process, log)
    try:
        await contender.introduce()
        yield contender
    finally:
        await asyncio.shield(contender.stop())
