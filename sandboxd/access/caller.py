"""The caller of a call: set once at the edge, read where it matters."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from sandboxd.errors import CallNotPermitted, quoted

ANY_POLICY = "*"
"""Stands for all command policies."""


class Scope(StrEnum):
    """What a caller may do."""

    USER = "user"
    """Everything, in the sessions of one user."""
    READ_ONLY = "read-only"
    """Read sessions and the status; no output, no files."""
    ADMIN = "admin"
    """Everything."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    name: str
    scope: Scope
    user_id: str | None = None
    """User whose sessions the caller sees; None for the sessions of all users."""
    policies: Set[str] = frozenset()
    """Command policies that the caller may ask for where an operator has set one; ANY_POLICY stands
    for all. An admin may ask for all in any case."""

    egress: Sequence[str] = ()
    """Rules of egress that the caller may ask for beyond what everyone may."""

    @property
    def is_admin(self) -> bool:
        return self.scope is Scope.ADMIN

    def sees(self, user_id: str) -> bool:
        return self.user_id is None or self.user_id == user_id

    def check_acts_for(self, user_id: str) -> None:
        """CallNotPermitted unless the caller may use sessions and projects of this user."""
        if not self.sees(user_id):
            raise CallNotPermitted(
                f"This token belongs to user {self.user_id!r} and uses sessions and projects of "
                "that user only; send that user_id, or use a token of the other user."
            )

    def may_ask_for_policy(self, name: str) -> bool:
        return self.scope is Scope.ADMIN or name in self.policies or ANY_POLICY in self.policies

    def check_asks_for_policy(self, name: str) -> None:
        """CallNotPermitted unless the caller may open sessions with this command policy."""
        if not self.may_ask_for_policy(name):
            allowed = ", ".join(sorted(self.policies)) or "none"
            raise CallNotPermitted(
                f"This token may not ask for the command policy {quoted(name)} (it may ask for: "
                f"{allowed}); omit command_policy, or use a token whose line allows it."
            )


HOST = Caller(name="host", scope=Scope.ADMIN)
"""Caller on a listener that requires no token."""
UNKNOWN = Caller(name="unknown", scope=Scope.READ_ONLY, user_id="")
"""Caller without valid credentials: may do nothing, and no session belongs to this user."""

# A context variable and not a parameter: no function in between can forget to pass it on.
_current: ContextVar[Caller] = ContextVar("caller", default=HOST)
_is_passive: ContextVar[bool] = ContextVar("passive", default=False)


def current_caller() -> Caller:
    """The caller of the call that is being served; the host outside of calls."""
    return _current.get()


def act_as(caller: Caller) -> None:
    """Serve the rest of this task's call as this caller."""
    _current.set(caller)


def only_look(is_passive: bool) -> None:
    """Whether the rest of this task's call only looks, and is no use of its session."""
    _is_passive.set(is_passive)


def is_passive() -> bool:
    """Whether the call that is being served only looks."""
    return _is_passive.get()
