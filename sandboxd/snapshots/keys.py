"""Keys of objects in the store.

`users/OWNER/packs/XX/NAME` holds content, `users/OWNER/lines/LINE/NUMBER.snapshot` a snapshot, and
`NUMBER.deleted` beside it says that it was deleted while others may be differences to it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from sandboxd.errors import SnapshotNotFound
from sandboxd.snapshots.contract import LINE_NAME, Line

ALL = "users/"
MAX_NUMBER = 9_999_999_999
_NUMBERED = re.compile(r"(users/[0-9a-f]{32}/lines/[A-Za-z0-9_-]{1,100}/)([0-9]{10})\.(\w+)")


def owner_of(user_id: str) -> str:
    """The part of keys that stands for a user, for any text as user id."""
    return hashlib.sha256(user_id.encode()).hexdigest()[:32]


def owner_in(key: str) -> str:
    return key.split("/")[1]


def owner_prefix(owner: str) -> str:
    return f"{ALL}{owner}/"


def line_prefix(line: Line) -> str:
    if not LINE_NAME.fullmatch(line.name):
        raise SnapshotNotFound(repr(line.name[:100]))
    return f"users/{owner_of(line.user_id)}/lines/{line.name}/"


def snapshot_key(prefix: str, number: int) -> str:
    return f"{prefix}{number:010}.snapshot"


def deleted_key(prefix: str, number: int) -> str:
    return f"{prefix}{number:010}.deleted"


def pack_key(owner: str, pack: str) -> str:
    return f"users/{owner}/packs/{pack[:2]}/{pack}"


@dataclass
class Listing:
    """The numbers that a line has."""

    stored: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)

    @property
    def live(self) -> list[int]:
        return sorted(self.stored - self.deleted)

    @property
    def last(self) -> int:
        """The highest number that was ever used; 0 if none was."""
        return max(self.stored | self.deleted, default=0)


def listings(keys: Iterable[str]) -> dict[str, Listing]:
    """The lines among keys, by prefix."""
    found: dict[str, Listing] = {}
    for key in keys:
        match = _NUMBERED.fullmatch(key)
        if match is not None:
            listing = found.setdefault(match[1], Listing())
            numbers = listing.deleted if match[3] == "deleted" else listing.stored
            numbers.add(int(match[2]))
    return found
