"""Sessions by id and by thread, those that are over apart from the others."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxd.sessions.book import SessionBook


@dataclass(eq=False)
class Entry:
    id: str
    thread: tuple[str, str] = ("ada", "t1")
    is_over: bool = False
    is_closed: bool = False
    seconds_since_end: float = 0.0


def ids(sessions: object) -> list[str]:
    return [session.id for session in sessions]  # type: ignore[attr-defined]


def test_session_is_found_by_its_id_whether_it_is_over_or_not() -> None:
    """An id names the session that was put under it last."""
    book = SessionBook[Entry]()
    first, second = Entry("a"), Entry("b", is_over=True)
    book.put(first)
    book.put(second)
    assert (book.get("a"), book.get("b"), book.get("c")) == (first, second, None)
    assert (ids(book), ids(book.present)) == (["a", "b"], ["a"])

    again = Entry("b")
    book.put(again)
    assert book.get("b") is again
    assert ids(book.present) == ["a", "b"]
    book.remove(first)
    assert (book.get("a"), ids(book)) == (None, ["b"])


def test_session_of_a_thread_is_the_last_one_that_is_not_closed() -> None:
    """A session that ended is continued by its thread until it is closed or removed."""
    book = SessionBook[Entry]()
    first, other = Entry("a"), Entry("b", thread=("bob", "t1"))
    book.put(first)
    book.put(other)
    first.is_over = True
    book.put(first)
    assert (book.of_thread(first.thread), book.of_thread(other.thread)) == (first, other)

    first.is_closed = True
    book.put(first)
    assert book.of_thread(first.thread) is None
    second = Entry("c")
    book.put(second)
    book.remove(first)
    assert book.of_thread(first.thread) is second
    book.remove(second)
    assert book.of_thread(first.thread) is None


def test_session_that_ends_joins_those_that_are_over() -> None:
    """They are in the order of their ends, not of their beginnings."""
    book = SessionBook[Entry]()
    sessions = [Entry(name) for name in "abc"]
    for session in sessions:
        book.put(session)
    for session in (sessions[2], sessions[0]):
        session.is_over = True
        book.put(session)

    assert ids(book.present) == ["b"]
    assert ids(book) == ["b", "c", "a"]


def test_outdated_are_the_oldest() -> None:
    """Too old or too many makes a session outdated, but never one that is not over."""
    book = SessionBook[Entry]()
    book.put(Entry("present", seconds_since_end=1000))
    for age in (50, 40, 30, 20, 10):
        book.put(Entry(str(age), is_over=True, seconds_since_end=age))

    assert ids(book.outdated(seconds=35, count=100)) == ["50", "40"]
    assert ids(book.outdated(seconds=100, count=2)) == ["50", "40", "30"]
    assert ids(book.outdated(seconds=25, count=4)) == ["50", "40", "30"]
    assert ids(book.outdated(seconds=100, count=5)) == []
    assert ids(book.outdated(seconds=0, count=0)) == ["50", "40", "30", "20", "10"]
