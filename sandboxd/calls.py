"""The call that is being served: known to logs and to the audit log without being passed around."""

from __future__ import annotations

from contextvars import ContextVar

LOCAL = "local"
"""Whoever may use the socket, as long as callers do not say who they are."""
DAEMON = "daemon"
"""Who does what nobody has asked for, such as ending idle sessions."""


class Call:
    """One call of the API."""

    __slots__ = ("caller", "exec_id", "method", "session_id")

    def __init__(
        self, method: str, *, caller: str = LOCAL, session_id: str = "", exec_id: str = ""
    ) -> None:
        self.method = method
        self.caller = caller
        self.session_id = session_id
        self.exec_id = exec_id


current: ContextVar[Call | None] = ContextVar("call", default=None)


def caller() -> str:
    """Who asked for what is being done."""
    call = current.get()
    return call.caller if call is not None else DAEMON
