"""Lines of snapshots stay within their limits: new ones stay, old ones thin out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandboxd.sessions.lines import Cause, is_automatic
from sandboxd.sessions.thinning import DAY, HOUR, RECENT, LineLimits, surplus
from sandboxd.snapshots.contract import Line, Notes, Snapshot

LINE = Line(user_id="ada", name="ses_1")
NOW = 1_000_000_000.0


def a_snapshot(number: int, age: float, *, cause: Cause = Cause.EXEC, stored: int = 1) -> Snapshot:
    return Snapshot(
        line=LINE,
        number=number,
        created_at=NOW - age,
        notes=Notes(cause=cause),
        entries=1,
        content_bytes=1,
        stored_bytes=stored,
    )


def a_line(ages: list[float], **fields: int) -> list[Snapshot]:
    return [a_snapshot(number, age, **fields) for number, age in enumerate(ages, 1)]


def kept(line: list[Snapshot], limits: LineLimits) -> list[Snapshot]:
    doomed = {one.number for one in surplus(line, limits, now=NOW, is_automatic=is_automatic)}
    return [one for one in line if one.number not in doomed]


def test_young_line_is_kept_whole() -> None:
    """Nothing is deleted before a limit is reached."""
    line = a_line([60.0 - one for one in range(60)])

    assert kept(line, LineLimits()) == line


def test_number_of_automatic_snapshots_is_limited() -> None:
    """The oldest go first."""
    line = a_line([300.0 - one for one in range(300)])

    assert kept(line, LineLimits(count=200)) == line[100:]


def test_old_snapshots_thin_out() -> None:
    """Beyond the newest, there is about one per ten minutes for a day, then one per hour."""
    line = a_line([2 * DAY - 60.0 * minute for minute in range(2 * 24 * 60)])
    left = kept(line, LineLimits(count=10_000))
    yesterday = [one for one in left if HOUR * 2 < NOW - one.created_at < DAY]
    before = [one for one in left if NOW - one.created_at > DAY + HOUR]

    assert left[-RECENT:] == line[-RECENT:]
    assert 6 * 21 <= len(yesterday) <= 6 * 22 + 1
    assert 22 <= len(before) <= 24


def test_snapshots_beyond_their_age_go_but_the_newest_stays() -> None:
    """A session that was idle for long still has the state it was left in."""
    line = a_line([30 * DAY, 20 * DAY, 10 * DAY])

    assert kept(line, LineLimits(age_seconds=7 * DAY)) == line[-1:]


def test_bytes_are_limited() -> None:
    """Snapshots that callers asked for count, but are not deleted."""
    requested = a_snapshot(1, 100.0, cause=Cause.REQUESTED, stored=60)
    line = [requested, *(a_snapshot(number, 90.0 - number, stored=10) for number in range(2, 12))]
    left = kept(line, LineLimits(stored_bytes=100))

    assert left == [requested, *line[-4:]]


@given(
    st.lists(
        st.tuples(st.floats(0, 60 * DAY), st.sampled_from(Cause), st.integers(0, 1000)),
        max_size=80,
    ),
    st.integers(1, 50),
    st.integers(0, 20_000),
)
def test_limits_hold_for_any_line(
    found: list[tuple[float, Cause, int]], count: int, stored: int
) -> None:
    """However a line came to be: what callers asked for stays, the newest automatic one stays, and
    the others are within the limits."""
    found.sort(key=lambda one: -one[0])
    line = [
        a_snapshot(number, age, cause=cause, stored=size)
        for number, (age, cause, size) in enumerate(found, 1)
    ]
    left = kept(line, LineLimits(count=count, stored_bytes=stored))
    automatic = [one for one in line if is_automatic(one)]
    stayed = [one for one in left if is_automatic(one)]

    assert [one for one in left if not is_automatic(one)] == [
        one for one in line if not is_automatic(one)
    ]
    assert stayed[-1:] == automatic[-1:]
    assert len(stayed) <= count
    assert len(stayed) <= 1 or sum(one.stored_bytes for one in left) <= stored
