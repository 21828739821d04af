"""Every known session, by id and by thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, takewhile
from typing import Generic, Protocol, TypeAlias, TypeVar

ThreadKey: TypeAlias = tuple[str, str]
"""A user's id and the id of one of the user's threads."""


class Known(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def thread(self) -> ThreadKey: ...

    @property
    def is_over(self) -> bool:
        """Whether nothing more can happen to it."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether its thread starts anew with another session."""
        ...

    @property
    def seconds_since_end(self) -> float: ...


S = TypeVar("S", bound=Known)


class SessionBook(Generic[S]):
    """Sessions by id and by thread. Many thousands may be over, so they are kept apart: a pass over
    the others does not visit them."""

    def __init__(self) -> None:
        self._present: dict[str, S] = {}
        self._past: dict[str, S] = {}
        """Sessions that are over, in the order of their ends."""
        self._by_thread: dict[ThreadKey, S] = {}

    def __iter__(self) -> Iterator[S]:
        return chain(self._present.values(), self._past.values())

    def get(self, session_id: str) -> S | None:
        return self._present.get(session_id) or self._past.get(session_id)

    def of_thread(self, key: ThreadKey) -> S | None:
        """The session that an open of this thread continues."""
        return self._by_thread.get(key)

    @property
    def present(self) -> Sequence[S]:
        """Sessions that are not over."""
        return tuple(self._present.values())

    @property
    def past_count(self) -> int:
        """Number of sessions that are over."""
        return len(self._past)

    def put(self, session: S) -> None:
        """Enter a session in place of any other with its id, or again after its state changed."""
        self.remove(session)
        (self._past if session.is_over else self._present)[session.id] = session
        if not session.is_closed:
            self._by_thread[session.thread] = session

    def remove(self, session: S) -> None:
        self._present.pop(session.id, None)
        self._past.pop(session.id, None)
        if self._by_thread.get(session.thread) is session:
            del self._by_thread[session.thread]

    def outdated(self, *, seconds: float, count: int) -> Sequence[S]:
        """Sessions that have been over for longer than this, or beyond this many; oldest first."""
        beyond = max(0, len(self._past) - count)
        rest = islice(self._past.values(), beyond, None)
        old = takewhile(lambda session: session.seconds_since_end > seconds, rest)
        return [*islice(self._past.values(), beyond), *old]
