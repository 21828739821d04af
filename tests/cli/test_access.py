"""The command line where a daemon asks who is there, or what is to be run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from sandboxd.access.caller import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd.daemon.composition import Daemon
from tests.cli.command_line import CommandLine
from tests.fakes.guest import FakeGuests

StartDaemon = Callable[..., Awaitable[Daemon]]


async def test_a_token_is_taken_from_option_or_environment(
    start_daemon: StartDaemon, short_dir: Path
) -> None:
    """Without one, or with a wrong one, the code is 5 and the message says what is missing."""
    token, tokens_file = new_token(), short_dir / "tokens"
    tokens_file.write_text(line(Caller(name="ops", scope=Scope.ADMIN), hash_of(token)))
    tokens_file.chmod(0o600)
    daemon = await start_daemon(tokens_file=tokens_file, socket_auth="token")
    sandboxd = CommandLine(daemon.config.api_socket)

    without = await sandboxd("status")
    wrong = await sandboxd("status", "--token", new_token())
    by_option = await sandboxd("status", "--token", token)
    sandboxd.environment["SANDBOXD_TOKEN"] = token
    by_environment = await sandboxd("session", "list")

    assert [one.code for one in (without, wrong, by_option, by_environment)] == [5, 5, 0, 0]
    assert "token" in without.stderr
    assert token not in without.stderr + wrong.stderr


async def test_a_command_that_the_policy_refuses_is_not_taken_for_one_that_failed(
    start_daemon: StartDaemon, guests: FakeGuests
) -> None:
    """It is 125, with the rule, and the sandbox has heard of nothing."""
    daemon = await start_daemon(command_policy="strict")
    sandboxd = CommandLine(daemon.config.api_socket)

    refused = await sandboxd("exec", "ada/42", "echo x; rm y")

    assert refused.code == 125
    assert "rm" in refused.stderr
    assert guests.commands == []
