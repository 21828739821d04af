"""Processes that take snapshots are killed at random moments, and so is the way to the store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scale import SCALE
from tests.snapshots import comparison
from tests.snapshots.killed_taker import UNDISTURBED, digest_of, open_objects
from tests.snapshots.object_server import object_server
from tests.snapshots.rig import LINE, UID, Disks, Workspace, snapshots_on

KILLS = int(20 * SCALE)


@pytest.fixture(params=["directory", "service"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "directory":
        yield str(tmp_path / "store")
    else:
        with object_server() as address:
            yield address


async def test_what_was_acknowledged_is_there_and_what_is_there_is_whole(
    store: str, disks: Disks, workspace: Workspace, tmp_path: Path
) -> None:
    """After 50 kills, every acknowledged snapshot is listed and equals the tree at its time, bit
    for bit, and every listed one can be read completely."""
    log = tmp_path / "acknowledged"
    arguments = [store, str(workspace.image), str(workspace.path), str(log), str(KILLS), "7"]
    command = [sys.executable, "-m", "tests.snapshots.killed_taker", *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, timeout=240, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    acknowledged = dict(line.split() for line in log.read_text().splitlines())
    assert len(acknowledged) >= UNDISTURBED

    snapshots = snapshots_on(open_objects(store), tmp_path / "unfinished")
    listed = {str(found.number) for found in await snapshots.find(LINE)}
    assert acknowledged.keys() <= listed
    assert not (await snapshots.verify()).problems
    for number, digest in acknowledged.items():
        found = await comparison.snapshot(snapshots, LINE, int(number))
        assert digest_of(found) == digest, number
    for number in list(acknowledged)[:: max(1, len(acknowledged) // 3)]:
        with disks.workspace() as other:
            await snapshots.restore(LINE, int(number), other.descriptor, uid=UID, gid=UID)
            restored = comparison.directory(other.descriptor)
        assert digest_of(restored) == acknowledged[number], number
        other.image.unlink()
    print(f"snapshots: {KILLS} kills, {len(acknowledged)} acknowledged, {len(listed)} listed")
    await snapshots.close()
