"""Counts of what happened since the daemon started."""

from __future__ import annotations

from collections import Counter

from sandboxd.histogram import Histogram


class Statistics:
    """Counters that are cheap to update and bounded: their keys never come from callers."""

    def __init__(self) -> None:
        self.opens: Counter[str] = Counter()
        """Opens by outcome."""
        self.open_seconds = Histogram()
        """Durations of opens that got a new sandbox."""
        self.session_ends: Counter[str] = Counter()
        """Ended sessions by state."""
        self.exec_ends: Counter[str] = Counter()
        """Ended commands by ending."""
        self.code_runs: Counter[str] = Counter()
        """Ended runs of code by status; they are among the commands too."""
        self.execs_succeeded = 0
        """Commands that returned 0."""
        self.exec_seconds = Histogram()
        self.exec_cpu_seconds = 0.0
        self.output_bytes = 0
        self.input_bytes = 0
        self.dropped_bytes = 0
        """Bytes of output beyond what is kept."""
        self.violations: Counter[str] = Counter()
        """Commands that reached a limit, by limit."""
        self.refusals: Counter[str] = Counter()
        """Refused calls by reason."""
        self.doors: Counter[str] = Counter()
        """What happened at doors of sessions, by action."""
        self.calls: Counter[str] = Counter()
        """Ended calls by method."""
        self.failed_calls: Counter[str] = Counter()
        """Calls that ended with an error of any kind, by method."""
        self.retries = 0
        """Calls that clients marked as automatic retries."""
        self.retries_succeeded = 0
        self.turns = 0
        """Automatic snapshots that were taken."""
        self.turns_failed = 0
        self.turn_bytes = 0
        """Bytes that they added to the store."""
        self.turn_seconds = Histogram()
        self.rewinds = 0
        self.snapshot_actions: Counter[str] = Counter()
        """What callers did with snapshots, by action."""
        self.routed_calls: Counter[str] = Counter()
        """Calls about sessions of other workers, by what was done: FORWARDED, REDIRECTED."""
        self.queries: Counter[str] = Counter()
        """Queries of data sources by outcome."""
        self.query_rows = 0
        self.query_seconds = Histogram()

    @property
    def execs(self) -> int:
        return self.exec_ends.total()

    @property
    def success_rate(self) -> float:
        """Share of commands that returned 0; 1 without commands."""
        return self.execs_succeeded / self.execs if self.execs else 1.0

    @property
    def reuse_rate(self) -> float:
        """Share of opens that found their session active; 0 without opens."""
        opens = self.opens.total()
        return self.opens["ATTACHED"] / opens if opens else 0.0

    @property
    def retry_success_rate(self) -> float:
        """Share of retries that succeeded; 1 without retries."""
        return self.retries_succeeded / self.retries if self.retries else 1.0
