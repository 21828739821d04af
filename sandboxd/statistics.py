"""Counts of what happened since the daemon started."""

from __future__ import annotations

from collections import Counter

from sandboxd.histogram import Histogram


class Statistics:
    """Cheap to add to, in bounded space: names come from enums and protos, never from callers."""

    def __init__(self) -> None:
        self.opens: Counter[str] = Counter()
        """By how the session was got."""
        self.open_seconds = Histogram()
        """Of those that got a sandbox."""
        self.session_ends: Counter[str] = Counter()
        """By state."""
        self.exec_ends: Counter[str] = Counter()
        """By reason."""
        self.execs_succeeded = 0
        """Returned 0."""
        self.exec_seconds = Histogram()
        self.exec_cpu_seconds = 0.0
        self.output_bytes = 0
        self.input_bytes = 0
        self.dropped_bytes = 0
        """Of output, beyond what is kept."""
        self.violations: Counter[str] = Counter()
        """Limits that were reached, by which."""
        self.refusals: Counter[str] = Counter()
        """Calls that were refused, by reason."""
        self.calls: Counter[str] = Counter()
        """Calls that ended, by method."""
        self.failed_calls: Counter[str] = Counter()
        """Of those, calls that ended with an error of any kind, by method."""
        self.retries = 0
        """Calls that their client said it repeats."""
        self.retries_succeeded = 0

    @property
    def execs(self) -> int:
        return self.exec_ends.total()

    @property
    def success_rate(self) -> float:
        """The part of commands that returned 0; 1 if there were none."""
        return self.execs_succeeded / self.execs if self.execs else 1.0

    @property
    def reuse_rate(self) -> float:
        """The part of opens that found their session open; 0 if there were none."""
        opens = self.opens.total()
        return self.opens["ATTACHED"] / opens if opens else 0.0

    @property
    def retry_success_rate(self) -> float:
        """The part of repeated calls that succeeded; 1 if there were none."""
        return self.retries_succeeded / self.retries if self.retries else 1.0
