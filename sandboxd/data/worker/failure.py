"""How a query fails, as the worker reports it."""

from __future__ import annotations

from typing import Any


class QueryFailure(Exception):
    """A query failed. `reason` is that of an error of the API."""

    def __init__(self, reason: str, message: str, **details: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.details = details

    def encode(self) -> dict[str, Any]:
        return {"reason": self.reason, "message": str(self)[:1000], **self.details}


class Cancelled(Exception):
    """The daemon wants no more of a query."""


def not_allowed(rule: str, message: str, word: str = "") -> QueryFailure:
    return QueryFailure("STATEMENT_NOT_ALLOWED", message, rule=rule, word=word[:100])


def failed(message: str, *, sqlstate: str = "", position: int = 0) -> QueryFailure:
    return QueryFailure("QUERY_FAILED", message, sqlstate=sqlstate, position=str(position or ""))


def timed_out(seconds: float) -> QueryFailure:
    return QueryFailure(
        "QUERY_TIMED_OUT",
        f"the query did not end within {seconds:g} s; make it read less, or allow it more time",
    )


def out_of_memory() -> QueryFailure:
    return QueryFailure(
        "QUERY_LIMIT_REACHED",
        "the query needs more memory than queries of this source may have, and was ended; make it "
        "sort or return less",
        limit="MEMORY",
    )


def unavailable(message: str) -> QueryFailure:
    return QueryFailure("DATA_SOURCE_UNAVAILABLE", message)


def is_write_repeated() -> QueryFailure:
    return QueryFailure(
        "QUERY_OUTCOME_UNKNOWN",
        "the connection broke while this change was made, so it may have been made or not; look "
        "before you send it again",
    )
