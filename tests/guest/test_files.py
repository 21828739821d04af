"""Files of a real guest: uploads, downloads, descriptions and changes."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import socket
import stat
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from sandboxd.errors import (
    ChecksumMismatch,
    DirectoryNotEmpty,
    FileBusy,
    FileChanged,
    FileExists,
    FileNotFound,
    FileTooLarge,
    FileWorkInterrupted,
    InvalidRequest,
    NotADirectory,
    NotAFile,
    OutsideWorkspace,
    ProtectedPath,
    SandboxdError,
    SandboxLost,
    WorkspaceFull,
)
from sandboxd.files import EditSpec, FileType, TarSpec, TextSpec, UploadSpec
from sandboxd.guest.files import listing
from sandboxd.workspaces.layout import Layout
from tests.guest.file_rig import MIB, FileRig, chunks_of, guest_with_files, mount_read_only


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[FileRig]:
    async with guest_with_files(tmp_path) as rig:
        yield rig


# --- in and out ---


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 5 * MIB + 7])
async def test_what_goes_in_comes_out(rig: FileRig, size: int) -> None:
    """Every byte of any size, with the checksum of what was written and of what was sent."""
    data = os.urandom(size)
    expected = hashlib.sha256(data).digest()

    assert await rig.put("file", data) == expected
    async with rig.files.download(rig.path("file")) as download:
        got = b"".join([chunk async for chunk in download])

    assert got == data
    assert (download.sent_bytes, download.sha256) == (size, expected)
    assert (download.entry.path, download.entry.size) == (b"file", size)


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [(0, 3, b"012"), (4, 0, b"456789"), (4, 2, b"45"), (9, 5, b"9"), (10, 0, b""), (99, 1, b"")],
)
async def test_a_range(rig: FileRig, offset: int, length: int, expected: bytes) -> None:
    """From an offset, up to a length or the end, and nothing beyond it."""
    await rig.put("digits", b"0123456789")

    assert await rig.get("digits", offset=offset, length=length) == expected


async def test_mode_is_kept_and_special_bits_are_not(rig: FileRig) -> None:
    """Permission bits are exact; set-user-ID, set-group-ID and sticky are dropped."""
    await rig.put("tool", b"#!", mode=0o7751)
    entry = await rig.files.stat(rig.path("tool"))

    assert (entry.mode, entry.permissions) == (0o751, "-rwxr-x--x")
    assert stat.S_IMODE((rig.workspace / "tool").stat().st_mode) == 0o751


async def test_replacing_leaves_other_names_alone(rig: FileRig) -> None:
    """A replaced file is a new one: a hard link keeps the old content."""
    (rig.workspace / "one").write_bytes(b"old")
    os.link(rig.workspace / "one", rig.workspace / "two")

    await rig.put("one", b"new")

    assert (rig.workspace / "one").read_bytes() == b"new"
    assert (rig.workspace / "two").read_bytes() == b"old"


async def test_a_link_is_written_through(rig: FileRig) -> None:
    """Relative, absolute, through directories and into the void: the link stays, its target is
    written, atomically and as the file that it is."""
    (rig.workspace / "d").mkdir()
    target = rig.workspace / "d/target"
    target.write_bytes(b"old")
    target.chmod(0o750)
    os.link(target, rig.workspace / "other")
    (rig.workspace / "link").symlink_to("d/target")
    (rig.workspace / "absolute").symlink_to(target)
    (rig.workspace / "chain").symlink_to("absolute")
    (rig.workspace / "void").symlink_to("d/new")
    for name in ("link", "absolute", "chain"):
        entry = await rig.files.upload(UploadSpec(path=rig.path(name)), chunks_of(name.encode()))

        assert (entry.entry.path, entry.entry.type) == (name.encode(), FileType.FILE)
        assert target.read_text() == name
        assert stat.S_IMODE(target.stat().st_mode) == 0o750
    await rig.put("void", b"x")

    assert (rig.workspace / "d/new").read_bytes() == b"x"
    assert (rig.workspace / "other").read_bytes() == b"old"
    assert all(
        (rig.workspace / name).is_symlink() for name in ("link", "absolute", "chain", "void")
    )
    assert set(os.listdir(rig.workspace / "d")) == {"target", "new"}


@pytest.mark.parametrize("target", ["../outside", "/etc/passwd", "up/etc/new", "circle"])
async def test_a_link_that_leaves_is_not_written_through(rig: FileRig, target: str) -> None:
    """Neither is it replaced: the caller learns that it leads out, before a byte is asked for."""
    outside = rig.workspace.parent / "outside"
    outside.write_bytes(b"old")
    (rig.workspace / "up").symlink_to("..")
    (rig.workspace / "circle").symlink_to("circle")
    (rig.workspace / "link").symlink_to(target)
    with pytest.raises(OutsideWorkspace):
        await rig.files.upload(UploadSpec(path=rig.path("link")), _not_to_be_asked())
    with pytest.raises(OutsideWorkspace):
        await rig.files.write_text(TextSpec(path=rig.path("link"), text="x"))

    assert outside.read_bytes() == b"old"
    assert os.readlink(rig.workspace / "link") == target


@pytest.mark.parametrize(("mode", "kept"), [(None, 0o751), (0o600, 0o600)])
async def test_a_replaced_file_keeps_its_mode(rig: FileRig, mode: int | None, kept: int) -> None:
    """Unless another is given; a new one is for all to read."""
    (rig.workspace / "tool").write_bytes(b"old")
    (rig.workspace / "tool").chmod(0o751)
    for name in ("tool", "new"):
        await rig.put(name, b"#!", mode=mode)

    assert stat.S_IMODE((rig.workspace / "tool").stat().st_mode) == kept
    assert stat.S_IMODE((rig.workspace / "new").stat().st_mode) == (mode or 0o644)


async def test_overwriting_can_be_refused(rig: FileRig) -> None:
    """With FAIL what is there stays, whatever it is, and no byte is asked for."""
    (rig.workspace / "file").write_bytes(b"old")
    (rig.workspace / "link").symlink_to("nowhere")
    for name in ("file", "link"):
        with pytest.raises(FileExists):
            await rig.files.upload(
                UploadSpec(path=rig.path(name), replace=False), _not_to_be_asked()
            )

    assert (rig.workspace / "file").read_bytes() == b"old"
    await rig.put("fresh", b"x", replace=False)


async def _not_to_be_asked() -> AsyncIterator[bytes]:
    raise AssertionError("bytes were asked for")
    yield b""


def _make_oddities(workspace: Path) -> None:
    (workspace / "directory").mkdir()
    (workspace / "file").write_bytes(b"x")
    os.mkfifo(workspace / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(workspace / "socket"))


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("directory", NotAFile),
        ("fifo", NotAFile),
        ("socket", NotAFile),
        ("link", NotAFile),
        ("file/below", NotADirectory),
        ("missing/below", FileNotFound),
        ("up/etc", OutsideWorkspace),
        ("root/etc/passwd", OutsideWorkspace),
        ("circle/x", OutsideWorkspace),
    ],
)
async def test_upload_to_what_it_cannot_replace(
    rig: FileRig, path: str, error: type[SandboxdError]
) -> None:
    """Only regular files and links are replaced, only below directories, only inside; and that is
    said before any byte is asked for."""
    _make_oddities(rig.workspace)
    (rig.workspace / "up").symlink_to("..")
    (rig.workspace / "root").symlink_to("/")
    (rig.workspace / "circle").symlink_to("circle")
    (rig.workspace / "link").symlink_to("directory")
    before = rig.names()

    with pytest.raises(error):
        await rig.files.upload(UploadSpec(path=rig.path(path)), _not_to_be_asked())

    assert rig.names() == before


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("directory", NotAFile),
        ("fifo", NotAFile),
        ("socket", NotAFile),
        ("missing", FileNotFound),
        ("file/below", NotADirectory),
        ("zero", OutsideWorkspace),
        ("memory", OutsideWorkspace),
        ("circle", OutsideWorkspace),
        ("sly", OutsideWorkspace),
        ("dangling", FileNotFound),
    ],
)
async def test_download_of_what_is_no_file(
    rig: FileRig, path: str, error: type[SandboxdError]
) -> None:
    """A FIFO answers at once and a device is never opened; links lead nowhere outside."""
    _make_oddities(rig.workspace)
    links = {
        "zero": "/dev/zero",
        "memory": "/proc/self/mem",
        "circle": "circle",
        "sly": f"{rig.workspace}/../../../etc/passwd",
        "dangling": "missing",
    }
    for name, target in links.items():
        (rig.workspace / name).symlink_to(target)

    with pytest.raises(error):
        await rig.get(path)


async def test_links_inside_are_followed(rig: FileRig) -> None:
    """Relative, absolute below the workspace, through directories and with `..` on the way."""
    (rig.workspace / "a/b").mkdir(parents=True)
    (rig.workspace / "a/b/file").write_bytes(b"found")
    (rig.workspace / "relative").symlink_to("a/b/file")
    (rig.workspace / "absolute").symlink_to(f"{rig.workspace}/a/b/file")
    (rig.workspace / "a/back").symlink_to("../a/b/../b")
    (rig.workspace / "here").symlink_to(".")
    (rig.workspace / "chain").symlink_to("here/a/back/file")

    for path in ("relative", "absolute", "a/back/file", "here/here/relative", "chain"):
        assert await rig.get(path) == b"found", path
    await rig.put("here/a/back/new", b"written")

    assert (rig.workspace / "a/b/new").read_bytes() == b"written"


async def test_forty_links_are_enough(rig: FileRig) -> None:
    """A longer chain is refused, as the kernel does."""
    (rig.workspace / "link0").write_bytes(b"end")
    for number in range(1, 60):
        (rig.workspace / f"link{number}").symlink_to(f"link{number - 1}")

    assert await rig.get("link40") == b"end"
    with pytest.raises(OutsideWorkspace):
        await rig.get("link41")


async def test_parents_are_made_on_request(rig: FileRig) -> None:
    """And only then."""
    with pytest.raises(FileNotFound):
        await rig.put("a/b/c", b"x")
    await rig.put("a/b/c", b"x", make_parents=True)

    assert stat.S_IMODE((rig.workspace / "a/b").stat().st_mode) == 0o755
    assert await rig.get("a/b/c") == b"x"


# --- what was announced ---


@pytest.mark.parametrize("announced", [2, 4])
async def test_another_size_than_announced(rig: FileRig, announced: int) -> None:
    """Nothing is written when more or less arrives."""
    with pytest.raises(ChecksumMismatch) as caught:
        await rig.put("file", b"abc", size=announced)

    assert caught.value.metadata["announced"] == str(announced)
    await _until_clean(rig, set())


async def test_another_checksum_than_announced(rig: FileRig) -> None:
    """Nothing is written, and what was there stays."""
    (rig.workspace / "file").write_bytes(b"old")
    right = hashlib.sha256(b"new").digest()
    with pytest.raises(ChecksumMismatch):
        await rig.put("file", b"bad", sha256=right)
    await _until_clean(rig, {"file"})
    assert (rig.workspace / "file").read_bytes() == b"old"

    await rig.put("file", b"new", sha256=right, size=3)

    assert (rig.workspace / "file").read_bytes() == b"new"


async def _until_clean(rig: FileRig, names: set[str]) -> None:
    """Until only these names are there and no worker is left."""

    async def is_clean() -> bool:
        workers = await rig.run("pgrep -c -P 1 python")
        return rig.names() == names and workers.strip() == "0"

    async with asyncio.timeout(20):
        while not await is_clean():
            await asyncio.sleep(0.01)


# --- limits ---


async def test_a_file_over_the_limit(tmp_path: Path) -> None:
    """Refused before a byte is asked for where the size is known, and when it is passed if not."""
    async with guest_with_files(tmp_path, max_file_bytes=1000) as rig:
        spec = UploadSpec(path=rig.path("file"), size=1001)
        with pytest.raises(FileTooLarge) as caught:
            await rig.files.upload(spec, _not_to_be_asked())
        with pytest.raises(FileTooLarge):
            await rig.put("file", bytes(1001))

        assert caught.value.metadata["limitBytes"] == "1000"
        assert caught.value.metadata["sizeBytes"] == "1001"
        await rig.put("file", bytes(1000))


async def test_a_file_that_cannot_fit(rig: FileRig) -> None:
    """Said before the first byte, with the figures."""
    free = os.statvfs(rig.workspace).f_bavail * os.statvfs(rig.workspace).f_frsize
    files = rig.settings
    object.__setattr__(files, "max_file_bytes", 1 << 60)
    spec = UploadSpec(path=rig.path("file"), size=free + (64 << 30))
    with pytest.raises(WorkspaceFull) as caught:
        await rig.files.upload(spec, _not_to_be_asked())

    assert int(caught.value.metadata["freeBytes"]) > 0


# --- interruptions ---


async def test_an_aborted_upload_leaves_nothing(rig: FileRig) -> None:
    """Cancelled at any point before the end: no file, no temporary file, no worker."""
    for number in range(20):
        begun = asyncio.Event()

        async def half(begun: asyncio.Event = begun) -> AsyncIterator[bytes]:
            yield bytes(300_000)
            begun.set()
            await asyncio.Event().wait()
            yield b""

        upload = asyncio.ensure_future(
            rig.files.upload(UploadSpec(path=rig.path(f"file{number}")), half())
        )
        await begun.wait()
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload

    await _until_clean(rig, set())


async def test_a_download_that_is_left_ends_its_worker(rig: FileRig) -> None:
    """A caller that stops reading leaves no process behind."""
    await rig.put("big", bytes(20 * MIB))
    for _ in range(5):
        async with rig.files.download(rig.path("big")) as download:
            async for _chunk in download:
                break

    await _until_clean(rig, {"big"})


@pytest.mark.parametrize("blow", ["KILL", "STOP"])
async def test_a_worker_that_a_command_ends_or_stops(tmp_path: Path, blow: str) -> None:
    """The call fails, a stopped worker is gone in the end, and the next call works."""
    async with guest_with_files(tmp_path, idle_seconds=1.0) as rig:
        await rig.put("old", b"kept")
        begun = asyncio.Event()
        go_on = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield bytes(100_000)
            begun.set()
            await go_on.wait()
            for _ in range(64):
                yield bytes(MIB)

        upload = asyncio.ensure_future(rig.files.upload(UploadSpec(path=rig.path("old")), slow()))
        await begun.wait()
        await rig.run(f"pkill -{blow} -P 1 python; true")
        go_on.set()
        with pytest.raises(FileWorkInterrupted):
            await upload

        assert await rig.get("old") == b"kept"
        await _until_clean(rig, {"old"})


async def test_a_lost_guest_is_said(rig: FileRig) -> None:
    """Not an interruption: the sandbox is gone."""
    await rig.put("file", bytes(24 * MIB))  # more than fits into sockets
    with pytest.raises(SandboxLost):
        async with rig.files.download(rig.path("file")) as download:
            async for _ in download:
                rig.end_guest()
                while rig.link.is_open:
                    await asyncio.sleep(0.01)
    with pytest.raises(SandboxLost):
        await rig.files.stat(rig.path("file"))


async def test_a_shrinking_file(rig: FileRig) -> None:
    """A file that becomes shorter is reported as changed, not as complete."""
    await rig.put("file", bytes(40 * MIB))
    with pytest.raises(FileChanged):
        async with rig.files.download(rig.path("file")) as download:
            async for _ in download:
                os.truncate(rig.workspace / "file", 10)


async def test_a_growing_file(rig: FileRig) -> None:
    """It is sent up to the size that it had at first."""
    await rig.put("file", bytes(8 * MIB))
    async with rig.files.download(rig.path("file")) as download:
        async for _ in download:
            with (rig.workspace / "file").open("ab") as file:
                file.write(bytes(MIB))

    assert download.sent_bytes == 8 * MIB


async def test_too_many_at_once(tmp_path: Path) -> None:
    """Beyond the limit a call waits for a while, then is refused with FileBusy."""
    async with guest_with_files(tmp_path, max_workers=2, wait_seconds=0.05) as rig:
        await rig.put("file", bytes(4 * MIB))
        async with rig.files.download(rig.path("file")), rig.files.download(rig.path("file")):
            with pytest.raises(FileBusy) as caught:
                await rig.files.stat(rig.path("file"))

        assert caught.value.retry_after_seconds
        assert (await rig.files.stat(rig.path("file"))).size == 4 * MIB


async def test_commands_and_workers_do_not_end_each_other(rig: FileRig) -> None:
    """Killing a command, alone or among others, spares a worker, and a worker does not keep a
    command's output open."""
    await rig.put("file", bytes(8 * MIB))
    async with rig.files.download(rig.path("file")) as download:
        lonely = rig.start("sleep 1000")
        rig.link.kill(lonely.number)
        await lonely.end
        first, other = rig.start("sleep 1000"), rig.start("sleep 1000 & wait")
        rig.link.kill(first.number)
        await first.end
        rig.link.kill(other.number)
        await other.end
        assert await rig.run("echo still here") == "still here\n"
        assert sum([len(chunk) async for chunk in download]) == 8 * MIB


# --- what there is ---


async def test_names_are_bytes(rig: FileRig) -> None:
    """Any name that Linux allows is listed exactly, read, moved and removed; twins are two."""
    names = [
        b"-rf",
        b"new\nline",
        b"\xff\xfe",
        b"tab\there",
        "Ünïcode".encode(),
        "Ünïcode".encode("utf-16")[:8].replace(b"\0", b"?").replace(b"/", b"?"),
        b"x" * 255,
        b"back\\slash",
        b"\x1b[31m",
        b" ",
        "e\u0301".encode(),
        "\u00e9".encode(),
        b"CASE",
        b"case",
    ]
    for name in names:
        await rig.put(name, name)
    listed = (await rig.files.list(rig.path(""))).entries

    assert [entry.path for entry in listed] == sorted(names)
    for name in names:
        assert await rig.get(name) == name
        await rig.files.move(rig.path(name), rig.path(b"moved"))
        await rig.files.remove(rig.path(b"moved"))
    assert rig.names() == set()


async def test_a_listing_says_what_there_is(rig: FileRig) -> None:
    """Types, sizes, targets, times and totals; nothing is opened, no link is followed."""
    _make_oddities(rig.workspace)
    (rig.workspace / "link").symlink_to("/etc/passwd")
    os.utime(rig.workspace / "file", ns=(0, 1_500_000_000_250_000_000))

    listing = await rig.files.list(rig.path(""))

    found = {entry.path.decode(): entry for entry in listing.entries}
    assert {name: entry.type for name, entry in found.items()} == {
        "directory": FileType.DIRECTORY,
        "fifo": FileType.FIFO,
        "file": FileType.FILE,
        "link": FileType.SYMLINK,
        "socket": FileType.SOCKET,
    }
    assert found["link"].link_target == b"/etc/passwd"
    assert found["file"].modified_ns == 1_500_000_000_250_000_000
    assert found["fifo"].permissions.startswith("p")
    assert (listing.total_files, listing.total_bytes, listing.complete) == (1, 1, True)
    assert listing.usage.max_file_bytes == rig.settings.max_file_bytes
    assert listing.usage.max_bytes == rig.settings.workspace_bytes


async def test_pages_in_the_order_of_the_bytes(rig: FileRig) -> None:
    """Recursive pages together are everything, once, sorted, with the totals on each."""
    expected = []
    for name in ["a", "a.b", "a/b", "a/c", "a0", "b", "b/a", "B"]:
        path = rig.workspace / name
        if any(other.startswith(f"{name}/") for other in ["a/b", "a/c", "b/a"]):
            path.mkdir()
        else:
            path.write_bytes(b"12")
        expected.append(name.encode())
    seen: list[bytes] = []
    after = b""
    while True:
        page = await rig.files.list(rig.path(""), recursive=True, page_size=3, after=after)
        seen += [entry.path for entry in page.entries]
        assert (page.total_files, page.total_bytes) == (6, 12)
        after = page.next_after
        if not after:
            break

    assert seen == sorted(expected)
    below = await rig.files.list(rig.path("a"), recursive=True)
    assert [entry.path for entry in below.entries] == [b"a/b", b"a/c"]


async def test_levels_of_a_listing(rig: FileRig) -> None:
    """As many as were asked for, in pages or not; their totals count what they show."""
    for name in ("a", "d/b", "d/e/c", "d/e/f/g"):
        await rig.put(name, b"xx", make_parents=True)
    levels = [["a", "d"], ["d/b", "d/e"], ["d/e/c", "d/e/f"], ["d/e/f/g"]]
    for depth in range(1, 6):
        expected = sorted(name for level in levels[:depth] for name in level)
        found = await rig.files.list(rig.path(""), depth=depth, recursive=depth % 2 == 0)
        first = await rig.files.list(rig.path(""), depth=depth, page_size=1)

        assert [entry.path.decode() for entry in found.entries] == expected
        assert [entry.path.decode() for entry in first.entries] == expected[:1]
        assert found.complete
        assert found.total_bytes == first.total_bytes == 2 * min(depth, 4)


@pytest.mark.parametrize(
    ("path", "error"),
    [("missing", FileNotFound), ("file", NotADirectory), ("out", OutsideWorkspace)],
)
async def test_a_listing_of_no_directory(
    rig: FileRig, path: str, error: type[SandboxdError]
) -> None:
    """Each in its own words."""
    (rig.workspace / "file").write_bytes(b"")
    (rig.workspace / "out").symlink_to("/etc")
    with pytest.raises(error):
        await rig.files.list(rig.path(path))


async def test_stat_follows_only_when_asked(rig: FileRig) -> None:
    """A link is described as one, or as what it points to, under the path that was asked for."""
    (rig.workspace / "file").write_bytes(b"1234")
    (rig.workspace / "link").symlink_to("file")

    link = await rig.files.stat(rig.path("link"))
    file = await rig.files.stat(rig.path("link"), follow_links=True)
    top = await rig.files.stat(rig.path(""))

    assert (link.type, link.link_target) == (FileType.SYMLINK, b"file")
    assert (file.type, file.size, file.path) == (FileType.FILE, 4, b"link")
    assert (top.type, top.path) == (FileType.DIRECTORY, b"")
    with pytest.raises(FileNotFound):
        await rig.files.stat(rig.path("missing"))


# --- changes ---


async def test_making_directories(rig: FileRig) -> None:
    """With exact bits, no error if it is there, and only below a directory."""
    made = await rig.files.make_directory(rig.path("a"), mode=0o2750)
    again = await rig.files.make_directory(rig.path("a"))

    assert (made.created, made.entry.mode, again.created) == (True, 0o750, False)
    with pytest.raises(FileNotFound):
        await rig.files.make_directory(rig.path("x/y"))
    await rig.put("file")
    with pytest.raises(FileExists):
        await rig.files.make_directory(rig.path("file"))
    with pytest.raises(NotADirectory):
        await rig.files.make_directory(rig.path("file/below"), make_parents=True)


async def test_moving(rig: FileRig) -> None:
    """In one step; what is there is only replaced on request, and a directory never."""
    await rig.put("one", b"1")
    await rig.put("two", b"2")
    await rig.put("d/file", b"3", make_parents=True)
    with pytest.raises(FileExists):
        await rig.files.move(rig.path("one"), rig.path("two"))
    for replace in (False, True):
        with pytest.raises(FileExists):
            await rig.files.move(rig.path("one"), rig.path("d"), replace=replace)
    for parents in (False, True):
        with pytest.raises(FileNotFound, match="'missing'"):
            await rig.files.move(rig.path("missing"), rig.path("n/ew"), make_parents=parents)
        with pytest.raises(InvalidRequest):
            await rig.files.move(rig.path("d"), rig.path("d/be/low"), make_parents=parents)

    entry = await rig.files.move(rig.path("one"), rig.path("two"), replace=True)
    await rig.files.move(rig.path("d"), rig.path("e"))

    assert (entry.path, entry.size) == (b"two", 1)
    assert rig.names() == {"two", "e", "e/file"}
    assert (rig.workspace / "two").read_bytes() == b"1"


async def test_what_is_wrong_with_the_new_path_is_said_of_it(rig: FileRig) -> None:
    """A missing directory is not the entry that is moved; on request it is made."""
    await rig.put("one", b"1")
    await rig.put("file", b"2")
    (rig.workspace / "out").symlink_to("/")
    path = rig.path("one")
    for new, error in [
        ("new/dir/one", FileNotFound),
        ("file/one", NotADirectory),
        ("out/one", OutsideWorkspace),
        ("file", FileExists),
    ]:
        with pytest.raises(error, match=f"'{new}'"):
            await rig.files.move(path, rig.path(new))
    entry = await rig.files.move(path, rig.path("new/dir/one"), make_parents=True)

    assert entry.path == b"new/dir/one"
    assert rig.names() == {"file", "out", "new", "new/dir", "new/dir/one"}


async def test_removing(rig: FileRig) -> None:
    """A link is removed and not its target; a full directory only on request; figures are true."""
    await rig.put("d/e/file", b"x", make_parents=True)
    (rig.workspace / "outside").symlink_to("/etc")
    (rig.workspace / "d/etc").symlink_to("/etc")
    with pytest.raises(DirectoryNotEmpty):
        await rig.files.remove(rig.path("d"))
    with pytest.raises(FileNotFound):
        await rig.files.remove(rig.path("missing"))

    assert await rig.files.remove(rig.path("missing"), ignore_missing=True) == 0
    assert await rig.files.remove(rig.path("outside")) == 1
    assert await rig.files.remove(rig.path("d"), recursive=True) == 4
    assert rig.names() == set()
    assert await rig.run("test -e /etc/passwd && echo there") == "there\n"


async def test_the_layout_stays(rig: FileRig) -> None:
    """The workspace and the names of its layout are not removed, moved or replaced, under no
    name that leads there."""
    for name in ("project_files", "outputs"):
        (rig.workspace / name).mkdir()
    (rig.workspace / "agent_workspace").symlink_to(".")
    await rig.put("file", b"x")
    for path in ("", "outputs", "project_files", "agent_workspace", "agent_workspace/outputs"):
        with pytest.raises(ProtectedPath):
            await rig.files.remove(rig.path(path), recursive=True)
        with pytest.raises(ProtectedPath):
            await rig.files.move(rig.path(path), rig.path("new"))
    with pytest.raises(ProtectedPath):
        await rig.files.move(rig.path("file"), rig.path("agent_workspace"), replace=True)
    with pytest.raises(ProtectedPath):
        await rig.put("agent_workspace", b"x")

    await rig.put("agent_workspace/file", b"y")
    assert await rig.get("file") == b"y"


async def test_a_very_deep_tree(rig: FileRig) -> None:
    """10,000 levels are listed as far as paths go, counted to the bottom, and removed."""
    depth = 10_000
    script = (
        "import os\n"
        f"for _ in range({depth}): os.mkdir('d'); os.chdir('d')\n"
        "open('bottom', 'w').write('12345')\n"
    )
    await rig.put("dig.py", script.encode())
    await rig.run("mkdir deep; cd deep; python3 ../dig.py")

    page = await rig.files.list(rig.path("deep"), recursive=True, page_size=10_000)
    seen = len(page.entries)
    while page.next_after:
        page = await rig.files.list(
            rig.path("deep"), recursive=True, page_size=10_000, after=page.next_after
        )
        seen += len(page.entries)

    assert seen == (4095 - len("deep")) // 2
    assert (page.total_files, page.total_bytes, page.complete) == (1, 5, False)
    assert await rig.files.remove(rig.path("deep"), recursive=True) == depth + 2
    assert rig.names() == {"dig.py"}


async def test_a_wide_directory(rig: FileRig) -> None:
    """100,000 entries are paged, totalled and removed."""
    await rig.run("mkdir wide; cd wide; seq 100000 | xargs touch")

    page = await rig.files.list(rig.path("wide"), page_size=500)

    assert (len(page.entries), page.total_files, page.complete) == (500, 100_000, True)
    assert page.entries[0].path == b"wide/1"
    assert await rig.files.remove(rig.path("wide"), recursive=True) == 100_001


async def test_a_tree_that_changes_meanwhile(rig: FileRig) -> None:
    """Directories swapped for links under a walk lead nowhere outside."""
    outside = rig.workspace.parent / "outside"
    (outside / "bin").mkdir(parents=True)
    await rig.run(f"mkdir -p tree/{{1..30}}/{{1..30}}; mkdir -p aside; ln -s {outside} lib")
    swapping = rig.start(
        "while :; do for d in tree/*; do mv $d aside/d; mv lib $d; mv $d lib; mv aside/d $d; done; "
        "done 2>/dev/null"
    )
    for _ in range(20):
        listing = await rig.files.list(rig.path("tree"), recursive=True, page_size=10_000)
        assert not [e for e in listing.entries if b"/bin/" in e.path or e.path.endswith(b"/bin")]
    rig.link.kill(swapping.number)
    await swapping.end


async def test_a_tree_that_grows_while_it_is_removed(rig: FileRig) -> None:
    """It is gone, or it is said that it is not empty; nothing hangs."""
    growing = rig.start("while :; do mkdir -p tree/a/b && touch tree/a/$RANDOM; done 2>/dev/null")
    async with asyncio.timeout(20):
        while "tree" not in rig.names():
            await asyncio.sleep(0.01)
        for _ in range(10):
            try:
                await rig.files.remove(rig.path("tree"), recursive=True, ignore_missing=True)
            except DirectoryNotEmpty:
                continue
    rig.link.kill(growing.number)
    await growing.end


async def test_the_longest_paths(rig: FileRig) -> None:
    """Paths of bytes that are no text are as long as others, also two at once and with a page."""
    longest = b"/".join([b"\xff" * 255] * 16)[:4095]
    path = rig.path(longest)
    with pytest.raises(FileNotFound):
        await rig.files.move(path, rig.path(longest[:-1]))
    with pytest.raises(FileNotFound):
        await rig.files.list(path, after=longest)


# --- the project area ---


@pytest.fixture
async def project_rig(tmp_path: Path) -> AsyncIterator[FileRig]:
    """With the project area as a directory of the host, which the guest can only read."""
    project = tmp_path / "project"
    project.mkdir()
    async with guest_with_files(tmp_path, project=project, project_bytes=4 * MIB) as rig:
        (rig.workspace / "project_files").mkdir()
        (rig.workspace / "agent_workspace").symlink_to(".")
        await mount_read_only(rig, project, rig.workspace / "project_files")
        yield rig


async def test_project_files_are_written_on_the_host(project_rig: FileRig) -> None:
    """Under both names of the workspace; commands can read whatever is in it."""
    rig = project_rig
    assert rig.project is not None
    await rig.put("project_files/a/b", b"one", make_parents=True, mode=0o600)
    await rig.put("agent_workspace/project_files/two", b"two")
    await rig.files.make_directory(rig.path("project_files/d"), mode=0o700)
    moved = await rig.files.move(rig.path("project_files/two"), rig.path("project_files/d/2"))
    await rig.files.move(
        rig.path("agent_workspace/project_files/d/2"),
        rig.path("agent_workspace/project_files/d/3"),
    )

    assert moved.path == b"project_files/d/2"
    assert (rig.project / "a/b").read_bytes() == b"one"
    assert stat.S_IMODE((rig.project / "a/b").stat().st_mode) == 0o644
    assert stat.S_IMODE((rig.project / "d").stat().st_mode) == 0o755
    assert (rig.project / "d/3").read_bytes() == b"two"
    assert await rig.get("project_files/a/b") == b"one"
    assert await rig.files.remove(rig.path("project_files/a"), recursive=True) == 2


def _writes_through(rig: FileRig, link: str) -> dict[str, Callable[[], Awaitable[object]]]:
    """Every call that writes, with `link` in place of `project_files`."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("in"))
    path, files = rig.path(f"{link}/in"), rig.files
    spec = TarSpec(path=rig.path(link))
    new_spec = TarSpec(path=rig.path(f"{link}/new"))
    return {
        "upload": lambda: rig.put(f"{link}/in", b"y"),
        "upload below": lambda: rig.put(f"{link}/d/new", b"y", make_parents=True),
        "upload far below": lambda: rig.put(f"{link}/a/b/new", b"y", make_parents=True),
        "write": lambda: files.write_text(TextSpec(path=path, text="y")),
        "write lines": lambda: files.write_text(TextSpec(path=path, text="y", first_line=1)),
        "edit": lambda: files.edit_text(EditSpec(path=path, old_text="x", new_text="y")),
        "make": lambda: files.make_directory(rig.path(f"{link}/new"), make_parents=True),
        "remove": lambda: files.remove(path),
        "remove all": lambda: files.remove(rig.path(f"{link}/d"), recursive=True),
        "move within": lambda: files.move(path, rig.path(f"{link}/out")),
        "move in": lambda: files.move(rig.path("out"), rig.path(f"{link}/out")),
        "move out": lambda: files.move(path, rig.path("new")),
        "unpack": lambda: files.upload_tar(spec, chunks_of(archive.getvalue())),
        "unpack below": lambda: files.upload_tar(new_spec, chunks_of(archive.getvalue())),
    }


@pytest.mark.parametrize("target", ["project_files", "agent_workspace/project_files", "other"])
async def test_links_do_not_lead_into_project_files(project_rig: FileRig, target: str) -> None:
    """Commands make links, and only callers write project files: each call that a link would
    redirect is refused, and says so; reads are not."""
    rig = project_rig
    assert rig.project is not None
    await rig.put("project_files/d/in", b"x", make_parents=True)
    await rig.put("project_files/in", b"x")
    await rig.put("out", b"x")
    await rig.run(f"ln -s project_files other; ln -s {target} plan; ln -s project_files/in file")
    before = sorted(os.listdir(rig.project))

    for name, call in _writes_through(rig, "plan").items():
        with pytest.raises(ProtectedPath, match="leads through a link into project_files"):
            await call()
        assert sorted(os.listdir(rig.project)) == before, name
    for spec in (
        TextSpec(path=rig.path("file"), text="y"),
        TextSpec(path=rig.path("agent_workspace/file"), text="y", first_line=1),
    ):
        with pytest.raises(ProtectedPath):
            await rig.files.write_text(spec)
    with pytest.raises(ProtectedPath):
        await rig.files.edit_text(EditSpec(path=rig.path("file"), old_text="x", new_text="y"))
    with pytest.raises(ProtectedPath):
        await rig.put("file", b"y")

    assert await rig.get("plan/in") == await rig.get("file") == b"x"
    assert (rig.project / "in").read_bytes() == (rig.project / "d/in").read_bytes() == b"x"


async def test_a_guest_cannot_name_project_files(tmp_path: Path) -> None:
    """In the separate layout `agent_workspace` is a directory of the commands, so a name in it is
    theirs, whatever it is called."""
    project = tmp_path / "project"
    project.mkdir()
    async with guest_with_files(tmp_path, project=project, layout=Layout.SEPARATE) as rig:
        await rig.run("mkdir -p agent_workspace/project_files project_files")
        await rig.put("agent_workspace/project_files/mine", b"x")
        await rig.put("project_files/yours", b"x")

        assert os.listdir(project) == ["yours"]
        assert os.listdir(rig.workspace / "agent_workspace/project_files") == ["mine"]


async def test_project_files_are_an_area_of_their_own(project_rig: FileRig) -> None:
    """Nothing moves in or out, it stays, and it holds no more than it should."""
    rig = project_rig
    await rig.put("project_files/in", b"x")
    await rig.put("out", b"x")
    for old, new in [
        ("project_files/in", "new"),
        ("out", "project_files/new"),
        ("out", "agent_workspace/project_files/new"),
        ("agent_workspace/project_files/in", "new"),
    ]:
        with pytest.raises(ProtectedPath):
            await rig.files.move(rig.path(old), rig.path(new))
    with pytest.raises(ProtectedPath):
        await rig.files.remove(rig.path("project_files"), recursive=True)
    with pytest.raises(WorkspaceFull):
        await rig.put("project_files/large", bytes(5 * MIB))
    with pytest.raises(WorkspaceFull):
        await rig.put("project_files/large", bytes(5 * MIB), size=5 * MIB)
    await rig.files.aclose()
    assert os.listdir(rig.project or "") == ["in"]


def test_a_page_holds_no_more_than_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long paths end a page early; the next one goes on there."""
    monkeypatch.setattr(listing, "MAX_PAGE_BYTES", 1000)
    names = [b"%03d" % number + b"x" * 200 for number in range(50)]
    seen: list[bytes] = []
    has_more = True
    while has_more:
        page = listing.Page(seen[-1] if seen else b"", 10)
        for name in reversed(names):
            page.add([listing.Entry(name, 1, 0, 0, 0, b"")])
        entries, has_more = page.finish()
        assert 0 < len(entries) < 10
        seen += [entry.path for entry in entries]

    assert seen == names
