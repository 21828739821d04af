"""Disks are made once for a module; each test has its own store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandboxd.snapshots.snapshots import DiskSnapshots
from tests.snapshots.rig import Disks, Workspace, snapshots_in


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disks]:
    made = Disks(tmp_path_factory.mktemp("disks"))
    yield made
    made.close()


@pytest.fixture
def workspace(disks: Disks) -> Iterator[Workspace]:
    with disks.workspace() as made:
        yield made
    made.image.unlink()


@pytest.fixture
async def snapshots(tmp_path: Path) -> AsyncIterator[DiskSnapshots]:
    opened = snapshots_in(tmp_path)
    yield opened
    await opened.close()
