"""What the parts of a build have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from subprocess import PIPE
from typing import NamedTuple, TypeAlias

from sandboxd.processes import start
from sandboxd.tasks import outlast

Report: TypeAlias = Callable[[float, str], None]
"""Is called with the part that is done, and with what is done now."""


class SourceUnavailable(Exception):
    """A source cannot be used on this host; the text says why."""


class Package(NamedTuple):
    """A program or package of an image."""

    kind: str
    name: str
    version: str


async def output_of(*command: str) -> tuple[int, str]:
    """Exit code and output of a program, which a cancel ends."""
    process = start(command, stdout=PIPE, stderr=PIPE)
    reading = asyncio.ensure_future(asyncio.to_thread(process.communicate))
    try:
        output, errors = await asyncio.shield(reading)
    except asyncio.CancelledError:
        process.kill()
        await outlast(reading)
        raise
    return process.returncode, (output + errors).decode(errors="replace")
