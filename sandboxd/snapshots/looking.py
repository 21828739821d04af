"""One look at a workspace: which inodes differ from the last look, and what they hold now.

A change of a file always changes its ctime, which commands cannot set, and so its inode. A second
change within one tick of the kernel's clock does not; so what changed right before a look is read
again at the next one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sandboxd.snapshots.content import ContentReader
from sandboxd.snapshots.contract import Kind
from sandboxd.snapshots.node import Node, Tree
from sandboxd.workspaces.disk_template import WORKSPACE
from sandboxd.workspaces.ext4 import (
    ROOT,
    Damaged,
    Image,
    Inode,
    InodeType,
    NameType,
    Tables,
    attributes_of,
    names_in,
    parse_inode,
    target_of,
)

UNSETTLED_NS = 20_000_000
"""What changed so shortly before a look may change again without a trace: two ticks of a clock of
100 Hz."""

_NODES_WITHOUT_PAUSE, _PAUSE_SECONDS = 64, 0.0001
"""The daemon's other threads get the interpreter about every millisecond of a long look."""

_CLOCK_REALTIME_COARSE = 5
"""Of Linux; the module `time` does not name it."""

_KINDS = {
    InodeType.FILE: Kind.FILE,
    InodeType.DIRECTORY: Kind.DIRECTORY,
    InodeType.LINK: Kind.LINK,
    InodeType.FIFO: Kind.FIFO,
}
_HELD = (NameType.FILE, NameType.DIRECTORY, NameType.LINK, NameType.FIFO)


@dataclass(frozen=True)
class Seen:
    """What a look saw."""

    tree: Tree
    tables: Tables
    """The inodes at that time; empty if they were forgotten."""
    looked_ns: int
    names: Counter[int] = field(repr=False)
    """How many names each node has."""
    unsettled: frozenset[int]
    """Nodes that changed right before the look, or in the future of a clock that was set back."""


def file_clock_ns() -> int:
    """The time as the kernel writes it into inodes."""
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


class Looker:
    """Looks at one image."""

    def __init__(self, image: Image, content: ContentReader) -> None:
        self._image = image
        self._content = content
        self._root = workspace_number(image)

    def look(self, before: Seen | None, synced_ns: int | None = None) -> Seen:
        """Damaged if the filesystem is damaged, or changes so that it makes no sense.

        `synced_ns`: when the sync before it began. The kernel writes data first and inodes then, so
        that of a file which grew meanwhile the image may have the size and not the content.
        """
        looked_ns = file_clock_ns() if synced_ns is None else synced_ns
        tables = self._image.tables()
        if before is None or before.tree.root != self._root:
            return self._everything(tables, {}, looked_ns, 0)
        if not before.tables:
            settled_ns = before.looked_ns - UNSETTLED_NS
            return self._everything(tables, before.tree.nodes, looked_ns, settled_ns)
        return self._changes(tables, before, looked_ns)

    def is_still(self, seen: Seen) -> bool:
        """Whether nothing has changed since a look, as far as can be seen now."""
        return not self.moved(seen) and not self._moved_within_a_tick(seen)

    def moved(self, seen: Seen) -> list[int]:
        return list(self._image.changed(seen.tables, self._image.tables()))

    def read_again(self, seen: Seen, number: int) -> tuple[bytes, Node | None]:
        """An inode as it is now, and what it holds; None if it is no longer the same file."""
        self._image.tables()  # files that were read before may be read again
        raw = self._image.inode(number)
        inode = parse_inode(number, raw)
        before = seen.tree.nodes[number]
        if inode is None or inode.generation != before.generation:
            return raw, None
        return raw, self._node(inode)

    def _moved_within_a_tick(self, seen: Seen) -> bool:
        return any(
            self._node(self._inode(seen.tables, number)) != seen.tree.nodes[number]
            for number in seen.unsettled
        )

    def _everything(
        self, tables: Tables, known: Mapping[int, Node], looked_ns: int, settled_ns: int
    ) -> Seen:
        """Read the whole tree; nodes that were settled and have not changed are taken over."""
        nodes: dict[int, Node] = {}
        waiting = [self._root]
        while waiting:
            number = waiting.pop()
            if number in nodes:
                continue
            inode = self._inode(tables, number)
            before = known.get(number)
            if before is None or before.ctime_ns >= settled_ns or not _is_same(before, inode):
                before = None
            node = before or self._node(inode)
            nodes[number] = node
            # In the order in which it is restored, so that packs are read from start to end then.
            waiting += [child for _name, child in sorted(node.children.items(), reverse=True)]
            if len(nodes) % _NODES_WITHOUT_PAUSE == 0:
                time.sleep(_PAUSE_SECONDS)
        names = Counter(child for node in nodes.values() for child in node.children.values())
        self._check(nodes, names, nodes)
        tree = Tree.of(self._root, nodes)
        return Seen(tree, tables, looked_ns, names, _unsettled(nodes.values(), looked_ns))

    def _changes(self, tables: Tables, before: Seen, looked_ns: int) -> Seen:
        """Read only what has changed since a look."""
        changed = set(self._image.changed(before.tables, tables)) | before.unsettled
        nodes, names = dict(before.tree.nodes), before.names.copy()
        totals = before.tree.totals
        waiting = [number for number in changed if number in nodes]
        if not waiting:
            return Seen(before.tree, tables, looked_ns, before.names, frozenset())
        touched: dict[int, Node | None] = {}
        suspects: set[int] = set()
        while waiting:
            number = waiting.pop()
            if number in touched:
                continue
            old = nodes.get(number)
            new = self._node_if_used(tables, number)
            touched[number] = new
            if old is not None:
                totals = totals.plus(old, -1)
                names.subtract(old.children.values())
                suspects.update(old.children.values())
            suspects.add(number)
            if new is None:
                nodes.pop(number, None)
                continue
            nodes[number] = new
            totals = totals.plus(new, 1)
            names.update(new.children.values())
            suspects.update(new.children.values())
            waiting += [child for child in new.children.values() if child not in nodes]
        for number in _without_names(nodes, names, suspects, self._root):
            totals = totals.plus(nodes.pop(number), -1)
            touched[number] = None
        self._check(nodes, names, suspects)
        fresh = [node for node in touched.values() if node is not None]
        tree = Tree(self._root, nodes, totals)
        return Seen(tree, tables, looked_ns, names, _unsettled(fresh, looked_ns))

    def _check(self, nodes: dict[int, Node], names: Counter[int], suspects: Iterable[int]) -> None:
        """Damaged unless every name leads somewhere and each directory has one name."""
        for number in suspects:
            count = names[number]
            node = nodes.get(number)
            if node is None:
                if count:
                    raise Damaged("a name leads nowhere")
            elif node.kind is Kind.DIRECTORY and count != (number != self._root):
                raise Damaged("a directory has more than one name")

    def _inode(self, tables: Tables, number: int) -> Inode:
        inode = parse_inode(number, self._image.inode_in(tables, number))
        if inode is None:
            raise Damaged("a name leads to nothing")
        return inode

    def _node_if_used(self, tables: Tables, number: int) -> Node | None:
        inode = parse_inode(number, self._image.inode_in(tables, number))
        if inode is None or inode.type not in _KINDS:
            return None
        return self._node(inode)

    def _node(self, inode: Inode) -> Node:
        kind = _KINDS.get(inode.type)
        if kind is None:
            raise Damaged("a name does not say what it leads to")
        children: dict[bytes, int] = {}
        left_out = 0
        if kind is Kind.DIRECTORY:
            children, left_out = self._names(inode)
        return Node(
            number=inode.number,
            kind=kind,
            mode=inode.mode,
            is_root=inode.uid == 0,
            mtime_ns=inode.mtime_ns,
            ctime_ns=inode.ctime_ns,
            generation=inode.generation,
            size=inode.size if kind is Kind.FILE else 0,
            links=inode.links,
            target=target_of(self._image, inode) if kind is Kind.LINK else b"",
            pieces=self._content.pieces_of(inode) if kind is Kind.FILE else (),
            attributes=attributes_of(self._image, inode),
            children=children,
            left_out=left_out,
        )

    def _names(self, directory: Inode) -> tuple[dict[bytes, int], int]:
        names = list(names_in(self._image, directory))
        held = {found.name: found.number for found in names if found.type in _HELD}
        return held, sum(found.type not in _HELD for found in names)


def workspace_number(image: Image) -> int:
    """The directory of a disk that sandboxes see. Commands can neither move nor replace it."""
    root = parse_inode(ROOT, image.inode(ROOT))
    if root is None or root.type is not InodeType.DIRECTORY:
        raise Damaged("it has no root directory")
    for found in names_in(image, root):
        if found.name == WORKSPACE.encode() and found.type is NameType.DIRECTORY:
            return found.number
    raise Damaged("it has no workspace")


def forgotten(tree: Tree, looked_ns: int) -> Seen:
    """A look of which only the tree is left, after a restart."""
    return Seen(tree, [], looked_ns, Counter(), frozenset())


def _is_same(node: Node, inode: Inode) -> bool:
    return (node.ctime_ns, node.mtime_ns, node.generation, node.mode, node.links) == (
        inode.ctime_ns,
        inode.mtime_ns,
        inode.generation,
        inode.mode,
        inode.links,
    ) and (node.kind is not Kind.FILE or node.size == inode.size)


def _unsettled(nodes: Iterable[Node], looked_ns: int) -> frozenset[int]:
    settled_ns = looked_ns - UNSETTLED_NS
    return frozenset(node.number for node in nodes if node.ctime_ns >= settled_ns)


def _without_names(
    nodes: dict[int, Node], names: Counter[int], suspects: set[int], root: int
) -> list[int]:
    """Nodes that no directory names any longer, with what was in them."""
    gone: dict[int, None] = {}
    waiting = [number for number in suspects if number in nodes and not names[number]]
    while waiting:
        number = waiting.pop()
        if number == root or number in gone:
            continue
        gone[number] = None
        below = nodes[number].children.values()
        names.subtract(below)
        waiting += [child for child in below if child in nodes and not names[child]]
    return list(gone)
