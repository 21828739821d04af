"""A chart of the main rows, as SVG that follows the reader's light or dark colours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from benchmarks.peers import tasks
from benchmarks.peers.results import OURS, Failed, Measured, Results, ratio, ratio_text, time_text

MAIN = {
    tasks.OPEN_WARM: "open a session, warm pool",
    tasks.OPEN_NEW: "open a session, no pool",
    tasks.TRUE: "run `true`",
    tasks.WRITE_LARGE: "write 1 MB",
    tasks.READ_LARGE: "read 1 MB",
    tasks.CODE_KEPT: "Python 1 + 1, state kept",
}
TITLE = f"Time by task, logarithmic; in brackets: how many times as long as {OURS}"
WIDTH, LEFT, RIGHT = 860, 200, 130
TOP, BAR, GAP, BOTTOM = 84, 15, 16, 66
LIGHT = ("#1a7f5a", "#c2570c", "#5b52c7", "#7a8594", "#a9b2bd")
DARK = ("#3fb98a", "#f08a3c", "#9a92f5", "#8b97a6", "#66717f")
"""By contender, in the order of the columns; readable next to each other for the colour-blind."""
STYLE = """
  text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 11px; fill: #59636e; paint-order: stroke; stroke: #ffffff; stroke-width: 3px }
  .back { fill: #ffffff }
  .line { stroke: #d1d9e0; stroke-width: 1 }
"""
CAPTION = {"date": "", "machine": "", "kernel": "", "load": "load ", "python": "Python "}
"""Facts of the run below the chart, with what their values do not say themselves."""
DARK_STYLE = """
    text { fill: #e6edf3 }
    .small { fill: #9198a1; stroke: #0d1117 }
    .back { fill: #0d1117 }
    .line { stroke: #30363d }
"""


def chart(results: Results) -> str:
    names = [column.name for column in results.columns]
    rows = {task: _shown(results, task, names) for task in MAIN if task in results.rows}
    height = TOP + sum(len(row) * BAR + GAP for row in rows.values()) + BOTTOM
    scale = Scale(
        [
            outcome.seconds
            for row in results.rows.values()
            for outcome in row.values()
            if isinstance(outcome, Measured)
        ]
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="Time by task and library">',
        *_style(len(names)),
        f'<rect class="back" width="{WIDTH}" height="{height}" rx="6"/>',
        _text(20, 28, TITLE, "title"),
        *_legend(names),
        *_grid(scale, height),
    ]
    y = TOP
    for task, row in rows.items():
        middle = y + len(row) * BAR / 2
        lines.append(_text(LEFT - 12, middle + 4, MAIN[task], end=True))
        for name in row:
            lines += _bar(results, task, name, names.index(name), y, scale)
            y += BAR
        y += GAP
    for number, words in enumerate(_captions(results)):
        lines.append(_text(20, height - 30 + 16 * number, words, "small"))
    return "\n".join([*lines, "</svg>"]) + "\n"


class Scale:
    """Seconds as a length, by their logarithm, in whole powers of ten."""

    def __init__(self, seconds: Sequence[float]) -> None:
        possible = [value for value in seconds if value > 0] or [0.001, 1.0]
        # Not at the shortest itself, whose bar would vanish next to one that is little longer.
        self.least = math.floor(math.log10(min(possible) / 2))
        self.most = max(math.ceil(math.log10(max(possible))), self.least + 1)

    def at(self, seconds: float) -> float:
        """Right end of a bar."""
        place = (math.log10(seconds) - self.least) if seconds > 0 else 0.0
        share = min(max(place / (self.most - self.least), 0.0), 1.0)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def powers(self) -> range:
        return range(self.least, self.most + 1)


def _shown(results: Results, task: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if name in results.rows[task]]


def _style(count: int) -> Iterator[str]:
    bars = [f"  .c{number} {{ fill: {LIGHT[number % len(LIGHT)]} }}" for number in range(count)]
    dark = [f"    .c{number} {{ fill: {DARK[number % len(DARK)]} }}" for number in range(count)]
    yield f"<style>{STYLE}" + "\n".join(bars)
    yield f"  @media (prefers-color-scheme: dark) {{{DARK_STYLE}" + "\n".join(dark)
    yield "  }</style>"


def _legend(names: Sequence[str]) -> Iterator[str]:
    x = 20.0
    for number, name in enumerate(names):
        yield f'<rect class="c{number}" x="{x:g}" y="44" width="11" height="11" rx="2"/>'
        yield _text(x + 16, 54, name)
        x += 40 + 7 * len(name)


def _grid(scale: Scale, height: int) -> Iterator[str]:
    for power in scale.powers():
        x = scale.at(10.0**power)
        bottom = height - BOTTOM
        yield f'<line class="line" x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}"/>'
        yield _text(x - 12, bottom + 14, _power_text(power), "small")


def _power_text(power: int) -> str:
    return f"{10**power:g} s" if power >= 0 else f"{10.0 ** (power + 3):g} ms"


def _bar(
    results: Results, task: str, name: str, number: int, y: float, scale: Scale
) -> Iterator[str]:
    outcome = results.rows[task][name]
    if isinstance(outcome, Failed):
        yield _text(LEFT + 5, y + BAR - 4, f"{name}: failed", "small")
        return
    right = scale.at(outcome.seconds)
    yield (
        f'<rect class="c{number}" x="{LEFT}" y="{y}" width="{max(right - LEFT, 1):.1f}" '
        f'height="{BAR - 2}" rx="2"/>'
    )
    times = None if name == OURS else ratio(outcome, results.rows[task].get(OURS))
    label = time_text(outcome.seconds) + (f" ({ratio_text(times)}x)" if times is not None else "")
    yield _text(right + 6, y + BAR - 4, label, "small")


def _captions(results: Results) -> tuple[str, str]:
    """The contenders with their versions, and the facts of the run."""
    versions = ", ".join(f"{one.name} {one.version}".rstrip() for one in results.columns)
    shown = results.facts
    facts = "; ".join(f"{word}{shown[name]}" for name, word in CAPTION.items() if name in shown)
    return versions, facts


def _text(x: float, y: float, text: str, kind: str = "", *, end: bool = False) -> str:
    attributes = f' class="{kind}"' if kind else ""
    attributes += ' text-anchor="end"' if end else ""
    shown = escape(text.replace("`", ""))
    return f'<text x="{x:g}" y="{y:g}"{attributes}>{shown}</text>'
