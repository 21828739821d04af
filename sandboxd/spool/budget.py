"""Limits on the disk space of spools, for a session within the whole daemon."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock


class SpoolBudget:
    """Counts bytes on disk, here and in every parent."""

    def __init__(self, limit_bytes: int, parent: SpoolBudget | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._parent = parent
        # One lock for the whole family, so that a change is seen in all budgets or in none.
        self._lock: Lock = parent._lock if parent else Lock()

    def __repr__(self) -> str:
        return f"<SpoolBudget {self.used_bytes} of {self.limit_bytes}>"

    def reserve(self, wanted: int, *, at_least: int) -> int:
        """Reserve up to `wanted` bytes and return how many; 0 if fewer than `at_least` are free."""
        with self._lock:
            free = min(budget.limit_bytes - budget.used_bytes for budget in self._family())
            count = min(wanted, free)
            if count < at_least:
                return 0
            self._add(count)
            return count

    def charge(self, count: int) -> None:
        """Count bytes that are on disk already, even beyond the limit."""
        with self._lock:
            self._add(count)

    def give_back(self, count: int) -> None:
        with self._lock:
            self._add(-count)

    def _add(self, count: int) -> None:
        for budget in self._family():
            budget.used_bytes += count

    def _family(self) -> Iterator[SpoolBudget]:
        budget: SpoolBudget | None = self
        while budget is not None:
            yield budget
            budget = budget._parent
