"""How far a build is, for callers who wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

MAX_DETAIL = 200


class Snapshot(NamedTuple):
    """How far a build was at one moment."""

    step: str
    step_number: int
    step_count: int
    fraction: float
    detail: str
    elapsed_seconds: float
    idle_seconds: float
    """Time since the last visible progress."""


class Progress:
    """The progress of one build. It never goes back."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        """With the steps, and the share of the whole that each usually takes."""
        self._shares = shares
        self._steps = list(shares)
        self._step = self._steps[0]
        self._fraction = 0.0
        self._detail = ""
        self._started_at = self._changed_at = time.monotonic()
        self._change = asyncio.Event()

    def begin(self, step: str, detail: str = "") -> None:
        self._step = step
        self._show(sum(self._shares[name] for name in self._steps[: self._number - 1]), detail)

    def advance(self, part: float, detail: str) -> None:
        """With the part of the current step that is done, 0 to 1."""
        before = sum(self._shares[name] for name in self._steps[: self._number - 1])
        self._show(before + self._shares[self._step] * min(max(part, 0.0), 1.0), detail)

    def part_of(self, step: str) -> Progress:
        """The progress of something that is only a part of this step."""
        return _Part(self, step)

    @property
    def now(self) -> Snapshot:
        now = time.monotonic()
        return Snapshot(
            self._step,
            self._number,
            len(self._steps),
            self._fraction,
            self._detail,
            now - self._started_at,
            now - self._changed_at,
        )

    async def changed(self, seconds: float) -> None:
        """Return at the next change, or after that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._change.wait()

    def wake(self) -> None:
        """Let those who wait for a change look again."""
        self._change.set()
        self._change = asyncio.Event()

    @property
    def _number(self) -> int:
        return self._steps.index(self._step) + 1

    def _show(self, fraction: float, detail: str) -> None:
        self._fraction = max(self._fraction, fraction)
        self._detail = detail[:MAX_DETAIL]
        self._changed_at = time.monotonic()
        self.wake()


class _Part(Progress):
    """Shows all of its steps as one step of another progress."""

    def __init__(self, whole: Progress, step: str) -> None:
        super().__init__(whole._shares)
        self._whole = whole
        whole.begin(step)

    def _show(self, fraction: float, detail: str) -> None:
        super()._show(fraction, detail)
        self._whole.advance(self._fraction, detail)
