"""The store of kept files: who uses a disk, and when files are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from sandboxd.errors import DiskSpaceLow
from sandboxd.isolation.uids import UidRange
from sandboxd.sandboxes.kept_files import Claim, KeptFiles, KeptFilesStore
from sandboxd.workspaces.disks import Disk, Disks, DiskSize
from tests.cancellation.invariants import free_uids
from tests.fakes.disks import FakeDisks
from tests.fakes.waiting import eventually

UIDS = 64
SIZE = DiskSize(size_bytes=1 << 20, max_files=16)


@pytest.fixture
def disks() -> FakeDisks:
    return FakeDisks()


@pytest.fixture
async def store(tmp_path: Path, uids: UidRange, disks: FakeDisks) -> AsyncIterator[KeptFilesStore]:
    store = KeptFilesStore(tmp_path / "projects", uids, cast(Disks, disks), wait_seconds=5.0)
    yield store
    await store.aclose()


def disk_of(claim: Claim) -> Disk:
    assert claim.files.disk is not None
    return claim.files.disk


def projects(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "projects").iterdir()]


async def test_disk_has_a_user_from_its_claim_until_it_is_handed_back(
    store: KeptFilesStore,
) -> None:
    """Anyone can ask which sandbox uses a disk."""
    claim = await store.claim("first", SIZE)
    assert store.user_of(disk_of(claim)) == "first"

    await store.hand_back(claim, keep=True)
    assert store.user_of(disk_of(claim)) is None
    again = await store.claim("second", SIZE, claim.files)
    assert (again.uid, again.files) == (claim.uid, claim.files)
    assert store.user_of(disk_of(again)) == "second"


async def test_kept_disk_is_claimed_by_one_sandbox_at_a_time(store: KeptFilesStore) -> None:
    """Of two that wait for a disk, the second gets it only when the first has handed it back."""
    claim = await store.claim("first", SIZE)
    waiting = [
        asyncio.ensure_future(store.claim(sandbox_id, SIZE, claim.files))
        for sandbox_id in ("second", "third")
    ]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    await store.hand_back(claim, keep=True)
    second = await waiting[0]
    assert not waiting[1].done()

    await store.hand_back(second, keep=True)
    assert (await waiting[1]).sandbox_id == "third"


async def test_wait_for_a_used_disk_has_an_end(
    tmp_path: Path, uids: UidRange, disks: FakeDisks
) -> None:
    """A disk that is never handed back is an error in time, and stays with its user."""
    store = KeptFilesStore(tmp_path, uids, cast(Disks, disks), wait_seconds=0.01)
    claim = await store.claim("first", SIZE)
    with pytest.raises(TimeoutError):
        await store.claim("second", SIZE, claim.files)

    assert store.user_of(disk_of(claim)) == "first"


async def test_discarded_disk_in_use_is_deleted_when_it_is_handed_back(
    store: KeptFilesStore, disks: FakeDisks, uids: UidRange, tmp_path: Path
) -> None:
    """Its project files are deleted at once, its uid is free only after the disk."""
    claim = await store.claim("first", SIZE)
    store.discard(claim.files)
    await eventually(lambda: not projects(tmp_path))
    assert store.has(disk_of(claim))

    await store.hand_back(claim, keep=True)
    assert not store.has(disk_of(claim))
    assert free_uids(uids) == UIDS


async def test_discarded_disk_that_nobody_uses_is_deleted_at_once(
    store: KeptFilesStore, disks: FakeDisks, uids: UidRange
) -> None:
    """Nothing is left of files that a session gave up."""
    claim = await store.claim("first", SIZE)
    await store.hand_back(claim, keep=True)
    store.discard(claim.files)
    await store.aclose()

    assert not disks.owners
    assert free_uids(uids) == UIDS


async def test_failed_claim_leaves_nothing(
    store: KeptFilesStore, disks: FakeDisks, uids: UidRange, tmp_path: Path
) -> None:
    """Neither uid nor project directory stays when there is no disk to be made."""
    disks.fails = DiskSpaceLow(5 << 20, 10 << 20)
    with pytest.raises(DiskSpaceLow):
        await store.claim("first", SIZE)

    assert free_uids(uids) == UIDS
    assert not projects(tmp_path)


async def test_restored_claim_is_like_one_of_this_daemon(
    store: KeptFilesStore, disks: FakeDisks, uids: UidRange
) -> None:
    """The disk and the uid of an adopted sandbox are in use until it is gone."""
    disk = Disk(id="a" * 16, uid=200_005)
    disks.owners = {disk.id: disk.uid}
    claim = Claim("adopted", disk.uid, KeptFiles(disk=disk))
    store.restore(claim)
    assert store.user_of(disk) == "adopted"
    assert free_uids(uids) == UIDS - 1

    await store.hand_back(claim, keep=False)
    assert not disks.owners
    assert free_uids(uids) == UIDS


async def test_project_files_move_to_other_kept_files(store: KeptFilesStore) -> None:
    """A session that gets another sandbox takes its project files along."""
    source, target = await store.claim("first", SIZE), await store.claim("second", SIZE)
    (store.project_dir(source.files) / "kept").write_text("mine")
    await store.move_project_files(source.files, target.files)

    assert (store.project_dir(target.files) / "kept").read_text() == "mine"
    assert not list(store.project_dir(source.files).iterdir())
