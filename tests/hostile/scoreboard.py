"""What the hostile programs achieved, gathered for the end of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What came of one attack."""

    id: str
    title: str
    problems: Sequence[str]
    is_guest_alive: bool = True
    is_neighbour_harmed: bool = False
    outcome: str = ""
    """In a word or two, what the attacker got."""
    sweep_ms: float | None = None
    """From the deadline to the end of the command, if it came to that."""
    next_ms: float | None = None
    """What the next command took."""
    neighbour_ms: tuple[float, float] | None = None
    """Median of the neighbour's commands, left alone and during the attack."""


@dataclass
class Scoreboard:
    verdicts: list[Verdict] = field(default_factory=list)
    harmed_without: list[str] = field(default_factory=list)
    """Attacks that were seen to do harm where there are no protections."""
    figures: list[str] = field(default_factory=list)
    """Further lines, each with what was counted."""

    def lines(self) -> Iterator[str]:
        for verdict in self.verdicts:
            yield _line(verdict)
            for problem in verdict.problems:
                yield f"          ! {problem}"
        for title in self.harmed_without:
            yield f"unprotected  {title}"
        yield from self.figures
        if self.verdicts:
            yield self.sum()

    def sum(self) -> str:
        """The figures of the whole run in one line."""
        total = len(self.verdicts)
        held = sum(not verdict.problems for verdict in self.verdicts)
        alive = sum(verdict.is_guest_alive for verdict in self.verdicts)
        harmed = sum(verdict.is_neighbour_harmed for verdict in self.verdicts)
        sweeps = [verdict.sweep_ms for verdict in self.verdicts if verdict.sweep_ms is not None]
        return (
            f"hostile: {held}/{total} held, guest alive {alive}/{total}, "
            f"worst sweep {max(sweeps, default=0):.0f} ms, neighbours harmed {harmed}"
        )


def _line(verdict: Verdict) -> str:
    figures = []
    if verdict.sweep_ms is not None:
        figures.append(f"sweep {verdict.sweep_ms:.0f} ms")
    if verdict.next_ms is not None:
        figures.append(f"next {verdict.next_ms:.1f} ms")
    if verdict.neighbour_ms is not None:
        quiet, during = verdict.neighbour_ms
        figures.append(f"neighbour {quiet:.1f} -> {during:.1f} ms")
    word = "BROKEN" if verdict.problems else "held"
    title = f"{verdict.id:5} {verdict.title:52}"
    return f"{word:6} {title} {verdict.outcome:14} {', '.join(figures)}".rstrip()
