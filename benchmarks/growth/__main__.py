"""`python -m benchmarks.growth`: print the tables, or write them between the marks of a page."""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from benchmarks.growth.report import report
from benchmarks.marks import between

BEGIN = "<!-- growth: written by `python -m benchmarks.growth --write docs/scale.md` -->"
END = "<!-- growth: end -->"


def with_tables(page: str, tables: str) -> str:
    """The page with these tables between its marks. ValueError if it has no marks."""
    return between(page, BEGIN, END, tables)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write them into this page")
    arguments = parser.parse_args()
    gc.disable()  # nothing here refers to itself, and the events are many
    tables = report()
    if arguments.write is None:
        print(tables)
        return
    try:
        arguments.write.write_text(with_tables(arguments.write.read_text(), tables))
    except (OSError, ValueError) as error:
        sys.exit(f"growth: {error}")


if __name__ == "__main__":
    main()
