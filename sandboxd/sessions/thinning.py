"""Which automatic snapshots of a line are too many: the newest stay, older ones thin out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sandboxd.snapshots.contract import Snapshot

HOUR, DAY = 3600.0, 86400.0
_STEPS = ((HOUR, 0.0), (DAY, HOUR / 6), (7 * DAY, HOUR), (float("inf"), DAY))
"""Up to this age, snapshots may be this far apart; the first step that fits counts."""
RECENT = 50
"""Newest snapshots that are kept however close they are."""


@dataclass(frozen=True, kw_only=True)
class LineLimits:
    """How much is kept of one session."""

    count: int = 200
    """Automatic snapshots."""
    age_seconds: float = 7 * DAY
    """Of automatic snapshots."""
    stored_bytes: int = 256 << 20
    """Of all snapshots; beyond it, automatic ones are deleted, oldest first. As many bytes of those
    that only callers delete: then no other is taken for one."""
    lasting: int = 200
    """Snapshots that only callers delete."""

    @property
    def check_every(self) -> int:
        """Snapshots between two looks: there may be so many more for a while."""
        return max(1, self.count // 20)


def surplus(
    line: Sequence[Snapshot],
    limits: LineLimits,
    *,
    now: float,
    is_automatic: Callable[[Snapshot], bool],
) -> Sequence[Snapshot]:
    """Automatic snapshots to delete, of a line from old to new. The newest one always stays."""
    automatic = [one for one in line if is_automatic(one)]
    newest_first = automatic[::-1]
    kept = [
        one
        for place, one in enumerate(_spaced(newest_first, now))
        if place == 0 or (place < limits.count and now - one.created_at <= limits.age_seconds)
    ]
    lasting = sum(one.stored_bytes for one in line if not is_automatic(one))
    stays = {one.number for one in _within(kept, limits.stored_bytes - lasting)}
    return [one for one in automatic if one.number not in stays]


def _spaced(newest_first: Sequence[Snapshot], now: float) -> Sequence[Snapshot]:
    """Without those that are too close to a newer one for their age."""
    kept = list(newest_first[:RECENT])
    for snapshot in newest_first[RECENT:]:
        age = now - snapshot.created_at
        apart = next(apart for limit, apart in _STEPS if age <= limit)
        if kept[-1].created_at - snapshot.created_at >= apart:
            kept.append(snapshot)
    return kept


def _within(newest_first: Sequence[Snapshot], budget: int) -> Sequence[Snapshot]:
    """The newest ones that together added no more than this many bytes; the newest in any case."""
    kept: list[Snapshot] = []
    total = 0
    for snapshot in newest_first:
        total += snapshot.stored_bytes
        if kept and total > budget:
            break
        kept.append(snapshot)
    return kept
