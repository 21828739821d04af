"""`sandboxd mkdir`: make directories in a session."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sandboxd.cli.failure import call
from sandboxd.cli.place import RemotePlace
from sandboxd.cli.target import Target, target_options


@click.command("mkdir")
@click.argument("words", metavar="SESSION:PATH...", nargs=-1, required=True)
@click.option("-p", "--parents", is_flag=True, help="Always on.")
@target_options
def command(words: Sequence[str], parents: bool, target: Target) -> None:
    """Make directories in a session, with those above them; also SESSION PATH...

    One that exists is not an error.
    """
    places = RemotePlace.parse_all(words)

    async def work() -> None:
        for place in places:
            async with target.sandbox(place.session, opens=True) as sandbox:
                await sandbox.files.make_dir(place.path)

    call(work())
