"""Whatever commands do to their files, a snapshot holds exactly what the kernel says is there."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random

import pytest

from sandboxd.snapshots.contract import Line
from sandboxd.snapshots.snapshots import DiskSnapshots
from tests.scale import SCALE
from tests.snapshots import comparison
from tests.snapshots.rig import LINE, UID, Disks, Workspace, snapshots_in
from tests.snapshots.wild_changes import WildChanges

BATCHES = int(16 * SCALE)


def own_all(workspace: Workspace) -> None:
    """Everything is the sandbox's, as if a command had made it."""
    for path, names, files in os.walk(os.fsencode(workspace.path)):
        for name in [*names, *files]:
            below = os.path.join(path, name)
            if os.lstat(below).st_uid != UID and name not in (b"project_files", b"agent_workspace"):
                os.chown(below, UID, UID, follow_symlinks=False)


@pytest.mark.parametrize("seed", range(3))
async def test_every_batch_is_taken_exactly_and_found_again_later(
    seed: int, disks: Disks, workspace: Workspace, snapshots: DiskSnapshots, tmp_path: Path
) -> None:
    """Each of many snapshots, read at once and by another daemon later, equals the tree then."""
    random = Random(seed)
    changes = WildChanges(os.fsencode(workspace.path), random)
    truth: dict[int, comparison.Seen] = {}
    for batch in range(BATCHES):
        changes.some(random.randrange(1, 40))
        own_all(workspace)
        if random.random() < 0.3:
            await asyncio.sleep(0.03)  # otherwise everything is as young as the look
        taken = await snapshots.take(LINE, workspace.disk, is_durable=False)
        assert taken is not None
        assert taken.moving_count == 0
        expected = comparison.directory(workspace.descriptor)
        truth[taken.number] = expected
        assert taken.entries == len(expected)
        if batch % 5 == 0:
            found = await comparison.snapshot(snapshots, LINE, taken.number)
            comparison.assert_same(found, expected)
    later = snapshots_in(tmp_path)
    for number, expected in truth.items():
        comparison.assert_same(await comparison.snapshot(later, LINE, number), expected)
    for number in random.sample(sorted(truth), 3):
        await assert_restores(later, LINE, number, disks, truth[number])
    assert not (await later.verify()).problems
    await later.close()


async def assert_restores(
    snapshots: DiskSnapshots, line: Line, number: int, disks: Disks, expected: comparison.Seen
) -> None:
    with disks.workspace() as other:
        await snapshots.restore(line, number, other.descriptor, uid=UID, gid=UID)
        comparison.assert_same(comparison.directory(other.descriptor), expected)
    other.image.unlink()


@pytest.mark.parametrize("seed", range(2))
async def test_state_that_was_forgotten_is_found_again(
    seed: int, workspace: Workspace, tmp_path: Path
) -> None:
    """A daemon that knows only the stored snapshots takes the next one as exactly."""
    random = Random(100 + seed)
    changes = WildChanges(os.fsencode(workspace.path), random)
    for _ in range(8):
        snapshots = snapshots_in(tmp_path)
        changes.some(20)
        own_all(workspace)
        taken = await snapshots.take(LINE, workspace.disk)
        assert taken is not None
        found = await comparison.snapshot(snapshots, LINE, taken.number)
        comparison.assert_same(found, comparison.directory(workspace.descriptor))
        await snapshots.close()
