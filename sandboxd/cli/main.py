"""`sandboxd serve` and what goes with it."""

from __future__ import annotations

import sys

import click
import uvloop
from pydantic import ValidationError

from sandboxd import __version__, logs
from sandboxd.cli.audit import audit
from sandboxd.cli.doctor import doctor
from sandboxd.cli.selfcheck import selfcheck
from sandboxd.config import Config
from sandboxd.daemon import Daemon, StartRefused
from sandboxd.daemon import serve as serve_daemon
from sandboxd.service.server import AddressInUse


@click.group()
@click.version_option(__version__, prog_name="sandboxd")
def main() -> None:
    """Sandboxes for AI agents."""


@main.command()
def serve() -> None:
    """Run the daemon in the foreground until Ctrl-C or SIGTERM.

    Settings come from the environment; see sandboxd/config.py.
    """
    try:
        config = Config()
    except ValidationError as error:
        raise click.ClickException(_explain(error)) from None
    logs.configure(config.log_level)
    try:
        uvloop.run(serve_daemon(config, on_ready=_say_ready))
    except (StartRefused, AddressInUse) as error:
        click.echo(f"sandboxd: {error}", err=True)
        sys.exit(1)


main.add_command(audit)
main.add_command(doctor)
main.add_command(selfcheck)


def _say_ready(daemon: Daemon) -> None:
    click.echo(f"sandboxd: listening on unix:{daemon.config.api_socket}", err=True)


def _explain(error: ValidationError) -> str:
    problems = [
        f"{'.'.join(map(str, problem['loc'])) or 'settings'}: {problem['msg']}"
        for problem in error.errors()
    ]
    return "; ".join(problems)
