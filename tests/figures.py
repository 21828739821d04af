"""What tests measure and print is part of the report, on whichever worker they run."""

from __future__ import annotations

import re

import pytest

MEASURING = (
    "tests/cluster/",
    "tests/docker/",
    "tests/e2e/",
    "tests/fuzz/",
    "tests/sdk/",
    "tests/soak/",
)
_FIGURE = re.compile(r"[a-z0-9 `()]+: .*")
_figures: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed and report.nodeid.startswith(MEASURING):
        _figures.extend(filter(_FIGURE.fullmatch, report.capstdout.splitlines()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _figures:
        terminalreporter.section("figures")
        for line in _figures:
            terminalreporter.write_line(line)
