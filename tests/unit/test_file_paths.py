"""Paths of files: which are valid, which are not, and how they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.errors import InvalidRequest
from sandboxd.files import Entry, FilePath, FileType, exact_of, text_of
from sandboxd.files.entries import iso_time


def parse(text: str, exact: bytes = b"", **more: object) -> FilePath:
    return FilePath.parse(text, exact, workspace="/workspace", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("data.json", b"data.json"),
        ("/workspace/data.json", b"data.json"),
        ("//workspace//a/./b/", b"a/b"),
        ("./a", b"a"),
        ("a/", b"a"),
        ("-rf", b"-rf"),
        ("a b\nc", b"a b\nc"),
        ("...", b"..."),
        ("caf\u00e9", b"caf\xc3\xa9"),
        ("workspace/x", b"workspace/x"),
        ("x" * 255, b"x" * 255),
    ],
)
def test_what_is_a_path(text: str, raw: bytes) -> None:
    """Relative to the workspace or absolute below it, without empty parts and dots."""
    assert (parse(text).raw, parse(text).is_outside) == (raw, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "/",
        "./.",
        "/workspace",
        "/workspace/.",
        "..",
        "../../etc/passwd",
        "a/../../b",
        "a/..",
        "/workspace/../etc",
        "/tmp/../etc/passwd",
        "/..",
        "//",
        "/./",
        "a\0b",
        "x" * 5000,
        "a/" * 2047 + "bb",
        "x" * 256,
    ],
)
def test_what_is_not_a_path(text: str) -> None:
    """Empty, the workspace itself where a file is meant, above it, elsewhere, NUL, too long."""
    with pytest.raises(InvalidRequest) as caught:
        parse(text, field="new_path")

    assert caught.value.field == "new_path"


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("/etc/passwd", b"/etc/passwd"),
        ("//tmp//a/./b/", b"/tmp/a/b"),
        ("/workspace2/x", b"/workspace2/x"),
        ("/work", b"/work"),
        ("/tmp/workspace/x", b"/tmp/workspace/x"),
        ("/", b"/"),
    ],
)
def test_paths_outside_of_the_workspace(text: str, raw: bytes) -> None:
    """Absolute ones that are not below it; written out they are the same again."""
    path = parse(text, may_be_workspace=True)

    assert (path.is_outside, path.raw, str(path)) == (True, raw, raw.decode())
    assert parse(path.raw.decode(), may_be_workspace=True) == path
    assert parse(text, start=b"agent_workspace", may_be_workspace=True) == path


@pytest.mark.parametrize("text", ["", ".", "/workspace", "/workspace/"])
def test_the_workspace_itself(text: str) -> None:
    """Where a directory is meant it may be that."""
    assert parse(text, may_be_workspace=True).parts == ()
    assert parse(text, may_be_workspace=True).raw == b""


def test_exact_bytes_replace_the_text() -> None:
    """And are checked in the same way."""
    assert parse("ignored", b"\xff\xfe").raw == b"\xff\xfe"
    with pytest.raises(InvalidRequest):
        parse("fine", b"../x")


def test_where_relative_paths_begin() -> None:
    """Only relative ones; no path at all is the workspace."""
    assert parse("x", start=b"agent_workspace").raw == b"agent_workspace/x"
    assert parse("/workspace/x", start=b"agent_workspace").raw == b"x"
    assert parse("", start=b"agent_workspace", may_be_workspace=True).parts == ()


@given(st.binary(max_size=300))
def test_any_bytes_are_a_path_or_refused(raw: bytes) -> None:
    """Nothing else is raised, and a path stays inside."""
    try:
        path = parse("", raw or b"x")
    except InvalidRequest:
        return
    assert not {b"", b".", b".."} & set(path.parts)
    assert path.is_outside == (path.parts[0] == b"/") == path.raw.startswith(b"/")
    assert b"/" not in path.parts[1:]
    assert b"\0" not in path.raw
    assert parse("", path.raw) == path


@given(st.binary(max_size=50))
def test_text_shows_every_name(raw: bytes) -> None:
    """It prints, and where it is not exact the bytes come along."""
    shown = text_of(raw)

    assert shown.isprintable()
    assert exact_of(raw) == (b"" if shown.encode() == raw else raw)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain", "plain"),
        (b"a\nb", r"a\x0ab"),
        (b"\xff", r"\xff"),
        ("caf\u00e9".encode(), "caf\u00e9"),
        (b"\x1b[31m", r"\x1b[31m"),
        ("\u202e".encode(), r"\xe2\x80\xae"),
    ],
)
def test_how_names_are_shown(raw: bytes, shown: str) -> None:
    """What prints as it is, the rest escaped byte by byte."""
    assert text_of(raw) == shown


@pytest.mark.parametrize(
    ("modified_ns", "shown"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_772_366_400_250_000_000, "2026-03-01T12:00:00.250000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        ((1 << 63) - 1, "2262-04-11T23:47:16.854775Z"),
        (-(1 << 63), "1677-09-21T00:12:43.145224Z"),
    ],
)
def test_times_as_text(modified_ns: int, shown: str) -> None:
    """ISO 8601 in UTC, for every time that a filesystem has."""
    entry = Entry(path=b"d/x", type=FileType.FILE, size=0, modified_ns=modified_ns, mode=0o640)

    assert iso_time(*divmod(entry.modified_ns, 1_000_000_000)) == shown
    assert (entry.name, entry.permissions) == (b"x", "-rw-r-----")
