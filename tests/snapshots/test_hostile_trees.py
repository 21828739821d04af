"""Workspaces that were made to be difficult: taken right, or refused with a typed error."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandboxd.errors import (
    InvalidRequest,
    SnapshotDamaged,
    SnapshotNotFound,
    WorkspaceFull,
    WorkspaceUnreadable,
)
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.snapshots import keeper
from sandboxd.snapshots.contract import ChangeKind, Consistency, Kind, Line, Notes, WorkspaceDisk
from sandboxd.snapshots.snapshots import DiskSnapshots
from tests.snapshots import comparison
from tests.snapshots.rig import LINE, UID, Disks, Workspace, snapshots_in

DEEP = 10_000


async def content(snapshots: DiskSnapshots, number: int, path: bytes) -> bytes:
    return b"".join([part async for part in snapshots.read_file(LINE, number, path)])


@pytest.fixture(scope="module")
def large_disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disks]:
    made = Disks(tmp_path_factory.mktemp("large"), size_bytes=560 << 20, max_files=DEEP + 1000)
    yield made
    made.close()


def depth_of(root: int) -> tuple[int, bytes]:
    """How deep the directories `d` are, and what is in the file at the end."""
    current, depth = os.dup(root), 0
    while True:
        try:
            following = os.open("d", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=current)
        except FileNotFoundError:
            break
        os.close(current)
        current, depth = following, depth + 1
    with os.fdopen(os.open("end", os.O_RDONLY, dir_fd=current), "rb") as file:
        data = file.read()
    os.close(current)
    return depth, data


def dig(root: int) -> None:
    current = os.dup(root)
    for _ in range(DEEP):
        os.mkdir("d", dir_fd=current)
        following = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=current)
        os.close(current)
        current = following
    with os.fdopen(os.open("end", os.O_WRONLY | os.O_CREAT, dir_fd=current), "wb") as file:
        file.write(b"down here")
    os.close(current)


async def test_deep_directories(
    large_disks: Disks, snapshots: DiskSnapshots, tmp_path: Path
) -> None:
    """10,000 directories in each other are taken, read by a later daemon, compared, restored."""
    with large_disks.workspace() as workspace:
        dig(workspace.descriptor)
        taken = await snapshots.take(LINE, workspace.disk)
        assert taken is not None
        assert taken.entries == DEEP + 1 + 3
    workspace.image.unlink()
    later = snapshots_in(tmp_path)
    assert await content_of_the_end(later, taken.number) == b"down here"
    with pytest.raises(InvalidRequest):
        await later.entries(LINE, taken.number)
    with large_disks.workspace() as other:
        await later.restore(LINE, taken.number, other.descriptor, uid=UID, gid=UID)
        assert depth_of(other.descriptor) == (DEEP, b"down here")
    other.image.unlink()
    await later.close()


async def content_of_the_end(snapshots: DiskSnapshots, number: int) -> bytes:
    return await content(snapshots, number, b"d/" * DEEP + b"end")


async def test_a_thousand_large_files(large_disks: Disks, snapshots: DiskSnapshots) -> None:
    """1,000 files of 500 kB, all changed, are taken and restored, with bounded memory."""
    with large_disks.workspace() as workspace:
        pattern = os.urandom(500_000)
        for number in range(1000):
            (workspace.path / f"{number}").write_bytes(b"%6d" % number + pattern[6:])
        started = time.monotonic()
        taken = await snapshots.take(LINE, workspace.disk, is_durable=False)
        assert taken is not None
        assert taken.content_bytes == 500_000_000
        for number in (0, 499, 999):
            found = await content(snapshots, taken.number, b"%d" % number)
            assert found == b"%6d" % number + pattern[6:]
        print(f"snapshots: 1,000 files of 500 kB in {time.monotonic() - started:.1f} s")
    workspace.image.unlink()
    assert not (await snapshots.verify()).problems


async def test_full_disk(disks: Disks, snapshots: DiskSnapshots) -> None:
    """A disk without a free byte is taken, and restored into one of the same size."""
    with disks.workspace() as workspace:
        with (workspace.path / "fill").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(os.urandom(1 << 20))
            except OSError:
                pass
        os.chown(workspace.path / "fill", UID, UID)
        taken = await snapshots.take(LINE, workspace.disk, is_durable=False)
        assert taken is not None
        with disks.workspace() as other:
            await snapshots.restore(LINE, taken.number, other.descriptor, uid=UID, gid=UID)
            expected = comparison.directory(workspace.descriptor)
            comparison.assert_same(comparison.directory(other.descriptor), expected)
        other.image.unlink()
    workspace.image.unlink()


async def test_restore_into_a_disk_that_is_too_small(
    disks: Disks, snapshots: DiskSnapshots, tmp_path: Path
) -> None:
    """WorkspaceFull, not a part that looks like the whole."""
    small = Disks(tmp_path, size_bytes=1 << 20, max_files=100)
    with disks.workspace() as workspace:
        (workspace.path / "large").write_bytes(os.urandom(2 << 20))
        taken = await snapshots.take(LINE, workspace.disk)
        assert taken is not None
        with small.workspace() as other, pytest.raises(WorkspaceFull):
            await snapshots.restore(LINE, taken.number, other.descriptor, uid=UID, gid=UID)
    workspace.image.unlink()


async def test_devices_and_sockets_are_left_out(
    disks: Disks, workspace: Workspace, snapshots: DiskSnapshots
) -> None:
    """They are counted, and never made again."""
    os.mknod(workspace.path / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(workspace.path / "block", stat.S_IFBLK | 0o666, os.makedev(7, 0))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(workspace.path / "socket"))
    (workspace.path / "file").write_bytes(b"x")
    os.chown(workspace.path / "file", UID, UID)
    taken = await snapshots.take(LINE, workspace.disk)

    assert taken is not None
    assert taken.left_out == 3
    with disks.workspace() as other:
        await snapshots.restore(LINE, taken.number, other.descriptor, uid=UID, gid=UID)
        assert sorted(os.listdir(other.path)) == [
            "agent_workspace",
            "file",
            "outputs",
            "project_files",
        ]
    other.image.unlink()
    (workspace.path / "device").unlink()
    taken = await snapshots.take(LINE, workspace.disk)
    assert taken is not None
    assert taken.left_out == 2


async def test_other_mounts_are_left_alone(
    disks: Disks, workspace: Workspace, snapshots: DiskSnapshots, tmp_path: Path
) -> None:
    """A restore writes nothing below project_files, which is another filesystem."""
    (workspace.path / "file").write_bytes(b"x")
    (workspace.path / "project_files" / "planted").write_bytes(b"x")
    taken = await snapshots.take(LINE, workspace.disk)
    assert taken is not None
    with disks.workspace() as other, mounted_over(other.path / "project_files") as inside:
        (inside / "own").write_bytes(b"own")
        await snapshots.restore(LINE, taken.number, other.descriptor, uid=UID, gid=UID)
        assert os.listdir(inside) == ["own"]
    other.image.unlink()


@contextmanager
def mounted_over(point: Path) -> Iterator[Path]:
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(point)], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True)


class Writer:
    """Writes a number to one file and then to another, for ever, as fast as it can."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stopping = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        files = [os.open(self._directory / name, os.O_RDWR | os.O_CREAT) for name in ("a", "b")]
        while not self._stopping.is_set():
            self.count += 1
            for file in files:
                os.pwrite(file, b"%12d" % self.count, 0)
        for file in files:
            os.close(file)

    async def goes_on(self) -> None:
        before, give_up_at = self.count, time.monotonic() + 30
        while self.count < before + 10:
            assert time.monotonic() < give_up_at, "the writer stands still"
            await asyncio.sleep(0.005)


async def test_a_moment_of_a_workspace_that_is_written_to(
    workspace: Workspace, snapshots: DiskSnapshots
) -> None:
    """With writers that never pause, all files are of one moment, and the writers go on."""
    with Writer(workspace.path) as writer:
        await writer.goes_on()
        for _ in range(4):
            taken = await snapshots.take(
                LINE, workspace.disk, consistency=Consistency.ONE_MOMENT, is_durable=False
            )
            assert taken is not None
            first, second = [
                int(await content(snapshots, taken.number, name)) for name in (b"a", b"b")
            ]
            assert first - second in (0, 1)
            assert taken.moving_count == 0
            await writer.goes_on()


async def test_whole_files_of_a_workspace_that_is_written_to(
    workspace: Workspace, snapshots: DiskSnapshots
) -> None:
    """Without one moment, each file is whole, and those that moved are named."""
    with Writer(workspace.path) as writer:
        await writer.goes_on()
        for _ in range(4):
            taken = await snapshots.take(LINE, workspace.disk, is_durable=False)
            assert taken is not None
            assert set(taken.moving) <= {b"a", b"b"}
            for name in (b"a", b"b"):
                assert len(await content(snapshots, taken.number, name)) == 12
    at_rest = await snapshots.take(LINE, workspace.disk)
    assert at_rest is not None
    assert at_rest.moving_count == 0
    assert int(await content(snapshots, at_rest.number, b"a")) == writer.count


async def test_frozen_filesystem_thaws_by_itself(workspace: Workspace) -> None:
    """Half a second after the freeze, even if nobody says so; who froze it learns of it."""
    with Writer(workspace.path) as writer:
        await writer.goes_on()

        def freeze_and_forget() -> None:
            with keeper.frozen(workspace.descriptor):
                time.sleep(2 * keeper.MOST_SECONDS)

        with pytest.raises(keeper.NotFrozen):
            await asyncio.to_thread(freeze_and_forget)
        await writer.goes_on()
        assert not keeper.thaw(workspace.descriptor)


async def test_frozen_filesystem_thaws_when_its_daemon_is_killed(workspace: Workspace) -> None:
    """The keeper outlives the daemon for as long as it takes to thaw."""
    program = (
        "import os, sys, time; from sandboxd.snapshots import keeper\n"
        "with keeper.frozen(int(sys.argv[1])):\n"
        "    print('frozen', flush=True); time.sleep(60)\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, str(workspace.descriptor)),
        stdout=asyncio.subprocess.PIPE,
        pass_fds=[workspace.descriptor],
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"frozen\n"
    with Writer(workspace.path) as writer:
        process.kill()
        await process.wait()
        await writer.goes_on()


async def test_next_daemon_thaws_what_was_left_frozen(workspace: Workspace) -> None:
    """Should daemon and keeper be killed together, commands write again when a daemon is back."""
    fcntl.ioctl(workspace.descriptor, keeper.FREEZE, 0)
    process = SimpleNamespace(open_directory=lambda path: os.dup(workspace.descriptor))
    sandbox = SimpleNamespace(disk=object(), process=process, id="sandbox")
    try:
        await Sandbox.thaw(sandbox, "/workspace")  # type: ignore[arg-type]
        with Writer(workspace.path) as writer:
            await writer.goes_on()
    finally:
        keeper.thaw(workspace.descriptor)


async def test_image_that_is_not_ours(tmp_path: Path, snapshots: DiskSnapshots) -> None:
    """Whatever is in the place of a disk, the error says that it cannot be read."""
    for number, data in enumerate((b"", b"x" * 5000, bytes(1 << 20), os.urandom(1 << 20))):
        image = tmp_path / f"{number}.img"
        image.write_bytes(data)
        with pytest.raises(WorkspaceUnreadable):
            await snapshots.take(LINE, WorkspaceDisk(image=image, workspace=None))
    with pytest.raises(WorkspaceUnreadable):
        await snapshots.take(LINE, WorkspaceDisk(image=tmp_path / "none", workspace=None))
    assert await snapshots.find(LINE) == []


async def test_damaged_store(workspace: Workspace, tmp_path: Path) -> None:
    """Each damaged byte of a pack or a snapshot is noticed when it is read, and by verify."""
    snapshots = snapshots_in(tmp_path)
    (workspace.path / "file").write_bytes(os.urandom(5000))
    os.chown(workspace.path / "file", UID, UID)
    taken = await snapshots.take(LINE, workspace.disk)
    assert taken is not None
    stored = [path for path in (tmp_path / "store" / "objects").rglob("*") if path.is_file()]
    assert len(stored) == 2
    for path in stored:
        whole = path.read_bytes()
        for damaged in (whole[:-1], b"", whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], None):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            later = snapshots_in(tmp_path)
            with pytest.raises((SnapshotDamaged, SnapshotNotFound)):
                await content(later, taken.number, b"file")
            if damaged is not None or path.suffix != ".snapshot":
                assert len((await later.verify()).problems) == 1
            await later.close()
            path.write_bytes(whole)
    assert not (await snapshots.verify()).problems
    await snapshots.close()


async def test_snapshots_are_sealed_to_their_place(workspace: Workspace, tmp_path: Path) -> None:
    """A snapshot that is copied to another user, line or number is not accepted there, nor one
    that was sealed with another key."""
    snapshots = snapshots_in(tmp_path)
    bob = Line(user_id="bob", name="ses_2")
    for line in (LINE, bob):
        await snapshots.take(line, workspace.disk)
    (ada,) = (tmp_path / "store" / "objects").glob("users/*/lines/ses_1/*.snapshot")
    (other,) = (tmp_path / "store" / "objects").glob("users/*/lines/ses_2/*.snapshot")
    other.write_bytes(ada.read_bytes())
    (ada.parent / "0000000002.snapshot").write_bytes(ada.read_bytes())
    later = snapshots_in(tmp_path)

    for line, number in ((bob, 1), (LINE, 2)):
        with pytest.raises(SnapshotDamaged, match="seal"):
            await later.entries(line, number)
    assert (await later.get(LINE, 1)).number == 1
    await later.close()
    await snapshots.close()


async def test_users_do_not_share_content(
    disks: Disks, workspace: Workspace, snapshots: DiskSnapshots
) -> None:
    """The same file is stored once among the lines of a user, and again for another user."""
    (workspace.path / "file").write_bytes(os.urandom(500_000))
    bytes_of = {}
    for user, name in (("ada", "one"), ("ada", "two"), ("bob", "one")):
        taken = await snapshots.take(Line(user_id=user, name=name), workspace.disk)
        assert taken is not None
        bytes_of[user, name] = taken.stored_bytes

    assert bytes_of["ada", "one"] > 500_000
    assert bytes_of["ada", "two"] < 5_000
    assert bytes_of["bob", "one"] > 500_000


async def test_one_byte_of_a_large_file(workspace: Workspace, snapshots: DiskSnapshots) -> None:
    """Only the piece that has the byte is stored again."""
    with (workspace.path / "large").open("wb") as file:
        file.write(os.urandom(30 << 20))
    await snapshots.take(LINE, workspace.disk, is_durable=False)
    with (workspace.path / "large").open("r+b") as file:
        file.seek(17 << 20)
        file.write(b"!")
    taken = await snapshots.take(LINE, workspace.disk, is_durable=False)

    assert taken is not None
    assert taken.stored_bytes < (4 << 20) + 10_000
    assert taken.changed == 1


async def test_holes_are_neither_read_nor_stored_nor_filled(
    disks: Disks, workspace: Workspace, snapshots: DiskSnapshots
) -> None:
    """A file of a terabyte with a few bytes is taken as what it is."""
    with (workspace.path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        for position in (5 << 30, (1 << 40) - 3):
            file.seek(position)
            file.write(b"abc")
    taken = await snapshots.take(LINE, workspace.disk)
    assert taken is not None
    assert taken.content_bytes == 1 << 40
    assert taken.stored_bytes < 20_000
    parts = snapshots.read_file(LINE, taken.number, b"sparse", offset=(5 << 30) - 1, max_bytes=5)
    assert b"".join([part async for part in parts]) == b"\0abc\0"
    with disks.workspace() as other:
        await snapshots.restore(LINE, taken.number, other.descriptor, uid=UID, gid=UID)
        found = (other.path / "sparse").stat()
        assert (found.st_size, found.st_blocks) == (
            1 << 40,
            (workspace.path / "sparse").stat().st_blocks,
        )
    other.image.unlink()


async def test_diff_names_what_happened(workspace: Workspace, snapshots: DiskSnapshots) -> None:
    """Added, changed, removed and moved paths, with text diffs where there is text."""
    path = workspace.path
    (path / "directory").mkdir()
    for name in ("changed", "removed", "moved", "mode", "directory/inside"):
        (path / name).write_text(f"one\ntwo {name}\nthree\n")
    (path / "binary").write_bytes(b"\0" * 100)
    await snapshots.take(LINE, workspace.disk)
    (path / "changed").write_text("one\n2\nthree\n")
    (path / "removed").unlink()
    (path / "moved").rename(path / "elsewhere")
    (path / "directory").rename(path / "folder")
    (path / "mode").chmod(0o711)
    (path / "binary").write_bytes(b"\1" * 100)
    (path / "added").write_text("new\n")
    await snapshots.take(LINE, workspace.disk)
    found = await snapshots.diff(LINE, 1, 2)

    kinds = {change.path: change.kind for change in found.changes}
    assert kinds == {
        b"added": ChangeKind.ADDED,
        b"binary": ChangeKind.CHANGED,
        b"changed": ChangeKind.CHANGED,
        b"elsewhere": ChangeKind.MOVED,
        b"folder": ChangeKind.MOVED,
        b"folder/inside": ChangeKind.MOVED,
        b"mode": ChangeKind.CHANGED,
        b"removed": ChangeKind.REMOVED,
    }
    by_path = {change.path: change for change in found.changes}
    assert "-two changed\n+2\n" in by_path[b"changed"].text_diff
    assert by_path[b"binary"].is_binary
    assert by_path[b"elsewhere"].old_path == b"moved"
    assert not by_path[b"mode"].is_content_changed
    assert by_path[b"added"].text_diff.endswith("+new\n")
    assert (await snapshots.diff(LINE, 1, 1)).changes == []


async def test_nothing_changed_takes_nothing(
    workspace: Workspace, snapshots: DiskSnapshots
) -> None:
    """Reading files is no change; a snapshot that is wanted in any case is taken nevertheless."""
    (workspace.path / "file").write_bytes(b"x" * 100)
    assert await snapshots.take(LINE, workspace.disk, only_if_changed=True) is not None
    (workspace.path / "file").read_bytes()
    assert await snapshots.take(LINE, workspace.disk, only_if_changed=True) is None
    assert await snapshots.take(LINE, workspace.disk) is not None
    os.utime(workspace.path / "file", ns=(1, 1))
    assert await snapshots.take(LINE, workspace.disk, only_if_changed=True) is not None


async def test_restored_workspace_is_the_same(
    disks: Disks, workspace: Workspace, snapshots: DiskSnapshots
) -> None:
    """After a restore into another disk nothing has changed, and the line goes on there."""
    (workspace.path / "file").write_bytes(b"x" * 100)
    os.chown(workspace.path / "file", UID, UID)
    taken = await snapshots.take(LINE, workspace.disk)
    assert taken is not None
    with disks.workspace() as other:
        await snapshots.restore(LINE, taken.number, other.descriptor, uid=UID, gid=UID)
        assert await snapshots.take(LINE, other.disk, only_if_changed=True) is None
        (other.path / "more").write_bytes(b"y")
        following = await snapshots.take(LINE, other.disk, only_if_changed=True)
        assert following is not None
        assert (following.added, following.changed, following.removed) == (1, 0, 0)
        found = await comparison.snapshot(snapshots, LINE, following.number)
        comparison.assert_same(found, comparison.directory(other.descriptor))
    other.image.unlink()


async def test_same_request_takes_one_snapshot(
    workspace: Workspace, snapshots: DiskSnapshots
) -> None:
    """A call that is repeated with its request id returns what the first one took."""
    notes = Notes(label="first", request_id="r1")
    first = await snapshots.take(LINE, workspace.disk, notes=notes)
    (workspace.path / "file").write_bytes(b"x")
    again = await snapshots.take(LINE, workspace.disk, notes=notes)

    assert first == again
    assert len(await snapshots.find(LINE)) == 1


async def test_kinds_are_all_there(workspace: Workspace, snapshots: DiskSnapshots) -> None:
    """Every kind of entry is listed as what it is."""
    os.mkfifo(workspace.path / "fifo")
    taken = await snapshots.take(LINE, workspace.disk)
    assert taken is not None
    kinds = {entry.path: entry.kind for entry in await snapshots.entries(LINE, taken.number)}
    assert kinds == {
        b"agent_workspace": Kind.LINK,
        b"fifo": Kind.FIFO,
        b"outputs": Kind.DIRECTORY,
        b"project_files": Kind.DIRECTORY,
    }
