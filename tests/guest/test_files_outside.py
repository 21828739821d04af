"""Files of a real guest outside of its workspace."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd.errors import (
    FileExists,
    FileNotFound,
    NotADirectory,
    NotAFile,
    OutsideWorkspace,
    ProtectedPath,
    SandboxdError,
)
from sandboxd.files import ChangeKind, EditSpec, FileType, GrepSpec, TarSpec, TextSpec
from sandboxd.guest.files import transfer
from sandboxd.guest.files.area import Area, whole_filesystem
from sandboxd.guest.files.codec import Failure
from tests.guest.file_rig import FileRig, chunks_of, guest_with_files, mount_read_only
from tests.guest.file_worker_rig import ask, entries_of, swapping

TRIES = 20_000


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[FileRig]:
    async with guest_with_files(tmp_path, project=tmp_path / "project") as rig:
        (tmp_path / "project").mkdir()
        (tmp_path / "out").mkdir()
        for name in ("project_files", "outputs"):
            (rig.workspace / name).mkdir()
        yield rig


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A directory outside of the workspace."""
    return tmp_path / "out"


async def test_a_day_of_work_outside(rig: FileRig, out: Path) -> None:
    """Every call takes absolute paths, and answers with them."""
    files = rig.files
    made = await files.make_directory(rig.path(f"{out}/a/b"), make_parents=True)
    await rig.put(f"{out}/a/f", b"one\ntwo\n", mode=0o700)
    await files.write_text(
        TextSpec(path=rig.path(f"{out}/a/f"), text="2\n", first_line=2, line_count=1)
    )
    await files.edit_text(EditSpec(path=rig.path(f"{out}/a/f"), old_text="one", new_text="1"))
    moved = await files.move(rig.path(f"{out}/a/f"), rig.path(f"{out}/c/g"), make_parents=True)
    listed = await files.list(rig.path(f"{out}"), recursive=True)
    found = await files.glob(rig.path(f"{out}"), "{g,b}")
    grepped = await files.grep(GrepSpec(path=rig.path(f"{out}"), pattern="2"))
    read = await files.read_text(rig.path(f"{out}/c/g"), first_line=2)
    usage = (await files.list(rig.path(""))).usage

    assert made.entry.path == os.fsencode(out / "a/b")
    assert (moved.path, moved.mode, moved.size) == (os.fsencode(out / "c/g"), 0o700, 4)
    assert [entry.path.decode() for entry in listed.entries] == [
        f"{out}/a",
        f"{out}/a/b",
        f"{out}/c",
        f"{out}/c/g",
    ]
    assert listed.usage.max_bytes == usage.max_bytes
    assert [entry.path.decode() for entry in found.entries] == [f"{out}/a/b", f"{out}/c/g"]
    assert [match.path.decode() for match in grepped.matches] == [f"{out}/c/g"]
    assert (read.text, read.total_lines) == ("2\n", 2)
    assert await rig.get(f"{out}/c/g", offset=1, length=2) == b"\n2"
    assert await files.remove(rig.path(f"{out}/c"), recursive=True) == 2
    assert (await files.stat(rig.path("/"))).type == FileType.DIRECTORY
    assert rig.names() == {"project_files", "outputs"}


async def test_archives_outside(rig: FileRig, out: Path) -> None:
    """Up and down, with what commands could not make left out."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        info = tarfile.TarInfo("d/f")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))
        tar.addfile(tarfile.TarInfo("../up"))
    done = await rig.files.upload_tar(
        TarSpec(path=rig.path(f"{out}/new")), chunks_of(archive.getvalue())
    )
    async with rig.files.download_tar(rig.path(f"{out}/new")) as download:
        packed = b"".join([chunk async for chunk in download])

    assert (done.extracted, done.refused_count) == (1, 1)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert tar.getnames() == ["d", "d/f"]
    assert not (out / "up").exists()


async def test_a_watch_outside(rig: FileRig, out: Path) -> None:
    """It reports absolute paths."""
    async with rig.files.watch(rig.path(str(out)), recursive=True) as reports:
        (out / "d").mkdir()
        (out / "d/f").write_bytes(b"x")
        seen: set[tuple[ChangeKind, str]] = set()
        async with asyncio.timeout(20):
            async for report in reports:
                seen |= {(change.kind, change.path.decode()) for change in report.changes}
                if len(seen) >= 2:
                    break

    assert seen == {(ChangeKind.CREATED, f"{out}/d"), (ChangeKind.CREATED, f"{out}/d/f")}


async def test_links_outside_lead_anywhere(rig: FileRig, out: Path) -> None:
    """As they would a command: up, through others and into the workspace; in circles to nowhere."""
    await rig.put("inside", b"in")
    (out / "d").mkdir()
    (out / "f").write_bytes(b"out")
    (out / "in").symlink_to(rig.workspace / "inside")
    (out / "up").symlink_to("../" * 50 + str(out).lstrip("/") + "/f")
    (out / "d/chain").symlink_to("../up")
    (out / "circle").symlink_to("circle")
    (out / "ws").symlink_to("../workspace")

    assert await rig.get(f"{out}/in") == b"in"
    assert await rig.get(f"{out}/d/chain") == await rig.get(f"{out}/up") == b"out"
    await rig.put(f"{out}/d/chain", b"new")
    await rig.put(f"{out}/ws/made", b"x")
    assert (out / "f").read_bytes() == b"new"
    assert (rig.workspace / "made").read_bytes() == b"x"
    assert (out / "d/chain").is_symlink()
    with pytest.raises(OutsideWorkspace):
        await rig.get(f"{out}/circle")


async def test_links_of_the_workspace_still_stay_in_it(rig: FileRig, out: Path) -> None:
    """A path of the workspace never leads out, although the caller could go there."""
    (out / "f").write_bytes(b"out")
    (rig.workspace / "f").symlink_to(out / "f")
    (rig.workspace / "d").symlink_to(out)
    for path in ("f", "d/f"):
        with pytest.raises(OutsideWorkspace):
            await rig.get(path)
        with pytest.raises(OutsideWorkspace):
            await rig.put(path, b"x")

    assert (out / "f").read_bytes() == b"out"


async def test_the_layout_stays_from_outside_too(rig: FileRig, out: Path) -> None:
    """Whatever a link calls it: the workspace, its names and project files."""
    assert rig.project is not None
    await mount_read_only(rig, rig.project, rig.workspace / "project_files")
    await rig.put("project_files/p", b"p")
    (out / "ws").symlink_to(rig.workspace)
    (out / "up").symlink_to(f"{rig.workspace}/outputs/..")
    (out / "f").write_bytes(b"x")
    for name in ("ws/outputs", "up/outputs", "ws/project_files"):
        path = rig.path(f"{out}/{name}")
        with pytest.raises(ProtectedPath):
            await rig.files.remove(path, recursive=True)
        with pytest.raises(ProtectedPath):
            await rig.files.move(path, rig.path(f"{out}/new"))
        with pytest.raises(ProtectedPath):
            await rig.files.move(rig.path(f"{out}/f"), path, replace=True)
    (out / "to_p").symlink_to(rig.workspace / "project_files/p")
    for name in ("ws/project_files/p", "to_p"):
        path = rig.path(f"{out}/{name}")
        assert await rig.get(f"{out}/{name}") == b"p"
        with pytest.raises(ProtectedPath, match="leads through a link into project_files"):
            await rig.put(f"{out}/{name}", b"q")
        with pytest.raises(ProtectedPath, match="leads through a link into project_files"):
            await rig.files.edit_text(EditSpec(path=path, old_text="p", new_text="q"))
    with pytest.raises(ProtectedPath):
        await rig.files.make_directory(rig.path(f"{out}/ws/project_files/d"))

    assert os.listdir(rig.project) == ["p"]
    assert (rig.project / "p").read_bytes() == b"p"
    assert {"outputs", "project_files"} <= rig.names()


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("fifo", NotAFile),
        ("socket", NotAFile),
        ("dir", NotAFile),
        ("zero", NotAFile),
        ("missing", FileNotFound),
        ("file/below", NotADirectory),
    ],
)
async def test_only_regular_files_are_opened(
    rig: FileRig, out: Path, name: str, error: type[SandboxdError]
) -> None:
    """Pipes, sockets and devices are refused at once, to read as to write."""
    os.mkfifo(out / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(out / "socket"))
    (out / "dir").mkdir()
    (out / "file").write_bytes(b"x")
    (out / "zero").symlink_to("/dev/zero")
    path = rig.path(f"{out}/{name}")
    async with asyncio.timeout(20):
        with pytest.raises(error):
            await rig.get(f"{out}/{name}")
        with pytest.raises(error):
            await rig.files.read_text(path)
        with pytest.raises(error):
            await rig.files.edit_text(EditSpec(path=path, old_text="a", new_text="b"))
        if name != "missing":
            with pytest.raises(error):
                await rig.put(f"{out}/{name}", b"x")


async def test_moves_across_filesystems_are_refused(rig: FileRig, out: Path) -> None:
    """With what to do instead, and without a trace of the new directory."""
    await rig.put("f", b"x")
    (out / "g").write_bytes(b"x")
    for old, new in (("f", f"{out}/n/f"), (f"{out}/g", "n/g")):
        with pytest.raises(ProtectedPath, match="copy it with a command"):
            await rig.files.move(rig.path(old), rig.path(new), make_parents=True)
    with pytest.raises(FileExists, match=f"'{out}/g'"):
        await rig.put(f"{out}/h", b"x")
        await rig.files.move(rig.path(f"{out}/h"), rig.path(f"{out}/g"))

    assert not (out / "n").exists()
    assert not (rig.workspace / "n").exists()


# --- what the kernel makes up ---


async def test_files_that_claim_to_be_empty(rig: FileRig) -> None:
    """They are sent as they are read, whole or in part, with the size that they turned out to
    have."""
    async with rig.files.download(rig.path("/proc/version")) as download:
        whole = b"".join([chunk async for chunk in download])
    expected = await rig.run("cat /proc/version")
    read = await rig.files.read_text(rig.path("/proc/version"))
    found = await rig.files.grep(GrepSpec(path=rig.path("/proc/version"), pattern="Linux"))

    assert whole.decode() == expected
    assert download.entry.size == download.sent_bytes == len(whole)
    assert await rig.get("/proc/version", offset=2, length=3) == whole[2:5]
    assert await rig.get("/proc/version", offset=10_000) == b""
    assert read.text.encode() == whole
    assert [match.line_number for match in found.matches] == [1]


async def test_files_that_claim_to_be_larger(rig: FileRig) -> None:
    """As in /sys, where every file has a page."""
    mtu = await rig.run("cat /sys/class/net/lo/mtu")

    assert mtu.strip().isdigit()
    assert (await rig.files.stat(rig.path("/sys/class/net/lo/mtu"))).size > len(mtu)
    assert await rig.get("/sys/class/net/lo/mtu") == mtu.encode()


@pytest.mark.parametrize("name", ["self", "thread-self"])
async def test_the_worker_itself_is_not_shown(rig: FileRig, out: Path, name: str) -> None:
    """A process may read its own entries in /proc although it is closed to others, so they are
    refused, also behind a link."""
    (out / "link").symlink_to(f"/proc/{name}/maps")
    (out / "dir").symlink_to(f"/proc/{name}")
    for path in (f"/proc/{name}/maps", f"{out}/link", f"{out}/dir/maps"):
        for call in (rig.get(path), rig.files.read_text(rig.path(path))):
            with pytest.raises(ProtectedPath, match="belongs to sandboxd"):
                await call
    with pytest.raises(ProtectedPath, match="belongs to sandboxd"):
        await rig.files.list(rig.path(f"{out}/dir"))


# --- the area, without a guest ---


@contextmanager
def whole(root: Path) -> Iterator[Area]:
    """The area of a worker whose whole filesystem is this directory."""
    top = os.open(root, os.O_PATH | os.O_DIRECTORY)
    inside = os.open(root / "workspace", os.O_PATH | os.O_DIRECTORY)
    own = (b"proc", b"77")
    everything = Area(
        top, b"/", workspace=(b"workspace",), hidden=frozenset({(b".sandboxd",), own})
    )
    try:
        yield Area(inside, b"/workspace", everything=everything)
    finally:
        os.close(top)
        os.close(inside)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "workspace/outputs/o",
        ".sandboxd/link/secret",
        "proc/77/maps",
        "proc/78/maps",
        "sys/s",
        "dev/d",
        "tmp/t",
        "usr/proc/u",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"secret" if "secret" in name or "77" in name else b"open")
    return tmp_path


def request(operation: str, path: str, **more: object) -> bytes:
    fields = {"operation": operation, "path": path, "shown": path, "seconds": 20, **more}
    return json.dumps(fields).encode()


HIDDEN = ["/.sandboxd", "/.sandboxd/link/secret", "/proc/77", "/proc/77/maps", "/tmp/link"]


@pytest.mark.parametrize("path", HIDDEN)
@pytest.mark.parametrize(
    "operation",
    ["download", "read_text", "stat", "list", "glob", "grep", "pack", "remove", "watch"],
)
def test_what_is_hidden(tree: Path, operation: str, path: str) -> None:
    """No operation reads, lists or changes it, under its own name or that of a link."""
    (tree / "tmp/link").symlink_to("../.sandboxd/link")
    more = {"pattern": "*", "patterns": ["*"], "max_entries": 10, "max_matches": 10}
    with whole(tree) as area:
        followed = f"{path}/secret" if path == "/tmp/link" else path
        asked = request(
            operation, followed, recursive=True, page_size=10, follow_links=True, **more
        )
        sent, failure = ask(area, asked)

    assert (sent, failure) == (b"", Failure.HIDDEN)
    assert (tree / ".sandboxd/link/secret").exists()


@pytest.mark.parametrize("operation", ["list", "glob"])
@pytest.mark.parametrize(
    ("path", "seen", "unseen"),
    [
        (
            "/",
            {"/tmp/t", "/workspace/outputs/o", "/usr/proc/u", "/proc", "/.sandboxd"},
            {"/proc/78", "/sys/s", "/dev/d", "/.sandboxd/link"},
        ),
        ("/proc", {"/proc/77", "/proc/78", "/proc/78/maps"}, {"/proc/77/maps"}),
        ("/usr", {"/usr/proc", "/usr/proc/u"}, set()),
    ],
)
def test_what_walks_leave_out(
    tree: Path, operation: str, path: str, seen: set[str], unseen: set[str]
) -> None:
    """The kernel's trees from above, and always what is hidden; the answer is complete."""
    more = {"patterns": ["**"], "max_entries": 1000}
    with whole(tree) as area:
        entries, figures = entries_of(
            area, request(operation, path, recursive=True, page_size=1000, **more)
        )
    names = {entry.path.decode() for entry in entries}

    assert seen <= names
    assert not unseen & names
    assert not any(name.startswith("//") for name in names)
    assert figures[2 if operation == "list" else 0] == 1


def test_a_worker_hides_the_process_that_it_is(tmp_path: Path) -> None:
    """Under its number, which a caller might guess."""
    root = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    everything = whole_filesystem(os.fsencode(tmp_path))
    try:
        area = Area(root, os.fsencode(tmp_path), everything=everything)
        answer = ask(area, request("download", f"/proc/{os.getpid()}/maps"))
        other, failure = ask(area, request("download", "/proc/1/stat"))
    finally:
        os.close(root)
        os.close(everything.root)

    assert answer == (b"", Failure.HIDDEN)
    assert (other[:2], failure) == (b"1 ", None)


def test_what_the_kernel_makes_up_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that turns out to be large is refused, not read to exhaustion."""
    monkeypatch.setattr(transfer, "MAX_MADE_UP", 10)
    root = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    everything = whole_filesystem(os.fsencode(tmp_path))
    try:
        area = Area(root, os.fsencode(tmp_path), everything=everything)
        answer = ask(area, request("download", "/proc/1/status"))
    finally:
        os.close(root)
        os.close(everything.root)

    assert answer == (b"", Failure.TOO_LARGE)


def test_a_worker_of_the_workspace_goes_nowhere_else(tree: Path) -> None:
    """Without the whole filesystem an absolute path is refused."""
    with whole(tree) as area:
        answer = ask(area._replace(everything=None), request("download", "/tmp/t"))

    assert answer == (b"", Failure.OUTSIDE)


def test_twenty_thousand_downloads_beside_a_swapper(tree: Path) -> None:
    """P07 outside: a name that is now a file, now a link to what is hidden, gives the file or
    nothing."""
    (tree / "tmp/l").symlink_to("/.sandboxd/link/secret")
    seen: dict[tuple[bytes, Failure | None], int] = {}
    with whole(tree) as area, swapping(tree / "tmp/t", tree / "tmp/l"):
        for _ in range(TRIES):
            answer = ask(area, request("download", "/tmp/t"))
            seen[answer] = seen.get(answer, 0) + 1

    assert set(seen) <= {(b"open", None), (b"", Failure.HIDDEN), (b"", Failure.OUTSIDE)}
    assert seen[b"open", None] > 0
    print(f"downloads beside a swapper outside: {TRIES}, {seen[b'open', None]} sent, 0 leaks")


@pytest.mark.parametrize("target", ["/workspace/project_files", "/.sandboxd/link"])
def test_twenty_thousand_uploads_beside_a_swapper(tree: Path, target: str) -> None:
    """P08 outside: nothing is written into project files or what is hidden."""
    (tree / "workspace/project_files").mkdir()
    (tree / "tmp/d").mkdir()
    (tree / "tmp/l").symlink_to(target)
    before = sorted(os.listdir(tree / target[1:]))
    failures: dict[Failure | None, int] = {}
    asked = request(
        "upload", "/tmp/d/f", mode=420, replace=True, make_parents=True, project="project_files"
    )
    with whole(tree) as area, swapping(tree / "tmp/d", tree / "tmp/l"):
        for _ in range(TRIES):
            _, failure = ask(area, asked, b"content")
            failures[failure] = failures.get(failure, 0) + 1

    allowed = {None, Failure.IN_PROJECT, Failure.HIDDEN, Failure.NOT_A_DIRECTORY, Failure.EXISTS}
    assert set(failures) <= allowed
    assert failures[None] > 0
    assert sorted(os.listdir(tree / target[1:])) == before
    print(f"uploads beside a swapper outside: {TRIES}, {failures[None]} written, 0 in {target}")
