"""What a model is shown of output: both ends, whole lines, readable text, honest counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.spool import Preview, Spool
from sandboxd.spool.preview import COLLAPSED_BYTES, COLLAPSED_LINES
from sandboxd.spool.text import plain_line, whole_end, whole_start
from tests.unit.spool_rig import ERR, KEY, OUT, ample, settings_in

SMILE = "\N{GRINNING FACE}".encode()


def preview(data: bytes, max_bytes: int, *, collapse: bool = False) -> Preview:
    settings = settings_in(Path("/nowhere"), memory_bytes=1 << 20, max_bytes=1 << 20)
    spool = Spool(settings, KEY, ample())
    spool.append(OUT, data)
    return spool.preview(OUT, max_bytes=max_bytes, collapse=collapse)


@pytest.mark.parametrize(
    ("data", "max_bytes", "expected"),
    [
        (b"", 10, Preview(b"", b"", 0, 0)),
        (b"all of it\n", 10, Preview(b"all of it\n", b"", 0, 0)),
        (b"1\n2\n3\n4\n5\n6\n", 8, Preview(b"1\n2\n", b"5\n6\n", 4, 2)),
        (b"1\n2\n3\n4\n5\n6", 8, Preview(b"1\n2\n", b"5\n6", 4, 2)),
        (b"1\r\n2\r\n3\r\n4\r\n", 8, Preview(b"1\r\n", b"4\r\n", 6, 2)),
        (b"0123456789" * 10, 10, Preview(b"01234", b"56789", 90, 0)),
        (b"ab\n" + b"x" * 50 + b"\nyz\n", 20, Preview(b"ab\nxxxxxxx", b"xxxxxx\nyz\n", 37, 0)),
        (b"a" * 60 + b"\nlast line\n", 20, Preview(b"a" * 10, b"last line\n", 51, 1)),
        (b"\n" * 100, 10, Preview(b"\n" * 5, b"\n" * 5, 90, 90)),
        (b"aaa" + SMILE * 20, 10, Preview(b"aaa", SMILE, 76, 0)),
        (SMILE * 20, 10, Preview(SMILE, SMILE, 72, 0)),
        (SMILE * 20, 1, Preview(b"", b"", 80, 0)),
        (
            bytes(range(128, 192)) * 4,
            10,
            Preview(b"\x80\x81\x82\x83\x84", b"\xbb\xbc\xbd\xbe\xbf", 246, 0),
        ),
        (b"\xff\xfe\x00" * 30, 6, Preview(b"\xff\xfe\x00", b"\xff\xfe\x00", 84, 0)),
    ],
)
def test_a_preview_shows_both_ends(data: bytes, max_bytes: int, expected: Preview) -> None:
    """Whole lines where possible, no character cut, and everything else counted."""
    assert preview(data, max_bytes) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"plain\ntext", b"plain\ntext"),
        (b"10%\r20%\r100%\ndone\n", b"100%\ndone\n"),
        (b"10%\r20%\r", b"20%"),
        (b"10%\r\x1b[K", b"10%"),
        (b"\r 50%\r\x1b[2K\rready\n", b"ready\n"),
        (b"one\r\ntwo\r\n", b"one\ntwo\n"),
        (b"one\r\r\ntwo", b"one\ntwo"),
        (b"\r\n\r\n", b"\n\n"),
        (b"\x1b[31mred\x1b[0m \x1b[1;38;5;208mbold\x1b[m\n", b"red bold\n"),
        (b"\x1b]0;title\x07text \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", b"text link"),
        (b"\x1b(Bascii \x1b7saved\x1b8 \x1bM\x1b=", b"ascii saved "),
        (b"\x1bPstring\x1b\\after \x1b_app\x1b\\", b"after "),
        (b"\x1b]never ended\nnext", b"never ended\nnext"),
        (b"cut \x1b[3", b"cut "),
        (b"cut \x1b", b"cut "),
        (b"-\b\\\b|\b/\bdone", b"done"),
        (b"N\bNA\bAM\bME\bE", b"NAME"),
        (b"_\bx\b\b\bab", b"ab"),
        (b"abc\b \b\n", b"ab\n"),
        (SMILE + b"\bx", b"x"),
        (b"\xff\bx", b"x"),
        (b"\b\bstart\n", b"start\n"),
        (b"a\n\bb", b"a\nb"),
        (b"\xff\xfe\x00\x01", b"\xff\xfe\x00\x01"),
    ],
)
def test_collapsed_text_is_what_a_terminal_shows_in_the_end(data: bytes, expected: bytes) -> None:
    """Progress bars in their last state, no escape sequences, no rubbed out characters."""
    assert preview(data, 1000, collapse=True) == Preview(expected, b"", 0, 0)
    assert preview(data, 1000) == Preview(data, b"", 0, 0)


def test_a_long_progress_bar_takes_one_line() -> None:
    """Much raw output fits into a small preview once it is collapsed, and nothing is omitted."""
    bar = b"".join(b"\rdownloading %3d%%" % percent for percent in range(101))
    data = b"start\n" + bar * 30 + b"\nend\n"
    shown = preview(data, 100, collapse=True)
    assert shown == Preview(b"start\ndownloading 100%\nend\n", b"", 0, 0)


def test_collapsed_lines_between_others_are_not_omitted() -> None:
    """Only lines that are not shown count as omitted, at their size in the output."""
    bar = b"".join(b"\r%3d%%" % percent for percent in range(101)) + b"\n"
    data = bar + b"".join(b"line %04d\n" % number for number in range(1000)) + bar
    shown = preview(data, 100, collapse=True)
    assert shown.head == b"100%\nline 0000\nline 0001\nline 0002\nline 0003\n"
    assert shown.tail == b"line 0995\nline 0996\nline 0997\nline 0998\nline 0999\n100%\n"[-55:]
    assert shown.omitted_lines == 1002 - (shown.head + shown.tail).count(b"\n")
    assert shown.omitted_bytes == shown.omitted_lines * 10


def test_a_collapsed_line_that_is_cut_says_so() -> None:
    """What is cut from a collapsed line counts as omitted, what it overwrote does not."""
    data = b"old\r" + b"x" * 100 + b"\n" + b"older\r" + b"y" * 100
    shown = preview(data, 40, collapse=True)
    assert shown == Preview(b"x" * 20, b"y" * 20, 161, 1)


def test_endless_progress_without_a_newline_shows_its_last_state() -> None:
    """A spinner of megabytes costs a look at its ends."""
    data = b"".join(b"\r%07d" % number for number in range(100_000))
    shown = preview(data, 50, collapse=True)
    assert shown.tail == b"0099999"
    assert shown.omitted_lines == 0
    assert shown.omitted_bytes == len(data) - 2 * COLLAPSED_BYTES


def test_a_flood_of_short_lines_costs_no_more_than_a_preview_is_worth() -> None:
    """Only so many lines are looked at to be collapsed, and the rest is counted."""
    data = b"x\r\n" * 100_000
    shown = preview(data, 60_000, collapse=True)
    assert shown.head == shown.tail == b"x\n" * COLLAPSED_LINES
    assert shown.omitted_lines == 100_000 - 2 * COLLAPSED_LINES
    assert shown.omitted_bytes == 3 * shown.omitted_lines


@pytest.mark.parametrize("collapse", [False, True])
def test_a_preview_leaves_the_gap_out(tmp_path: Path, collapse: bool) -> None:
    """Dropped output is omitted output, and parts of lines next to it are shown only with room."""
    spool = Spool(settings_in(tmp_path), KEY, ample())
    lines = [b"line %05d\n" % number for number in range(5000)]
    for line in lines:
        spool.append(OUT, line)
    whole = b"".join(lines)

    small = spool.preview(OUT, max_bytes=100, collapse=collapse)
    assert (small.head, small.tail) == (b"".join(lines[:4]), b"".join(lines[-5:]))
    large = spool.preview(OUT, max_bytes=100_000, collapse=collapse)
    gap = spool.dropped(OUT)
    assert large.head == whole[: gap.at]
    assert large.tail == whole[gap.at + gap.size :]
    middle = spool.preview(OUT, max_bytes=len(large.head + large.tail) - 1, collapse=collapse)
    assert middle.head.endswith(b"\n")
    assert middle.tail.startswith(b"line")
    for shown in (small, middle, large):
        assert shown.omitted_bytes == len(whole) - len(shown.head) - len(shown.tail)
        assert shown.omitted_lines == 5000 - (shown.head + shown.tail).count(b"\n")
    assert spool.preview(ERR, max_bytes=10, collapse=collapse) == Preview(b"", b"", 0, 0)
    spool.delete()


texts = st.lists(
    st.sampled_from([b"a", b"word ", b"\n", b"\r", b"\r\n", b"\b", b"\x1b[1m", SMILE, b"\xff"]),
    max_size=120,
).map(b"".join)


@given(data=texts, max_bytes=st.integers(1, 80))
def test_a_preview_is_true_and_small(data: bytes, max_bytes: int) -> None:
    """Head and tail are the ends of the output, and the counts add up."""
    shown = preview(data, max_bytes)
    assert len(shown.head) + len(shown.tail) <= max_bytes
    assert data.startswith(shown.head)
    assert data.endswith(shown.tail)
    assert len(shown.head) + len(shown.tail) + shown.omitted_bytes == len(data)
    assert (shown.head + shown.tail).count(b"\n") + shown.omitted_lines == data.count(b"\n")


@given(data=texts, max_bytes=st.integers(1, 80))
def test_a_collapsed_preview_is_small_and_counts_lines(data: bytes, max_bytes: int) -> None:
    """It never exceeds its size, has nothing to collapse left, and loses no line unsaid."""
    shown = preview(data, max_bytes, collapse=True)
    assert len(shown.head) + len(shown.tail) <= max_bytes
    assert (shown.head + shown.tail).count(b"\n") + shown.omitted_lines == data.count(b"\n")
    assert 0 <= shown.omitted_bytes <= len(data)
    for part in (shown.head, shown.tail):
        assert not {b"\r", b"\b", b"\x1b"} & {part[i : i + 1] for i in range(len(part))}


@given(text=st.text(min_size=1), size=st.integers(0, 20))
def test_cut_text_stays_text(text: str, size: int) -> None:
    """No cut leaves a part of a character, and none costs more than the one it splits."""
    data = text.encode()
    beginning, end = whole_end(data[:size]), whole_start(data[size:])
    beginning.decode()
    end.decode()
    assert len(beginning) > min(size, len(data)) - 4
    assert len(end) > len(data) - size - 4


@given(st.binary(max_size=50))
def test_binary_lines_do_not_break_the_plain_form(data: bytes) -> None:
    """Whatever bytes a command writes, there is a plain form, and it is plain."""
    once = plain_line(data.replace(b"\n", b""))
    assert plain_line(once) == once
    assert len(once) <= len(data)
