"""Which tests failed, so that they can be run once more; and which passed then: each of those is a
fault to be found, of the test or of the product, and once it is listed a second try does not help.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failures", metavar="FILE", help="add the names of failed tests to a file")
    parser.addoption("--again", metavar="FILE", help="run only the tests named in a file")
    parser.addoption("--chance", metavar="FILE", help="fail those in a file, add what passes to it")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--failures")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(Path(path)), "failures")
    if (path := config.getoption("--chance")) is not None:
        config.pluginmanager.register(_Chance(Path(path)), "chance")


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


class _Chance:
    """The tests that have failed and then passed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = set(path.read_text().splitlines())
        self._failed: set[str] = set()
        self._ran: set[str] = set()

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if _line(item.nodeid) in self._known:
            pytest.fail(f"listed in {self._path.name}: it failed by chance before", pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._ran.add(_line(report.nodeid))
        if report.failed:
            self._failed.add(_line(report.nodeid))

    def pytest_sessionfinish(self) -> None:
        with self._path.open("a") as file:
            file.writelines(f"{name}\n" for name in sorted(self._ran - self._failed))


def _without_group(nodeid: str) -> str:
    """pytest-xdist adds the group of a test to its name."""
    name, at, group = nodeid.rpartition("@")
    return name if at and "]" not in group else nodeid


def _line(nodeid: str) -> str:
    """Names of parametrised tests may have any character."""
    return nodeid.encode("unicode_escape").decode()
