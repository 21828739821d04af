"""What the parts of a build have in common."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeAlias

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
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    return process.returncode or 0, (output + errors).decode(errors="replace")
