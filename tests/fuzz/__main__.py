"""Fuzzes for longer than the tests do; `scripts/fuzz --help` says how."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from pathlib import Path

from tests.fuzz.supervision import Report, decoded, fuzz, reproduce
from tests.fuzz.targets import TARGETS

ROUND_SECONDS = 60.0
"""At most for a target before the next has its turn; each turn begins with other random numbers."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=1.0, help="in all, 1 unless given")
    parser.add_argument(
        "--input", type=Path, help="try only this, a file with an input as reported"
    )
    arguments = parser.parse_args()
    names = arguments.targets or list(TARGETS)
    if unknown := set(names) - TARGETS.keys():
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    if arguments.input is not None:
        data = decoded(arguments.input.read_text())
        return _summary([_told(reproduce(TARGETS[name], data)) for name in names])
    return _summary(_rounds(names, arguments.minutes * 60))


def _rounds(names: list[str], seconds: float) -> list[Report]:
    ends_at = time.monotonic() + seconds
    turn = min(ROUND_SECONDS, seconds / len(names))
    reports = []
    while not reports or time.monotonic() < ends_at:
        for name in names:
            seed = secrets.randbits(32)
            reports.append(_told(fuzz(TARGETS[name], seed=seed, seconds=turn)))
            if time.monotonic() >= ends_at:
                break
    return reports


def _told(report: Report) -> Report:
    sys.stdout.write(f"{report}\n")
    sys.stdout.flush()
    return report


def _summary(reports: list[Report]) -> int:
    inputs = sum(report.inputs for report in reports)
    failures = [report for report in reports if report.failure]
    counts = ", ".join(
        f"{sum(report.kind == kind for report in failures)} {kind}{plural}"
        for kind, plural in (("crash", "es"), ("hang", "s"), ("exception", "s"))
    )
    sys.stdout.write(f"fuzz: {len(reports)} turns, {inputs:,} inputs, {counts}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
