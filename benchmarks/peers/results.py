"""Figures of contenders by task, as text: times, ratios, and reasons where there is no figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OURS = "sandboxd"


@dataclass(frozen=True)
class Measured:
    """The median of so many."""

    seconds: float
    samples: int


@dataclass(frozen=True)
class Failed:
    """It was tried, and did not work."""

    reason: str


Outcome = Measured | Failed
Row = Mapping[str, Outcome]
"""By contender; one without the task is not in it."""


@dataclass(frozen=True)
class Column:
    """A contender and how it was used."""

    name: str
    version: str
    use: str
    absent: Mapping[str, str] = field(default_factory=dict)
    """Why it has no figure, by task."""


@dataclass(frozen=True)
class Results:
    """All that a page is written from."""

    columns: Sequence[Column]
    rows: Mapping[str, Row]
    """By task."""
    facts: Mapping[str, str]


def ratio(outcome: Outcome | None, ours: Outcome | None) -> float | None:
    """How many times as long as ours it took; None without two figures to divide."""
    if not isinstance(outcome, Measured) or not isinstance(ours, Measured) or ours.seconds <= 0:
        return None
    return outcome.seconds / ours.seconds


def time_text(seconds: float) -> str:
    """Two or three digits that mean something."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    milliseconds = seconds * 1000
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"


def ratio_text(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


def cell(row: Row, column: str) -> str:
    """The time, and for another than us how many times as long as ours that is."""
    outcome = row.get(column)
    if outcome is None:
        return "-"
    if isinstance(outcome, Failed):
        return "failed"
    text = time_text(outcome.seconds)
    times = None if column == OURS else ratio(outcome, row.get(OURS))
    return text if times is None else f"{text} ({ratio_text(times)}x)"
