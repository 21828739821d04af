"""The call that is being served, for logs, audit log and traces, without a parameter."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxd.access import Caller


class Call:
    """One call of the API."""

    __slots__ = (
        "caller",
        "exec_id",
        "failure",
        "is_retry",
        "method",
        "session_id",
        "span",
        "turn_id",
    )

    def __init__(self, method: str, *, session_id: str = "", exec_id: str = "") -> None:
        self.method = method
        self.session_id = session_id
        self.exec_id = exec_id
        self.caller: Caller | None = None
        """Caller in whose name it is counted; None until it is."""
        self.is_retry = False
        """Whether its client marked it as an automatic retry."""
        self.failure = ""
        """Reason of its failure; empty if it has not failed."""
        self.turn_id = ""
        """Turn that its client named, unchecked; empty if it named none."""
        self.span: object = None
        """Span of its trace, where traces are enabled."""


current: ContextVar[Call | None] = ContextVar("call", default=None)


def set_session(session_id: str) -> None:
    """Note the session of the call, if only its first message names it."""
    if (call := current.get()) is not None:
        call.session_id = session_id
