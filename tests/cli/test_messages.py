"""What the command line says to people who are new to it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from sandboxd.cli.program import program
from sandboxd.config import Config, EnvironmentTable
from sandboxd.daemon.composition import Daemon
from sandboxd.environments import catalogue
from tests.cli.command_line import CommandLine
from tests.fakes import settings as settings_for_tests
from tests.fakes.engine import FakeEngine


@pytest.fixture
def config(short_dir: Path) -> Config:
    """Of an operator who has set nothing that is not needed."""
    return settings_for_tests.without_policy(settings_for_tests.of_daemon(short_dir))


@pytest.fixture
async def daemon(start_daemon: Callable[..., Awaitable[Daemon]], short_dir: Path) -> Daemon:
    dockerfile = short_dir / "Dockerfile"
    dockerfile.write_text("ARG BASE\nFROM ${BASE}\n")
    return await start_daemon(environments={"small": EnvironmentTable(dockerfile=dockerfile)})


async def test_commands_open_sessions_alike(sandboxd: CommandLine) -> None:
    """With the daemon's policy, whichever command is the first to name the session."""
    await sandboxd("exec", "ada/1", "true")
    await sandboxd("session", "open", "ada", "2")
    listed = (await sandboxd("session", "list", "--json")).document

    assert {one["thread_id"]: one["command_policy"] for one in listed} == {"1": "open", "2": "open"}


async def test_refusals_name_options_of_the_command_line(sandboxd: CommandLine) -> None:
    """Not fields of the API; and where an option is, unless it is one of this command."""
    await sandboxd("session", "open", "ada", "1", "--policy", "strict")
    refused = await sandboxd("exec", "ada/1", "rm x")
    other = await sandboxd("session", "open", "ada", "1", "--policy", "open")

    assert "(rule forbidden-command)" in refused.stderr
    assert "with `--policy open` of `sandboxd session open` allows" in refused.stderr
    assert "or omit `--policy` to attach" in other.stderr
    assert "command_policy" not in refused.stderr + other.stderr


async def test_an_environment_that_is_being_built_can_be_waited_for(
    sandboxd: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the option that the message names; a session that could not be opened is not there, and
    the next command for it says that it opened a plain one."""
    monkeypatch.setattr(catalogue, "QUICK_SECONDS", 0.01)
    engine.gates["build_image.step"] = asyncio.Event()
    small = ("session", "open", "ada", "1", "--environment", "small")
    refused = await sandboxd(*small)
    opened = await sandboxd("exec", "ada/1", "echo hello")
    await sandboxd("session", "close", "ada/1")
    engine.gates.pop("build_image.step").set()
    waited = await sandboxd(*small, "--build-wait", "60")

    assert (refused.code, "or set `--build-wait` to wait for it" in refused.stderr) == (1, True)
    assert opened.stdout == "hello\n"
    assert "ada/1 had no session; opened ses_" in opened.stderr
    assert waited.code == 0


async def test_selfcheck_names_environments_that_are_not_built(sandboxd: CommandLine) -> None:
    """`./scripts/run` ends with it: the first session in one of them would wait for minutes."""
    sandboxd.environment["SANDBOXD_CONFIG"] = os.devnull
    before = await sandboxd("selfcheck", "--no-session")
    await sandboxd("environments", "build", "small")
    after = await sandboxd("selfcheck", "--no-session")

    (line,) = [one for one in before.stdout.splitlines() if "not built" in one]
    assert "node20" in line
    assert "small" in line
    assert "`sandboxd environments build NAME`" in line
    (line,) = [one for one in after.stdout.splitlines() if "not built" in one]
    assert "small" not in line


def test_help_says_what_a_data_source_is_called() -> None:
    """And whose it is; for a query with an example."""
    for name in ("tables", "schema", "query"):
        shown = CliRunner().invoke(program, ["data", name, "--help"]).output
        assert "USER/SOURCE" in shown.splitlines()[0]
        assert "data source" in shown
        assert "ada/archive" in shown
    assert 'sandboxd data query ada/archive "SELECT' in shown
