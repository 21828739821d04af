"""`sandboxd console`: a link that logs a browser into the web console."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

import click

from sandboxd.cli.failure import call
from sandboxd.cli.target import Target, target_options


@click.command("console")
@target_options
def command(target: Target) -> None:
    """Print a link to the web console that logs in once, within a minute."""
    url = call(_ask(target))
    click.echo(url)
    if "SSH_CONNECTION" in os.environ:
        click.echo(f"From your own machine, first: {forwarding(url)}", err=True)


def forwarding(url: str) -> str:
    """The line that makes the console of this host reachable from another."""
    port = urlsplit(url).port
    return f"ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"


async def _ask(target: Target) -> str:
    async with target.client() as client:
        return await client.console_link()
