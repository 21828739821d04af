"""Whose turn it is to get a sandbox."""

from __future__ import annotations

from sandboxd.pool.queue import OpenQueue


def queue(*waiting: tuple[str, int]) -> OpenQueue[tuple[str, int]]:
    made: OpenQueue[tuple[str, int]] = OpenQueue()
    for waiter in waiting:
        made.join(waiter[0], waiter)
    return made


def served(waiting: OpenQueue[tuple[str, int]]) -> tuple[str, int]:
    first = next(iter(waiting))
    waiting.serve(first[0], first)
    return first


def drained(waiting: OpenQueue[tuple[str, int]]) -> list[tuple[str, int]]:
    return [served(waiting) for _ in range(len(waiting))]


def test_openers_of_one_user_are_served_in_their_order() -> None:
    """First come, first served."""
    assert drained(queue(("a", 1), ("a", 2), ("a", 3))) == [("a", 1), ("a", 2), ("a", 3)]


def test_users_take_turns() -> None:
    """However many openers one user has, another's first is served after one of them."""
    order = drained(queue(("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1), ("b", 2)))
    assert order == [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("b", 2), ("a", 3)]


def test_user_who_comes_back_is_not_served_before_those_who_wait() -> None:
    """A user who was just served and joins again does not get ahead."""
    waiting = queue(("a", 1), ("b", 1), ("c", 1))
    assert served(waiting) == ("a", 1)
    waiting.join("a", ("a", 2))
    assert drained(waiting) == [("b", 1), ("c", 1), ("a", 2)]


def test_order_of_the_queue_is_the_order_of_turns() -> None:
    """What is listed is what would be served, one after the other."""
    waiting = queue(("a", 1), ("a", 2), ("b", 1), ("c", 1), ("c", 2), ("a", 3))
    assert list(waiting) == drained(waiting)


def test_opener_that_cannot_be_served_yet_keeps_its_place() -> None:
    """Others are served meanwhile, of other users and of its own, and it stays the first."""
    waiting = queue(("a", 1), ("a", 2), ("b", 1))
    waiting.serve("b", ("b", 1))
    waiting.serve("a", ("a", 2))
    waiting.join("c", ("c", 1))
    assert list(waiting) == [("a", 1), ("c", 1)]


def test_opener_that_gave_up_has_no_turn() -> None:
    """Leaving takes out that one only, and leaving twice is nothing."""
    waiting = queue(("a", 1), ("a", 2), ("b", 1))
    for _ in range(2):
        waiting.leave("a", ("a", 1))
        waiting.leave("b", ("b", 1))
    assert list(waiting) == [("a", 2)]
    assert drained(waiting) == [("a", 2)]
    assert list(waiting) == []


def test_user_with_the_most_gives_way_to_one_with_fewer() -> None:
    """The newest of the user with the most goes, until the newcomer would have as many."""
    waiting = queue(*(("a", number) for number in range(4)), ("b", 1))
    assert waiting.evict_for("c") == ("a", 3)
    waiting.join("c", ("c", 1))
    assert waiting.evict_for("c") == ("a", 2)
    waiting.join("c", ("c", 2))
    assert waiting.evict_for("c") is None, "a has two, c would have three"
    assert waiting.evict_for("a") is None
    assert drained(waiting) == [("a", 0), ("b", 1), ("c", 1), ("a", 1), ("c", 2)]


def test_nobody_gives_way_in_an_empty_queue() -> None:
    """Where nobody waits there is nobody to take out."""
    assert queue().evict_for("a") is None


def test_whoever_goes_first_is_served_next() -> None:
    """One that has just given up a sandbox to get another is before all, also of its own user."""
    waiting = queue(("a", 1), ("b", 1))
    waiting.go_first("b", ("b", 0))
    assert drained(waiting) == [("b", 0), ("a", 1), ("b", 1)]
