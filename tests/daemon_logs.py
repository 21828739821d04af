"""The report of a failed test has what its daemons have warned of: most causes are only there."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator
from pathlib import Path

import pytest

_LINES = 60
_WARNING = re.compile(r"\b(warning|error|critical)\b|Traceback", re.IGNORECASE)

_logs: dict[Path, int] = {}
"""Logs of the daemons that there are, and how long each was when the test began."""
_ended: deque[str] = deque(maxlen=_LINES)
"""Warnings of daemons whose directories this test has removed."""


def watch(log: Path) -> None:
    _logs.setdefault(log, 0)


def forget(log: Path) -> None:
    """The log is about to be removed."""
    _ended.extend(_warnings(log, _logs.pop(log, 0)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    _ended.clear()
    for log in _logs:
        _logs[log] = log.stat().st_size if log.exists() else 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        found = deque(_ended, maxlen=_LINES)
        for log, begin in _logs.items():
            found.extend(_warnings(log, begin))
        if found:
            report.sections.append(("warnings of daemons", "\n".join(found)))
    return report


def _warnings(log: Path, begin: int) -> list[str]:
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").splitlines()
    return [line for line in lines if _WARNING.search(line)]
