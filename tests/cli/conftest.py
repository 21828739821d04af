"""A command line for the daemon of a test."""

from __future__ import annotations

import pytest

from sandboxd.daemon.composition import Daemon
from tests.cli.command_line import CommandLine


@pytest.fixture
def sandboxd(daemon: Daemon) -> CommandLine:
    return CommandLine(daemon.config.api_socket)
