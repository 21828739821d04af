"""The tables of docs/from-the-design.md, which say what the documents' names are called here."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "from-the-design.md"


def rows(section: str) -> list[list[str]]:
    """The cells of a section's table, without its heading."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def names(cell: str) -> list[str]:
    """What a cell has between backticks."""
    return re.findall(r"`([^`]+)`", cell)


def imports() -> dict[str, str]:
    """Import statements of the documents, and what takes their place."""
    return {names(theirs)[0]: names(ours)[0] for theirs, ours in rows("Imports")}
