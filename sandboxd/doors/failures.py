"""Why a request through the egress of a session is not answered by its host."""

from __future__ import annotations

from sandboxd.doors.egress_ledger import Kind


class Denied(Exception):
    """A request is refused; the text says which rule and what to do."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Unreachable(Exception):
    """A host that is allowed does not answer."""
