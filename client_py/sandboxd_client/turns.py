"""Turns: calls that belong together, so that they can be taken back together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd_client.call_metadata import current_turn


@contextmanager
def turn(turn_id: str) -> Iterator[None]:
    """Mark the calls of a block, sync or async, as one turn of an agent.

    In a session with `auto_snapshot="turns"` the workspace after the turn is kept as a snapshot;
    `rewind(before=turn_id)` takes the turn back. An id has 1 to 128 letters, digits or `_ . : -`.

    Example:
        with turn("message-7"):
            sandbox.commands.run("echo new > notes.txt")
        sandbox.rewind(before="message-7")
    """
    token = current_turn.set(turn_id)
    try:
        yield
    finally:
        current_turn.reset(token)
