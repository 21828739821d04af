"""What users share: how much there is of each thing, and how much of it one user may have.

Nobody uses up anything for all others, with however many tokens and sessions: each user has a
share, and of what callers use themselves a part is kept for the host and admins. Whatever is
counted in all has a line here, but for data sources, which have settings of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, TypeAlias

from sandboxd.access.caller import Caller, Scope

Holder: TypeAlias = Hashable | None
"""Who has a share: a user, or a token for all users; None for the host and admins."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """How much there is, and how much of it one user may have."""

    name: str
    total: int
    per_user: int
    kept: int = 0
    """Part of the total that users leave to the host and admins."""

    def of(self, total: int) -> Share:
        """The same parts of another total."""
        per_user, kept = (part * total // self.total for part in (self.per_user, self.kept))
        return replace(self, total=total, per_user=max(1, per_user), kept=kept)


CALLS = Share(name="concurrent calls", total=4096, per_user=1024, kept=512)
"""SANDBOXD_MAX_CALLS, SANDBOXD_MAX_USER_CALLS."""
SESSIONS = Share(name="sessions", total=80, per_user=40)
"""MAX_POOL_SIZE, SANDBOXD_MAX_USER_SESSIONS."""
RUNNING_EXECS = Share(name="running commands", total=2048, per_user=1024)
"""SANDBOXD_MAX_RUNNING_EXECS_IN_ALL, SANDBOXD_MAX_USER_RUNNING_EXECS."""
OUTPUT_BYTES = Share(name="output that is kept", total=4 << 30, per_user=2 << 30)
"""SANDBOXD_TOTAL_SPOOL_BYTES, SANDBOXD_MAX_USER_SPOOL_BYTES."""
CONSOLE_PAGES = Share(name="console pages", total=256, per_user=32, kept=64)
LOGINS = Share(name="console logins", total=1000, per_user=32, kept=250)
LOGIN_CODES = Share(name="links to the console", total=100, per_user=5, kept=25)
TICKETS = Share(name="download tickets", total=256, per_user=32, kept=64)
DOCUMENT_BYTES = Share(
    name="documents that are shown", total=64 << 20, per_user=12 << 20, kept=16 << 20
)
EGRESS_CONNECTIONS = Share(name="egress connections", total=1024, per_user=256)
PREVIEW_CONNECTIONS = Share(name="preview connections", total=1024, per_user=256)
LOOKUPS = Share(name="names that are looked up", total=64, per_user=8)
POLICY_CHECKS = Share(name="policy checks that wait", total=512, per_user=32)
COMPARISONS = Share(name="comparisons of snapshots that wait", total=256, per_user=16)
IMPORTS = Share(name="archives that arrive", total=16, per_user=4)
SNAPSHOT_WORK = Share(name="work on snapshots that waits", total=8192, per_user=2048)
PROJECT_WORK = Share(name="work on projects that waits", total=8192, per_user=2048)
PACKAGE_BUILDS = Share(name="builds of packages", total=17, per_user=8)

SHARES: Sequence[Share] = (
    CALLS,
    SESSIONS,
    RUNNING_EXECS,
    OUTPUT_BYTES,
    CONSOLE_PAGES,
    LOGINS,
    LOGIN_CODES,
    TICKETS,
    DOCUMENT_BYTES,
    EGRESS_CONNECTIONS,
    PREVIEW_CONNECTIONS,
    LOOKUPS,
    POLICY_CHECKS,
    COMPARISONS,
    IMPORTS,
    SNAPSHOT_WORK,
    PROJECT_WORK,
    PACKAGE_BUILDS,
)


def holder_of(caller: Caller) -> Holder:
    """Holder of the share that something of this caller counts towards."""
    if caller.scope is Scope.ADMIN:
        return None
    return caller if caller.user_id is None else caller.user_id


class Full(Enum):
    """Why there is no place."""

    TOTAL = "all places are taken"
    USERS = "users have all places but those that are kept for the host and admins"
    SHARE = "this user has all places of one user"


class NoPlace(Exception):
    def __init__(self, why: Full) -> None:
        super().__init__(why.value)
        self.why = why


class Places:
    """Places that are taken, and free again when their holder has left."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self.taken = 0
        self._of_users = 0
        self._taken_by: Counter[Holder] = Counter()

    def take(self, holder: Holder) -> None:
        """NoPlace if there is none for this holder."""
        if self.taken >= self.share.total:
            raise NoPlace(Full.TOTAL)
        if holder is not None:
            if self._of_users >= self.share.total - self.share.kept:
                raise NoPlace(Full.USERS)
            if self._taken_by[holder] >= self.share.per_user:
                raise NoPlace(Full.SHARE)
            self._of_users += 1
            self._taken_by[holder] += 1
        self.taken += 1

    def free(self, holder: Holder) -> None:
        self.taken -= 1
        if holder is None:
            return
        self._of_users -= 1
        self._taken_by[holder] -= 1
        if not self._taken_by[holder]:
            del self._taken_by[holder]

    @contextmanager
    def place(self, holder: Holder) -> Iterator[None]:
        """A place for as long as the block lasts; NoPlace."""
        self.take(holder)
        try:
            yield
        finally:
            self.free(holder)


class Held(NamedTuple):
    """Something that is kept for a while."""

    key: str
    holder: Holder
    size: int = 1


def evicted(share: Share, held: Iterable[Held], holder: Holder, size: int = 1) -> Sequence[str]:
    """What gives way to something new of this holder, of what is held, oldest first: what the
    holder has beyond the share, then what those have who have most."""
    rest, gone = list(held), list[str]()
    while True:
        sizes: Counter[Holder] = Counter()
        for one in rest:
            sizes[one.holder] += one.size
        of_all, of_host = sizes.total() + size, sizes.pop(None, 0)
        if holder is not None and sizes[holder] and sizes[holder] + size > share.per_user:
            victim = holder
        elif of_all > share.total or (
            holder is not None and of_all - of_host > share.total - share.kept
        ):
            victim = max(sizes, key=lambda one: sizes[one], default=None)
        else:
            return gone
        found = next((one for one in rest if one.holder == victim), None)
        if found is None:
            return gone
        rest.remove(found)
        gone.append(found.key)
