"""`sandboxd serve` and the other commands of the daemon."""

from __future__ import annotations

import faulthandler
import sys
from pathlib import Path
from typing import Any

import click
import structlog
import uvloop

from sandboxd.cli.audit import audit
from sandboxd.cli.config import config
from sandboxd.cli.doctor import doctor
from sandboxd.cli.install_service import install_service
from sandboxd.cli.selfcheck import selfcheck
from sandboxd.cli.settings import SettingsCommand, config_option, load_or_exit
from sandboxd.cli.token import token
from sandboxd.daemon import logs
from sandboxd.daemon.composition import Daemon
from sandboxd.daemon.instance import StartRefused
from sandboxd.daemon.serving import serve as serve_daemon
from sandboxd.service.transport.server import AddressInUse

log = structlog.get_logger()


@click.group()
@click.version_option(package_name="sandboxd", prog_name="sandboxd")
def main() -> None:
    """Sandboxes for AI agents."""


@main.command(cls=SettingsCommand)
@config_option
def serve(config_file: Path | None, **flags: Any) -> None:
    """Run the daemon in the foreground until Ctrl-C or SIGTERM.

    A flag overrides the environment variable of the setting, which overrides the settings file.
    """
    loaded = load_or_exit(config_file, flags)
    logs.configure(loaded.config.log_level)
    for warning in loaded.warnings:
        log.warning("setting.ignored", name=warning.origin.name, why=warning.text)
    try:
        # A fatal signal, or a crash below Python, writes the stacks of all threads to the log.
        faulthandler.enable()
        uvloop.run(serve_daemon(loaded.config, on_ready=_announce_ready))
    except (StartRefused, AddressInUse) as error:
        click.echo(f"sandboxd: {error}", err=True)
        sys.exit(1)


main.add_command(audit)
main.add_command(config)
main.add_command(doctor)
main.add_command(install_service)
main.add_command(selfcheck)
main.add_command(token)


def _announce_ready(daemon: Daemon) -> None:
    click.echo(f"sandboxd: listening on unix:{daemon.config.api_socket}", err=True)
