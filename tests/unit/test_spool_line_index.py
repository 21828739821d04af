"""The index of lines: exact at every mark, however it is built."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandboxd.spool.line_index import LONG_LINE, MAX_MARKS, LineIndex, newlines_in
from tests.unit.spool_rig import OUTPUT


def newlines_before(offset: int) -> int:
    return OUTPUT[:offset].count(b"\n")


@given(
    start=st.integers(0, 5000),
    pieces=st.lists(st.integers(1, 40_000), min_size=1, max_size=12),
    step=st.sampled_from([1, 2, 7, 64, 256]),
    forgotten=st.floats(0, 1),
)
def test_a_mark_tells_the_lines_before_it(
    start: int, pieces: list[int], step: int, forgotten: float
) -> None:
    """From any offset on there is a near mark with the true count, and never too many of them."""
    index = LineIndex(start, newlines_before(start), step=step)
    end, forgotten_to = start, start
    for size in pieces:
        newlines = index.add(end, newlines_before(end), OUTPUT[end : end + size])
        end += size
        assert newlines == newlines_before(end)
        forgotten_to = max(forgotten_to, start + int((end - start) * forgotten) // 2)
        index.drop_before(forgotten_to)

    largest_step = step + 4 * (end - start) // MAX_MARKS
    for offset in range(forgotten_to, end, 997):
        assert index.reaches(offset)
        mark = index.at_or_after(offset)
        if mark is None:
            assert end - offset < largest_step
        else:
            assert offset <= mark[0] < offset + largest_step
            assert mark[1] == newlines_before(mark[0])


def test_an_index_can_be_shifted() -> None:
    """Counts of an index that began with an unknown number of lines are made true afterwards."""
    index = LineIndex(512, 0, step=256)
    index.add(512, 0, OUTPUT[512:4000])
    index.shift(newlines_before(512))
    assert index.at_or_after(3000) == (3072, newlines_before(3072))
    assert index.at_or_after(3841) is None


@given(
    lengths=st.lists(st.integers(0, 3 * LONG_LINE), max_size=30),
    more=st.lists(st.integers(0, 20), max_size=200),
    cut=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_lines_are_counted_however_long_they_are(
    lengths: list[int], more: list[int], cut: tuple[float, float]
) -> None:
    """Long ones, short ones after them, and any part of it."""
    data = b"".join(b"x" * length + b"\n" for length in (*lengths, *more))
    start, end = sorted(int(part * len(data)) for part in cut)

    assert newlines_in(data, start, end) == data.count(b"\n", start, end)
