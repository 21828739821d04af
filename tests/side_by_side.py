"""Which tests run on one worker, which run with few others or alone, which come first, and which
belong to the quick pass."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

LONG_FOLDERS = {
    *("cluster", "console", "data", "deploy", "docker", "e2e", "hostile", "integrations"),
    *("seeds", "snapshots", "soak"),
}
"""Folders with servers, containers, disks or browsers, which the quick pass leaves out."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--beside",
        choices=["many", "few", "none"],
        help="run only the tests that may run beside many others, beside few, or beside none",
    )
    parser.addoption(
        "--quick", action="store_true", help="run only tests that are done within seconds"
    )


def pytest_configure(config: pytest.Config) -> None:
    """A worker has no terminal, although readline told it the size of one when it was started."""
    if hasattr(config, "workerinput"):
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """To import the tests of all files takes a process many seconds."""
    if collection_path.is_dir():
        return (config.getoption("--quick") and collection_path.name in LONG_FOLDERS) or None
    needed = {"few": b"mark.calm", "none": b"mark.alone"}.get(config.getoption("--beside") or "")
    if needed and collection_path.name.startswith("test_"):
        return needed not in collection_path.read_bytes() or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _select(config, items)
    # The long ones first, or the end of the run would be one of them with idle workers beside it.
    items.sort(key=_longest, reverse=True)
    for item in items:
        if _shares(item) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Groups that the scheduler does not see would only show in the time that tests take."""
    if not getattr(session.config.option, "loadgroup", False):
        return
    for item in session.items:
        if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
            raise pytest.UsageError("this pytest-xdist ignores xdist_group with this pytest")


def _select(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (asked := config.getoption("--beside")) is None:
        return
    left_out = [item for item in items if _beside(item) != asked]
    items[:] = [item for item in items if _beside(item) == asked]
    config.hook.pytest_deselected(items=left_out)


def _beside(item: pytest.Item) -> str:
    if item.get_closest_marker("alone"):
        return "none"
    return "few" if item.get_closest_marker("calm") else "many"


def _longest(item: pytest.Item) -> float:
    """How long it may take, if longer than others."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker else 0.0


def _shares(item: pytest.Item) -> bool:
    """Whether it uses something that others of its file use as well, such as a machine. What lasts
    for the session is there once on every worker."""
    fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return any(
        definition.baseid.startswith("tests/") and definition.scope == "module"
        for definitions in fixtures.values()
        for definition in definitions
    )
