"""Files of a sandbox as programs use them, in every way of use."""

from __future__ import annotations

import io
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import pytest

from sandboxd_client import (
    FileExistsInSandboxError,
    FileNotPermittedError,
    InvalidRequestError,
    MissingFileError,
    NotADirectoryInSandboxError,
    OutsideWorkspaceError,
    ProtectedPathError,
)
from sandboxd_client.files import AsyncFiles
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import files_pb2
from tests.sdk.faces import Face
from tests.sdk.scripted import Scripted, hold_on

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1 << 20

# --- arguments ---


def nowhere() -> AsyncFiles:
    """Files of a session that is never asked."""
    return AsyncFiles(hold_on(Scripted({})))


BAD_CALLS: dict[str, Any] = {
    "format": lambda files: files.read("x", format="nonsense"),
    "offset": lambda files: files.read("x", offset=-1),
    "length": lambda files: files.read("x", length=0),
    "max_bytes": lambda files: files.read_lines("x", max_bytes=-1),
    "first_line": lambda files: files.read_lines("x", first_line="1"),
    "depth": lambda files: files.list(depth=0),
    "types": lambda files: files.glob("*", types=["folder"]),
    "exclude_dirs": lambda files: files.grep("x", exclude_dirs=".git"),
    "mode": lambda files: files.write("x", b"", mode="755"),
    "data": lambda files: files.write("x", 5),
    "path": lambda files: files.stat(None),
    "new_path": lambda files: files.rename("x", 7),
    "files": lambda files: files.write_files([("a", "1"), ("./a", "2")]),
}


@pytest.mark.parametrize("field", BAD_CALLS)
async def test_bad_arguments_are_named_and_nothing_is_sent(field: str) -> None:
    """As the error that the daemon's own refusals are, with the argument at its beginning."""
    with pytest.raises(InvalidRequestError, match=f"^{field}: "):
        await BAD_CALLS[field](nowhere())


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("a/b", {"path": "a/b"}),
        (PurePosixPath("/tmp/x"), {"path": "/tmp/x"}),
        (PureWindowsPath("a\\b"), {"path": "a/b"}),
        (b"\xff", {"path_bytes": b"\xff"}),
    ],
)
async def test_paths_of_all_kinds(path: Any, named: dict[str, Any]) -> None:
    """Text, path objects of any system, and bytes, also for a new path."""
    entry = files_pb2.FileEntry(path="x", type=files_pb2.FILE_TYPE_FILE)
    transport = Scripted(
        {
            "StatFile": [pb.StatFileResponse(entry=entry)],
            "MoveFile": [pb.MoveFileResponse(entry=entry)],
        }
    )
    files = AsyncFiles(hold_on(transport))
    await files.stat(path)
    await files.rename("old", path)
    stat, move = (request for _, request in transport.asked)

    assert {field: getattr(stat, field) for field in named} == named
    assert {field: getattr(move, f"new_{field}") for field in named} == named


# --- on sandboxes ---


async def test_writing_as_a_person_expects(face: Face, thread: str) -> None:
    """Permissions stay, links are followed, and what may not be written is not."""
    async with await face.open("ada", thread) as sandbox:
        files = sandbox.files
        await files.write("run.sh", "#!/bin/sh\necho one\n", mode=0o755)
        await sandbox.commands.run("ln -s run.sh link; echo kept >locked; chmod 444 locked")
        await files.write("link", "#!/bin/sh\necho two\n")
        assert (await sandbox.commands.run("./run.sh; readlink link")).stdout == "two\nrun.sh\n"
        with pytest.raises(FileNotPermittedError):
            await files.write("locked", "changed")
        assert await files.read("locked") == "kept\n"
        with pytest.raises(FileExistsInSandboxError):
            await files.write("link", "x", overwrite=False)
        await files.write("text", io.StringIO("caf\u00e9"))
        await files.write("bytes", io.BytesIO(b"\xff\x00"))
        assert await files.read("text") == "caf\u00e9"
        assert await files.read("bytes", format="bytes") == b"\xff\x00"
        await sandbox.kill()


async def test_files_outside_of_the_workspace(face: Face, thread: str, tmp_path: Path) -> None:
    """What a command can reach, with the same calls; the rest has its own error."""
    async with await face.open("ada", thread) as sandbox:
        files = sandbox.files
        assert await files.exists("/etc")
        assert not await files.exists("/etc/nothing")
        assert not await files.exists("/etc/passwd/below")
        assert "sandboxuser" in await files.read("/etc/passwd")
        assert {"/etc", "/tmp", "/workspace"} <= {one.path for one in await files.list("/")}
        written = await files.write(PurePosixPath("/tmp/d/x.txt"), "hello")
        assert (written.path, written.name) == ("/tmp/d/x.txt", "x.txt")
        assert (await sandbox.commands.run("cat /tmp/d/x.txt")).stdout == "hello"
        with pytest.raises(ProtectedPathError, match="only /workspace, /tmp and /var/tmp"):
            await files.write("/etc/new", "x")
        with pytest.raises(ProtectedPathError, match="belongs to sandboxd"):
            await files.list("/.sandboxd")
        with pytest.raises(ProtectedPathError, match="copy it with a command"):
            await files.rename("/tmp/d/x.txt", "x.txt")
        await sandbox.commands.run("ln -s /etc/passwd out")
        with pytest.raises(OutsideWorkspaceError):
            await files.read("out")
        await files.download("/tmp/d/x.txt", tmp_path / "x.txt")
        assert (tmp_path / "x.txt").read_text() == "hello"
        report = await files.download_dir("/tmp/d", tmp_path / "d")
        assert (report.entries, (tmp_path / "d/x.txt").read_text()) == (1, "hello")
        async with files.watch_dir("/tmp") as changes:
            await files.remove("/tmp/d/x.txt")
            async for change in changes:
                assert (change.kind, change.path) == ("removed", "/tmp/d/x.txt")
                break
        await sandbox.kill()


async def test_parts_of_a_file(face: Face, thread: str) -> None:
    """By bytes, by lines and as a stream, each bounded."""
    data = bytes(range(256)) * (3 * 4096) + b"end"
    async with await face.open("ada", thread) as sandbox:
        files = sandbox.files
        await files.write("data", data)
        assert await files.read("data", format="bytes", offset=3, length=4) == data[3:7]
        assert await files.read("data", offset=len(data) - 3) == "end"
        assert await files.read("data", format="bytes", offset=len(data) + 1) == b""
        chunks = []
        async with await files.read("data", format="stream", offset=1) as stream:
            assert stream.info.size_bytes == len(data)
            async for chunk in stream:
                assert len(chunk) <= MIB
                chunks.append(chunk)
        assert b"".join(chunks) == data[1:]
        with pytest.raises(MissingFileError):
            await files.read("missing", format="stream")
        page = await files.read_lines("data", max_bytes=100)
        assert page.truncated
        assert page.invalid_utf8 == (not page.text.isascii())
        await files.write("lines", "\u20ac\n" * 1000)
        page = await files.read_lines("lines", max_bytes=10)
        assert (page.text, page.total_lines) == ("\u20ac\n\u20ac\n", 1000)
        assert not page.invalid_utf8
        assert (await files.read_lines("data", first_line=2, max_bytes=300)).invalid_utf8
        await sandbox.kill()


async def test_many_files_at_once(face: Face, thread: str) -> None:
    """Each is written as it would be alone; the answer has their order, an error its path."""
    contents = {f"d{number % 5}/f{number}": f"content {number}" for number in range(40)}
    async with await face.open("ada", thread) as sandbox:
        files = sandbox.files
        written = await files.write_files(contents)
        assert [info.path for info in written] == list(contents)
        assert await files.read("d3/f38") == "content 38"
        assert await files.write_files([]) == []
        pairs = [("/tmp/a", b"\x00"), (PurePosixPath("b"), "text")]
        assert [one.path for one in await files.write_files(pairs)] == ["/tmp/a", "b"]
        with pytest.raises(NotADirectoryInSandboxError, match="b/below"):
            await files.write_files({"c": "1", "b/below": "2"})
        with pytest.raises(FileExistsInSandboxError):
            await files.write_files({"b": "again"}, overwrite=False)
        assert await files.read("b") == "text"
        await sandbox.kill()


async def test_names_are_found_and_left_out(face: Face, thread: str) -> None:
    """Braces, types, hidden names, directories to leave out, and levels."""
    names = ["a.py", "b.md", "c.txt", ".env", ".git/x.py", "d/e/f.py", "node_modules/m.py"]
    async with await face.open("ada", thread) as sandbox:
        files = sandbox.files
        await files.write_files(dict.fromkeys(names, "needle"))

        async def found(*arguments: Any, **more: Any) -> list[str]:
            result = await files.glob(*arguments, **more)
            assert result.complete
            return [entry.path for entry in result.entries]

        assert await found("*.{md,txt}") == ["b.md", "c.txt"]
        assert await found("*.py", exclude_dirs=[".git", "node_*"]) == ["a.py", "d/e/f.py"]
        assert await found("**/*.py", skip_hidden=True) == ["a.py", "d/e/f.py", "node_modules/m.py"]
        assert await found("d/**", types=["file"]) == ["d/e/f.py"]
        with pytest.raises(InvalidRequestError, match=r"pattern: .*\.\."):
            await files.glob("../*")
        matches = (await files.grep("needle", glob="*.{py,md}", exclude_dirs=[".*"])).matches
        assert [match.path for match in matches] == [
            "a.py",
            "b.md",
            "d/e/f.py",
            "node_modules/m.py",
        ]
        with pytest.raises(InvalidRequestError, match=r"^glob: "):
            await files.grep("needle", glob="{a,b}" * 20)
        levels = [one.path for one in await files.list("d", depth=2)]
        assert levels == ["d/e", "d/e/f.py"]
        assert [one.path for one in await files.list("d", depth=1)] == ["d/e"]
        await sandbox.kill()


async def test_renames(face: Face, thread: str) -> None:
    """What is missing is named; parents and replacements only on request."""
    async with await face.open("ada", thread) as sandbox:
        files = sandbox.files
        await files.write_files({"a": "1", "b": "2"})
        with pytest.raises(MissingFileError, match="'new/dir/a'"):
            await files.rename("a", "new/dir/a")
        with pytest.raises(MissingFileError, match="'missing'"):
            await files.rename("missing", "new/dir/a", make_parents=True)
        assert not await files.exists("new")
        await files.rename("a", "new/dir/a", make_parents=True)
        with pytest.raises(FileExistsInSandboxError, match="'new/dir/a'"):
            await files.rename("b", "new/dir/a")
        await files.rename("b", "new/dir/a", replace=True)
        assert await files.read("new/dir/a") == "2"
        await sandbox.kill()
