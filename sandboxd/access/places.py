"""Places for concurrent calls, of which no user can take all."""

from __future__ import annotations

from collections import Counter

from sandboxd.access.caller import Caller, Scope
from sandboxd.errors import TooManyRequests

RETRY_SECONDS = 1.0
"""Delay after which a call may have ended."""
USER_PART = 4
"""Part of all places that one user may take: a quarter, unless a setting says otherwise."""
RESERVED_PART = 8
"""Part of all places that is reserved for admins and the trusted socket: an eighth."""


class CallPlaces:
    """Counts the calls that are being served, and refuses what goes beyond the limits.

    A user has one share, with however many tokens; a token for all users has a share too. Admins,
    who call for many users, are limited by the total only.
    """

    def __init__(self, *, total: int, per_user: int = 0) -> None:
        """`per_user`: 0 means a quarter of the total."""
        self._total = total
        self._per_user = per_user or max(1, total // USER_PART)
        self._of_users = total - total // RESERVED_PART
        self.taken = 0
        self._taken_by_users = 0
        self._taken_by: Counter[Caller | str] = Counter()

    def take(self, caller: Caller) -> None:
        """Count a call of this caller, or refuse it."""
        if self.taken >= self._total:
            raise _refusal("The daemon is serving its maximum number of calls")
        if caller.scope is not Scope.ADMIN:
            self._take_of_share(caller)
        self.taken += 1

    def _take_of_share(self, caller: Caller) -> None:
        if self._taken_by_users >= self._of_users:
            raise _refusal("The daemon is serving its maximum number of calls of users")
        holder = _holder(caller)
        if self._taken_by[holder] >= self._per_user:
            raise _refusal(f"This user is already making {self._per_user} calls at once")
        self._taken_by[holder] += 1
        self._taken_by_users += 1

    def free(self, caller: Caller) -> None:
        """A call that was counted has ended."""
        self.taken -= 1
        if caller.scope is Scope.ADMIN:
            return
        holder = _holder(caller)
        self._taken_by_users -= 1
        self._taken_by[holder] -= 1
        if not self._taken_by[holder]:
            del self._taken_by[holder]


def _holder(caller: Caller) -> Caller | str:
    """Holder of the share that a call counts towards."""
    return caller if caller.user_id is None else caller.user_id


def _refusal(problem: str) -> TooManyRequests:
    return TooManyRequests(f"{problem}; try again in a moment.", retry_after_seconds=RETRY_SECONDS)
