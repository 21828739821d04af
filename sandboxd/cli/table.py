"""Tables and figures for people, documents for programs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

GAP = "  "
SHORTEST = 8
"""Columns are not cut below this width."""


def show(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    click.echo("\n".join(lines(header, rows, width())))


def show_document(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def width() -> int | None:
    """Width of the terminal; None if output is not a terminal and must not be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def lines(
    header: Sequence[str], rows: Iterable[Sequence[object]], columns: int | None
) -> list[str]:
    """Aligned columns; on a terminal the widest are cut until they fit."""
    cells = [list(header), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(header))]
    while columns is not None and sum(widths) + len(GAP) * (len(widths) - 1) > columns:
        widest = max(range(len(widths)), key=widths.__getitem__)
        if widths[widest] <= SHORTEST:
            break
        widths[widest] -= 1
    return [
        GAP.join(_fit(cell, size) for cell, size in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def printable(text: str) -> str:
    """The text with escapes for control characters, since names come from sandboxes."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _fit(cell: str, size: int) -> str:
    return cell.ljust(size) if len(cell) <= size else cell[: size - 1] + "…"


def size(count: int) -> str:
    """A size in bytes, in about five characters."""
    number = float(count)
    for unit in ("B", "K", "M", "G"):
        if number < 1000 or unit == "G":
            return f"{number:.0f}{unit}" if unit == "B" or number >= 10 else f"{number:.1f}{unit}"
        number /= 1024
    raise AssertionError("unreachable")


def span(seconds: float) -> str:
    """A duration, rounded to its largest useful unit."""
    left = max(0, round(seconds))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if left >= 2 * length:
            return f"{left // length}{unit}"
    return f"{left}s"


def since(moment: str) -> str:
    return span((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())


def until(moment: str) -> str:
    return span((datetime.fromisoformat(moment) - datetime.now(UTC)).total_seconds())
