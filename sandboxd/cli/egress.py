"""`sandboxd egress`: which hosts a session may reach, and what was refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from sandboxd.cli import table
from sandboxd.cli.failure import USAGE, Failure, call
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client import EgressInfo


@click.group("egress")
def command() -> None:
    """Show and change which hosts a session may reach."""


@command.command("show")
@click.argument("session")
@target_options
@json_option
def show(session: str, target: Target, as_json: bool) -> None:
    """Show the rules of a SESSION, how much it moved, and what was refused."""

    async def work() -> EgressInfo:
        async with target.sandbox(session) as sandbox:
            return await sandbox.egress.get()

    _print(call(work()), as_json=as_json)


@command.command("set")
@click.argument("session")
@click.argument("rules", metavar="[RULE]...", nargs=-1)
@click.option("--none", "is_none", is_flag=True, help="No host.")
@click.option("--default", "is_default", is_flag=True, help="The rules of its environment.")
@target_options
@json_option
def set_(
    session: str,
    rules: Sequence[str],
    is_none: bool,
    is_default: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Replace the rules of a SESSION, such as example.com, *.example.com:8443 or
    "GET example.com:80"."""
    if bool(rules) + is_none + is_default != 1:
        raise Failure("name rules, or use --none or --default", USAGE)

    async def work() -> EgressInfo:
        async with target.sandbox(session) as sandbox:
            return await sandbox.egress.set(None if is_default else rules)

    _print(call(work()), as_json=as_json)


def _print(info: EgressInfo, *, as_json: bool) -> None:
    if as_json:
        table.show_document(asdict(info))
        return
    click.echo(f"rules      {', '.join(info.rules) or 'none: it reaches nothing'}")
    if info.problem:
        click.echo(f"problem    {info.problem}")
    moved = info.bytes_in + info.bytes_out
    click.echo(f"passed on  {info.connections} connections, {moved} of {info.max_bytes} bytes")
    denied = ", ".join(f"{count} by {rule}" for rule, count in info.denied.items())
    click.echo(f"refused    {denied or 'none'}")
    for denial in info.recent_denials:
        click.echo(f"  {denial.at}  {denial.host}:{denial.port}  {denial.message}")
