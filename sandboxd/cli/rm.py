"""`sandboxd rm`: remove files of a session."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sandboxd.cli.failure import USAGE, Failure, call
from sandboxd.cli.place import RemotePlace
from sandboxd.cli.target import Target, target_options


@click.command("rm")
@click.argument("words", metavar="SESSION:PATH...", nargs=-1, required=True)
@click.option(
    "-r", "-R", "--recursive", is_flag=True, help="Remove directories with their content."
)
@click.option("-f", "--force", is_flag=True, help="Ignore what does not exist.")
@target_options
def command(words: Sequence[str], recursive: bool, force: bool, target: Target) -> None:
    """Remove files of a session; also SESSION PATH...

    \b
    sandboxd rm ada/42:old.csv
    sandboxd rm -r ada/42 data results
    """
    places = RemotePlace.parse_all(words)
    if not all(place.path for place in places):
        raise Failure(
            "name what to remove; `sandboxd session reset` removes all files of a session", USAGE
        )

    async def work() -> None:
        for place in places:
            async with target.sandbox(place.session, continues=True) as sandbox:
                await sandbox.files.remove(place.path, recursive=recursive, ignore_missing=force)

    call(work())
