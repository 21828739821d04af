"""A store of projects, what it must look like at any time, and a process that is killed in it."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from sandboxd.errors import SandboxdError
from sandboxd.projects import names
from sandboxd.projects.blobs import digest_of
from sandboxd.projects.records import Added, OnConflict, ProjectKey, ProjectLimits
from sandboxd.projects.store import ProjectStore

KEY = ProjectKey("ann", "book")
LIMITS = ProjectLimits(
    max_file_bytes=1 << 20,
    project_files=50,
    project_bytes=1 << 20,
    user_projects=20,
    user_bytes=4 << 20,
)
USERS, PROJECTS, NAMES = ("ann", "bob"), ("one", "two"), ("a.txt", "b.txt", "B.TXT", "c.txt")


def add(
    store: ProjectStore,
    name: str,
    content: bytes,
    *,
    key: ProjectKey = KEY,
    on_conflict: OnConflict = OnConflict.RENAME,
) -> Added:
    upload = store.begin(key, name, len(content))
    upload.write(content)
    return store.add(key, name, upload, on_conflict, "text/plain")


def files_below(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file())


def shown(store: ProjectStore, key: ProjectKey = KEY) -> dict[str, bytes]:
    """What a session of the project would see."""
    view = store.view(key)
    assert view is not None
    return {path.name: path.read_bytes() for path in view.iterdir()}


def check(directory: Path, store: ProjectStore) -> None:
    """What rows, content and directories have to agree on when nothing is under way."""
    wanted: set[tuple[str, str]] = set()
    for user_id in {*USERS, KEY.user_id}:
        for project in store.list(user_id, "", 1000):
            files = store.files(project.key, "", 1000)
            view = store.view(project.key)
            assert view is not None
            assert {path.name for path in view.iterdir()} == {file.name for file in files}
            for file in files:
                assert digest_of(view / file.name) == file.digest
                assert (view / file.name).stat().st_size == file.size
                wanted.add((user_id, file.digest))
            assert (project.files, project.size) == (len(files), sum(file.size for file in files))
            assert len({names.key(file.name) for file in files}) == len(files)
    blobs = list(files_below(directory / "blobs"))
    assert len(blobs) == len(wanted)
    assert all(digest_of(blob) == "".join(blob.parts[-2:]) for blob in blobs)
    assert list((directory / "unfinished").iterdir()) == []
    known = {project.directory for user in USERS for project in store.list(user, "", 1000)}
    known |= {project.directory for project in store.list(KEY.user_id, "", 1000)}
    assert {path.name for path in (directory / "projects").iterdir()} == known


def change_for_ever(directory: Path, seed: int) -> None:
    """Change projects at random, and write a line for each change that was answered."""
    chance = random.Random(seed)
    store = ProjectStore(directory, LIMITS)
    os.write(1, b"ready\n")
    while True:
        key = ProjectKey(chance.choice(USERS), chance.choice(PROJECTS))
        name, content = chance.choice(NAMES), bytes(chance.choice(b"xyz") for _ in range(3)) * 500
        try:
            action = chance.random()
            if action < 0.2:
                store.create(key)
                line = f"created {key.user_id} {key.project_id}"
            elif action < 0.25:
                store.delete(key)
                line = f"deleted {key.user_id} {key.project_id}"
            elif action < 0.4:
                store.delete_file(key, name)
                line = f"removed {key.user_id} {key.project_id} {name}"
            else:
                added = add(
                    store, name, content, key=key, on_conflict=chance.choice(list(OnConflict))
                )
                line = (
                    f"stored {key.user_id} {key.project_id} {added.file.digest} {added.file.name}"
                )
        except SandboxdError:
            continue
        os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    change_for_ever(Path(sys.argv[1]), int(sys.argv[2]))
