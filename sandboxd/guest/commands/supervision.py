"""Looks at commands that run for longer than a moment."""

import time
from collections.abc import Iterable
from typing import NamedTuple

from .execution import Exec

LOOK_SECONDS = 1.0
"""Until the first look at a command; most have ended by then."""
BEGIN_SECONDS = 5.0
"""Time for a shell to take its command; on a host that is overloaded it may need some of it."""
MARGIN_SECONDS = 2.0
"""Time that a daemon has after a deadline; one that serves ends the command much sooner."""


class Findings(NamedTuple):
    overdue: list[Exec]
    """Commands whose time is over."""
    hindered: list[Exec]
    """Commands that their shells should have taken by now."""


class Supervision:
    """Knows when to look at running commands."""

    def __init__(self) -> None:
        self.next_look_at = float("inf")

    def begin(self, execution: Exec, seconds: float) -> None:
        """Look after a command that has so much time."""
        now = time.monotonic()
        execution.deadline_at = now + seconds + MARGIN_SECONDS
        if self.next_look_at == float("inf"):
            self.next_look_at = now + LOOK_SECONDS

    def look(self, running: Iterable[Exec]) -> Findings:
        now = time.monotonic()
        found = Findings([], [])
        self.next_look_at = float("inf")
        for execution in running:
            if execution.status is not None:
                continue
            next_look_at = execution.deadline_at
            if execution.deadline_at <= now:
                found.overdue.append(execution)
                next_look_at = now + LOOK_SECONDS
            elif not execution.has_begun():
                next_look_at = now + LOOK_SECONDS
                if execution.started_at + BEGIN_SECONDS <= now:
                    found.hindered.append(execution)
            self.next_look_at = min(self.next_look_at, next_look_at)
        return found
