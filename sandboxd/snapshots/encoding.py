"""Snapshots as bytes: what it is, then the nodes, compressed, then a seal.

The seal is an HMAC with the daemon's key over the key in the store and everything before it: root
acts on what is in a snapshot, so nobody who can write to the store may be able to make one. Names
are bytes; in JSON each byte is a character.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from sandboxd.errors import SnapshotDamaged
from sandboxd.snapshots.contract import (
    CHUNK_DIGEST_BYTES,
    ChunkRef,
    Hole,
    Kind,
    Line,
    Notes,
    Piece,
    Snapshot,
)
from sandboxd.snapshots.node import Delta, Node, total_size
from sandboxd.snapshots.packs import PACK_NAME_BYTES, compress, decompress

_MAGIC = b"sandboxd snapshot 1\n"
_LENGTH = struct.Struct("!I")
_SEAL_BYTES = hashlib.sha256().digest_size
_MAX_HEADER_BYTES = 64 << 10
_MAX_BODY_BYTES = 1 << 30
_MAX_NUMBER = (1 << 63) - 1
_MAX_NAME_BYTES = 255
_NODES_PER_LINE = 256
_KINDS = {"f": Kind.FILE, "d": Kind.DIRECTORY, "l": Kind.LINK, "p": Kind.FIFO}
_LETTERS = {kind: letter for letter, kind in _KINDS.items()}


@dataclass(frozen=True)
class Record:
    """A snapshot as it is stored."""

    snapshot: Snapshot
    base: int
    """Number of the snapshot that it is a difference to; 0 if it is complete."""
    depth: int
    """How many snapshots have to be read before this one."""
    weight: int
    """Number of nodes in all the differences since the last complete one."""
    looked_ns: int
    """When the workspace was looked at, in nanoseconds since 1970."""

    def with_own_bytes(self, count: int) -> Record:
        """The same, with the bytes of what is stored for it itself."""
        snapshot = replace(self.snapshot, stored_bytes=self.snapshot.stored_bytes + count)
        return replace(self, snapshot=snapshot)


def encode(record: Record, delta: Delta, *, key: str, secret: bytes) -> bytes:
    snapshot = replace(record.snapshot, moving=())
    header = {
        **asdict(snapshot),
        "moving": [_text(path) for path in record.snapshot.moving],
        "base": record.base,
        "depth": record.depth,
        "weight": record.weight,
        "looked_ns": record.looked_ns,
    }
    start = _json(header)
    body = compress(b"\n".join(map(_json, _packed(delta))))
    data = _MAGIC + _LENGTH.pack(len(start)) + start + body
    return data + _seal(key, data, secret)


def decode(data: bytes, *, key: str, secret: bytes) -> tuple[Record, Delta]:
    """SnapshotDamaged unless we wrote it under this key."""
    record, delta = decode_sealed(_opened(data, key, secret))
    return record.with_own_bytes(len(data)), delta


def decode_sealed(data: bytes) -> tuple[Record, Delta]:
    """What is inside the seal."""
    record = _record(_header(data))
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    body = decompress(data[len(_MAGIC) + _LENGTH.size + length :], _MAX_BODY_BYTES)
    with _malformed():
        first, *others = (json.loads(line) for line in body.split(b"\n"))
        return record, _unpacked(first, others)


def _opened(data: bytes, key: str, secret: bytes) -> bytes:
    inside, seal = data[:-_SEAL_BYTES], data[-_SEAL_BYTES:]
    if not hmac.compare_digest(seal, _seal(key, inside, secret)):
        raise SnapshotDamaged("its seal is not that of this daemon")
    return inside


def _seal(key: str, data: bytes, secret: bytes) -> bytes:
    return hmac.digest(secret, key.encode() + b"\0" + data, "sha256")


def _header(data: bytes) -> Any:
    start = len(_MAGIC) + _LENGTH.size
    if len(data) < start or not data.startswith(_MAGIC):
        raise SnapshotDamaged("it is not a snapshot, or one of a newer release")
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    if length > _MAX_HEADER_BYTES:
        raise SnapshotDamaged("its description is too long")
    with _malformed():
        return json.loads(data[start : start + length])


def _record(header: Any) -> Record:
    with _malformed():
        own = {name: _number(header.pop(name)) for name in ("base", "depth", "weight", "looked_ns")}
        line, notes = Line(**header.pop("line")), Notes(**header.pop("notes"))
        moving = tuple(_bytes(path) for path in header.pop("moving"))
        return Record(Snapshot(line=line, notes=notes, moving=moving, **header), **own)


def _packed(delta: Delta) -> list[Any]:
    """Lines of JSON. Each is short: no other thread runs while one is encoded or decoded."""
    packs: dict[str, int] = {}
    nodes = [_packed_node(node, packs) for node in delta.changed.values()]
    first = {"root": delta.root, "packs": list(packs), "removed": list(delta.removed)}
    starts = range(0, len(nodes), _NODES_PER_LINE)
    return [first, *(nodes[start : start + _NODES_PER_LINE] for start in starts)]


def _packed_node(node: Node, packs: dict[str, int]) -> list[Any]:
    content: Any = 0
    if node.kind is Kind.FILE:
        content = [_packed_piece(piece, packs) for piece in node.pieces]
    elif node.kind is Kind.DIRECTORY:
        names = {_text(name): number for name, number in node.children.items()}
        content = [names, node.left_out]
    elif node.kind is Kind.LINK:
        content = _text(node.target)
    return [
        node.number,
        _LETTERS[node.kind],
        node.mode,
        int(node.is_root),
        node.mtime_ns,
        node.ctime_ns,
        node.generation,
        node.links,
        [[_text(name), _text(value)] for name, value in node.attributes],
        content,
    ]


def _packed_piece(piece: Piece, packs: dict[str, int]) -> Any:
    if isinstance(piece, Hole):
        return piece.size
    pack = packs.setdefault(piece.pack, len(packs))
    return [piece.digest.hex(), piece.size, pack, piece.offset, piece.length]


def _unpacked(first: Any, others: list[Any]) -> Delta:
    packs = [_pack(name) for name in first["packs"]]
    nodes = [_node(fields, packs) for line in others for fields in line]
    removed = [_number(number) for number in first["removed"]]
    return Delta(_number(first["root"]), {node.number: node for node in nodes}, removed)


def _node(fields: list[Any], packs: list[str]) -> Node:
    number, letter, mode, is_root, mtime, ctime, generation, links, attributes, content = fields
    kind = _KINDS[letter]
    return Node(
        number=_number(number),
        kind=kind,
        mode=_number(mode, 0o7777),
        is_root=bool(is_root),
        mtime_ns=int(mtime),
        ctime_ns=int(ctime),
        generation=_number(generation),
        links=_number(links),
        attributes=tuple((_bytes(name), _bytes(value)) for name, value in attributes),
        **_CONTENTS[kind](content, packs),
    )


def _file(content: Any, packs: list[str]) -> Mapping[str, Any]:
    pieces = tuple(_piece(piece, packs) for piece in content)
    return {"pieces": pieces, "size": total_size(pieces)}


def _directory(content: Any, _packs: list[str]) -> Mapping[str, Any]:
    names, left_out = content
    children = {_name(name): _number(number) for name, number in names.items()}
    return {"children": children, "left_out": _number(left_out)}


_CONTENTS: Mapping[Kind, Callable[[Any, list[str]], Mapping[str, Any]]] = {
    Kind.FILE: _file,
    Kind.DIRECTORY: _directory,
    Kind.LINK: lambda content, _packs: {"target": _target(content)},
    Kind.FIFO: lambda _content, _packs: {},
}


def _piece(piece: Any, packs: list[str]) -> Piece:
    if isinstance(piece, int):
        return Hole(_number(piece))
    digest, size, pack, offset, length = piece
    found = bytes.fromhex(digest)
    if len(found) != CHUNK_DIGEST_BYTES:
        raise ValueError
    return ChunkRef(found, _number(size), packs[_number(pack)], _number(offset), _number(length))


def _pack(name: Any) -> str:
    if not isinstance(name, str) or len(bytes.fromhex(name)) != PACK_NAME_BYTES:
        raise ValueError
    return name


def _name(text: Any) -> bytes:
    name = _bytes(text)
    if (
        not 0 < len(name) <= _MAX_NAME_BYTES
        or name in (b".", b"..")
        or b"/" in name
        or b"\0" in name
    ):
        raise ValueError
    return name


def _target(text: Any) -> bytes:
    target = _bytes(text)
    if not target or b"\0" in target:
        raise ValueError
    return target


def _number(value: Any, most: int = _MAX_NUMBER) -> int:
    if not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError
    return value


def _text(data: bytes) -> str:
    return data.decode("latin-1")


def _bytes(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError
    return text.encode("latin-1")


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@contextmanager
def _malformed() -> Iterator[None]:
    """SnapshotDamaged for whatever JSON can be wrong with."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise SnapshotDamaged("it does not have the form of a snapshot") from None
