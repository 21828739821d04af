"""Text diffs say what the standard library says, and never take long."""

from __future__ import annotations

import difflib
import re
from random import Random

import pytest

from sandboxd.snapshots.text_diff import MAX_WORK, TextDiff, is_text, text_diff

NAMES = ("a", "b")


def lines(random: Random, count: int) -> list[str]:
    return [f"{random.randrange(8)}\n" for _ in range(count)]


def patched(text: str, diff: str) -> str:
    """What a unified diff makes of a text; every line of it has to fit."""
    old, made, at = text.splitlines(keepends=True), [], 0
    for line in diff.splitlines(keepends=True)[2:]:
        hunk = re.match(r"@@ -(\d+)(?:,(\d+))? ", line)
        if hunk:
            begin = int(hunk[1]) - (hunk[2] != "0")
            made += old[at:begin]
            at = begin
        elif line.startswith("\\"):
            made[-1] = made[-1].removesuffix("\n")
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert old[at].rstrip("\n") == line[1:].rstrip("\n")
            at += 1
            made += [line[1:]] if line[0] == " " else []
    return "".join([*made, *old[at:]])


@pytest.mark.parametrize("seed", range(60))
def test_diff_turns_one_text_into_the_other(seed: int) -> None:
    """Applied to the first text it makes the second, with and without an end of line at the end."""
    random = Random(seed)
    old = lines(random, random.randrange(60))
    new = [line for line in old if random.random() < 0.9]
    for _ in range(random.randrange(4)):
        new.insert(random.randrange(len(new) + 1), f"new {random.random()}\n")
    before, after = ("".join(text).encode() for text in (old, new))
    if random.random() < 0.3:
        after = after.rstrip(b"\n")
    diff = text_diff(before, after, names=NAMES, context=3, max_bytes=1 << 20)

    assert patched(before.decode(), diff.text) == after.decode()
    assert not diff.is_cut


def test_diff_is_that_of_the_standard_library() -> None:
    """The same hunks with the same numbers, where only one place differs."""
    old = [f"{number}\n" for number in range(500)]
    new = [*old[:250], "new\n", *old[252:]]
    expected = list(difflib.unified_diff(old, new, *NAMES, n=3))
    found = text_diff(
        "".join(old).encode(), "".join(new).encode(), names=NAMES, context=3, max_bytes=1 << 20
    )

    assert found.text.splitlines() == [line.rstrip("\n") for line in expected]


def test_texts_that_would_take_minutes_are_left_out() -> None:
    """Lines that are equal to many others, but not to so many that they are passed over."""
    random = Random(1)
    texts = [
        "".join(f"{random.randrange(120)}\n" for _ in range(20_000)).encode() for _ in range(2)
    ]

    assert text_diff(*texts, names=NAMES, context=3, max_bytes=1 << 20) == TextDiff(is_cut=True)
    assert MAX_WORK > 0


def test_diff_is_cut_at_its_limit() -> None:
    """A shortened diff consists of whole lines and says that it is shortened."""
    diff = text_diff(b"", b"line\n" * 1000, names=NAMES, context=3, max_bytes=100)

    assert diff.is_cut
    assert len(diff.text) <= 100
    assert diff.text.endswith("\n")


def test_what_is_text() -> None:
    """UTF-8 without zero bytes."""
    assert is_text("é\n".encode())
    assert is_text(b"")
    assert not is_text(b"\xff")
    assert not is_text(b"a\0b")
