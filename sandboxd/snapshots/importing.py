"""A snapshot from a tar archive, in which nothing is believed.

Nothing is unpacked: members become nodes of a tree, which is written by the same code as any other
snapshot. What belongs to every workspace is there from the start, and is not taken from archives.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from sandboxd.errors import InvalidArchive
from sandboxd.guest.files.daemon_connection import Refused
from sandboxd.guest.files.tar_stream import (
    DIRECTORY,
    FILE_KINDS,
    HARD_LINK,
    SYMLINK,
    Member,
    TarStream,
)
from sandboxd.snapshots.contract import ChunkRef, Hole, Kind, Piece
from sandboxd.snapshots.node import Node, Tree, total_size
from sandboxd.snapshots.packs import CHUNK_BYTES, PackWriter, unplaced
from sandboxd.workspaces.layout import AGENT_WORKSPACE, OUTPUTS, PROJECT_FILES

_FIFO = b"6"
_MAX_NAME_BYTES = 255
_MAX_TARGET_BYTES = 4095
_MAX_ATTRIBUTE_BYTES = 3000
"""Of all attributes of a file: what a block of the disk has room for."""
_ROOT = 1
_ZEROS = bytes(CHUNK_BYTES)
_EARLIEST_NS, _LATEST_NS = -(1 << 31) * 1_000_000_000, (1 << 33) * 1_000_000_000


@dataclass
class _Node:
    """A node whose names are not all known yet."""

    node: Node
    children: dict[bytes, int] = field(default_factory=dict)
    names: int = 1


class _Source:
    def __init__(self, archive: BinaryIO) -> None:
        self._archive = archive

    def receive_into(self, buffer: memoryview) -> int:
        return self._archive.readinto(buffer)  # type: ignore[attr-defined,no-any-return]


class Importing:
    """One archive that becomes a tree. Blocks."""

    def __init__(self, writer: PackWriter, *, max_bytes: int, max_entries: int) -> None:
        self._writer = writer
        self._bytes_left = max_bytes
        self._entries_left = max_entries
        self._now_ns = time.time_ns()
        self._nodes: dict[int, _Node] = {}
        self._numbers = itertools.count(_ROOT)
        self._add(None, b"", Kind.DIRECTORY, 0o1777, is_root=True)
        root = self._nodes[_ROOT]
        self._add(root, PROJECT_FILES.encode(), Kind.DIRECTORY, 0o755, is_root=True)
        self._add(root, OUTPUTS.encode(), Kind.DIRECTORY, 0o755)

    def read(self, archive: BinaryIO) -> Tree:
        """InvalidArchive says what is wrong. The places of chunks are known after `finish`."""
        stream = TarStream(_Source(archive))
        try:
            while (member := stream.next()) is not None:
                self._member(member, stream)
        except Refused:
            raise InvalidArchive("it is not a tar archive, or it is damaged") from None
        self._writer.finish()
        return Tree.of(
            _ROOT, {number: self._finished(found) for number, found in self._nodes.items()}
        )

    def _member(self, member: Member, stream: TarStream) -> None:
        self._entries_left -= 1
        if self._entries_left < 0:
            raise InvalidArchive("it has more members than a workspace has room for")
        names = _names(member.name)
        if not names:
            return
        if names[0] == PROJECT_FILES.encode() or _is_own_link(names, member):
            return
        parent = self._parent(names[:-1])
        if member.kind == HARD_LINK:
            self._link(parent, names[-1], member)
        elif member.kind == DIRECTORY:
            self._directory(parent, names[-1], member)
        else:
            self._other(parent, names[-1], member, stream)

    def _parent(self, names: list[bytes]) -> _Node:
        """The directory, made if it is missing."""
        current = self._nodes[_ROOT]
        for name in names:
            number = current.children.get(name)
            if number is None:
                self._entries_left -= 1
                number = self._add(current, name, Kind.DIRECTORY, 0o755)
            current = self._nodes[number]
            if current.node.kind is not Kind.DIRECTORY:
                raise InvalidArchive("a member is below something that is not a directory")
        return current

    def _directory(self, parent: _Node, name: bytes, member: Member) -> None:
        number = parent.children.get(name)
        if number is None:
            number = self._add(parent, name, Kind.DIRECTORY, 0)
        found = self._nodes[number]
        if found.node.kind is not Kind.DIRECTORY:
            raise InvalidArchive("two members with the same path are of different types")
        found.node = _described(found.node, member)

    def _link(self, parent: _Node, name: bytes, member: Member) -> None:
        target = self._nodes[_ROOT]
        for part in _names(member.target):
            number = target.children.get(part)
            if number is None:
                raise InvalidArchive("a hard link leads to nothing that came before it")
            target = self._nodes[number]
        if target.node.kind is Kind.DIRECTORY:
            raise InvalidArchive("a hard link leads to a directory")
        if parent.children.get(name) == target.node.number:
            return
        target.names += 1
        self._free(parent, name)
        parent.children[name] = target.node.number

    def _other(self, parent: _Node, name: bytes, member: Member, stream: TarStream) -> None:
        self._free(parent, name)
        if member.kind in FILE_KINDS and not member.is_sparse:
            number = self._add(parent, name, Kind.FILE, 0)
            pieces = self._content(member, stream)
            node = replace(self._nodes[number].node, pieces=pieces, size=total_size(pieces))
        elif member.kind == SYMLINK:
            if not 0 < len(member.target) <= _MAX_TARGET_BYTES:
                raise InvalidArchive("a symbolic link has an impossible length")
            number = self._add(parent, name, Kind.LINK, 0o777)
            node = replace(self._nodes[number].node, target=member.target)
        elif member.kind == _FIFO:
            number = self._add(parent, name, Kind.FIFO, 0)
            node = self._nodes[number].node
        else:
            raise InvalidArchive("it has a device, or something else that no workspace can have")
        self._nodes[number].node = _described(node, member)

    def _content(self, member: Member, stream: TarStream) -> tuple[Piece, ...]:
        self._bytes_left -= member.size
        if self._bytes_left < 0:
            raise InvalidArchive("its files are larger than a workspace has room for")
        pieces: list[Piece] = []
        held = bytearray()

        def take(data: memoryview) -> None:
            held.extend(data)
            while len(held) >= CHUNK_BYTES:
                pieces.append(self._keep(bytes(held[:CHUNK_BYTES])))
                del held[:CHUNK_BYTES]

        stream.copy(take)
        if held:
            pieces.append(self._keep(bytes(held)))
        return tuple(pieces)

    def _keep(self, data: bytes) -> ChunkRef | Hole:
        if data == _ZEROS[: len(data)]:
            return Hole(len(data))
        digest = hashlib.sha256(data).digest()
        if not self._writer.has(digest):
            self._writer.add(digest, data)
        return unplaced(digest, len(data))

    def _free(self, parent: _Node, name: bytes) -> None:
        """Remove an earlier member of this name: the last one counts."""
        number = parent.children.pop(name, None)
        if number is None:
            return
        found = self._nodes[number]
        if found.node.kind is Kind.DIRECTORY:
            raise InvalidArchive("two members with the same path are of different types")
        found.names -= 1
        if not found.names:
            del self._nodes[number]

    def _add(
        self, parent: _Node | None, name: bytes, kind: Kind, mode: int, *, is_root: bool = False
    ) -> int:
        number = next(self._numbers)
        node = Node(
            number=number,
            kind=kind,
            mode=mode,
            is_root=is_root,
            mtime_ns=self._now_ns,
            ctime_ns=self._now_ns,
            generation=0,
        )
        self._nodes[number] = _Node(node)
        if parent is not None:
            parent.children[name] = number
        return number

    def _finished(self, found: _Node) -> Node:
        pieces = tuple(
            self._writer.placed(piece) if isinstance(piece, ChunkRef) else piece
            for piece in found.node.pieces
        )
        return replace(found.node, children=found.children, links=found.names, pieces=pieces)


def _described(node: Node, member: Member) -> Node:
    """With the mode, time and attributes of a member."""
    attributes = tuple(sorted((b"user." + name, value) for name, value in member.attributes))
    if sum(len(name) + len(value) for name, value in attributes) > _MAX_ATTRIBUTE_BYTES:
        raise InvalidArchive("a member has too many extended attributes")
    if any(not 5 < len(name) <= _MAX_NAME_BYTES or b"\0" in name for name, _value in attributes):
        raise InvalidArchive("an extended attribute has an impossible name")
    return replace(
        node,
        mode=node.mode if node.kind is Kind.LINK else member.mode,
        mtime_ns=min(max(member.modified_ns, _EARLIEST_NS), _LATEST_NS),
        attributes=attributes if node.kind in (Kind.FILE, Kind.DIRECTORY) else (),
    )


def _names(path: bytes) -> list[bytes]:
    if path.startswith(b"/"):
        raise InvalidArchive("a member has an absolute path")
    names = [name for name in path.split(b"/") if name not in (b"", b".")]
    for name in names:
        if name == b".." or b"\0" in name or len(name) > _MAX_NAME_BYTES:
            raise InvalidArchive("a member has a path that leads out of it, or is no path")
    return names


def _is_own_link(names: list[bytes], member: Member) -> bool:
    """Whether it is the link that some workspaces have from the start."""
    return names == [AGENT_WORKSPACE.encode()] and member.kind == SYMLINK
