"""How much of the daemon one user may use at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sandboxd.errors import ExecLimitReached, SessionLimitReached

RETRY_SECONDS = 1.0
"""Delay after which a command may have ended."""


@dataclass(frozen=True, kw_only=True)
class UserLimits:
    """The limits of each user, and of all users together; 0 means no limit."""

    sessions: int = 0
    running_execs: int = 0
    """Commands at once, in all sessions of a user."""
    running_execs_in_all: int = 0
    """Commands at once, of all users."""
    spool_bytes: int = 0
    """Kept output, in all sessions of a user."""
    calls_per_second: float = 0.0
    calls_burst: int = 1


class Quotas:
    """Counts what users use, and refuses what goes beyond their limits."""

    def __init__(self, limits: UserLimits) -> None:
        self.limits = limits
        self.running_execs = 0
        self._running_execs_of: Counter[str] = Counter()

    def check_sessions(self, count: int) -> None:
        """SessionLimitReached if no user may have so many."""
        limit = self.limits.sessions
        if limit and count > limit:
            raise SessionLimitReached(limit)

    def check_exec(self, user_id: str) -> None:
        """ExecLimitReached if the user may not run another command now."""
        limit = self.limits.running_execs
        if limit and self._running_execs_of[user_id] >= limit:
            raise ExecLimitReached(
                f"This user already runs {limit} commands; wait for one to end.",
                retry_after_seconds=RETRY_SECONDS,
            )
        limit = self.limits.running_execs_in_all
        if limit and self.running_execs >= limit:
            raise ExecLimitReached(
                f"The daemon already runs {self.running_execs} commands; try again later.",
                retry_after_seconds=RETRY_SECONDS,
            )

    def add_exec(self, user_id: str) -> None:
        """Count a command that runs, also beyond a limit: an earlier daemon may have started it."""
        self.running_execs += 1
        self._running_execs_of[user_id] += 1

    def remove_exec(self, user_id: str) -> None:
        self.running_execs -= 1
        self._running_execs_of[user_id] -= 1
        if not self._running_execs_of[user_id]:
            del self._running_execs_of[user_id]
