"""The call that is being served: known to logs, audit log and traces without being passed on."""

from __future__ import annotations

from contextvars import ContextVar


class Call:
    """One call of the API. Who calls is known to `access`."""

    __slots__ = ("exec_id", "failure", "is_retry", "method", "session_id", "span")

    def __init__(self, method: str, *, session_id: str = "", exec_id: str = "") -> None:
        self.method = method
        self.session_id = session_id
        self.exec_id = exec_id
        self.is_retry = False
        """Whether its client says that it repeats it by itself."""
        self.failure = ""
        """Why it failed, in one word."""
        self.span: object = None
        """Of its trace, where traces are wanted."""


current: ContextVar[Call | None] = ContextVar("call", default=None)


def about(session_id: str) -> None:
    """Say which session the call is about, where its first message does."""
    if (call := current.get()) is not None:
        call.session_id = session_id
