"""Sessions by id, those that are over apart from the others."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxd.session_book import SessionBook


@dataclass(eq=False)
class One:
    id: str
    is_over: bool = False
    seconds_since_end: float = 0.0


def ids(sessions: object) -> list[str]:
    return [one.id for one in sessions]  # type: ignore[attr-defined]


def test_each_is_found_by_its_id_whether_it_is_over_or_not() -> None:
    """And the newest that was put under an id is the one."""
    book = SessionBook[One]()
    first, second = One("a"), One("b", is_over=True)
    book.put(first)
    book.put(second)
    assert (book.get("a"), book.get("b"), book.get("c")) == (first, second, None)
    assert (ids(book), ids(book.present)) == (["a", "b"], ["a"])

    again = One("b")
    book.put(again)
    assert book.get("b") is again
    assert ids(book.present) == ["a", "b"]
    book.remove(first)
    assert (book.get("a"), ids(book)) == (None, ["b"])


def test_one_that_ends_joins_those_that_are_over() -> None:
    """In the order of their ends, not of their beginnings."""
    book = SessionBook[One]()
    sessions = [One(name) for name in "abc"]
    for session in sessions:
        book.put(session)
    for session in (sessions[2], sessions[0]):
        session.is_over = True
        book.put(session)

    assert ids(book.present) == ["b"]
    assert ids(book) == ["b", "c", "a"]


def test_outdated_are_the_oldest() -> None:
    """Those that are over for too long, and those that are too many; never one that is not over."""
    book = SessionBook[One]()
    book.put(One("present", seconds_since_end=1000))
    for age in (50, 40, 30, 20, 10):
        book.put(One(str(age), is_over=True, seconds_since_end=age))

    assert ids(book.outdated(seconds=35, count=100)) == ["50", "40"]
    assert ids(book.outdated(seconds=100, count=2)) == ["50", "40", "30"]
    assert ids(book.outdated(seconds=25, count=4)) == ["50", "40", "30"]
    assert ids(book.outdated(seconds=100, count=5)) == []
    assert ids(book.outdated(seconds=0, count=0)) == ["50", "40", "30", "20", "10"]
