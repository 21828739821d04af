"""What snapshots are made of: disks that are damaged, stored snapshots, archives."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandboxd.errors import InvalidArchive, SnapshotDamaged
from sandboxd.snapshots.content import ContentReader
from sandboxd.snapshots.contract import ChunkRef, Kind, Line, Notes, Snapshot
from sandboxd.snapshots.encoding import Record, decode_sealed, encode
from sandboxd.snapshots.importing import Importing
from sandboxd.snapshots.looking import Looker
from sandboxd.snapshots.node import Delta, Node, Tree
from sandboxd.snapshots.objects import Calls, ObjectInfo
from sandboxd.snapshots.packs import PackWriter
from sandboxd.workspaces import disk_template, loop_mount
from sandboxd.workspaces.ext4 import BLOCK, Damaged, Image
from sandboxd.workspaces.layout import Layout
from tests.fuzz.target import Run, Target, stateless
from tests.fuzz.targets import tar

_PATCH = 5
_SEAL = 32


class Nowhere:
    """A store that keeps nothing."""

    calls = Calls()

    def put(self, key: str, data: bytes, *, is_durable: bool = True) -> None: ...

    def create(self, key: str, data: bytes, *, is_durable: bool = True) -> None: ...

    def get(self, key: str) -> bytes:
        raise NotImplementedError

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        raise NotImplementedError

    def has(self, key: str) -> bool:
        return False

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return iter(())

    def delete(self, key: str) -> None: ...


def make_image(directory: Path) -> bytes:
    """A small disk with one of everything."""
    image, point = directory / "image", directory / "mounted"
    disk_template.build(image, point, size_bytes=1 << 20, max_files=150, layout=Layout.SHARED)
    with loop_mount.attached(image, point):
        _fill(point / disk_template.WORKSPACE)
    return image.read_bytes()


def _fill(path: Path) -> None:
    (path / "many").mkdir()
    for number in range(60):
        (path / "many" / (f"{number}" + "n" * 150)).touch()
    with (path / "pieces").open("wb") as file:
        for number in range(12):  # more than the inode has room for
            file.seek(number * 3 * BLOCK)
            file.write(b"x" * 10)
    os.symlink("s" * 20, path / "short")
    os.symlink("l" * 300, path / "long")
    os.mkfifo(path / "fifo")
    os.link(path / "pieces", path / "again")
    for size in (10, 2000):
        os.setxattr(path / "pieces", f"user.{size}", b"v" * size)


def patched(places: list[int], data: bytes) -> Iterator[tuple[int, bytes]]:
    """Patches: where among the blocks at these places, and with what."""
    while len(data) > _PATCH:
        place = places[data[0] % len(places)]
        offset = int.from_bytes(data[1:3], "big") % BLOCK
        length = data[3] % 16 + 1
        yield place + offset, data[4 : 4 + length]
        data = data[4 + length :]


@contextmanager
def damaged_disk() -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix="sbx-fuzz-") as name:
        image = make_image(Path(name))
    places = [at for at in range(0, len(image), BLOCK) if any(image[at : at + BLOCK])]
    descriptor = os.memfd_create("image")
    os.pwrite(descriptor, image, 0)

    async def run(data: bytes) -> Hashable:
        changes = [(place, change[: len(image) - place]) for place, change in patched(places, data)]
        for place, change in changes:
            os.pwrite(descriptor, change, place)
        try:
            return _look(descriptor)
        finally:
            for place, change in changes:
                os.pwrite(descriptor, image[place : place + len(change)], place)

    try:
        yield run
    finally:
        os.close(descriptor)


def _look(descriptor: int) -> Hashable:
    try:
        image = Image(descriptor)
        content = ContentReader(image, PackWriter(Nowhere(), "owner"), lambda digest, size: None)
        seen = Looker(image, content).look(None)
    except Damaged as damaged:
        return str(damaged)
    seen.tree.check()
    return min(len(seen.tree.nodes), 20)


async def _decode(data: bytes) -> Hashable:
    try:
        _record, delta = decode_sealed(data)
        Tree.of(delta.root, delta.changed).check()
    except SnapshotDamaged as damaged:
        return damaged.problem
    return len(delta.changed)


async def _import(data: bytes) -> Hashable:
    importing = Importing(PackWriter(Nowhere(), "owner"), max_bytes=100_000, max_entries=50)
    try:
        tree = importing.read(io.BytesIO(data[1:]))
    except InvalidArchive as invalid:
        return invalid.problem
    tree.check()
    for path, _node in tree.walk():
        assert b".." not in path.split(b"/")
        assert not path.startswith(b"/")
    return len(tree.nodes)


def _stored() -> bytes:
    """A snapshot as it is stored, without its seal."""
    ref = ChunkRef(b"d" * 32, 10, "ab" * 16, 0, 10)
    nodes = [
        Node(1, Kind.DIRECTORY, 0o755, True, 1, 1, 7, children={b"f": 2, b"\xff": 3, b"p": 4}),
        Node(2, Kind.FILE, 0o644, False, 1, 1, 7, size=10, pieces=(ref,)),
        Node(3, Kind.LINK, 0o777, False, 1, 1, 7, target=b"\xfe"),
        Node(4, Kind.FIFO, 0o644, False, 1, 1, 7, attributes=((b"user.a", b"v"),)),
    ]
    line = Line(user_id="ada", name="ses_1")
    snapshot = Snapshot(
        line=line,
        number=1,
        created_at=1.0,
        notes=Notes(),
        entries=3,
        content_bytes=10,
        stored_bytes=5,
    )
    delta = Delta(1, {node.number: node for node in nodes})
    return encode(Record(snapshot, 0, 0, 0, 1), delta, key="k", secret=b"s")[:-_SEAL]


EXT4 = Target(
    name="ext4",
    open=damaged_disk,
    seeds=[
        b"",
        *(bytes([block]) + b"\0\0\x03\xff\xff\xff\xff!" for block in range(24)),
        *(bytes([block]) + b"\x01\x80\x07\0\0\0\x80\0\0\0\0!" for block in range(8)),
    ],
    words=[b"\x0a\xf3", b"\0\0\x02\xea", b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\x01\0\0\0", b"/"],
    max_bytes=256,
    processor_seconds=1.0,
)

STORED = Target(
    name="snapshots",
    open=stateless(_decode),
    seeds=[_stored()],
    words=[b'"f"', b'"d"', b"[]", b"{}", b"null", b"-1", b"1e9", b'".."', b'"a/b"'],
)

ARCHIVES = Target(
    name="snapshot-archives",
    open=stateless(_import),
    seeds=tar.SEEDS,
    words=tar.TAR.words,
    repair=tar.summed,
    max_bytes=tar.TAR.max_bytes,
)
