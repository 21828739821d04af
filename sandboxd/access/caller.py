"""Who a call is from. Set once at the edge, asked wherever it matters."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from sandboxd.errors import CallNotPermitted


class Scope(StrEnum):
    """What a caller may do."""

    USER = "user"
    """Everything, in the sessions of one user."""
    READ_ONLY = "read-only"
    """Look at sessions and the status; no output, no files."""
    ADMIN = "admin"
    """Everything."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    name: str
    scope: Scope
    user_id: str | None = None
    """Whose sessions there are for this caller; none means everyone's."""

    def sees(self, user_id: str) -> bool:
        return self.user_id is None or self.user_id == user_id

    def check_acts_for(self, user_id: str) -> None:
        """Sessions are opened for oneself only."""
        if not self.sees(user_id):
            raise CallNotPermitted(
                f"This token is of user {self.user_id!r} and opens sessions of that user only; "
                "send it as user_id, or use a token of the other user."
            )


HOST = Caller(name="host", scope=Scope.ADMIN)
"""Whoever reaches a listener that asks for no token."""
UNKNOWN = Caller(name="unknown", scope=Scope.READ_ONLY, user_id="")
"""Whoever has shown nothing that is known; may do nothing, and no session is of this user."""

# A variable of the call's task and not a parameter: no look-up on the way can forget to pass it on.
_current: ContextVar[Caller] = ContextVar("caller", default=HOST)


def current_caller() -> Caller:
    """The caller of the call that is being served; outside of calls, the host."""
    return _current.get()


def act_as(caller: Caller) -> None:
    """From here on, this task is a call from this caller."""
    _current.set(caller)
