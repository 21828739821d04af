"""Garbage collection deletes what nothing needs, and never what something needs."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from sandboxd.daemon.snapshots import _collect_garbage
from sandboxd.errors import SnapshotNotFound, SnapshotStoreFailed
from sandboxd.snapshots import keys
from sandboxd.snapshots.contract import Garbage, Line
from sandboxd.snapshots.objects import DirectoryObjects
from sandboxd.snapshots.snapshots import DiskSnapshots
from tests.snapshots import comparison
from tests.snapshots.rig import LINE, Disks, Workspace, snapshots_on

RUN_SECONDS = 6.0


AT_ONCE = {"take_seconds": 0.05, "grace_seconds": 0.1}
"""For a daemon that collects garbage while nobody takes a snapshot."""


def opened(
    directory: Path,
    *,
    take_seconds: float = 60.0,
    grace_seconds: float = 120.0,
    is_shared: bool = True,
) -> DiskSnapshots:
    objects = DirectoryObjects(directory / "store")
    return snapshots_on(
        objects,
        directory,
        take_seconds=take_seconds,
        grace_seconds=grace_seconds,
        is_shared=is_shared,
    )


async def collect_until(snapshots: DiskSnapshots, *, kept: int) -> Garbage:
    give_up_at = time.monotonic() + 60
    while True:
        garbage = await snapshots.collect_garbage()
        if garbage.waiting == 0 and garbage.kept == kept:
            return garbage
        assert time.monotonic() < give_up_at, garbage
        await asyncio.sleep(0.05)


async def test_deleted_snapshots_give_their_space_back(
    workspace: Workspace, tmp_path: Path
) -> None:
    """What only deleted snapshots needed is deleted; those that are left stay as they were."""
    snapshots = opened(tmp_path)
    truth = {}
    for turn in range(6):
        (workspace.path / "turn").write_bytes(os.urandom(50_000))
        if turn % 2:
            (workspace.path / f"kept{turn}").write_bytes(os.urandom(1000))
        taken = await snapshots.take(LINE, workspace.disk)
        assert taken is not None
        truth[taken.number] = comparison.directory(workspace.descriptor)
    for number in (2, 3, 5):
        await snapshots.delete(LINE, number)
    packs = set((tmp_path / "store").glob("objects/users/*/packs/*/*"))
    collector = opened(tmp_path, **AT_ONCE)
    give_up_at = time.monotonic() + 60
    while (garbage := await collector.collect_garbage()).waiting or not garbage.deleted:
        assert time.monotonic() < give_up_at, garbage
        await asyncio.sleep(0.05)

    # Snapshot 2 had stored something that 4 needs; what 3 and 5 had stored is not needed.
    assert len(packs - set((tmp_path / "store").glob("objects/users/*/packs/*/*"))) == 2
    assert [found.number for found in await snapshots.find(LINE)] == [1, 4, 6]
    for number in (1, 4, 6):
        found = await comparison.snapshot(snapshots, LINE, number)
        comparison.assert_same(found, truth[number])
    with pytest.raises(SnapshotNotFound):
        await snapshots.get(LINE, 3)
    await snapshots.delete_line(LINE)
    # What is left is the highest number, so that it is not used again.
    await collect_until(collector, kept=2)
    taken = await snapshots.take(LINE, workspace.disk)
    assert taken is not None
    assert taken.number == 7
    await collector.close()
    await snapshots.close()


class SlowToShow(DirectoryObjects):
    """A disk on which a snapshot can be seen long after it was written."""

    def create(self, key: str, data: bytes, *, is_durable: bool = True) -> None:
        time.sleep(2 * AT_ONCE["grace_seconds"])
        super().create(key, data, is_durable=is_durable)


async def test_snapshot_that_could_be_seen_too_late_is_none(
    workspace: Workspace, tmp_path: Path
) -> None:
    """What it refers to may be gone by then, so it fails and is not listed."""
    snapshots = snapshots_on(SlowToShow(tmp_path / "store"), tmp_path, **AT_ONCE)
    (workspace.path / "f").write_bytes(b"x")
    with pytest.raises(SnapshotStoreFailed):
        await snapshots.take(LINE, workspace.disk)
    assert await snapshots.find(LINE) == []


SHARED = {"take_seconds": 0.8, "grace_seconds": 1.0}
ALONE = {"grace_seconds": 86400.0, "is_shared": False}


@pytest.mark.parametrize(("count", "settings"), [(2, SHARED), (1, ALONE)])
async def test_nothing_is_lost_while_snapshots_are_taken(
    disks: Disks, tmp_path: Path, count: int, settings: dict[str, Any]
) -> None:
    """Daemons take, copy and delete snapshots of one user while all collect garbage all the time:
    whatever is there at the end is whole."""
    daemons = [opened(tmp_path, **settings) for _ in range(count)]
    end_at = time.monotonic() + RUN_SECONDS

    async def take_and_delete(number: int) -> int:
        random, taken = Random(number), 0
        daemon, line = daemons[number % len(daemons)], Line(user_id="ada", name=f"ses_{number}")
        with disks.workspace() as workspace:
            while time.monotonic() < end_at:
                # The same content in several lines, again and again.
                data = bytes([random.randrange(12)]) * 40_000
                (workspace.path / f"f{random.randrange(5)}").write_bytes(data)
                try:
                    taken += await daemon.take(line, workspace.disk, is_durable=False) is not None
                except SnapshotStoreFailed:  # it took too long, on a machine that is too busy
                    continue
                found = await daemon.find(line)
                if random.random() < 0.7 and found:
                    await daemon.delete(line, random.choice(found).number)
                found = await daemon.find(line)
                if random.random() < 0.2 and found:
                    with suppress(SnapshotStoreFailed):  # the same
                        await daemon.copy(line, found[-1].number, Line(user_id="ada", name="forks"))
        workspace.image.unlink()
        return taken

    async def collect(daemon: DiskSnapshots) -> int:
        deleted = 0
        while time.monotonic() < end_at + 1.5:
            deleted += (await daemon.collect_garbage()).deleted
            await asyncio.sleep(0.02)
        return deleted

    takers = [take_and_delete(number) for number in range(3)]
    counts = await asyncio.gather(*takers, *map(collect, daemons))

    assert sum(counts[:3]) > 10
    assert sum(counts[3:]) > 0
    later = opened(tmp_path)
    verified = await later.verify()
    assert verified.problems == []
    assert verified.snapshots > 0
    for daemon in (*daemons, later):
        await daemon.close()
    print(f"snapshots: {sum(counts[:3])} taken while {sum(counts[3:])} objects were deleted")


async def test_space_of_a_deleted_line_is_free_at_once_in_a_store_of_one_process(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Nothing of it can be in use, so there is no need to wait for the usual time."""
    snapshots = opened(tmp_path, grace_seconds=86400.0, is_shared=False)
    for _ in range(3):
        (workspace.path / "file").write_bytes(os.urandom(8 << 20))
        await snapshots.take(LINE, workspace.disk)
    await snapshots.delete_line(LINE)
    owners = await snapshots.much_deleted(60)
    assert owners == {keys.owner_of(LINE.user_id)}

    deleted = sum([(await snapshots.collect_garbage(owners)).deleted_bytes for _ in range(3)])
    assert deleted > 24 << 20
    assert not list((tmp_path / "store").glob("objects/users/*/packs/*/*"))
    assert await snapshots.much_deleted(0) == set()
    await snapshots.close()


async def test_content_that_is_being_read_is_not_deleted(
    workspace: Workspace, tmp_path: Path
) -> None:
    """An export of a snapshot that is deleted meanwhile is whole, and keeps nothing of others from
    being deleted."""
    snapshots = opened(tmp_path, grace_seconds=86400.0, is_shared=False)
    for size in (40, 20):
        (workspace.path / "file").write_bytes(os.urandom(size << 20))
        await snapshots.take(LINE, workspace.disk)
    other = Line(user_id="bob", name="ses_2")
    await snapshots.take(other, workspace.disk)
    export = snapshots.export(LINE, 1)
    parts = [await anext(export)]
    await snapshots.delete_line(LINE)
    await snapshots.delete_line(other)
    for _ in range(5):
        await snapshots.collect_garbage()

    packs = {path.parts[-4] for path in (tmp_path / "store").glob("objects/users/*/packs/*/*")}
    assert packs == {keys.owner_of(LINE.user_id)}
    parts += [part async for part in export]
    assert sum(map(len, parts)) > 40 << 20
    for _ in range(3):
        await snapshots.collect_garbage()
    assert not list((tmp_path / "store").glob("objects/users/*/packs/*/*"))
    await snapshots.close()


async def test_damage_stops_the_collection_of_its_user_only(
    workspace: Workspace, tmp_path: Path
) -> None:
    """If a snapshot cannot be read, nothing is deleted that it could need."""
    snapshots = opened(tmp_path)
    other = Line(user_id="bob", name="ses_2")
    for line in (LINE, other):
        for turn in range(2):
            (workspace.path / "file").write_bytes(os.urandom(1000 + turn))
            await snapshots.take(line, workspace.disk)
        await snapshots.delete(line, 1)
    (broken,) = (tmp_path / "store").glob("objects/users/*/lines/ses_1/0000000002.snapshot")
    broken.write_bytes(b"broken")
    fresh = opened(tmp_path, **AT_ONCE)
    deadline = time.monotonic() + 60
    deleted = 0
    while not deleted:
        assert time.monotonic() < deadline
        deleted += (await fresh.collect_garbage()).deleted
        await asyncio.sleep(0.02)
    for _ in range(5):
        await fresh.collect_garbage()

    packs = (tmp_path / "store").glob("objects/users/*/packs/*/*")
    assert len([path for path in packs if path.parts[-4] == broken.parts[-4]]) == 2
    await fresh.close()
    await snapshots.close()


def test_settings_that_would_lose_snapshots_are_refused(tmp_path: Path) -> None:
    """Garbage must be older than any snapshot that is being taken."""
    with pytest.raises(ValueError, match="longer"):
        opened(tmp_path, take_seconds=10, grace_seconds=10)


async def test_a_snapshot_that_takes_too_long_is_not_stored(
    workspace: Workspace, tmp_path: Path
) -> None:
    """What it refers to may be garbage by then."""
    snapshots = opened(tmp_path, take_seconds=0.0, grace_seconds=1.0)
    (workspace.path / "file").write_bytes(b"x")

    with pytest.raises(Exception, match="too long"):
        await snapshots.take(LINE, workspace.disk)
    assert await snapshots.find(LINE) == []
    await snapshots.close()


class Waiting:
    """Snapshots of which little was deleted, and how often their garbage is collected."""

    def __init__(self) -> None:
        self.looks = 0
        self.collected: asyncio.Queue[object] = asyncio.Queue()

    async def much_deleted(self, seconds: float) -> set[str]:
        self.looks += 1
        await asyncio.sleep(0)
        return set()

    async def collect_garbage(self, owners: object = None) -> Garbage:
        self.collected.put_nowait(owners)
        return Garbage(kept=0, waiting=0, deleted=0, deleted_bytes=0)


async def test_garbage_of_all_is_collected_when_space_gets_low() -> None:
    """However little was deleted, and long before the usual time; else it is left alone."""
    snapshots, is_low = Waiting(), False
    collecting = asyncio.ensure_future(_collect_garbage(cast(Any, snapshots), lambda: is_low))
    try:
        while snapshots.looks < 10:
            await asyncio.sleep(0)
        assert snapshots.collected.empty()
        is_low = True
        async with asyncio.timeout(60):
            assert await snapshots.collected.get() is None
    finally:
        collecting.cancel()
        await asyncio.wait([collecting])
