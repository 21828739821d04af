"""`sandboxd attach`: follow a command that already runs, and type into it."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import click

from sandboxd.cli import keyboard
from sandboxd.cli.exec import exit_code, print_how_to_return
from sandboxd.cli.failure import OWN_FAULT, call
from sandboxd.cli.relay import Left, Relay
from sandboxd.cli.target import Target, target_options


@click.command("attach")
@click.argument("session")
@click.argument("exec_id", metavar="EXEC")
@click.option("-i", "--interactive", is_flag=True, help="Pass on standard input.")
@click.option("--tail", is_flag=True, help="Skip the output so far.")
@target_options
def command(session: str, exec_id: str, interactive: bool, tail: bool, target: Target) -> None:
    """Follow a command of a SESSION to its end, from the beginning of its output.

    The exit code is the command's. Ctrl-C, or Ctrl-P Ctrl-Q if it runs in a terminal, detaches and
    leaves the command running. `sandboxd ps` lists the ids.
    """
    sys.exit(call(_attach(target, session, exec_id, interactive, tail), exit_code=OWN_FAULT))


async def _attach(target: Target, session: str, exec_id: str, interactive: bool, tail: bool) -> int:
    async with target.sandbox(session) as sandbox:
        handle = await sandbox.commands.connect(exec_id)
        info = await handle.info()
        is_running = info.state != "ended"
        in_terminal = is_running and info.has_terminal and keyboard.is_terminal()
        relay = Relay(handle, in_terminal=in_terminal, is_owner=False)
        with keyboard.raw() if in_terminal else nullcontext():
            ended = await relay.run(
                sends_input=in_terminal or (is_running and interactive and info.has_stdin),
                stdout_offset=info.stdout_bytes if tail else 0,
                stderr_offset=info.stderr_bytes if tail else 0,
            )
        if isinstance(ended, Left) and ended is not Left.UNREAD:
            print_how_to_return(sandbox, exec_id)
        return exit_code(ended)
