"""The tree of a snapshot: nodes by number, each directory with the names in it.

A directory that is renamed changes two directories, however much is in it; so the difference
between two turns is as small as what happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sandboxd.errors import FileNotFound, SnapshotDamaged
from sandboxd.snapshots.contract import ChunkRef, Entry, Kind, Piece


@dataclass(frozen=True, slots=True)
class Node:
    """A file, directory, link or FIFO of a workspace."""

    number: int
    kind: Kind
    mode: int
    is_root: bool
    mtime_ns: int
    ctime_ns: int
    generation: int
    """With `number` and `ctime_ns`: whether an inode is still the same."""
    size: int = 0
    links: int = 1
    target: bytes = b""
    pieces: tuple[Piece, ...] = ()
    attributes: tuple[tuple[bytes, bytes], ...] = ()
    children: Mapping[bytes, int] = field(default_factory=dict)
    left_out: int = 0
    """Of a directory: the number of names in it that a snapshot cannot hold."""

    @property
    def chunks(self) -> Iterator[ChunkRef]:
        return (piece for piece in self.pieces if isinstance(piece, ChunkRef))


@dataclass(frozen=True, slots=True)
class Totals:
    entries: int = 0
    content_bytes: int = 0
    left_out: int = 0

    def plus(self, node: Node, sign: int) -> Totals:
        return Totals(
            self.entries + sign * len(node.children),
            self.content_bytes + sign * node.size,
            self.left_out + sign * node.left_out,
        )


@dataclass(frozen=True)
class Tree:
    """Everything in a workspace."""

    root: int
    nodes: Mapping[int, Node]
    totals: Totals

    @classmethod
    def of(cls, root: int, nodes: Mapping[int, Node]) -> Tree:
        return cls(
            root,
            nodes,
            Totals(
                sum(len(node.children) for node in nodes.values()),
                sum(node.size for node in nodes.values()),
                sum(node.left_out for node in nodes.values()),
            ),
        )

    def node(self, number: int) -> Node:
        try:
            return self.nodes[number]
        except KeyError:
            raise SnapshotDamaged("a name in it leads nowhere") from None

    def check(self) -> None:
        """SnapshotDamaged unless it is a tree, in which each directory has one name."""
        names = Counter(number for node in self.nodes.values() for number in node.children.values())
        if self.node(self.root).kind is not Kind.DIRECTORY or names[self.root]:
            raise SnapshotDamaged("it has no root")
        if names.keys() - self.nodes.keys():
            raise SnapshotDamaged("a name in it leads nowhere")
        for number, node in self.nodes.items():
            if node.kind is Kind.DIRECTORY and number != self.root and names[number] != 1:
                raise SnapshotDamaged("a directory in it has more than one name")

    def find(self, path: bytes) -> Node:
        """FileNotFound if there is nothing under this path. Links are not followed."""
        node = self.node(self.root)
        for name in path.split(b"/") if path else []:
            number = node.children.get(name)
            if number is None:
                raise FileNotFound(path.decode(errors="replace"))
            node = self.node(number)
        return node

    def walk(self) -> Iterator[tuple[bytes, Node]]:
        """Every path with its node; a directory comes before what is in it."""
        waiting = [(b"", self.root)]
        while waiting:
            path, number = waiting.pop()
            node = self.node(number)
            yield path, node
            below = path + b"/" if path else b""
            names = sorted(node.children.items(), reverse=True)
            waiting += [(below + name, child) for name, child in names]


@dataclass(frozen=True)
class Delta:
    """What makes a tree from the one before it."""

    root: int
    changed: Mapping[int, Node]
    removed: Sequence[int] = ()

    @property
    def is_empty(self) -> bool:
        return not self.changed and not self.removed

    def apply(self, tree: Tree) -> Tree:
        nodes, totals = dict(tree.nodes), tree.totals
        for number in self.removed:
            totals = totals.plus(nodes.pop(number), -1)
        for number, node in self.changed.items():
            before = nodes.get(number)
            if before is not None:
                totals = totals.plus(before, -1)
            totals = totals.plus(node, 1)
            nodes[number] = node
        return Tree(self.root, nodes, totals)


def entry_of(path: bytes, node: Node) -> Entry:
    return Entry(
        path=path,
        kind=node.kind,
        mode=node.mode,
        is_root=node.is_root,
        mtime_ns=node.mtime_ns,
        size=node.size,
        number=node.number,
        links=node.links,
        target=node.target,
        pieces=node.pieces,
        attributes=node.attributes,
    )


def total_size(pieces: Iterable[Piece]) -> int:
    return sum(piece.size for piece in pieces)
