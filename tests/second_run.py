"""Which tests failed, so that they can be run once more."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures", metavar="FILE", help="add the names of failed tests to a file")
    parser.addoption("--again", metavar="FILE", help="run only the tests named in a file")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--failures")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(Path(path)), "failures")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (path := config.getoption("--again")) is None:
        return
    wanted = set(Path(path).read_text().splitlines())
    left_out = [item for item in items if _line(item.nodeid) not in wanted]
    items[:] = [item for item in items if _line(item.nodeid) in wanted]
    if missing := wanted - {_line(item.nodeid) for item in items}:
        raise pytest.UsageError(f"there are no such tests: {', '.join(sorted(missing))}")
    config.hook.pytest_deselected(items=left_out)


class _Failures:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._names.add(_line(_without_group(report.nodeid)))

    def pytest_sessionfinish(self) -> None:
        with self._path.open("a") as file:
            file.writelines(f"{name}\n" for name in sorted(self._names))


def _without_group(nodeid: str) -> str:
    """pytest-xdist adds the group of a test to its name."""
    name, at, group = nodeid.rpartition("@")
    return name if at and "]" not in group else nodeid


def _line(nodeid: str) -> str:
    """Names of parametrised tests may have any character."""
    return nodeid.encode("unicode_escape").decode()
