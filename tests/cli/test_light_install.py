"""Which commands need what: a client's run without anything of the daemon."""

from __future__ import annotations

import gc
import re
import shlex
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import click

from sandboxd.cli.program import program

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
DAEMON_ONLY = ("aiodocker", "aiosqlite", "pydantic", "pydantic_settings", "structlog", "uvloop")


def run_without(modules: tuple[str, ...], *words: str) -> subprocess.CompletedProcess[str]:
    """`sandboxd ...` where these cannot be imported."""
    program = (
        "import sys; "
        f"sys.modules.update(dict.fromkeys({modules!r})); "
        f"sys.argv = ['sandboxd', *{words!r}]; "
        "from sandboxd.cli import run; run()"
    )
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


def test_commands_of_a_client_need_nothing_of_the_daemon() -> None:
    """They come with the extra `cli`, which is click and nothing else."""
    told = run_without(DAEMON_ONLY, "--help")
    used = run_without(DAEMON_ONLY, "status", "--url", "unix:/nowhere/sandboxd.sock")

    assert told.returncode == 0, told.stderr
    assert "exec" in told.stdout
    assert "serve" not in told.stdout
    assert used.returncode == 4, used.stderr


def test_a_command_of_the_daemon_says_what_is_missing() -> None:
    """Not a traceback, but what to install."""
    told = run_without(DAEMON_ONLY, "serve")

    assert told.returncode == 2
    assert "pip install 'sandboxd[daemon]'" in told.stderr


def test_without_click_the_program_says_what_is_missing() -> None:
    """The plain install is the SDK; its command line is an extra."""
    told = run_without(("click",), "status")

    assert told.returncode == 1
    assert "pip install 'sandboxd[cli]'" in told.stderr


def test_a_command_looks_no_version_up() -> None:
    """Nor loads anything else for it: a short call takes little more than to load gRPC."""
    program = (
        "import sys; from sandboxd.cli import program; "
        "program.program.get_command(None, 'session'); print('importlib.metadata' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout == "False\n"


def test_commands_run_with_garbage_collection() -> None:
    """It is off only while a command is imported."""
    gc.disable()
    try:
        assert program.get_command(click.Context(program), "status") is not None
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


def test_the_page_shows_commands_that_exist() -> None:
    """Every `sandboxd ...` in a shell line of docs/cli.md parses, down to the options."""
    shown = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    calls = re.findall(r"\bsandboxd ([a-z].*?)(?= #|;| &&|$)", "\n".join(shown), re.MULTILINE)
    assert len(calls) >= 10

    for call in calls:
        context = click.Context(program, info_name="sandboxd")
        words = list(takewhile(lambda word: word != "|", shlex.split(call)))
        name, command, rest = program.resolve_command(context, words)
        assert command is not None
        if isinstance(command, click.Group):
            _, command, rest = command.resolve_command(context, rest)
        assert command is not None
        command.make_context(name, rest)  # parses, and runs nothing
