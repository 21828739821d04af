"""Searching kept output: the right lines with the right numbers, in bounded work."""

from __future__ import annotations

import itertools
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from sandboxd.errors import InvalidRequest
from sandboxd.spool import Match, SearchQuery, SearchResult, Spool, StoppedBy
from sandboxd.spool.search import BLOCK_BYTES, OVERLAP_BYTES, SHOWN_BYTES
from tests.scale import examples
from tests.unit.spool_rig import ERR, KEY, OUT, ample, settings_in


def spool_with(
    data: bytes,
    directory: Path = Path("/nowhere"),
    *,
    memory_bytes: int = 16 << 20,
    max_bytes: int = 16 << 20,
) -> Spool:
    settings = settings_in(directory, memory_bytes=memory_bytes, max_bytes=max_bytes)
    spool = Spool(settings, KEY, ample())
    for start in range(0, len(data), 60_000):
        spool.append(OUT, data[start : start + 60_000])
    return spool


def search(data: bytes, pattern: str, **options: Any) -> SearchResult:
    options = {"max_matches": 10_000, "timeout_seconds": 60.0} | options
    return spool_with(data).search(SearchQuery(pattern=pattern, **options))


def grep(data: bytes, pattern: str, *, before: int = 0, after: int = 0) -> list[Match]:
    """What a search has to find, found the simple way."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    offsets = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    expression = re.compile(pattern.encode())
    found = ((number, expression.search(line)) for number, line in enumerate(lines))
    return [
        Match(
            stream=OUT,
            line_number=number + 1,
            line_offset=offsets[number],
            match_offset=offsets[number] + match.start(),
            line=lines[number],
            is_cut=False,
            before=lines[max(0, number - before) : number],
            after=lines[number + 1 : number + 1 + after],
        )
        for number, match in found
        if match
    ]


PATTERNS = ["a", "^a", "b$", "^$", "a.b", "^[ab]+$", "x*", "(a|b)(a|b)", r"\bab\b", "[^a]", r"\s"]


@given(
    data=st.text("ab \n", max_size=60).map(str.encode),
    pattern=st.sampled_from(PATTERNS),
    before=st.integers(0, 3),
    after=st.integers(0, 3),
)
def test_a_search_finds_what_grep_finds(data: bytes, pattern: str, before: int, after: int) -> None:
    """Every matching line once, with its number, its offsets and the lines around it."""
    result = search(data, pattern, before_lines=before, after_lines=after)
    assert result.matches == grep(data, pattern, before=before, after=after)
    assert result.is_complete
    assert result.scanned_bytes == len(data)


def lines_of_all_sizes(seed: int, total: int) -> bytes:
    chance = random.Random(seed)
    parts, size = [], 0
    while size < total:
        length = chance.choice([0, 1, 5, 30, 300, 1900])
        parts.append(bytes(chance.choices(b"ab cd", k=length)) + b"\n")
        size += length + 1
    return b"".join(parts)[: total - 3]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pattern", ["aaaa", "^d", "c$", "^$", "dab.a"])
def test_blocks_do_not_show(seed: int, pattern: str) -> None:
    """Lines and contexts that lie across the borders of blocks are found like any others."""
    data = lines_of_all_sizes(seed, 5 * BLOCK_BYTES)
    for before, after in ((0, 0), (2, 0), (0, 2), (50, 50)):
        result = search(
            data, pattern, before_lines=before, after_lines=after, max_result_bytes=1 << 30
        )
        assert result.matches == grep(data, pattern, before=before, after=after)
        assert result.is_complete


@hypothesis_settings(max_examples=examples(25))
@given(
    position=st.one_of(
        st.integers(0, 300_000),
        st.integers(-100, 100).map(lambda shift: BLOCK_BYTES + shift),
        st.integers(-100, 100).map(lambda shift: 2 * BLOCK_BYTES - OVERLAP_BYTES + shift),
    ),
    pattern=st.sampled_from(["needle", "needle-*!"]),
)
def test_a_needle_is_found_anywhere_in_a_long_line(position: int, pattern: str) -> None:
    """A line of hundreds of kilobytes is looked at as a whole, though never held as one."""
    needle = b"needle" if pattern == "needle" else b"needle" + b"-" * 10_000 + b"!"
    line = b"." * position + needle + b"." * (300_000 - position)
    data = b"before\n" + line + b"\nafter\nneedle\n"
    result = search(data, pattern, before_lines=1, after_lines=1)
    first = result.matches[0]
    assert (first.line_number, first.line_offset, first.match_offset) == (2, 7, 7 + position)
    assert (first.before, first.after) == ([b"before"], [b"after"])
    assert first.is_cut
    assert needle[:500] in first.line
    assert len(first.line) <= SHOWN_BYTES
    assert result.long_lines == 1
    if needle == b"needle":
        last = result.matches[1]
        assert (last.line_number, last.line, last.before) == (4, b"needle", [b"after"])
    assert result.is_complete


@pytest.mark.parametrize(
    ("pattern", "is_found"),
    [
        ("^x", False),
        ("^a", True),
        ("x$", False),
        ("z$", True),
        (r"\bx", False),
        (r"x\b", False),
        (r"z\b", True),
        ("x.*z", True),
        ("y", False),
        ("a.*", True),
    ],
)
def test_the_parts_of_a_long_line_have_no_ends_of_their_own(pattern: str, is_found: bool) -> None:
    """Only the true ends of a line are its ends, however it is cut for the search."""
    for size in (2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 1, 5 * BLOCK_BYTES + 17):
        for ending in (b"", b"\n", b"\nlast"):
            data = b"a" + b"x" * size + b"z" + ending
            result = search(data, pattern, after_lines=1)
            matches = [match for match in result.matches if match.line_number == 1]
            assert len(matches) == is_found, (size, ending)
            assert result.long_lines == 1
            if is_found and ending == b"\nlast":
                assert matches[0].after == [b"last"]


def test_a_long_line_is_context_too() -> None:
    """Before and after a match it is shown by its beginning."""
    data = b"hit\n" + b"x" * 200_000 + b"\nhit\n" + b"y" * 200_000
    result = search(data, "hit", before_lines=1, after_lines=1)
    xs, ys = b"x" * SHOWN_BYTES, b"y" * SHOWN_BYTES
    assert [match.line_number for match in result.matches] == [1, 3]
    assert [match.before for match in result.matches] == [[], [xs]]
    assert [match.after for match in result.matches] == [[xs], [ys]]


def test_a_cut_line_shows_its_match_and_whole_characters() -> None:
    """Of a line too long to be shown, what surrounds the match is."""
    line = "\N{SNOWMAN}".encode() * 2000 + b"needle" + "\N{SNOWMAN}".encode() * 2000
    for data in (line, line + b"\n", b"\n" + line):
        (match,) = search(data, "needle").matches
        assert match.is_cut
        assert "needle" in match.line.decode()
        assert SHOWN_BYTES - 6 < len(match.line) <= SHOWN_BYTES
    (at_the_end,) = search(line[:6006], "needle").matches
    assert at_the_end.line.decode().endswith("needle")
    (at_the_start,) = search(line[6000:], "needle").matches
    assert at_the_start.line.decode().startswith("needle")
    assert at_the_start.match_offset == 0


def test_line_numbers_stay_true_across_the_gap(tmp_path: Path) -> None:
    """After the gap lines have the numbers they had in the whole output."""
    spool = spool_with(b"", tmp_path, memory_bytes=4096, max_bytes=65_536)
    lines = [b"this is line %d%s" % (number, b"!" * (number % 50)) for number in range(40_001)]
    for line in lines[1:]:
        spool.append(OUT, line + b"\n")
    spool.append(ERR, b"this is line 1\n")
    gap = spool.dropped(OUT)
    assert gap.size > 0

    query = SearchQuery(pattern="^this is", max_matches=100_000, before_lines=1, after_lines=2)
    result = spool.search(query)

    assert result.is_complete
    assert result.scanned_bytes == spool.length(OUT) - gap.size + 15
    *stdout, stderr = result.matches
    assert (stderr.stream, stderr.line_number, stderr.before) == (ERR, 1, [])
    assert {match.stream for match in stdout} == {OUT}
    whole = [match for match in stdout if not match.is_cut]
    for match in whole:
        assert match.line == lines[match.line_number]
        for line, after in zip(lines[match.line_number + 1 :], match.after, strict=False):
            assert line.startswith(after)
    numbers = [match.line_number for match in whole]
    assert (numbers[0], numbers[-1]) == (1, 40_000)
    jumps = [pair for pair in itertools.pairwise(numbers) if pair[1] != pair[0] + 1]
    assert len(jumps) == 1
    # Next to the gap there may be a part of a line on either side, said to be one.
    parts = {match.line_number for match in stdout if match.is_cut}
    assert parts <= {jumps[0][0] + 1, jumps[0][1] - 1}
    after_the_gap = next(match for match in whole if match.line_number == jumps[0][1])
    assert len(after_the_gap.before) <= 1
    assert not any(b"line %d" % jumps[0][0] in line for line in after_the_gap.before)
    for match in stdout:
        piece = spool.read(OUT, match.line_offset, len(match.line))
        assert piece.data == match.line
    spool.delete()


def test_only_the_streams_asked_for_are_searched(tmp_path: Path) -> None:
    """Stdout comes first, and a stream that is not asked for is not read."""
    spool = spool_with(b"one\ntwo\n", tmp_path)
    spool.append(ERR, b"three\none\n")
    both = spool.search(SearchQuery(pattern="one"))
    assert [(match.stream, match.line_number) for match in both.matches] == [(OUT, 1), (ERR, 2)]
    stderr = spool.search(SearchQuery(pattern="one", streams=[ERR]))
    assert [(match.stream, match.line_number) for match in stderr.matches] == [(ERR, 2)]
    assert stderr.scanned_bytes == 10


def test_max_matches_is_exact() -> None:
    """A search is incomplete only if there was more to find; contexts are complete either way."""
    data = b"".join(b"line %d\n" % number for number in range(30_000))
    assert search(data, "line 1.*7$", max_matches=1111).is_complete
    short = search(data, "line 1.*7$", max_matches=1110, after_lines=3)
    assert short.stopped_by is StoppedBy.MATCHES
    assert short.matches == grep(data, "line 1.*7$", after=3)[:1110]

    at_a_border = data[:BLOCK_BYTES].count(b"\n")
    for count in range(at_a_border - 4, at_a_border + 4):
        result = search(data, "line", max_matches=count, after_lines=2)
        assert len(result.matches) == count
        assert all(len(match.after) == 2 for match in result.matches)


def test_work_and_result_are_bounded() -> None:
    """Bytes to scan, time and size of the result each end a search, and the result says which."""
    data = b"some line\n" * 100_000
    scan = search(data, "nothing", max_scan_bytes=200_000)
    assert (scan.stopped_by, scan.scanned_bytes) == (StoppedBy.SCANNED_BYTES, 200_000)
    assert not scan.is_complete
    assert search(data, "nothing", max_scan_bytes=1_000_000).is_complete

    size = search(data, "line", max_result_bytes=9000, before_lines=1)
    assert size.stopped_by is StoppedBy.RESULT_BYTES
    assert 9000 <= sum(len(match.line) + 9 for match in size.matches) < 9100

    ticks = itertools.count()
    query = SearchQuery(pattern="nothing", timeout_seconds=5)
    timed = spool_with(data).search(query, clock=lambda: float(next(ticks)))
    assert timed.stopped_by is StoppedBy.DEADLINE
    assert timed.scanned_bytes == 4 * BLOCK_BYTES


def test_contexts_are_part_of_the_bound() -> None:
    """Many long lines around many matches do not make a result without end."""
    data = (b"hit\n" + b"x" * 1900 + b"\n") * 5000
    result = search(data, "hit", before_lines=50, after_lines=50, max_result_bytes=1 << 20)
    assert result.stopped_by is StoppedBy.RESULT_BYTES
    shown = sum(
        len(b"".join([*match.before, match.line, *match.after])) for match in result.matches
    )
    assert shown < (1 << 20) + 4 * BLOCK_BYTES


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+$", "(a*)*b", "^(a?){50}a{50}$", "(.*a){12}c", "(x+x+)+y"]
)
def test_a_catastrophic_pattern_is_harmless(pattern: str) -> None:
    """Patterns that take a backtracking matcher for ever end in time, also on long lines."""
    data = (b"a" * 40 + b"!\n") * 20_000 + b"a" * 1_000_000 + b"!\n"
    began = time.monotonic()
    result = search(data, pattern, timeout_seconds=20)
    assert result.matches == []
    assert result.is_complete
    assert time.monotonic() - began < 20


def test_the_costliest_pattern_ends_soon_after_its_deadline() -> None:
    """The largest program that is accepted does not hold a search much beyond its time."""
    chance = random.Random(5)
    data = bytes(chance.choices(b"ab", k=2_000_000))
    began = time.monotonic()
    result = search(data, "(a|b)*a(a|b){980}c|(a|b)*b(a|b){980}d", timeout_seconds=0.2)
    assert result.stopped_by is StoppedBy.DEADLINE
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("", "empty"),
        ("(", "missing"),
        ("a" * 1001, "1000 characters"),
        (r"(?:\pL{50}\pN{50}){10}", "RE2"),
        (r"\pL\pL\pL\pL", "too complex"),
        (r"(a)\1", "invalid escape"),
        ("(?=a)", "invalid perl operator"),
        (r"\Afoo", r"\A"),
        (r"foo\z", r"\z"),
        (r"a\Cb", r"\C"),
        ("(?-m)^a", "flag m"),
        ("(?i-sm:a)", "flag m"),
        ("\ud800", "Unicode"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str, said: str) -> None:
    """In words, and as the caller's mistake."""
    with pytest.raises(InvalidRequest) as refused:
        search(b"text\n", pattern)
    assert refused.value.field == "pattern"
    assert said in refused.value.problem


@pytest.mark.parametrize(
    ("data", "pattern"),
    [
        (b"C:\\A\n", r"\\A"),
        (b"(-m\n", r"\(?-m"),
        (b"FOO\n", "(?i)foo"),
        (b"x\nfoo\n", "(?s-i)^foo"),
        (b"a\xc3\xa9b\n", "a.b"),
        (b"a\xc3\xa9b\n", "é"),
        (b"\xff\xfe ok\n", "ok"),
        (b"tab\tx\n", r"\t"),
        (b"b", "a|b"),
        (b"b", "a|^b"),
    ],
)
def test_patterns_near_the_refused_ones_work(data: bytes, pattern: str) -> None:
    """What only looks like something that is not supported is found."""
    assert len(search(data, pattern).matches) == 1


@pytest.mark.parametrize("pattern", [r"a\nb", r"a\sb", "(?s)a.b", r"a[\s\S]b", "a\nb", "a[^x]b"])
def test_a_match_stays_within_a_line(pattern: str) -> None:
    """Nothing matches a newline."""
    assert search(b"a\nb\n", pattern).matches == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("before_lines", -1),
        ("after_lines", 51),
        ("max_matches", 0),
        ("max_scan_bytes", 0),
        ("max_result_bytes", 0),
        ("timeout_seconds", 0.0),
    ],
)
def test_bounds_that_make_no_sense_are_refused(field: str, value: float) -> None:
    """The error names the field."""
    with pytest.raises(InvalidRequest) as refused:
        search(b"", "a", **{field: value})
    assert refused.value.field == field


def test_a_search_in_a_thread_sees_appends_as_a_whole(tmp_path: Path) -> None:
    """While the middle is dropped under it, every line it finds has its true number."""
    spool = spool_with(b"", tmp_path, memory_bytes=4096, max_bytes=262_144)
    query = SearchQuery(pattern="^line .*7 end$", max_matches=100_000, max_result_bytes=1 << 30)
    number = 0
    results: list[SearchResult] = []
    with ThreadPoolExecutor(1) as pool:
        while number < 200_000 or len(results) < 10:
            running = pool.submit(spool.search, query)
            while not running.done() or number < 10_000:
                lines = b"".join(b"line %d end\n" % n for n in range(number + 1, number + 401))
                spool.append(OUT, lines)
                number += 400
            results.append(running.result())

    assert spool.dropped(OUT).size > 0
    matches = [match for result in results for match in result.matches]
    assert len(matches) > 1000
    assert all(match.line == b"line %d end" % match.line_number for match in matches)
    assert all(result.is_complete for result in results)
    spool.delete()


def test_a_search_ends_when_its_spool_is_deleted(tmp_path: Path) -> None:
    """It says that it saw only a part."""
    spool = spool_with(b"line\n" * 200_000, tmp_path, memory_bytes=4096)
    times = itertools.count()

    def clock() -> float:
        if next(times) == 3:
            spool.delete()
        return 0.0

    result = spool.search(SearchQuery(pattern="nothing"), clock=clock)
    assert result.stopped_by is StoppedBy.DELETED
    assert result.scanned_bytes == 2 * BLOCK_BYTES
