"""Text of files read, written and edited, and searched, by a real guest."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.errors import (
    FileExists,
    FileNotFound,
    FileTooLarge,
    InvalidRequest,
    NotADirectory,
    NotAFile,
    TextNotFound,
)
from sandboxd.files import EditSpec, FileType, GrepSpec, TextSpec
from tests.guest.file_rig import MIB, FileRig, guest_with_files


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[FileRig]:
    async with guest_with_files(tmp_path, search_seconds=2.0) as rig:
        yield rig


LINES = "one\ntwo\nthree\nfour\nfive"


@pytest.mark.parametrize(
    ("asked", "text", "count", "truncated"),
    [
        ({}, LINES, 5, False),
        ({"first_line": 2, "max_lines": 2}, "two\nthree\n", 2, True),
        ({"first_line": 4}, "four\nfive", 2, False),
        ({"first_line": 5, "max_lines": 1}, "five", 1, False),
        ({"first_line": 6}, "", 0, False),
        ({"first_line": 99, "max_lines": 3}, "", 0, False),
        ({"max_bytes": 6}, "one\ntw", 2, True),
        ({"max_lines": 1, "max_bytes": 2}, "on", 1, True),
        ({"max_lines": 5}, LINES, 5, False),
    ],
)
async def test_lines_of_a_file(
    rig: FileRig, asked: dict[str, int], text: str, count: int, truncated: bool
) -> None:
    """Those asked for, with the number of all, and whether something after them is left out."""
    await rig.put("file", LINES.encode())
    read = await rig.files.read_text(rig.path("file"), **asked)

    assert (read.text, read.line_count, read.truncated) == (text, count, truncated)
    assert (read.total_lines, read.first_line) == (5, asked.get("first_line", 1))
    assert read.entry.size == len(LINES)


async def test_lines_across_blocks(rig: FileRig) -> None:
    """Lines are found wherever they lie in a large file."""
    lines = [f"line {number} " + "x" * 1000 for number in range(1, 5001)]
    await rig.put("file", "\n".join(lines).encode() + b"\n")
    read = await rig.files.read_text(rig.path("file"), first_line=4000, max_lines=3)

    assert read.text.splitlines() == lines[3999:4002]
    assert (read.total_lines, read.truncated) == (5000, True)


async def test_text_that_is_not_utf8(rig: FileRig) -> None:
    """Invalid bytes are replaced, and a cut leaves no half character."""
    await rig.put("latin", "caf\xe9\n".encode("latin-1"))
    await rig.put("wide", ("\u20ac" * 100).encode())

    assert (await rig.files.read_text(rig.path("latin"))).text == "caf\ufffd\n"
    for size in range(1, 9):
        cut = await rig.files.read_text(rig.path("wide"), max_bytes=size)
        assert cut.text == "\u20ac" * (size // 3)
        assert cut.truncated


async def test_empty_and_odd_files(rig: FileRig) -> None:
    """An empty file has no lines; what is not a file is refused."""
    await rig.put("empty")
    read = await rig.files.read_text(rig.path("empty"))
    os.mkfifo(rig.workspace / "fifo")

    assert (read.text, read.line_count, read.total_lines, read.truncated) == ("", 0, 0, False)
    with pytest.raises(NotAFile):
        await rig.files.read_text(rig.path("fifo"))
    with pytest.raises(FileNotFound):
        await rig.files.read_text(rig.path("missing"))


async def test_writing_a_whole_text(rig: FileRig) -> None:
    """New files get the usual bits, old ones keep theirs; links are followed."""
    entry = await rig.files.write_text(
        TextSpec(path=rig.path("d/new"), text="h\u00e9llo", make_parents=True)
    )
    (rig.workspace / "old").write_text("x")
    (rig.workspace / "old").chmod(0o751)
    (rig.workspace / "link").symlink_to("old")
    await rig.files.write_text(TextSpec(path=rig.path("link"), text="y"))

    assert (entry.mode, entry.size) == (0o644, 6)
    assert (rig.workspace / "old").read_text() == "y"
    assert stat.S_IMODE((rig.workspace / "old").stat().st_mode) == 0o751
    assert (rig.workspace / "link").is_symlink()
    with pytest.raises(FileExists):
        await rig.files.write_text(TextSpec(path=rig.path("old"), text="z", replace=False))


@pytest.mark.parametrize(
    ("old", "first", "count", "text", "new"),
    [
        ("a\nb\nc\n", 2, 1, "X\n", "a\nX\nc\n"),
        ("a\nb\nc\n", 2, 1, "X", "a\nX\nc\n"),
        ("a\nb\nc\n", 1, 0, "X\n", "X\na\nb\nc\n"),
        ("a\nb\nc\n", 4, 0, "X\n", "a\nb\nc\nX\n"),
        ("a\nb\nc", 4, 0, "X", "a\nb\nc\nX"),
        ("a\nb\nc", 3, 1, "X", "a\nb\nX"),
        ("a\nb\nc\n", 2, 99, "X\n", "a\nX\n"),
        ("a\nb\nc\n", 2, 2, "", "a\n"),
        ("", 1, 0, "X\n", "X\n"),
        ("a\n", 1, 1, "X\nY\nZ\n", "X\nY\nZ\n"),
    ],
)
async def test_replacing_lines(
    rig: FileRig, old: str, first: int, count: int, text: str, new: str
) -> None:
    """Only those lines; the rest stays as it is, and lines stay lines."""
    await rig.put("file", old.encode())
    spec = TextSpec(path=rig.path("file"), text=text, first_line=first, line_count=count)
    await rig.files.write_text(spec)

    assert (rig.workspace / "file").read_text() == new


@pytest.mark.parametrize(("old", "first"), [("a\nb\n", 4), ("a\nb", 4), ("", 2)])
async def test_lines_beyond_the_end(rig: FileRig, old: str, first: int) -> None:
    """There is nothing to keep between, so it is refused, with the number of lines."""
    await rig.put("file", old.encode())
    spec = TextSpec(path=rig.path("file"), text="x", first_line=first)
    with pytest.raises(InvalidRequest, match=f"{len(old.splitlines())} lines"):
        await rig.files.write_text(spec)

    assert (rig.workspace / "file").read_text() == old
    with pytest.raises(FileNotFound):
        await rig.files.write_text(TextSpec(path=rig.path("new"), text="x", first_line=1))


async def test_editing(rig: FileRig) -> None:
    """Exactly as given, newlines included; counted before anything is written."""
    await rig.put("file", b"a = 1\nb = 1\n", mode=0o700)
    path = rig.path("file")
    with pytest.raises(TextNotFound) as caught:
        await rig.files.edit_text(EditSpec(path=path, old_text="= 1", new_text="= 2"))
    with pytest.raises(TextNotFound):
        await rig.files.edit_text(
            EditSpec(path=path, old_text="missing", new_text="", expected_count=None)
        )
    single = await rig.files.edit_text(EditSpec(path=path, old_text="1\nb", new_text="3\nB"))
    both = await rig.files.edit_text(
        EditSpec(path=path, old_text=" = ", new_text="=", expected_count=2)
    )
    every = await rig.files.edit_text(
        EditSpec(path=path, old_text="\n", new_text=";\n", expected_count=None)
    )

    assert caught.value.metadata["count"] == "2"
    assert [single.replaced, both.replaced, every.replaced] == [1, 2, 2]
    assert every.entry.mode == 0o700
    assert (rig.workspace / "file").read_text() == "a=3;\nB=1;\n"


async def test_an_edit_that_would_make_a_file_too_large(tmp_path: Path) -> None:
    """It is refused with the size that the file would have, before anything is written; an edit of
    a file that is over the limit may still make it smaller."""
    async with guest_with_files(tmp_path, max_file_bytes=8 * MIB) as rig:
        await rig.put("file", b"x" * MIB)
        path = rig.path("file")
        for new, size in (("y" * MIB, MIB * MIB), ("y" * 9, 9 * MIB)):
            with pytest.raises(FileTooLarge) as caught:
                await rig.files.edit_text(
                    EditSpec(path=path, old_text="x", new_text=new, expected_count=None)
                )
            assert caught.value.metadata["sizeBytes"] == str(size)
        assert await rig.get("file") == b"x" * MIB
        (rig.workspace / "large").write_bytes(b"xx" * 5 * MIB)
        path = rig.path("large")
        spec = EditSpec(path=path, old_text="xx", new_text="x", expected_count=None)
        assert (await rig.files.edit_text(spec)).entry.size == 5 * MIB


async def test_editing_a_large_file(rig: FileRig) -> None:
    """Over its limit the figure says so, and nothing changes."""
    await rig.put("file", b"x" * (17 * MIB))
    with pytest.raises(FileTooLarge) as caught:
        await rig.files.edit_text(EditSpec(path=rig.path("file"), old_text="x", new_text="y"))

    assert caught.value.metadata["limitBytes"] == str(16 * MIB)


@pytest.mark.parametrize(
    ("content", "max_bytes", "text", "is_invalid"),
    [
        (b"plain\n", 100, "plain\n", False),
        ("\u20ac\U0001f600".encode(), 100, "\u20ac\U0001f600", False),
        ("\u20ac\U0001f600".encode(), 5, "\u20ac", False),
        ("\ufffd".encode(), 100, "\ufffd", False),
        (b"caf\xe9\n", 100, "caf\ufffd\n", True),
        (b"ok\nfine\xff", 3, "ok\n", False),
        (b"\xe2\x82", 100, "\ufffd", True),
    ],
)
async def test_bytes_that_are_not_text_are_said(
    rig: FileRig, content: bytes, max_bytes: int, text: str, is_invalid: bool
) -> None:
    """Of the part that is returned, and not where the limit cuts a character."""
    await rig.put("file", content)
    read = await rig.files.read_text(rig.path("file"), max_bytes=max_bytes)

    assert (read.text, read.invalid_utf8) == (text, is_invalid)


# --- search ---


@pytest.fixture
async def library(rig: FileRig) -> FileRig:
    files = {
        "a.py": "import os\nprint('Hello')\n",
        "b.txt": "hello\nHELLO world\n",
        "d/c.py": "# hello (again)\nx = 1\n",
        "d/e/f.md": "no match",
        "binary": "hello\0",
        "latin": "x",
    }
    for name, text in files.items():
        await rig.put(name, text.encode(), make_parents=True)
    (rig.workspace / "latin").write_bytes(b"\xffhello\n")
    (rig.workspace / "link").symlink_to("/etc/passwd")
    os.mkfifo(rig.workspace / "fifo")
    return rig


async def test_grep_for_plain_text(library: FileRig) -> None:
    """By path and line; binary files, links and pipes are not searched."""
    found = await library.files.grep(GrepSpec(path=library.path(""), pattern="hello"))

    assert [(match.path, match.line_number, match.line) for match in found.matches] == [
        (b"b.txt", 1, "hello"),
        (b"d/c.py", 1, "# hello (again)"),
        (b"latin", 1, "\ufffdhello"),
    ]
    assert (found.complete, found.searched_files) == (True, 5)


async def test_grep_for_a_pattern(library: FileRig) -> None:
    """Python's syntax, without regard to case on request, in the files that the glob names."""
    spec = GrepSpec(
        path=library.path(""), pattern=r"^\W*HELLO\b", regex=True, ignore_case=True, glob="*.py"
    )
    found = await library.files.grep(spec)
    plain = await library.files.grep(GrepSpec(path=library.path("d"), pattern="(again)"))
    single = await library.files.grep(GrepSpec(path=library.path("b.txt"), pattern="HELLO"))

    assert [match.path for match in found.matches] == [b"d/c.py"]
    assert [match.path for match in plain.matches] == [b"d/c.py"]
    assert [(match.path, match.line_number) for match in single.matches] == [(b"b.txt", 2)]
    with pytest.raises(InvalidRequest):
        await library.files.grep(GrepSpec(path=library.path(""), pattern="(", regex=True))
    with pytest.raises(FileNotFound):
        await library.files.grep(GrepSpec(path=library.path("missing"), pattern="x"))


async def test_grep_is_bounded(rig: FileRig) -> None:
    """Too many matches, and a pattern that takes forever, are said as incomplete."""
    await rig.put("many", b"hit\n" * 5000)
    await rig.put("evil", b"a" * 40 + b"!\n")
    some = await rig.files.grep(GrepSpec(path=rig.path("many"), pattern="hit", max_matches=100))
    exact = await rig.files.grep(GrepSpec(path=rig.path("many"), pattern="hit", max_matches=5000))
    forever = await rig.files.grep(GrepSpec(path=rig.path("evil"), pattern=r"(a+)+$", regex=True))

    assert (len(some.matches), some.complete) == (100, False)
    assert (len(exact.matches), exact.complete) == (5000, True)
    assert (list(forever.matches), forever.complete) == ([], False)


async def test_grep_of_long_lines(rig: FileRig) -> None:
    """At most 4 KiB of a line are returned, with the match in it."""
    await rig.put("long", b"x" * 3_000_000 + b"needle" + b"y" * 100_000)
    await rig.put("wide", ("\u20ac" * 3000 + "needle" + "\u20ac" * 3000).encode())
    found = await rig.files.grep(GrepSpec(path=rig.path(""), pattern="needle"))

    assert [match.path for match in found.matches] == [b"long", b"wide"]
    for match in found.matches:
        assert "needle" in match.line
        assert len(match.line.encode()) <= 4096


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ["a.py", "d/c.py"]),
        ("d/*", ["d/c.py", "d/e"]),
        ("**/*.py", ["a.py", "d/c.py"]),
        ("d/**", ["d/c.py", "d/e", "d/e/f.md"]),
        ("d/**/f.*", ["d/e/f.md"]),
        ("?.py", ["a.py", "d/c.py"]),
        ("[ab].*", ["a.py", "b.txt"]),
        ("[!ab].*", ["d/c.py", "d/e/f.md"]),
        ("d", ["d"]),
        ("nothing", []),
        ("[", []),
        ("/a.py", ["a.py"]),
        ("*.{py,md}", ["a.py", "d/c.py", "d/e/f.md"]),
        ("{a,d/c}.py", ["a.py", "d/c.py"]),
        ("d/{c.py,e/{f,g}.md}", ["d/c.py", "d/e/f.md"]),
        ("d//c.py", ["d/c.py"]),
        ("./d/./c.py", ["d/c.py"]),
        ("**/**/c.py", ["d/c.py"]),
        ("[{]x", []),
        ("{a.py", []),
    ],
)
async def test_glob(library: FileRig, pattern: str, expected: list[str]) -> None:
    """Stars stay within a name, two of them cross directories, and a bare name is found at any
    depth."""
    found = await library.files.glob(library.path(""), pattern)

    assert [entry.path.decode() for entry in found.entries] == expected
    assert found.complete


@pytest.fixture
async def hidden(rig: FileRig) -> FileRig:
    for name in (".env", "a.py", ".git/config", ".git/x.py", "d/.b.py", "node_modules/m.py"):
        await rig.put(name, b"needle", make_parents=True)
    (rig.workspace / "link.py").symlink_to("a.py")
    (rig.workspace / "dir.py").mkdir()
    return rig


@pytest.mark.parametrize(
    ("pattern", "more", "expected"),
    [
        ("*.py", {"skip_hidden": True}, "a.py dir.py link.py node_modules/m.py"),
        (".*", {"skip_hidden": True}, ".env .git d/.b.py"),
        (".git/*", {"skip_hidden": True}, ".git/config .git/x.py"),
        ("d/.*", {"skip_hidden": True}, "d/.b.py"),
        ("[.]env", {"skip_hidden": True}, ""),
        ("[.]env", {}, ".env"),
        ("*.py", {"types": [FileType.FILE]}, ".git/x.py a.py d/.b.py node_modules/m.py"),
        ("*.py", {"types": [FileType.DIRECTORY, FileType.SYMLINK]}, "dir.py link.py"),
        ("*.py", {"exclude_dirs": [".git", "node_*"]}, "a.py d/.b.py dir.py link.py"),
        ("**", {"exclude_dirs": ["*"]}, ".env a.py link.py"),
    ],
)
async def test_what_a_glob_leaves_out(
    hidden: FileRig, pattern: str, more: dict[str, Any], expected: str
) -> None:
    """Hidden names unless the pattern has their dot, other types, and whole directories."""
    found = await hidden.files.glob(hidden.path(""), pattern, **more)

    assert [entry.path.decode() for entry in found.entries] == expected.split()
    assert found.complete


async def test_directories_that_are_not_searched(hidden: FileRig) -> None:
    """By name or pattern, at any depth; braces choose among files."""
    spec = GrepSpec(path=hidden.path(""), pattern="needle", exclude_dirs=[".git", "node_?odules"])
    found = await hidden.files.grep(spec)
    chosen = await hidden.files.grep(
        GrepSpec(path=hidden.path(""), pattern="needle", glob="{.env,.git/*,m.*}")
    )

    assert [match.path for match in found.matches] == [b".env", b"a.py", b"d/.b.py"]
    assert [match.path.decode() for match in chosen.matches] == [
        ".env",
        ".git/config",
        ".git/x.py",
        "node_modules/m.py",
    ]
    assert found.complete


async def test_glob_is_bounded(library: FileRig) -> None:
    """The first ones in order, and that there are more."""
    found = await library.files.glob(library.path(""), "**", max_entries=2)

    assert [entry.path for entry in found.entries] == [b"a.py", b"b.txt"]
    assert not found.complete
    with pytest.raises(NotADirectory):
        await library.files.glob(library.path("a.py"), "*")
