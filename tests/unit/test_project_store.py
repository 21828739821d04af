"""The store of projects: names, content that is stored once, limits, and crashes."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from errno import EMLINK, ENOSPC
from pathlib import Path

import pytest

from sandboxd.errors import (
    DiskSpaceLow,
    FileExists,
    FileNotFound,
    ProjectFull,
    ProjectNotFound,
    StateNotSaved,
)
from sandboxd.projects.index import Index, IndexTooNew
from sandboxd.projects.records import OnConflict, Outcome, ProjectKey
from sandboxd.projects.store import ProjectStore
from tests.scale import SCALE
from tests.unit.project_rig import KEY, LIMITS, add, check, files_below, shown

KILLS = int(12 * SCALE)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


class Stores:
    """Opens a store again and again, as daemons do one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.current = ProjectStore(directory, LIMITS)

    def reopen(self) -> ProjectStore:
        self.current.close()
        self.current = ProjectStore(self.directory, LIMITS)
        return self.current


@pytest.fixture
def stores(directory: Path) -> Iterator[Stores]:
    """With one project; the last store is in order at the end."""
    stores = Stores(directory)
    stores.current.create(KEY)
    yield stores
    check(directory, stores.current)
    stores.current.close()


@pytest.fixture
def store(stores: Stores) -> ProjectStore:
    return stores.current


# --- names ---


def test_names_that_are_taken_get_a_number(store: ProjectStore) -> None:
    """The next free one; the files that are there stay."""
    stored = [add(store, "report.pdf", b"%d" % number).file.name for number in range(3)]
    other = add(store, "REPORT.pdf", b"other").file.name

    assert stored == ["report.pdf", "report (1).pdf", "report (2).pdf"]
    assert other == "REPORT (3).pdf"
    assert shown(store)["report.pdf"] == b"0"


def test_the_same_file_again_changes_nothing(store: ProjectStore) -> None:
    """Whatever is to happen in a conflict, there is none; also if it has got a number."""
    first = add(store, "a.txt", b"one")
    numbered = add(store, "a.txt", b"two")

    for on_conflict in OnConflict:
        again = add(store, "a.txt", b"one", on_conflict=on_conflict)
        assert (again.outcome, again.file) == (Outcome.UNCHANGED, first.file)
    assert add(store, "a.txt", b"two") == (numbered.file, Outcome.UNCHANGED)
    assert set(shown(store)) == {"a.txt", "a (1).txt"}


def test_a_file_is_replaced_on_request(store: ProjectStore) -> None:
    """Under the new spelling of its name, and the old content is gone from the disk."""
    add(store, "Data.csv", b"old")

    added = add(store, "data.csv", b"new", on_conflict=OnConflict.REPLACE)

    assert (added.outcome, added.file.name) == (Outcome.REPLACED, "data.csv")
    assert shown(store) == {"data.csv": b"new"}
    assert store.get(KEY).size == 3


def test_a_taken_name_can_be_refused(store: ProjectStore, directory: Path) -> None:
    """Then nothing of the upload stays."""
    add(store, "a.txt", b"old")

    with pytest.raises(FileExists):
        add(store, "A.TXT", b"new", on_conflict=OnConflict.FAIL)

    assert shown(store) == {"a.txt": b"old"}


def test_racing_uploads_of_one_name_all_get_names(store: ProjectStore) -> None:
    """None is lost, and none is seen under two names."""
    with ThreadPoolExecutor(8) as threads:
        added = list(threads.map(lambda n: add(store, "report.pdf", b"%d" % n), range(40)))

    assert len({one.file.name for one in added}) == 40
    assert shown(store) == {one.file.name: b"%d" % n for n, one in enumerate(added)}


# --- content ---


def test_content_is_stored_once_for_all_projects_of_a_user(
    store: ProjectStore, directory: Path
) -> None:
    """One inode has all the names, and the last of them takes it along."""
    keys = [ProjectKey("ann", f"p{number}") for number in range(10)]
    for key in keys:
        store.create(key)
        add(store, "data.csv", b"x" * 1000, key=key)

    (blob,) = files_below(directory / "blobs")
    assert blob.stat().st_nlink == 11
    assert store.usage("ann")._asdict() == {
        "projects": 11,
        "files": 10,
        "size": 10_000,
        "stored": 1000,
    }
    for key in keys[:9]:
        store.delete(key)
    assert shown(store, keys[9]) == {"data.csv": b"x" * 1000}
    store.delete_file(keys[9], "data.csv")
    assert list(files_below(directory / "blobs")) == []


def test_users_share_nothing(store: ProjectStore, directory: Path) -> None:
    """The same content of two users is stored twice, so that neither can notice the other."""
    other = ProjectKey("bob", "book")
    store.create(other)
    for key in (KEY, other):
        add(store, "a.txt", b"same", key=key)

    assert [path.stat().st_nlink for path in files_below(directory / "blobs")] == [2, 2]
    assert store.delete(KEY).key == KEY
    assert shown(store, other) == {"a.txt": b"same"}


def test_everybody_may_read_what_is_shown(store: ProjectStore) -> None:
    """Whatever the daemon's umask is; and a copy of a file can be written to."""
    before = os.umask(0o077)
    try:
        store.create(ProjectKey("ann", "private"))
        add(store, "a.txt", b"x", key=ProjectKey("ann", "private"))
    finally:
        os.umask(before)
    view = store.view(ProjectKey("ann", "private"))
    assert view is not None
    assert oct(view.stat().st_mode & 0o777) == "0o755"
    assert oct((view / "a.txt").stat().st_mode & 0o777) == "0o644"


def test_a_directory_names_neither_user_nor_project(store: ProjectStore) -> None:
    """A sandbox can read the path."""
    view = store.view(KEY)
    assert view is not None
    assert not {"ann", "book"} & set(view.parts)


def test_content_with_too_many_names_is_copied(
    store: ProjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filesystem limits how many names a file has; projects do not notice."""

    def no_more(*_: object, **__: object) -> None:
        raise OSError(EMLINK, "Too many links")

    monkeypatch.setattr(os, "link", no_more)
    add(store, "a.txt", b"x")
    monkeypatch.undo()

    assert shown(store) == {"a.txt": b"x"}


def test_an_open_file_can_be_read_to_its_end(store: ProjectStore) -> None:
    """Also when it is replaced and deleted meanwhile."""
    add(store, "a.txt", b"first")
    file, descriptor = store.open_file(KEY, "a.txt")
    add(store, "a.txt", b"second", on_conflict=OnConflict.REPLACE)
    store.delete_file(KEY, "a.txt")

    assert (file.size, os.read(descriptor, 100)) == (5, b"first")
    os.close(descriptor)


# --- limits and errors ---


def test_limits_hold(store: ProjectStore) -> None:
    """Of files, of bytes of a project and of a user, and of projects; each names itself."""
    big = bytes(600 << 10)
    add(store, "a.txt", big)
    with pytest.raises(ProjectFull, match="1048576 bytes"):
        store.begin(KEY, "b.txt", len(big))
    with pytest.raises(ProjectFull, match="1048576 bytes") as caught:
        upload = store.begin(KEY, "b.txt", 0)  # a caller that announced nothing
        upload.write(big + b"x")
        store.add(KEY, "b.txt", upload, OnConflict.RENAME, "text/plain")
    assert caught.value.metadata["limit"] == str(1 << 20)
    assert add(store, "a.txt", big).outcome is Outcome.UNCHANGED
    add(store, "a.txt", big[:-1], on_conflict=OnConflict.REPLACE)  # what it replaces makes room

    keys = [ProjectKey("ann", f"p{number}") for number in range(6)]
    with pytest.raises(ProjectFull, match="projects of this user"):
        for key in keys:
            store.create(key)
            add(store, "a.txt", big + key.project_id.encode(), key=key)
    with pytest.raises(ProjectFull, match="20 projects"):
        for number in range(30):
            store.create(ProjectKey("ann", f"more{number}"))
    few = ProjectKey("bob", "few")
    store.create(few)
    with pytest.raises(ProjectFull, match="50 files"):
        for number in range(60):
            add(store, "n.txt", b"%d" % number, key=few)
    assert store.get(few).files == 50


def test_what_does_not_exist_is_reported(store: ProjectStore) -> None:
    """Projects of another user are among it."""
    missing = ProjectKey("bob", "book")
    for call in (
        lambda: store.get(missing),
        lambda: store.delete(missing),
        lambda: store.files(missing, "", 10),
        lambda: store.begin(missing, "a.txt", 0),
        lambda: store.open_file(missing, "a.txt"),
    ):
        with pytest.raises(ProjectNotFound):
            call()
    add(store, "a.txt", b"x")
    for name in ("b.txt", "A.TXT", "../a.txt", "a.txt\0"):
        with pytest.raises(FileNotFound):
            store.delete_file(KEY, name)


def test_a_project_that_is_deleted_during_an_upload_gets_nothing(store: ProjectStore) -> None:
    """The upload is refused at its end, and leaves no content."""
    key = ProjectKey("bob", "short")
    store.create(key)
    upload = store.begin(key, "a.txt", 1)
    upload.write(b"x")
    store.delete(key)

    with pytest.raises(ProjectNotFound):
        store.add(key, "a.txt", upload, OnConflict.RENAME, "text/plain")


@pytest.mark.parametrize("earlier", [None, b"old"])
@pytest.mark.parametrize("step", ["put_file", "link", "commit"])
def test_a_failing_disk_changes_nothing(
    earlier: bytes | None, step: str, store: ProjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever step fails, the files are as before, and the caller may try again."""
    if earlier is not None:
        add(store, "a.txt", earlier)
    before = shown(store)

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    def no_space(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        if step == "put_file":
            patched.setattr(Index, "put_file", full)
        elif step == "link":
            patched.setattr(os, "link", no_space)
        else:  # after the file is shown, but before its row is saved
            patched.setattr(Index, "transaction", failing_transaction)
        with pytest.raises((StateNotSaved, DiskSpaceLow)):
            add(store, "a.txt", b"new", on_conflict=OnConflict.REPLACE)

    assert shown(store) == before
    assert add(store, "b.txt", b"new").outcome is Outcome.CREATED


@contextmanager
def failing_transaction(index: Index) -> Iterator[None]:
    """Does what its block does, and then cannot keep it."""
    index._connection.execute("BEGIN IMMEDIATE")
    yield
    index._connection.execute("ROLLBACK")
    raise sqlite3.OperationalError("disk I/O error")


# --- crashes ---


def test_a_start_removes_what_nobody_names(
    stores: Stores, store: ProjectStore, directory: Path
) -> None:
    """Unfinished uploads, content without a row, and names without a row."""
    add(store, "a.txt", b"x")
    view = store.view(KEY)
    assert view is not None
    store.begin(KEY, "b.txt", 0).write(b"half")
    (view / "stray.txt").write_text("no row")
    blob = directory.joinpath("blobs", "0" * 32, "ab", "cd")
    blob.parent.mkdir(parents=True)
    blob.write_text("of nobody")
    (directory / "projects" / "strange").mkdir()
    (directory / "projects" / "file").write_text("put there by hand")
    (directory / "unfinished" / "directory").mkdir()
    (view / "directory").mkdir()

    again = stores.reopen()

    assert shown(again) == {"a.txt": b"x"}


def test_a_start_shows_again_what_rows_name(
    stores: Stores, store: ProjectStore, directory: Path
) -> None:
    """A missing name, a name with other content, a missing directory, missing content."""
    for name in ("gone.txt", "other.txt", "blob.txt"):
        add(store, name, name.encode())
    view = store.view(KEY)
    assert view is not None
    (view / "gone.txt").unlink()
    (view / "other.txt").unlink()
    (view / "other.txt").write_text("replaced before its row was")
    for blob in files_below(directory / "blobs"):
        if blob.read_bytes() == b"blob.txt":
            blob.unlink()

    again = stores.reopen()

    assert shown(again) == {name: name.encode() for name in ("gone.txt", "other.txt", "blob.txt")}


def test_projects_survive_the_loss_of_the_index(
    stores: Stores, store: ProjectStore, directory: Path
) -> None:
    """Rows are made again from the directories, with what can be seen of the files."""
    add(store, "a.csv", b"1,2\n")
    before = store.files(KEY, "", 10)
    store.close()
    for path in directory.glob("index.sqlite*"):
        path.unlink()

    again = stores.reopen()

    (file,) = again.files(KEY, "", 10)
    assert file._replace(created_at=0, mime_type="text/plain") == before[0]._replace(created_at=0)
    assert file.mime_type == "text/csv"


def test_a_damaged_index_is_moved_aside(
    stores: Stores, store: ProjectStore, directory: Path
) -> None:
    """And projects are made again from their directories."""
    add(store, "a.txt", b"x")
    store.close()
    (directory / "index.sqlite").write_bytes(b"this is not a database" * 100)

    again = stores.reopen()

    assert shown(again) == {"a.txt": b"x"}
    assert [path.name for path in directory.glob("index.sqlite.damaged-*")] != []


def test_an_index_of_a_newer_release_is_left_alone(directory: Path) -> None:
    """An older daemon must not delete what it does not know."""
    ProjectStore(directory, LIMITS).close()
    with sqlite3.connect(directory / "index.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()

    with pytest.raises(IndexTooNew, match="version 99"):
        ProjectStore(directory, LIMITS)


def answered(output: bytes) -> list[list[str]]:
    """Whole lines that a process has written."""
    return [line.decode().split(" ", 4) for line in output.split(b"\n")[1:-1]]


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_killed_process_loses_nothing_it_has_answered(kill: int, directory: Path) -> None:
    """After kill -9 at a random moment rows, content and directories agree, nothing is left of what
    was under way, and what was answered last about each name is so."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.project_rig", str(directory), str(kill)],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    timer = threading.Timer(random.uniform(0.3, 1.2), process.kill)
    timer.start()
    output = process.stdout.read()
    timer.join()
    process.wait(timeout=30)
    process.stdout.close()
    assert process.returncode == -9, output[-200:]

    began = time.perf_counter()
    store = ProjectStore(directory, LIMITS)
    seconds = time.perf_counter() - began
    try:
        check(directory, store)
        lines = answered(output)
        _check_answers(lines, store)
    finally:
        store.close()
    print(f"projects: killed after {len(lines)} changes, mended in {seconds * 1000:.0f} ms")


def _check_answers(lines: list[list[str]], store: ProjectStore) -> None:
    """Every file is there whose last answered change stored it, unless the last change, which was
    not answered, may have been about its name or its project."""
    stored: dict[tuple[str, str], dict[str, str]] = {}
    for action, user, project, *rest in lines:
        key = (user, project)
        if action == "created":
            stored.setdefault(key, {})
        elif action == "deleted":
            stored.pop(key)
        elif action == "removed":
            stored[key].pop(rest[0].casefold())
        else:
            digest, name = rest
            stored[key][name.casefold()] = digest
    differences = 0
    for (user, project), files in stored.items():
        key = ProjectKey(user, project)
        if store.view(key) is None:
            differences += 1
            continue
        found = {file.name.casefold(): file.digest for file in store.files(key, "", 1000)}
        differences += len(set(files.items()) - set(found.items()))
    assert differences <= 1
