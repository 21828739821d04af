"""`sandboxd ps`: the commands of a session."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sandboxd.cli import table
from sandboxd.cli.failure import call
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client import CommandInfo

HEADER = ("EXEC", "STATE", "AGE", "OUTPUT", "COMMAND")


@click.command("ps")
@click.argument("session")
@click.option("-a", "--all", "is_all", is_flag=True, help="Include commands that ended recently.")
@click.option("-q", "--quiet", is_flag=True, help="Print only ids.")
@target_options
@json_option
def command(session: str, is_all: bool, quiet: bool, target: Target, as_json: bool) -> None:
    """List the commands of a SESSION, newest first."""

    async def work() -> Sequence[CommandInfo]:
        async with target.sandbox(session) as sandbox:
            return await sandbox.commands.list(running=not is_all)

    found = call(work())
    if as_json:
        table.show_document(found)
    elif quiet:
        click.echo("".join(f"{info.exec_id}\n" for info in found), nl=False)
    else:
        table.show(HEADER, map(_row, found))


def _row(info: CommandInfo) -> Sequence[object]:
    state = info.state if info.exit_code is None else f"{info.reason} ({info.exit_code})"
    output = table.size(info.stdout_bytes + info.stderr_bytes)
    return info.exec_id, state, table.since(info.started_at), output, info.command
