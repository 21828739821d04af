"""`sandboxd cat`: print files of a session."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from sandboxd.cli.failure import call
from sandboxd.cli.pipes import to_standard_output
from sandboxd.cli.place import RemotePlace
from sandboxd.cli.target import Target, target_options


@click.command("cat")
@click.argument("words", metavar="SESSION:PATH...", nargs=-1, required=True)
@target_options
def command(words: Sequence[str], target: Target) -> None:
    """Print files of a session as they are; also SESSION PATH..."""
    places = RemotePlace.parse_all(words)

    async def work() -> int:
        for place in places:
            async with target.sandbox(place.session, continues=True) as sandbox:
                if (code := await to_standard_output(sandbox, place.path)) != 0:
                    return code
        return 0

    sys.exit(call(work()))
