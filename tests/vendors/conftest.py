"""A daemon for the tests that do not need one of their own, and the page that a run writes."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.docker.daemon_process import running_daemon
from tests.vendors.frameworks import PACKAGES, PROGRAM_SECONDS, ROOM, versions

OF_DEFAULT_TESTS = {
    "tests/docker/test_deepagents.py": "deepagents",
    "tests/docker/test_e2b_gateway.py": "e2b",
    "tests/docker/test_mcp.py": "mcp",
    "tests/integrations/test_langchain.py": "langchain",
}
"""Default tests that drive a package of others, and which."""
PAGE = """\
# Packages of others

The versions that the tests of our [integrations](integrations.md) ran with.
`./scripts/test --vendors` writes this page; with names of frameworks it runs only their tests, and
writes their rows.

| framework | packages | tests passed | failed | date |
|---|---|---|---|---|
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--framework", action="append", help="run the tests of this one", default=[])
    parser.addoption("--vendors-page", metavar="FILE", help="write what was tested into a page")


def pytest_configure(config: pytest.Config) -> None:
    page = config.getoption("--vendors-page")
    if page and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Page(Path(page)), "vendors-page")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--framework")
    left_out = []
    for item in list(items):
        framework = _framework(item)
        item.user_properties.append(("framework", framework))
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(PROGRAM_SECONDS + 60))
        if wanted and framework not in wanted:
            items.remove(item)
            left_out.append(item)
    config.hook.pytest_deselected(items=left_out)


def _framework(item: pytest.Item) -> str | None:
    """That of the test's parameter, else that of its file."""
    assert isinstance(item, pytest.Function)
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    if framework := parameters.get("framework", getattr(item.module, "FRAMEWORK", None)):
        return str(framework).replace("_", "-")
    return OF_DEFAULT_TESTS.get(item.nodeid.partition("::")[0])


class _Page:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._frameworks: dict[str, str] = {}
        self._failed: set[str] = set()
        self._is_whole = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._is_whole &= not report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if framework := dict(report.user_properties).get("framework"):
            self._frameworks[report.nodeid] = str(framework)
            if report.failed:
                self._failed.add(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        ended = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if exitstatus not in ended or not self._is_whole:
            return  # tests are missing
        old = self._path.read_text().splitlines() if self._path.exists() else []
        rows = {line.split()[1]: line for line in old if line.startswith("| ")}
        tests = Counter(self._frameworks.values())
        failed = Counter(self._frameworks[name] for name in self._failed)
        today = datetime.datetime.now(datetime.UTC).date()
        for name, ran in tests.items():
            packages = ", ".join(" ".join(package) for package in versions(name).items())
            counts = f"{ran - failed[name]} | {failed[name]}"
            rows[name] = f"| {name} | {packages} | {counts} | {today} |"
        table = "".join(f"{rows[name]}\n" for name in PACKAGES if name in rows)
        self._path.write_text(PAGE + table)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def url() -> AsyncIterator[str]:
    async with running_daemon(**ROOM) as daemon:
        yield f"unix:{daemon.socket}"
