"""What differs between two trees, path by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sandboxd.snapshots.contract import ChangeKind, ChunkRef, Kind
from sandboxd.snapshots.node import Delta, Node, Tree

_NONE: Mapping[bytes, int] = {}


@dataclass(frozen=True)
class Difference:
    kind: ChangeKind
    path: bytes
    before: Node | None
    after: Node | None
    old_path: bytes = b""


@dataclass(frozen=True)
class Counts:
    """How many names came, changed and went. A directory that was moved is one name."""

    added: int = 0
    changed: int = 0
    removed: int = 0


def differences(before: Tree, after: Tree) -> list[Difference]:
    """In the order of paths. Directories in which only names came and went are left out."""
    added: dict[bytes, Node] = {}
    removed: dict[bytes, Node] = {}
    found: list[Difference] = []
    for path, old, new in _pairs(before, after):
        if old is None and new is not None:
            added[path] = new
        elif new is None and old is not None:
            removed[path] = old
        elif old is not None and new is not None and not is_alike(old, new):
            found.append(Difference(ChangeKind.CHANGED, path, old, new))
    found += _moves(added, removed)
    found += [Difference(ChangeKind.ADDED, path, None, node) for path, node in added.items()]
    found += [Difference(ChangeKind.REMOVED, path, node, None) for path, node in removed.items()]
    return sorted(found, key=lambda one: one.path)


def is_alike(old: Node, new: Node) -> bool:
    """Whether two nodes look the same to those who have no interest in how they are stored."""
    if (old.kind, old.mode, old.is_root, old.attributes) != (
        new.kind,
        new.mode,
        new.is_root,
        new.attributes,
    ):
        return False
    if new.kind is Kind.DIRECTORY:
        return True
    return old.mtime_ns == new.mtime_ns and old.target == new.target and is_same_content(old, new)


def is_same_content(old: Node, new: Node) -> bool:
    return old.size == new.size and content_of(old) == content_of(new)


def content_of(node: Node) -> tuple[object, ...]:
    return tuple(
        piece.digest if isinstance(piece, ChunkRef) else piece.size for piece in node.pieces
    )


def count(before: Tree, after: Tree) -> Counts:
    """Of trees of different disks."""
    kinds = [difference.kind for difference in differences(before, after)]
    moved = kinds.count(ChangeKind.MOVED)
    return Counts(
        added=kinds.count(ChangeKind.ADDED) + moved,
        changed=kinds.count(ChangeKind.CHANGED),
        removed=kinds.count(ChangeKind.REMOVED) + moved,
    )


def count_delta(before: Mapping[int, Node], delta: Delta) -> Counts:
    """Of a tree of the same disk."""
    added = changed = removed = 0
    for number, node in delta.changed.items():
        old = before.get(number)
        is_same_inode = old is not None and old.generation == node.generation
        names = old.children if old is not None and is_same_inode else _NONE
        for name, child in node.children.items():
            added += name not in names
            changed += names.get(name, child) != child
        removed += len(names.keys() - node.children.keys())
        changed += old is not None and is_same_inode and not is_alike(old, node)
        if old is not None and not is_same_inode:
            removed += len(old.children)
    removed += sum(len(before[number].children) for number in delta.removed)
    return Counts(added, changed, removed)


def _pairs(before: Tree, after: Tree) -> Iterator[tuple[bytes, Node | None, Node | None]]:
    """Each path of either tree, with what is there."""
    waiting: list[tuple[bytes, int | None, int | None]] = [(b"", before.root, after.root)]
    while waiting:
        path, old_number, new_number = waiting.pop()
        old = before.node(old_number) if old_number is not None else None
        new = after.node(new_number) if new_number is not None else None
        if path:
            yield path, old, new
        old_names = old.children if old is not None else _NONE
        new_names = new.children if new is not None else _NONE
        below = path + b"/" if path else b""
        for name in old_names.keys() | new_names.keys():
            waiting.append((below + name, old_names.get(name), new_names.get(name)))


def _moves(added: dict[bytes, Node], removed: dict[bytes, Node]) -> Iterator[Difference]:
    """Take out of both what is the same thing under another path."""
    for identity in (_inode, _content):
        by_identity: dict[object, list[bytes]] = {}
        for path in sorted(removed):
            by_identity.setdefault(identity(removed[path]), []).append(path)
        for path in sorted(added):
            node = added[path]
            key = identity(node)
            paths = by_identity.get(key) if key is not None else None
            if paths:
                old_path = paths.pop(0)
                del added[path]
                yield Difference(ChangeKind.MOVED, path, removed.pop(old_path), node, old_path)


def _inode(node: Node) -> object:
    return node.number, node.generation, node.kind


def _content(node: Node) -> object:
    """Of files of different disks; not of empty ones, of which there are many."""
    return (node.mode, content_of(node)) if node.size else None
