"""Parts of the command line: tables, places, keys, progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.cli.keyboard import DetachKeys
from sandboxd.cli.place import RemotePlace
from sandboxd.cli.progress import ProgressLine
from sandboxd.cli.table import lines, printable, size, span


@pytest.mark.parametrize(
    ("text", "session", "path"),
    [
        ("ses_0af1:data/in.csv", "ses_0af1", "data/in.csv"),
        ("ses_0af1:", "ses_0af1", ""),
        ("ada/42:/workspace/a:b", "ada/42", "/workspace/a:b"),
        ("ada@example.com/chat-1:x", "ada@example.com/chat-1", "x"),
    ],
)
def test_a_place_in_a_session(text: str, session: str, path: str) -> None:
    """SESSION:PATH, where the path may hold anything."""
    assert RemotePlace.parse(text) == RemotePlace(session, path)


@pytest.mark.parametrize("text", ["file.txt", "./ada/42:x", "/ada/42:x", "../a/b:c", "a/b/c:d"])
def test_a_place_on_this_machine(text: str) -> None:
    """Anything else, and whatever begins with a dot or a slash."""
    assert RemotePlace.parse(text) is None


@given(st.lists(st.binary(max_size=3), max_size=8))
def test_keys_go_through_as_they_were_typed(typed: list[bytes]) -> None:
    """Up to the keys to detach, however they are cut into pieces; at most one key is held back."""
    keys = DetachKeys()
    sent, is_detached = b"", False
    for piece in typed:
        data, is_detached = keys.feed(piece)
        sent += data
        if is_detached:
            break

    everything = b"".join(typed)
    before, found, _ = everything.partition(b"\x10\x11")
    assert is_detached == bool(found)
    assert sent == before or (not found and sent + b"\x10" == everything)


@pytest.mark.parametrize("pieces", [[b"ls\x10\x11x"], [b"ls\x10", b"\x11"], [b"ls", b"\x10\x11"]])
def test_the_keys_to_detach_are_found(pieces: list[bytes]) -> None:
    """Also when they come one by one."""
    keys = DetachKeys()
    answers = [keys.feed(piece) for piece in pieces]

    assert b"".join(data for data, _ in answers) == b"ls"
    assert answers[-1][1]


def test_a_table_fits_its_terminal() -> None:
    """The widest columns are cut, and elsewhere nothing is."""
    rows = [("short", "x" * 100), ("y" * 60, 3)]

    cut = lines(("A", "B"), rows, 60)
    whole = lines(("A", "B"), rows, None)

    assert max(map(len, cut)) <= 60
    assert "…" in cut[1]
    assert whole[1].endswith("x" * 100)


@given(st.text())
def test_nothing_in_a_table_can_steer_the_terminal(text: str) -> None:
    """File names and commands come from sandboxes."""
    assert printable(text).isprintable()
    assert printable(printable(text)) == printable(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0B"), (999, "999B"), (1500, "1.5K"), (64 << 20, "64M"), (3 << 30, "3.0G")],
)
def test_sizes_are_short(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s"), (59, "59s"), (119, "119s"), (120, "2m"), (90000, "25h")]
)
def test_spans_are_short(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_progress_tells_how_far_it_is() -> None:
    """With a bar where the end is known, otherwise with what was moved so far."""
    known, unknown = ProgressLine("a.bin", 4 << 20), ProgressLine("dir", None)
    for line in (known, unknown):
        line.add(1 << 20)

    assert known.text(1.0) == "a.bin  [######..................]  25%  1.0M of 4.0M  1.0M/s"
    assert unknown.text(2.0) == "dir  1.0M  512K/s"
