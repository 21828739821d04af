"""What a directory holds, told by the kernel, to compare with what a snapshot says."""

from __future__ import annotations

import hashlib
import os
import stat

from sandboxd.snapshots.contract import Entry, Kind, Line, Snapshots

Seen = dict[bytes, tuple[object, ...]]
_KINDS = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFDIR: Kind.DIRECTORY,
    stat.S_IFLNK: Kind.LINK,
    stat.S_IFIFO: Kind.FIFO,
}


def directory(root: int, *, with_times: bool = True) -> Seen:
    """Everything below a directory: type, mode, owner, time, size, content, links, attributes.

    Goes by descriptors, so that no depth is too much.
    """
    found: Seen = {}
    inodes: dict[int, list[bytes]] = {}
    waiting = [(b"", os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=root))]
    while waiting:
        path, descriptor = waiting.pop()
        for name in os.listdir(descriptor):
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            kind = _KINDS.get(stat.S_IFMT(status.st_mode))
            below = (path + b"/" if path else b"") + os.fsencode(name)
            if kind is None:
                continue
            if kind is not Kind.DIRECTORY:
                inodes.setdefault(status.st_ino, []).append(below)
            found[below] = (
                kind,
                stat.S_IMODE(status.st_mode),
                status.st_uid == 0,
                status.st_mtime_ns if with_times else 0,
                _content(descriptor, name, kind),
                _attributes(descriptor, name, kind),
            )
            if kind is Kind.DIRECTORY:
                waiting.append(
                    (below, os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=descriptor))
                )
        os.close(descriptor)
    return _with_links(found, inodes)


def _with_links(found: Seen, inodes: dict[int, list[bytes]]) -> Seen:
    """With all names of files that have several."""
    for names in inodes.values():
        if len(names) > 1:
            for name in names:
                found[name] = (*found[name], *sorted(names))
    return found


def _content(parent: int, name: str, kind: Kind) -> object:
    if kind is Kind.LINK:
        return os.fsencode(os.readlink(name, dir_fd=parent))
    if kind is not Kind.FILE:
        return None
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=parent)
    digest = hashlib.sha256()
    with os.fdopen(descriptor, "rb") as file:
        while data := file.read(1 << 20):
            digest.update(data)
        return os.fstat(file.fileno()).st_size, digest.hexdigest()


def _attributes(parent: int, name: str, kind: Kind) -> object:
    if kind is Kind.LINK:
        return ()
    path = f"/proc/self/fd/{parent}/{name}"
    names = os.listxattr(path, follow_symlinks=False)
    return tuple(sorted((key, os.getxattr(path, key, follow_symlinks=False)) for key in names))


async def snapshot(snapshots: Snapshots, line: Line, number: int) -> Seen:
    """The same of a snapshot, all of its content read."""
    found: Seen = {}
    inodes: dict[int, list[bytes]] = {}
    for entry in await snapshots.entries(line, number):
        if entry.kind is not Kind.DIRECTORY:
            inodes.setdefault(entry.number, []).append(entry.path)
        found[entry.path] = (
            entry.kind,
            entry.mode,
            entry.is_root,
            entry.mtime_ns,
            await _stored(snapshots, line, number, entry),
            tuple((os.fsdecode(name), value) for name, value in entry.attributes),
        )
    return _with_links(found, inodes)


async def _stored(snapshots: Snapshots, line: Line, number: int, entry: Entry) -> object:
    if entry.kind is Kind.LINK:
        return entry.target
    if entry.kind is not Kind.FILE:
        return None
    size, digest = 0, hashlib.sha256()
    async for part in snapshots.read_file(line, number, entry.path):
        size += len(part)
        digest.update(part)
    return size, digest.hexdigest()


def assert_same(found: Seen, expected: Seen) -> None:
    """Fails with the first few differences."""
    different = [
        path for path in found.keys() | expected.keys() if found.get(path) != expected.get(path)
    ]
    shown = [(path, found.get(path), expected.get(path)) for path in sorted(different)[:3]]
    assert not different, f"{len(different)} differ: {shown}"
