"""The turn that a call belongs to: one step of an agent, named by the caller."""

from __future__ import annotations

import re
from contextvars import ContextVar

from sandboxd.errors import InvalidRequest, quoted

TURN_METADATA = "sandboxd-turn-id"
"""Metadata key of calls that belong to a turn."""
_TURN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)

current_turn: ContextVar[str] = ContextVar("turn", default="")
"""Id of the turn of the call that is being served; empty if it has none."""


def checked_turn_id(text: str) -> str:
    """InvalidRequest unless it can be the id of a turn."""
    if not _TURN_ID.fullmatch(text):
        raise InvalidRequest(
            TURN_METADATA,
            f"{quoted(text)} is not a valid id of a turn; use 1 to 128 letters, digits or _ . : -",
        )
    return text
