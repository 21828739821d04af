"""A progress line for a transfer, on a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Self

from sandboxd.cli import table

REDRAW_SECONDS = 0.1
BAR = 24


class ProgressLine:
    """Counts bytes; drawn only if standard error is a terminal, and erased at the end."""

    def __init__(self, name: str, total: int | None) -> None:
        self._name = table.printable(name)
        self._total = total
        self._done = 0
        self._started = time.monotonic()
        self._drawn = 0.0
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_shown and self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def add(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if self._is_shown and now - self._drawn >= REDRAW_SECONDS:
            self._drawn = now
            room = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r{self.text(now - self._started)[:room]}\x1b[K")
            sys.stderr.flush()

    def text(self, seconds: float) -> str:
        rate = f"{table.size(int(self._done / max(seconds, 0.001)))}/s"
        if not self._total:
            return f"{self._name}  {table.size(self._done)}  {rate}"
        part = min(1.0, self._done / self._total)
        bar = ("#" * round(part * BAR)).ljust(BAR, ".")
        sizes = f"{table.size(self._done)} of {table.size(self._total)}"
        return f"{self._name}  [{bar}] {part:4.0%}  {sizes}  {rate}"
