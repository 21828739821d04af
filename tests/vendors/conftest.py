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

The versions that the tests of our [integrations](integrations.md) ran with, as of the last run of
`./scripts/test --vendors`, which writes this page.

| package | version | tests passed | failed | date |
|---|---|---|---|---|
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--vendors-page", metavar="FILE", help="write what was tested, as a page")


def pytest_configure(config: pytest.Config) -> None:
    page = config.getoption("--vendors-page")
    if page and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Page(Path(page)), "vendors-page")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if framework := _framework(item):
            item.user_properties.append(("framework", framework))
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(PROGRAM_SECONDS + 60))


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

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if framework := dict(report.user_properties).get("framework"):
            self._frameworks[report.nodeid] = str(framework)
            if report.failed:
                self._failed.add(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return  # it did not come to its end
        tests = Counter(self._frameworks.values())
        failed = Counter(self._frameworks[name] for name in self._failed)
        today = datetime.datetime.now(datetime.UTC).date()
        rows = [
            f"| {', '.join(versions(framework))} | {', '.join(versions(framework).values())} "
            f"| {tests[framework] - failed[framework]} | {failed[framework]} | {today} |\n"
            for framework in PACKAGES
        ]
        self._path.write_text(PAGE + "".join(rows))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def url() -> AsyncIterator[str]:
    async with running_daemon(**ROOM) as daemon:
        yield f"unix:{daemon.socket}"
