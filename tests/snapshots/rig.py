"""A mounted disk as sandboxes have it, and stores for its snapshots."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandboxd.snapshots.contract import Line, WorkspaceDisk
from sandboxd.snapshots.objects import DirectoryObjects, Objects
from sandboxd.snapshots.snapshots import DiskSnapshots, SnapshotSettings
from sandboxd.snapshots.store import StoreSettings
from sandboxd.workspaces import disk_template, loop_mount
from sandboxd.workspaces.image_file import copy_data
from sandboxd.workspaces.layout import Layout

UID = 61_234
SECRET = b"k" * 32
LINE = Line(user_id="ada", name="ses_1")


@dataclass
class Workspace:
    """A workspace that is mounted."""

    image: Path
    path: Path

    def __post_init__(self) -> None:
        self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)

    @property
    def disk(self) -> WorkspaceDisk:
        return WorkspaceDisk(image=self.image, workspace=self.descriptor)

    def close(self) -> None:
        os.close(self.descriptor)


class Disks:
    """Makes disks of one size from a template, in a directory."""

    def __init__(
        self, directory: Path, *, size_bytes: int = 64 << 20, max_files: int = 3000
    ) -> None:
        self._directory = directory
        self._template = directory / "template"
        disk_template.build(
            self._template,
            directory / "mounted-template",
            size_bytes=size_bytes,
            max_files=max_files,
            layout=Layout.SHARED,
        )

    def image(self) -> Path:
        image = self._directory / f"{secrets.token_hex(4)}.img"
        with self._template.open("rb") as source, image.open("xb") as target:
            target.truncate(os.fstat(source.fileno()).st_size)
            copy_data(source.fileno(), target.fileno())
        return image

    @contextmanager
    def workspace(self, image: Path | None = None) -> Iterator[Workspace]:
        """A new disk that is mounted, or one that was made before."""
        own = image or self.image()
        point = self._directory / f"mounted-{secrets.token_hex(4)}"
        with loop_mount.attached(own, point):
            path = point / disk_template.WORKSPACE
            os.chown(path / "outputs", UID, UID)
            workspace = Workspace(own, path)
            try:
                yield workspace
            finally:
                workspace.close()

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def snapshots_on(
    objects: Objects,
    unfinished: Path,
    *,
    take_seconds: float = 60.0,
    grace_seconds: float = 120.0,
    is_shared: bool = True,
    user_bytes: int = 0,
) -> DiskSnapshots:
    store = StoreSettings(
        secret=SECRET,
        take_seconds=take_seconds,
        grace_seconds=grace_seconds,
        is_shared=is_shared,
        user_bytes=user_bytes,
    )
    return DiskSnapshots(objects, SnapshotSettings(store=store, unfinished=unfinished))


def snapshots_in(directory: Path) -> DiskSnapshots:
    return snapshots_on(DirectoryObjects(directory / "store"), directory / "unfinished")
