"""Writes to a connection that was lost. There uvloop raises RuntimeError, while asyncio's own loop
drops the bytes and fails the next wait with an OSError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_CLOSED = "unable to perform operation on"


class ConnectionClosed(ConnectionResetError):
    """The connection was lost before the write, of which nothing was sent."""


@contextmanager
def closed_as_lost() -> Iterator[None]:
    """ConnectionClosed in place of what uvloop raises."""
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith(_CLOSED):
            raise
        raise ConnectionClosed("the connection was lost") from error
