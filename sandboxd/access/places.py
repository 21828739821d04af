"""Places for concurrent calls, of which no user can take all."""

from __future__ import annotations

from dataclasses import replace

from sandboxd.access.caller import Caller
from sandboxd.access.shares import CALLS, Full, NoPlace, Places, holder_of
from sandboxd.errors import TooManyRequests

RETRY_SECONDS = 1.0
"""Delay after which a call may have ended."""


class CallPlaces:
    """Counts the calls that are being served, and refuses what goes beyond the limits.

    A user has one share, with however many tokens; a token for all users has a share too. Admins,
    who call for many users, are limited by the total only.
    """

    def __init__(self, *, total: int, per_user: int = 0) -> None:
        """`per_user`: 0 means a quarter of the total."""
        share = CALLS.of(total)
        self._places = Places(replace(share, per_user=per_user or share.per_user))

    @property
    def taken(self) -> int:
        return self._places.taken

    def take(self, caller: Caller) -> None:
        """Count a call of this caller, or refuse it."""
        try:
            self._places.take(holder_of(caller))
        except NoPlace as error:
            per_user = self._places.share.per_user
            problem = {
                Full.TOTAL: "The daemon is serving its maximum number of calls",
                Full.USERS: "The daemon is serving its maximum number of calls of users",
                Full.SHARE: f"This user is already making {per_user} calls at once",
            }[error.why]
            raise TooManyRequests(
                f"{problem}; try again in a moment.", retry_after_seconds=RETRY_SECONDS
            ) from None

    def free(self, caller: Caller) -> None:
        """A call that was counted has ended."""
        self._places.free(holder_of(caller))
