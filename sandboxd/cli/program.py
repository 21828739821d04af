"""All commands: client commands need click and the SDK, daemon commands the whole install."""

from __future__ import annotations

import gc
from importlib import import_module

import click

CLIENT_COMMANDS = {
    "attach": "sandboxd.cli.attach",
    "cat": "sandboxd.cli.cat",
    "code": "sandboxd.cli.code",
    "cp": "sandboxd.cli.cp",
    "diff": "sandboxd.cli.diff",
    "e2b-gateway": "sandboxd.cli.e2b_gateway",
    "egress": "sandboxd.cli.egress",
    "dap": "sandboxd.cli.dap",
    "drain": "sandboxd.cli.drain",
    "environments": "sandboxd.cli.environments",
    "exec": "sandboxd.cli.exec",
    "images": "sandboxd.cli.images",
    "kill": "sandboxd.cli.kill",
    "logs": "sandboxd.cli.logs",
    "console": "sandboxd.cli.console",
    "ls": "sandboxd.cli.ls",
    "mcp": "sandboxd.cli.mcp",
    "mkdir": "sandboxd.cli.mkdir",
    "data": "sandboxd.cli.data",
    "port-forward": "sandboxd.cli.port_forward",
    "ports": "sandboxd.cli.ports",
    "project": "sandboxd.cli.project",
    "ps": "sandboxd.cli.ps",
    "rm": "sandboxd.cli.rm",
    "session": "sandboxd.cli.session",
    "snapshot": "sandboxd.cli.snapshot",
    "status": "sandboxd.cli.status",
    "top": "sandboxd.cli.top",
    "worker": "sandboxd.cli.worker",
}
"""Module of each command, imported on demand; it defines the command as `command`."""
DAEMON_COMMANDS = "sandboxd.cli.main"
"""Module whose group `main` has all other commands."""


class Program(click.Group):
    """A group that imports only the command that is called."""

    def list_commands(self, context: click.Context) -> list[str]:
        daemon = _daemon_group()
        return sorted([*CLIENT_COMMANDS, *(daemon.commands if daemon else ())])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        try:
            if name in CLIENT_COMMANDS:
                found: click.Command = import_module(CLIENT_COMMANDS[name]).command
                return found
            daemon = _daemon_group()
            return daemon.commands.get(name) if daemon else None
        finally:
            _collect_again()

    def resolve_command(
        self, context: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if words and words[0] not in CLIENT_COMMANDS and _daemon_group() is None:
            context.fail(
                f"The command {words[0]!r} is not installed. Commands that run and check a daemon "
                "need: pip install 'sandboxd[daemon]'"
            )
        return super().resolve_command(context, words)


def _collect_again() -> None:
    """Imports are over. What they made stays, so that no collection has to look at it."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _daemon_group() -> click.Group | None:
    """The commands of the daemon; None if the daemon is not installed."""
    try:
        group: click.Group = import_module(DAEMON_COMMANDS).main
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("sandboxd", "sandboxd_client"):
            raise
        return None
    return group


@click.command(cls=Program)
@click.version_option(package_name="sandboxd", prog_name="sandboxd")
def program() -> None:
    """Sandboxes for AI agents.

    SESSION is a session's id (ses_...) or USER/THREAD. The daemon is --url, SANDBOXD_URL or the
    local socket; its token is --token or SANDBOXD_TOKEN.

    Exit codes: 0 success, 1 failure, 2 wrong usage, 3 not found, 4 no daemon answers, 5 not
    allowed. `exec` and `attach` return the exit code of the command (128 + n for signal n, 124 for
    a time-out), and 125 if sandboxd itself failed.
    """
