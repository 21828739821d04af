"""Every store of objects does the same: a directory, and a service that speaks S3."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.errors import DiskSpaceLow, SnapshotStoreFailed
from sandboxd.snapshots.object_service import ObjectService, ObjectServiceSettings
from sandboxd.snapshots.objects import DirectoryObjects, ObjectExists, ObjectMissing, Objects
from tests.snapshots.object_server import BUCKET, free_port, object_server, objects_at


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with object_server() as address:
        yield address


@pytest.fixture(params=["directory", "service"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "directory":
        return DirectoryObjects(tmp_path)
    return objects_at(request.getfixturevalue("server"), prefix=secrets.token_hex(4))


def test_what_is_put_is_got(objects: Objects) -> None:
    """Bytes come back as they were, whole and in part."""
    data = secrets.token_bytes(300_000)
    objects.put("users/a/x", data)

    assert objects.get("users/a/x") == data
    assert objects.get_range("users/a/x", 1000, 50) == data[1000:1050]
    assert objects.get_range("users/a/x", len(data) - 10, 10) == data[-10:]


def test_empty_object(objects: Objects) -> None:
    """An object may have no bytes."""
    objects.put("users/a/empty", b"")

    assert objects.get("users/a/empty") == b""
    assert [info.size for info in objects.list("users/a/")] == [0]


def test_missing_object(objects: Objects) -> None:
    """What is not there is reported as missing, and can be deleted."""
    with pytest.raises(ObjectMissing):
        objects.get("users/none")
    with pytest.raises(ObjectMissing):
        objects.get_range("users/none", 0, 1)
    assert not objects.has("users/none")
    objects.delete("users/none")


def test_create_never_replaces(objects: Objects) -> None:
    """Of two that create one key, one is refused; the object stays as it was."""
    objects.create("users/a/1", b"first")
    with pytest.raises(ObjectExists):
        objects.create("users/a/1", b"second")

    assert objects.get("users/a/1") == b"first"


def test_one_of_many_creates_wins(objects: Objects) -> None:
    """However many try at the same time."""
    won: list[int] = []

    def create(number: int) -> None:
        try:
            objects.create("users/a/race", b"%d" % number)
            won.append(number)
        except ObjectExists:
            pass

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(won) == 1
    assert objects.get("users/a/race") == b"%d" % won[0]


def test_list_is_complete_and_by_components(objects: Objects) -> None:
    """A prefix lists what is below it, more than a page of it, and nothing beside it."""
    for number in range(1100 if isinstance(objects, DirectoryObjects) else 40):
        objects.put(f"users/a/lines/one/{number:010}.snapshot", b"x", is_durable=False)
    objects.put("users/a/lines/one2/0000000001.snapshot", b"x")
    expected = 1100 if isinstance(objects, DirectoryObjects) else 40

    assert len({info.key for info in objects.list("users/a/lines/one/")}) == expected
    assert len(list(objects.list("users/"))) == expected + 1
    assert list(objects.list("users/b/")) == []


def test_delete(objects: Objects) -> None:
    """What was deleted is neither there nor listed."""
    objects.put("users/a/x", b"x")
    objects.delete("users/a/x")

    assert not objects.has("users/a/x")
    assert list(objects.list("users/")) == []


def test_directory_leaves_nothing_unfinished(tmp_path: Path) -> None:
    """What a killed process left is removed when the directory is opened again."""
    DirectoryObjects(tmp_path)
    (tmp_path / "unfinished" / "half").write_bytes(b"half")
    objects = DirectoryObjects(tmp_path)

    assert list((tmp_path / "unfinished").iterdir()) == []
    assert list(objects.list("users/")) == []


def test_directory_keeps_the_reserve(tmp_path: Path) -> None:
    """A store that would use the last space of the host refuses, and says why and what to do; what
    frees space is stored nevertheless."""
    objects = DirectoryObjects(tmp_path, reserve_bytes=1 << 60)

    with pytest.raises(DiskSpaceLow, match=r"another snapshot.*in reserve; delete snapshots"):
        objects.put("users/a/x", b"x")
    assert list(objects.list("users/")) == []
    objects.put("users/a/lines/l/1.deleted", b"")


def test_directory_has_no_other_keys(tmp_path: Path) -> None:
    """No key leads out of the directory."""
    objects = DirectoryObjects(tmp_path)

    for key in ("../x", "users/../../x", "users//x", "/x"):
        with pytest.raises(ValueError, match="not a key"):
            objects.put(key, b"x")


def test_service_that_is_not_there() -> None:
    """It is tried a few times and then reported; no text of the service gets out."""
    objects = ObjectService(
        ObjectServiceSettings(
            bucket=BUCKET,
            endpoint=f"http://127.0.0.1:{free_port()}",
            access_key_id="test",
            secret_access_key="test",
            call_seconds=2.0,
        )
    )

    with pytest.raises(SnapshotStoreFailed, match="does not answer") as caught:
        objects.get("users/a/x")
    assert "127.0.0.1" not in caught.value.message
    assert objects.calls.repeated == 3


def test_bucket_that_is_not_there(server: str) -> None:
    """A wrong bucket is a failure of the store, not a missing snapshot."""
    objects = ObjectService(
        ObjectServiceSettings(
            bucket="no-such-bucket",
            endpoint=server,
            access_key_id="test",
            secret_access_key="test",
        )
    )

    with pytest.raises(SnapshotStoreFailed):
        objects.put("users/a/x", b"x")
