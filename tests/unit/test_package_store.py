"""Sets on the host's disk: whole or not there, and deleted in order of use."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sandboxd.environments.environment import PackageKind
from sandboxd.packages.lock import Archive, Lock
from sandboxd.packages.store import PackageSet, PackageStore, superfluous
from sandboxd.packages.target import Target
from sandboxd.packages.tree import TreeSize

TARGET = Target(PackageKind.PYTHON, "3.11", "x86_64-manylinux_2_36", "/packages")


def a_lock(name: str = "numpy") -> Lock:
    url = f"https://files.example/{name}-1.0-py3-none-any.whl"
    return Lock([Archive(name, "1.0", url, "sha256:" + "ab" * 32)])


def opened(directory: Path) -> PackageStore:
    store = PackageStore(directory)
    store.open()
    return store


def add(store: PackageStore, name: str = "numpy", size_bytes: int = 100) -> PackageSet:
    made = store.new_path()
    made.mkdir()
    (made / "module.py").write_text(name)
    lock = a_lock(name)
    return store.add(lock.key(TARGET), made, TARGET, lock, TreeSize(size_bytes, 1))


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


def test_set_survives_the_daemon(tmp_path: Path) -> None:
    added = add(opened(tmp_path))

    again = opened(tmp_path)

    assert again.get(added.key) == added
    assert dict(added.packages) == {"numpy": "1.0"}
    assert (again.path(added.key) / "module.py").read_text() == "numpy"
    assert again.size_bytes == 100


def test_what_a_killed_daemon_left_is_deleted(tmp_path: Path) -> None:
    """A set without its description, a description without its set, and everything unfinished."""
    store = opened(tmp_path)
    kept, undescribed, gone = (add(store, name) for name in ("kept", "undescribed", "gone"))
    (tmp_path / "sets" / f"{undescribed.key}.json").unlink()
    os.rename(store.path(gone.key), store.new_path())
    (tmp_path / "sets" / ".x.json.new").write_text("half")
    (tmp_path / "requests" / ".x.json.new").write_text("half")
    (tmp_path / "trash" / "set").mkdir()
    (tmp_path / "trash" / "set" / "rest.py").write_text("")

    again = opened(tmp_path)

    assert [found.key for found in again.sets] == [kept.key]
    assert entries(tmp_path) == sorted([f"{kept.key}.json", "module.py"])


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({"key": "x"})])
def test_set_with_a_damaged_description_is_deleted(tmp_path: Path, text: str) -> None:
    added = add(opened(tmp_path))
    (tmp_path / "sets" / f"{added.key}.json").write_text(text)

    again = opened(tmp_path)

    assert again.get(added.key) is None
    assert entries(tmp_path) == []


def test_nobody_else_reaches_sets_on_the_host(tmp_path: Path) -> None:
    """Which packages users have asked for is nobody's business."""
    opened(tmp_path / "packages")

    for directory in (tmp_path / "packages").iterdir():
        assert directory.stat().st_mode & 0o077 == 0


def test_removed_set_is_unknown_at_once(tmp_path: Path) -> None:
    """Its files are deleted afterwards, which may take long."""
    store = opened(tmp_path)
    added = add(store)

    trash = store.remove(added.key)

    assert store.get(added.key) is None
    assert not store.path(added.key).exists()
    assert (trash / "module.py").exists()
    assert opened(tmp_path).size_bytes == 0


def test_order_of_use_survives_the_daemon(tmp_path: Path) -> None:
    store = opened(tmp_path)
    sets = [add(store, name) for name in ("a", "b", "c")]
    for age, found in enumerate(sets):
        description = tmp_path / "sets" / f"{found.key}.json"
        os.utime(description, (1000 - age, 1000 - age))
    again = opened(tmp_path)
    again.use(sets[2].key)

    for looked_at in (again, opened(tmp_path)):
        names = [found.packages[0][0] for found in looked_at.in_order_of_use()]
        assert names == ["b", "a", "c"]


def test_lock_of_a_request_is_remembered(tmp_path: Path) -> None:
    opened(tmp_path).remember("request", a_lock())

    resolved = opened(tmp_path).recall("request")

    assert resolved is not None
    assert resolved.lock == a_lock()
    assert opened(tmp_path).recall("other") is None


def test_damaged_lock_is_not_believed(tmp_path: Path) -> None:
    store = opened(tmp_path)
    (tmp_path / "requests" / "request.json").write_text('[{"name": "numpy"}]')

    assert store.recall("request") is None


def test_locks_that_are_remembered_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest are forgotten."""
    monkeypatch.setattr("sandboxd.packages.store.MAX_REQUESTS", 2)
    store = opened(tmp_path)
    for number, key in enumerate(("a", "b", "c")):
        store.remember(key, a_lock())
        os.utime(tmp_path / "requests" / f"{key}.json", (number, number))
    store.remember("d", a_lock())

    for looked_at in (store, opened(tmp_path)):
        assert [key for key in "abcd" if looked_at.recall(key)] == ["c", "d"]


def test_sets_used_longest_ago_go_first_and_those_in_use_stay(tmp_path: Path) -> None:
    store = opened(tmp_path)
    a, b, c, d = (add(store, name, size_bytes=10) for name in "abcd")

    def unwanted(*in_use: PackageSet, max_bytes: int) -> list[PackageSet]:
        keys = {found.key for found in in_use}
        return list(superfluous([a, b, c, d], keys, size_bytes=40, max_bytes=max_bytes))

    assert unwanted(max_bytes=40) == []
    assert unwanted(max_bytes=25) == [a, b]
    assert unwanted(a, c, max_bytes=25) == [b, d]
    assert unwanted(a, b, c, d, max_bytes=0) == []
