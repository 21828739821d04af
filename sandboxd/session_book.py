"""Every session that is known, those that are over apart from the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, takewhile
from typing import Generic, Protocol, TypeVar


class Known(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def is_over(self) -> bool:
        """Whether nothing will happen to it any more."""
        ...

    @property
    def seconds_since_end(self) -> float: ...


S = TypeVar("S", bound=Known)


class SessionBook(Generic[S]):
    """Sessions by id. There may be many thousands that are over, so that whoever looks after the
    others does not have to go through them."""

    def __init__(self) -> None:
        self._present: dict[str, S] = {}
        self._past: dict[str, S] = {}
        """In the order in which they ended."""

    def __iter__(self) -> Iterator[S]:
        return chain(self._present.values(), self._past.values())

    def get(self, session_id: str) -> S | None:
        return self._present.get(session_id) or self._past.get(session_id)

    @property
    def present(self) -> Sequence[S]:
        """Those to which something may still happen."""
        return tuple(self._present.values())

    def put(self, session: S) -> None:
        """Enter it, or note that it is over; what had its id before is gone."""
        self.remove(session)
        (self._past if session.is_over else self._present)[session.id] = session

    def remove(self, session: S) -> None:
        self._present.pop(session.id, None)
        self._past.pop(session.id, None)

    def outdated(self, *, seconds: float, count: int) -> Sequence[S]:
        """Those that have been over for longer than that, or beyond that many; oldest first."""
        beyond = max(0, len(self._past) - count)
        rest = islice(self._past.values(), beyond, None)
        old = takewhile(lambda session: session.seconds_since_end > seconds, rest)
        return [*islice(self._past.values(), beyond), *old]
