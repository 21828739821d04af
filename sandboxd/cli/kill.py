"""`sandboxd kill`: end commands of a session."""

from __future__ import annotations

import signal as signals
from collections.abc import Sequence
from typing import Any

import click

from sandboxd.cli.failure import USAGE, Failure, call
from sandboxd.cli.target import Target, target_options


class SignalNumber(click.ParamType[int]):
    """TERM, SIGTERM or 15."""

    name = "SIGNAL"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> int:
        text = str(value).upper()
        try:
            if text.isdigit():
                return signals.Signals(int(text)).value
            return signals.Signals[f"SIG{text.removeprefix('SIG')}"].value
        except (KeyError, ValueError):
            self.fail(f"{value!r} is not a signal, such as TERM or 15", parameter, context)


@click.command("kill")
@click.argument("session")
@click.argument("exec_ids", metavar="[EXEC]...", nargs=-1)
@click.option(
    "-s",
    "--signal",
    "number",
    type=SignalNumber(),
    default="KILL",
    help="Signal to send, not KILL.",
)
@click.option("-a", "--all", "is_all", is_flag=True, help="All commands that run.")
@target_options
def command(
    session: str, exec_ids: Sequence[str], number: int, is_all: bool, target: Target
) -> None:
    """End commands of a SESSION, or send them a signal. `sandboxd ps` lists their ids."""
    if bool(exec_ids) == is_all:
        raise Failure("name commands by their ids (`sandboxd ps`), or use --all", USAGE)

    async def work() -> None:
        async with target.sandbox(session) as sandbox:
            found = exec_ids or [info.exec_id for info in await sandbox.commands.list(running=True)]
            for exec_id in found:
                handle = await sandbox.commands.connect(exec_id)
                if not await handle.send_signal(number) and not is_all:
                    click.echo(f"sandboxd: {exec_id} had already ended", err=True)

    call(work())
