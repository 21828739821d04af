"""The compiled programs, and the score at the end of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.compiled import compile_programs
from tests.hostile.scoreboard import Scoreboard

SCOREBOARD = pytest.StashKey[Scoreboard]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SCOREBOARD] = Scoreboard()


@pytest.fixture(scope="session")
def scoreboard(pytestconfig: pytest.Config) -> Scoreboard:
    return pytestconfig.stash[SCOREBOARD]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """The directory with the compiled programs, readable for every uid."""
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    directory = tmp_path_factory.mktemp("hostile")
    directory.chmod(0o755)
    compile_programs(directory, tell=reporter.write_line if reporter else print)
    return directory


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = list(config.stash[SCOREBOARD].lines())
    if lines:
        terminalreporter.section("hostile programs")
        for line in lines:
            terminalreporter.write_line(line)
