"""Unified diffs of text, bounded in time and size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

MAX_WORK = 20_000_000
"""Steps of a call's comparisons at the worst: about two seconds."""
_POPULAR_FROM, _POPULAR_SHARE = 200, 100
"""SequenceMatcher does not look for lines that are more than a hundredth of so many lines."""
_NO_END = "\\ No newline at end of file\n"


class TextDiff(NamedTuple):
    text: str = ""
    is_cut: bool = False
    is_binary: bool = False
    work: int = 0
    """Steps that it may have taken."""


def is_text(data: bytes) -> bool:
    """Whether it is UTF-8 without zero bytes."""
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def text_diff(
    before: bytes,
    after: bytes,
    *,
    names: tuple[str, str],
    context: int,
    max_bytes: int,
    max_work: int = MAX_WORK,
) -> TextDiff:
    """The diff of two texts; without text if that would take too long."""
    if not is_text(before) or not is_text(after):
        return TextDiff(is_binary=True)
    old, new = _lines(before), _lines(after)
    start = max(0, _equal(old, new) - context)
    end = _equal(old[start:][::-1], new[start:][::-1])
    end = max(0, end - context)
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    work = _work(old, new)
    if work > max_work:
        return TextDiff(is_cut=True)
    parts: list[str] = []
    size = 0
    for line in _unified(old, new, names, context, start):
        size += len(line.encode())
        if size > max_bytes:
            return TextDiff("".join(parts), is_cut=True, work=work)
        parts.append(line)
    return TextDiff("".join(parts), work=work)


def _lines(data: bytes) -> list[str]:
    """Ended by line feeds only: other ends of lines are part of the text."""
    parts = data.decode(errors="replace").split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _equal(old: list[str], new: list[str]) -> int:
    """How many lines are equal from the start."""
    for number, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return number
    return min(len(old), len(new))


def _work(old: list[str], new: list[str]) -> int:
    """Most steps of a comparison: each pair of equal lines may be looked at for every match."""
    counts, most = Counter(new), len(new)
    if len(new) >= _POPULAR_FROM:
        most = len(new) // _POPULAR_SHARE + 1
    pairs = sum(counts[line] for line in old if counts[line] <= most)
    return (pairs + len(old)) * min(len(old), len(new))


def _unified(
    old: list[str], new: list[str], names: tuple[str, str], context: int, start: int
) -> Iterator[str]:
    matcher = SequenceMatcher(None, old, new)
    is_first = True
    for group in matcher.get_grouped_opcodes(context):
        if is_first:
            yield f"--- {names[0]}\n"
            yield f"+++ {names[1]}\n"
            is_first = False
        first, last = group[0], group[-1]
        ranges = _range(first[1], last[2], start), _range(first[3], last[4], start)
        yield f"@@ -{ranges[0]} +{ranges[1]} @@\n"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (_marked(" ", line) for line in old[i1:i2])
                continue
            yield from (_marked("-", line) for line in old[i1:i2])
            yield from (_marked("+", line) for line in new[j1:j2])


def _range(first: int, last: int, start: int) -> str:
    """As in the format of ed: counted from 1, and the line before if there are none."""
    count = last - first
    begin = first + start + (1 if count else 0)
    return str(begin) if count == 1 else f"{begin},{count}"


def _marked(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n{_NO_END}"
