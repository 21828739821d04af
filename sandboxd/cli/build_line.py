"""The progress of a build: a line that is drawn again on a terminal, otherwise a line per step."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Self

from sandboxd.cli import table

REDRAW_SECONDS = 0.1
SAY_SECONDS = 15.0
"""How often a step that goes on is shown where output is not a terminal."""
BAR = 24


class BuildLine:
    """Shows how far a build is, on standard error."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shown = 0.0
        self._step = ""
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_terminal and self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, step: str, fraction: float, detail: str, seconds: float) -> None:
        """With the detail of the step, and the time since the build began."""
        now = time.monotonic()
        is_new, self._step = step != self._step, step
        pause = REDRAW_SECONDS if self._is_terminal else SAY_SECONDS
        if not is_new and now - self._shown < pause:
            return
        self._shown = now
        if self._is_terminal:
            bar = ("#" * round(fraction * BAR)).ljust(BAR, ".")
            text = f"{self._name}  [{bar}] {fraction:4.0%}  {seconds:.0f}s  {step}: {detail}"
            room = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r{table.printable(text)[:room]}\x1b[K")
        else:
            text = f"{self._name}: {fraction:4.0%} after {seconds:.0f} s, {step}: {detail}"
            sys.stderr.write(table.printable(text) + "\n")
        sys.stderr.flush()
