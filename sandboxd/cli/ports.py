"""`sandboxd ports`: what listens in a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from sandboxd.cli import table
from sandboxd.cli.failure import call
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client import PortInfo


@click.command("ports")
@click.argument("session")
@target_options
@json_option
def command(session: str, target: Target, as_json: bool) -> None:
    """List the TCP ports that programs in a SESSION listen on."""

    async def work() -> Sequence[PortInfo]:
        async with target.sandbox(session) as sandbox:
            return await sandbox.ports.list()

    found = call(work())
    if as_json:
        table.show_document([asdict(port) for port in found])
    else:
        table.show(("PORT", "ADDRESS"), [(str(port.port), port.address) for port in found])
