"""Writes a snapshot into a workspace in which no command has run.

It runs as root, so it follows nothing: it goes from directory to directory by descriptors, and
makes only directories, regular files, links and FIFOs, under names that were checked. What it
writes is checked before it is written.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sandboxd.errors import WorkspaceFull, WorkspaceUnreadable
from sandboxd.snapshots.contract import ChunkRef, Kind, Restored
from sandboxd.snapshots.node import Node, Tree
from sandboxd.snapshots.packs import ChunkReader, Readahead
from sandboxd.workspaces.ext4 import BLOCK
from sandboxd.workspaces.layout import NAMES

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ZEROS = bytes(BLOCK)
_NAMES = frozenset(name.encode() for name in NAMES)


class Restoring:
    """One snapshot being written. Blocks."""

    def __init__(self, tree: Tree, chunks: ChunkReader, *, uid: int, gid: int) -> None:
        self._tree = tree
        self._uid = uid
        self._gid = gid
        self._entries = 0
        self._content_bytes = 0
        self._chunks = Readahead(chunks, tree)
        self._linked: set[int] = set()
        """Files with several names that have been written, each under its number in `_staging`."""
        self._staging = -1

    def into(self, directory: int) -> Restored:
        """Write everything. SnapshotDamaged, WorkspaceFull; a part is there then."""
        self._tree.check()
        top = os.open(".", _DIRECTORY, dir_fd=directory)
        try:
            self._remove_others(top)
            with self._staged(top):
                self._make_all(top)
            self._finish_directory(top, self._tree.node(self._tree.root), is_top=True)
        except OSError as error:
            raise _failure(error) from error
        finally:
            os.close(top)
        return Restored(entries=self._entries, content_bytes=self._content_bytes)

    def _remove_others(self, top: int) -> None:
        """Remove what a new workspace has and the snapshot has not."""
        device = os.fstat(top).st_dev
        wanted = self._tree.node(self._tree.root).children
        for name in os.listdir(f"/proc/self/fd/{top}"):
            found = os.stat(name, dir_fd=top, follow_symlinks=False)
            number = wanted.get(os.fsencode(name))
            kept = number is not None and self._tree.node(number).kind is Kind.DIRECTORY
            is_own = found.st_uid == 0 and name in NAMES  # no command can have removed it
            if found.st_dev != device or is_own or (kept and stat.S_ISDIR(found.st_mode)):
                continue
            if stat.S_ISDIR(found.st_mode):
                os.rmdir(name, dir_fd=top)
            else:
                os.unlink(name, dir_fd=top)

    @contextmanager
    def _staged(self, top: int) -> Iterator[None]:
        """A directory that holds files with several names until all of them are made."""
        if all(
            node.links <= 1 or node.kind is Kind.DIRECTORY for node in self._tree.nodes.values()
        ):
            yield
            return
        name = f".restoring-{secrets.token_hex(16)}"
        os.mkdir(name, 0o700, dir_fd=top)
        self._staging = os.open(name, _DIRECTORY, dir_fd=top)
        try:
            yield
            for number in self._linked:
                os.unlink(str(number), dir_fd=self._staging)
        finally:
            os.close(self._staging)
        os.rmdir(name, dir_fd=top)

    def _make_all(self, top: int) -> None:
        """Go through all directories with one descriptor: they may be deeper than it has."""
        current = os.dup(top)
        device = os.fstat(top).st_dev
        path: list[tuple[Node, Iterator[tuple[bytes, int]]]] = []
        node = self._tree.node(self._tree.root)
        path.append((node, iter(sorted(node.children.items()))))
        try:
            while path:
                node, names = path[-1]
                step = next(names, None)
                if step is None:
                    path.pop()
                    if path:
                        self._finish_directory(current, node, is_top=len(path) == 1)
                        current = _moved(current, b"..")
                    continue
                name, number = step
                self._entries += 1
                child = self._tree.node(number)
                if child.kind is not Kind.DIRECTORY:
                    self._make(current, name, child)
                elif _made_directory(current, name, device):
                    current = _moved(current, name)
                    path.append((child, iter(sorted(child.children.items()))))
        finally:
            os.close(current)

    def _finish_directory(self, directory: int, node: Node, *, is_top: bool) -> None:
        """Owner, mode and times, once nothing is made in it any longer."""
        is_root = node.is_root and is_top
        os.fchown(directory, *((0, 0) if is_root else (self._uid, self._gid)))
        os.fchmod(directory, node.mode)
        _set_attributes(directory, node)
        os.utime(directory, ns=(node.mtime_ns, node.mtime_ns))

    def _make(self, directory: int, name: bytes, node: Node) -> None:
        """A file, link or FIFO; of one with several names, another name."""
        if node.links <= 1:
            self._make_new(directory, name, node)
            return
        staged = str(node.number)
        if node.number not in self._linked:
            self._make_new(self._staging, staged.encode(), node)
            self._linked.add(node.number)
        os.link(staged, name, src_dir_fd=self._staging, dst_dir_fd=directory, follow_symlinks=False)

    def _make_new(self, directory: int, name: bytes, node: Node) -> None:
        if node.kind is Kind.FILE:
            self._write_file(directory, name, node)
            return
        if node.kind is Kind.LINK:
            if node.is_root and name in _NAMES:
                return  # every workspace has it
            os.symlink(node.target, name, dir_fd=directory)
        else:
            os.mkfifo(name, 0o600, dir_fd=directory)
        place: dict[str, Any] = {"dir_fd": directory, "follow_symlinks": False}
        os.chown(name, self._uid, self._gid, **place)
        if node.kind is Kind.FIFO:
            os.chmod(name, node.mode, dir_fd=directory)
            for attribute, value in node.attributes:
                path = b"/proc/self/fd/%d/%s" % (directory, name)
                os.setxattr(path, attribute, value, follow_symlinks=False)
        os.utime(name, ns=(node.mtime_ns, node.mtime_ns), **place)

    def _write_file(self, directory: int, name: bytes, node: Node) -> None:
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=directory)
        try:
            position = 0
            for piece in node.pieces:
                if isinstance(piece, ChunkRef):
                    _write_sparse(descriptor, self._chunks.read(piece), position)
                position += piece.size
            os.ftruncate(descriptor, position)
            os.fchown(descriptor, self._uid, self._gid)
            os.fchmod(descriptor, node.mode)
            _set_attributes(descriptor, node)
            os.utime(descriptor, ns=(node.mtime_ns, node.mtime_ns))
            self._content_bytes += position
        finally:
            os.close(descriptor)


def _made_directory(parent: int, name: bytes, device: int) -> bool:
    """Make a directory, unless it is there; False if something else is mounted there."""
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if found.st_dev != device:
            return False
        if not stat.S_ISDIR(found.st_mode):
            raise
    return True


def _moved(current: int, name: bytes) -> int:
    """Go to a directory next to the current one."""
    following = os.open(name, _DIRECTORY, dir_fd=current)
    os.close(current)
    return following


def _set_attributes(descriptor: int, node: Node) -> None:
    for name, value in node.attributes:
        os.setxattr(descriptor, name, value)


def _write_sparse(descriptor: int, data: bytes, position: int) -> None:
    """Write what is not zeros: a hole that was stored becomes a hole again."""
    if _ZEROS not in data:
        _write(descriptor, memoryview(data), position)
        return
    view, start = memoryview(data), 0
    for place in range(0, len(data) + BLOCK, BLOCK):
        block = data[place : place + BLOCK]
        if not block.strip(b"\0"):
            if start < place:
                _write(descriptor, view[start:place], position + start)
            start = place + BLOCK


def _write(descriptor: int, data: memoryview, position: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, position)
        data, position = data[count:], position + count


def _failure(error: OSError) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return WorkspaceFull("the snapshot")
    return WorkspaceUnreadable(f"the snapshot cannot be written into it ({error.strerror})")
