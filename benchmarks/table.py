"""Results as aligned text; the JSON file gets the same data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Row = Mapping[str, float]


@dataclass(frozen=True)
class Group:
    """Rows that belong together. Columns appear in the order in which rows name them."""

    title: str
    rows: Mapping[str, Row]


def render(group: Group) -> str:
    columns = list(dict.fromkeys(name for row in group.rows.values() for name in row))
    lines = [[group.title, *(name.replace("_", " ") for name in columns)]]
    for label, row in group.rows.items():
        lines.append([label, *(_cell(row.get(name)) for name in columns)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_aligned(line, widths) for line in lines)


def _aligned(line: list[str], widths: list[int]) -> str:
    cells = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
    return "  ".join([line[0].ljust(widths[0]), *cells])


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.2f}"
