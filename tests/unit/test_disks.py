"""Workspace disks, as far as they can be had without mounting anything."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.errors import DiskSpaceLow
from sandboxd.workspaces import disk_template, loop_mount
from sandboxd.workspaces.disks import Disks, DiskSettings
from sandboxd.workspaces.image_file import copy_data, created, half_made, is_fully_allocated
from sandboxd.workspaces.layout import Layout
from sandboxd.workspaces.thread_work import run_in_thread
from tests.fakes.waiting import eventually

MIB = 1 << 20
NO_DISK = "0" * 16


@pytest.fixture
def settings(tmp_path: Path) -> DiskSettings:
    return DiskSettings(
        directory=tmp_path / "disks",
        mounts=tmp_path / "mounts",
        size_bytes=8 * MIB,
        max_files=100,
        reserve_bytes=0,
    )


@pytest.fixture
def template(settings: DiskSettings) -> Path:
    """A file where the template should be."""
    settings.directory.mkdir()
    path = settings.directory / disk_template.file_name(
        size_bytes=settings.size_bytes, max_files=settings.max_files, layout=settings.layout
    )
    path.write_bytes(b"template")
    return path


class Work:
    """Blocking work that lasts until it is let go, and remembers whether it was undone."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self.undone: list[str] = []

    def __call__(self) -> str:
        self.has_begun.set()
        assert self.may_end.wait(timeout=30)
        return "made"

    def start(self, *, seconds: float = 30) -> asyncio.Task[str]:
        return asyncio.ensure_future(run_in_thread(self, seconds=seconds, undo=self.undone.append))

    async def begun(self) -> None:
        await eventually(self.has_begun.is_set)


async def test_blocking_work_that_is_not_cancelled_stays_done() -> None:
    work = Work()
    work.may_end.set()

    assert await work.start() == "made"
    assert work.undone == []


async def test_cancelled_work_ends_and_is_undone_before_the_cancel_is_told() -> None:
    """When the cancel is raised nothing is left of the work, however often it was cancelled."""
    work = Work()
    running = work.start()
    await work.begun()
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0)
        assert not running.done()
    work.may_end.set()
    await asyncio.wait([running], timeout=30)

    assert running.cancelled()
    assert work.undone == ["made"]


async def test_work_that_failed_before_the_cancel_has_nothing_to_undo() -> None:
    undone: list[None] = []
    may_fail = threading.Event()

    def fail() -> None:
        assert may_fail.wait(timeout=30)
        raise OSError("no")

    running = asyncio.ensure_future(run_in_thread(fail, seconds=30, undo=undone.append))
    await asyncio.sleep(0)
    running.cancel()
    may_fail.set()
    await asyncio.wait([running], timeout=30)

    assert running.cancelled()
    assert undone == []


async def test_work_that_takes_too_long_is_undone_when_it_ends() -> None:
    """A deadline frees the caller at once, and leaves nothing behind later."""
    work = Work()
    with pytest.raises(TimeoutError):
        await work.start(seconds=0.01)
    assert work.undone == []
    work.may_end.set()

    await eventually(lambda: work.undone == ["made"])


async def test_a_cancel_counts_for_a_timeout_around_the_work() -> None:
    """`asyncio.timeout` around it ends as a timeout, and the work is undone."""
    work = Work()
    running = work.start()

    async def impatient() -> None:
        async with asyncio.timeout(0.01):
            await run_in_thread(work, seconds=30, undo=work.undone.append)

    waiting = asyncio.ensure_future(impatient())
    await work.begun()
    running.cancel()
    asyncio.get_running_loop().call_later(0.05, work.may_end.set)

    with pytest.raises(TimeoutError):
        await waiting
    await asyncio.wait([running], timeout=30)
    assert work.undone == ["made", "made"]


@pytest.mark.parametrize(
    "pieces",
    [{}, {0: b"begin"}, {3 * MIB: b"middle"}, {0: b"x" * 5000, 2 * MIB: b"y" * MIB, 5 * MIB: b"z"}],
    ids=["hole", "begin", "middle", "pieces"],
)
def test_a_copy_has_the_same_bytes_and_no_holes(pieces: dict[int, bytes], tmp_path: Path) -> None:
    size = 6 * MIB
    with created(tmp_path / "source") as source, created(tmp_path / "copy") as copy:
        os.ftruncate(source, size)
        for offset, data in pieces.items():
            os.pwrite(source, data, offset)
        os.posix_fallocate(copy, 0, size)
        copy_data(source, copy)

    assert (tmp_path / "copy").read_bytes() == (tmp_path / "source").read_bytes()
    assert is_fully_allocated(tmp_path / "copy")
    assert not is_fully_allocated(tmp_path / "source")


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    """Under its name there is the whole file or none, and after an error nothing at all."""
    with half_made(tmp_path / "whole") as unfinished:
        unfinished.write_text("all of it")
        assert not (tmp_path / "whole").exists()
    with pytest.raises(KeyboardInterrupt), half_made(tmp_path / "broken") as unfinished:
        unfinished.write_text("some of it")
        raise KeyboardInterrupt

    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
    assert (tmp_path / "whole").read_text() == "all of it"


def test_a_template_is_known_by_all_that_it_depends_on() -> None:
    names = {
        disk_template.file_name(size_bytes=size, max_files=files, layout=layout)
        for size in (MIB, 2 * MIB)
        for files in (10, 11)
        for layout in Layout
    }

    assert len(names) == 8
    assert all(os.uname().release in name for name in names)


async def test_no_disk_is_made_of_the_reserve(settings: DiskSettings, template: Path) -> None:
    """The refusal says how much is free and kept, and leaves nothing."""
    reserve = 1 << 60
    with pytest.raises(DiskSpaceLow) as refusal:
        await Disks(replace(settings, reserve_bytes=reserve)).make(210_777)

    assert int(refusal.value.metadata["reserveBytes"]) == reserve
    assert 0 <= int(refusal.value.metadata["freeBytes"]) < reserve
    assert list(settings.directory.iterdir()) == [template]


async def test_a_sweep_removes_what_is_ours_and_not_kept(
    settings: DiskSettings, template: Path
) -> None:
    """Disks to keep, the template in use and files of others stay."""
    kept, orphan = "a" * 16, "b" * 16
    for name in (f"{kept}.img", f"{orphan}.img", "c.img.part", "template-0-8-8-old", "registry"):
        (settings.directory / name).touch()
    (settings.directory / f"proof-{orphan}").mkdir()
    (settings.directory / f"proof-{orphan}" / f"{orphan}.img").touch()
    (settings.mounts / orphan).mkdir(parents=True)
    disks = Disks(settings)
    assert disks.ids() == [kept, orphan]

    assert await disks.sweep([kept, NO_DISK]) == 4
    assert await disks.sweep([kept]) == 0

    left = {path.name for path in settings.directory.iterdir()}
    assert left == {f"{kept}.img", template.name, "registry"}
    assert list(settings.mounts.iterdir()) == []
    assert disks.ids() == [kept]
    assert disks.has(kept)
    assert not disks.has(orphan)


async def test_a_sweep_moves_aside_what_a_session_has_had(
    settings: DiskSettings, template: Path
) -> None:
    """Such a disk is deleted only when it was unknown for long enough, and its record may come
    back with a backup."""
    unused, used = "a" * 16, "b" * 16
    for name in (unused, used):
        (settings.directory / f"{name}.img").write_bytes(name.encode())
    disks = Disks(settings)
    disks.mark_used(used)

    await disks.sweep([])
    assert not disks.ids()
    aside = settings.directory / "unknown" / f"{used}.img"
    assert aside.read_bytes() == used.encode()
    await disks.sweep([])
    due = await disks.delete_unknown(3600.0)
    assert due is not None
    assert 3500 < due <= 3600
    assert [path.name for path in aside.parent.iterdir()] == [aside.name]
    os.utime(aside, (0, 0))
    assert await disks.delete_unknown(3600.0) is None
    assert not aside.exists()


async def test_a_sweep_leaves_a_mount_point_with_something_in_it(settings: DiskSettings) -> None:
    """It is not known whose that is, and no reason to fail."""
    (settings.mounts / NO_DISK / "workspace").mkdir(parents=True)

    assert await Disks(settings).sweep([]) == 0
    assert (settings.mounts / NO_DISK / "workspace").is_dir()


async def test_a_disk_can_be_deleted_twice(settings: DiskSettings, template: Path) -> None:
    (settings.directory / f"{NO_DISK}.img").touch()
    disks = Disks(settings)

    await disks.delete(NO_DISK)
    await disks.delete(NO_DISK)

    assert disks.ids() == []


@pytest.mark.parametrize("disk_id", ["", "../registry", "a" * 15, "A" * 16, "a" * 16 + "\n"])
async def test_what_is_no_id_is_no_path(disk_id: str, settings: DiskSettings) -> None:
    """An id that could lead out of the directory is refused before anything is touched."""
    disks = Disks(settings)

    with pytest.raises(ValueError, match="not the id of a disk"):
        await disks.delete(disk_id)
    with pytest.raises(ValueError, match="not the id of a disk"):
        disks.has(disk_id)


def test_mounts_are_found_below_a_directory_only(tmp_path: Path) -> None:
    assert Path("/proc") in loop_mount.mounts_under(Path("/"))
    assert loop_mount.mounts_under(tmp_path) == []
    assert Path("/proc") not in loop_mount.mounts_under(Path("/proc"))
