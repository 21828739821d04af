"""`sandboxd token`: create tokens for the token file, and check the file."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import click

from sandboxd.access import Access, Caller, Scope, TokensInvalid
from sandboxd.access.token_file import NAME, NAME_RULE, hash_of, line, new_token, parse
from sandboxd.cli.settings import INVALID_CODE, load_or_exit


@click.group()
def token() -> None:
    """Create tokens for the file in SANDBOXD_TOKENS_FILE, and check that file."""


@token.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
def check(file: Path | None) -> None:
    """Report every mistake in FILE, or in the token file of the settings.

    Exit code 0 if there is none, 1 if there are some.
    """
    path = file or load_or_exit(None).config.tokens_file
    if path is None:
        raise click.UsageError("give a FILE; the settings have no tokens_file")
    try:
        access = Access(path)
    except TokensInvalid as error:
        click.echo(f"sandboxd: {path}:\n{textwrap.indent(str(error), '  ')}", err=True)
        sys.exit(INVALID_CODE)
    click.echo(f"ok: {path}, {len(access)} callers")


@token.command()
@click.option("--user", "user_id", metavar="ID", help="For the sessions of this user.")
@click.option("--admin", "is_admin", is_flag=True, help="For everything, of every user.")
@click.option(
    "--read-only",
    "is_read_only",
    is_flag=True,
    help="For reading sessions and the status; with --user, only of this user.",
)
@click.option(
    "--name", metavar="NAME", help="Name of its owner, for the logs. [default: from its scope]"
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="POLICY",
    help="Command policy that it may ask for; repeat for several, `*` for all.",
)
@click.option(
    "--egress",
    multiple=True,
    metavar="HOST",
    help="Host that it may let sessions reach; repeat for several, `*` for all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def create(
    user_id: str | None,
    is_admin: bool,
    is_read_only: bool,
    name: str | None,
    policies: tuple[str, ...],
    egress: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create a token and print it once, with the line for the token file that has its hash.

    Append the line to the file and send the daemon SIGHUP.
    """
    if is_admin == (is_read_only or user_id is not None):
        raise click.UsageError("give --admin, --user or --read-only")
    fresh = new_token()
    scope = Scope.ADMIN if is_admin else Scope.READ_ONLY if is_read_only else Scope.USER
    hashed = hash_of(fresh)
    caller = Caller(
        name=name or f"{scope.value}-{hashed[:8]}",
        scope=scope,
        user_id=user_id,
        policies=frozenset(policies),
        egress=egress,
    )
    entry = line(caller, hashed)
    if not NAME.fullmatch(caller.name):
        raise click.UsageError(f"--name: {NAME_RULE}")
    try:
        parse(entry)
    except TokensInvalid as error:
        raise click.UsageError(str(error).partition(": ")[2]) from None
    if as_json:
        click.echo(json.dumps({"token": fresh, "line": entry}))
        return
    click.echo(f"token, shown only now:\n{fresh}\n\nline for the token file:\n{entry}")
