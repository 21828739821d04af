"""How much of the store one user may have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.errors import SnapshotLimitReached
from sandboxd.snapshots import keys
from sandboxd.snapshots.contract import Line
from sandboxd.snapshots.objects import DirectoryObjects
from sandboxd.snapshots.snapshots import DiskSnapshots
from tests.snapshots.rig import LINE, Disks, Workspace, snapshots_on

SHARE = 30 << 20


def opened(directory: Path, *, is_shared: bool = False) -> DiskSnapshots:
    objects = DirectoryObjects(directory / "store")
    return snapshots_on(objects, directory, is_shared=is_shared, user_bytes=SHARE)


async def fill(snapshots: DiskSnapshots, workspace: Workspace) -> SnapshotLimitReached:
    """Take snapshots of new content, each in a line of its own, until that is refused."""
    for number in range(10):
        (workspace.path / "file").write_bytes(os.urandom(9 << 20))
        try:
            await snapshots.take(Line(user_id="ada", name=f"ses_{number}"), workspace.disk)
        except SnapshotLimitReached as refusal:
            return refusal
    raise AssertionError("ten snapshots of 9 MiB are more than 30 MiB")


def stored(directory: Path, user_id: str) -> int:
    found = (directory / "store" / "objects" / "users" / keys.owner_of(user_id)).rglob("*")
    return sum(path.stat().st_size for path in found if path.is_file())


async def test_all_lines_of_a_user_share_a_limit(workspace: Workspace, tmp_path: Path) -> None:
    """The refusal says which limit it is and what to do, others store theirs, and what the user
    deletes can be used again soon."""
    snapshots = opened(tmp_path)
    refusal = await fill(snapshots, workspace)

    assert "SANDBOXD_MAX_USER_SNAPSHOT_MB" in refusal.message
    assert "delete some" in refusal.message
    assert SHARE - (10 << 20) < stored(tmp_path, "ada") <= SHARE
    assert await snapshots.take(Line(user_id="bob", name="ses_b"), workspace.disk)
    with pytest.raises(SnapshotLimitReached):
        await snapshots.take(LINE, workspace.disk)
    await snapshots.delete_line(Line(user_id="ada", name="ses_0"))
    owners = await snapshots.much_deleted(60)
    for _ in range(3):
        await snapshots.collect_garbage(owners)
    assert await snapshots.take(LINE, workspace.disk)
    await snapshots.close()


async def test_what_was_refused_in_the_middle_is_given_back(disks: Disks, tmp_path: Path) -> None:
    """Parts of a snapshot that is too large do not stay."""
    snapshots = opened(tmp_path)
    with disks.workspace() as workspace:
        (workspace.path / "file").write_bytes(os.urandom(45 << 20))
        with pytest.raises(SnapshotLimitReached):
            await snapshots.take(LINE, workspace.disk)
    assert stored(tmp_path, "ada") > SHARE // 2
    owners = await snapshots.much_deleted(60)
    for _ in range(3):
        await snapshots.collect_garbage(owners)

    assert stored(tmp_path, "ada") == 0
    await snapshots.close()


async def test_workers_that_share_a_store_count_what_others_have_stored(
    workspace: Workspace, tmp_path: Path
) -> None:
    """The store itself is counted."""
    first, second = opened(tmp_path, is_shared=True), opened(tmp_path, is_shared=True)
    await fill(first, workspace)

    with pytest.raises(SnapshotLimitReached):
        await second.take(LINE, workspace.disk)
    for snapshots in (first, second):
        await snapshots.close()
