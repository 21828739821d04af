"""A session that minds its own business while another one is hostile."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass, field

import grpc

from tests.docker.commands import run
from tests.docker.daemon_process import Api

PAUSE_SECONDS = 0.02
QUIET_SAMPLES = 12
NOISE_MS = 10.0
"""What a median may differ by on a shared machine with nothing going on."""
CALL_SECONDS = 20


def is_harmed(*, quiet_ms: float, during_ms: float) -> bool:
    return during_ms > max(2 * quiet_ms, quiet_ms + NOISE_MS)


@dataclass
class Neighbour:
    """Runs `true` at a steady pace and keeps how long each took."""

    api: Api
    session_id: str
    took_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Neighbour:
        self._task = asyncio.create_task(self._live(), name="neighbour")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def quiet_ms(self) -> float:
        """The median of a few commands from now on."""
        begin = len(self.took_ms)
        async with asyncio.timeout(CALL_SECONDS):
            while len(self.took_ms) < begin + QUIET_SAMPLES:
                await asyncio.sleep(PAUSE_SECONDS)
        return statistics.median(self.took_ms[begin:])

    async def _live(self) -> None:
        while True:
            await self._once()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _once(self) -> None:
        began = time.monotonic()
        try:
            answer = await run(self.api, self.session_id, "true", timeout=CALL_SECONDS)
            if answer.exit.code != 0 or answer.exit.hint:
                self.failures.append(str(answer.exit))
        except grpc.RpcError as error:
            self.failures.append(str(error))
        self.took_ms.append((time.monotonic() - began) * 1000)
