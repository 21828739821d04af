"""Names of snapshots on the command line."""

from __future__ import annotations

from sandboxd.cli.failure import USAGE, Failure
from sandboxd_client.snapshot_results import SnapshotName

HELP = (
    "A SNAPSHOT is @NUMBER, @0 for the newest, @-1 for the one before it, @LABEL, @turn:ID for the "
    "end of a turn, or @before:ID for what was before it."
)


def snapshot_name(text: str) -> SnapshotName:
    """What follows an @: a number, a label or a turn."""
    name = text.removeprefix("@")
    if not text.startswith("@") or not name:
        raise Failure(f"{text!r} is not a valid snapshot: use @NUMBER, @-1 or @LABEL", USAGE)
    return int(name) if name.isdecimal() and name.isascii() else name
