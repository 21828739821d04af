"""Random changes of a tree: everything that a command can do to its files."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from random import Random

ODD_NAMES = (b"\xff\xfe", b"new\nline", b" ", b"-rf", b"...", b"\xe2\x80\xae", b"a" * 255, b"'\"\\")

FIXED = (b"project_files", b"agent_workspace")


class WildChanges:
    """Changes a tree below a directory. What does not work in the moment is left out."""

    def __init__(self, root: bytes, random: Random) -> None:
        self._root = root
        self._random = random
        self._count = 0
        self._ways: list[Callable[[], None]] = [
            *(self.create, self.create, self.append, self.patch, self.truncate),
            *(self.make_directory, self.rename, self.rename, self.link, self.unlink),
            *(self.remove_directory, self.symlink, self.chmod, self.mapped, self.attribute),
            *(self.fifo, self.sparse, self.set_times, self.access_list, self.replace),
        ]

    def some(self, count: int) -> None:
        for _ in range(count):
            try:
                self._random.choice(self._ways)()
            except (OSError, ValueError):  # such as an empty file that cannot be mapped
                pass

    def create(self) -> None:
        size = self._random.choice((0, 1, 100, 4095, 4096, 4097, 60_000))
        with open(self._new(), "wb") as file:
            file.write(self._random.randbytes(size))

    def append(self) -> None:
        with open(self._file(), "ab") as file:
            file.write(self._random.randbytes(self._random.randrange(5000)))

    def patch(self) -> None:
        with open(self._file(), "r+b") as file:
            file.seek(self._random.randrange(max(1, os.fstat(file.fileno()).st_size)))
            file.write(self._random.randbytes(self._random.randrange(1, 50)))

    def truncate(self) -> None:
        path = self._file()
        os.truncate(path, self._random.randrange(os.stat(path).st_size + 9000))

    def mapped(self) -> None:
        with open(self._file(), "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            memory[self._random.randrange(len(memory))] = self._random.randrange(256)

    def sparse(self) -> None:
        with open(self._new(), "wb") as file:
            for _ in range(self._random.randrange(1, 4)):
                file.seek(self._random.randrange(12 << 20))
                file.write(b"x" * self._random.randrange(1, 9000))
            if self._random.random() < 0.3:
                os.posix_fallocate(file.fileno(), 0, 1 << 20)

    def make_directory(self) -> None:
        os.mkdir(self._new())

    def remove_directory(self) -> None:
        os.rmdir(self._directory())

    def rename(self) -> None:
        path = self._file() if self._random.random() < 0.5 else self._directory()
        os.rename(path, self._new() if self._random.random() < 0.7 else self._any())

    def replace(self) -> None:
        """As editors do it."""
        beside = self._new()
        with open(beside, "wb") as file:
            file.write(self._random.randbytes(300))
        os.replace(beside, self._file())

    def link(self) -> None:
        os.link(self._any(), self._new(), follow_symlinks=False)

    def unlink(self) -> None:
        os.unlink(self._any())

    def symlink(self) -> None:
        length = self._random.choice((1, 10, 59, 60, 61, 300, 4000))
        os.symlink(self._random.randbytes(length).replace(b"\0", b"x"), self._new())

    def fifo(self) -> None:
        os.mkfifo(self._new())

    def chmod(self) -> None:
        os.chmod(self._any(), self._random.randrange(0o10000), follow_symlinks=True)

    def set_times(self) -> None:
        moment = self._random.randrange(-(1 << 31), 1 << 33) * 1_000_000_000 + 123_456_789
        os.utime(self._any(), ns=(moment, moment), follow_symlinks=False)

    def attribute(self) -> None:
        path = self._any()
        name = b"user.%d" % self._random.randrange(5)
        if self._random.random() < 0.3:
            os.removexattr(path, name, follow_symlinks=False)
        else:
            value = self._random.randbytes(self._random.choice((0, 3, 60, 900)))
            os.setxattr(path, name, value, follow_symlinks=False)

    def access_list(self) -> None:
        entries = "01000600ffffffff02000400d204000004000400ffffffff10000400ffffffff20000400ffffffff"
        value = bytes.fromhex("02000000" + entries)
        os.setxattr(self._file(), b"system.posix_acl_access", value)

    def _entries(self) -> tuple[list[bytes], list[bytes]]:
        """What commands can change: not what belongs to root."""
        directories, others = [], []
        for path, names, files in os.walk(self._root):
            names[:] = [name for name in names if name not in FIXED]
            for name in names:
                found = os.path.join(path, name)
                (others if os.path.islink(found) else directories).append(found)
            others += [os.path.join(path, name) for name in files]
        return directories, others

    def _directory(self) -> bytes:
        return self._random.choice([self._root, *sorted(self._entries()[0])])

    def _file(self) -> bytes:
        files = [path for path in self._entries()[1] if os.path.isfile(path)]
        return self._random.choice(
            sorted(path for path in files if not os.path.islink(path)) or [b""]
        )

    def _any(self) -> bytes:
        return self._random.choice(sorted([*self._entries()[0], *self._entries()[1]]) or [b""])

    def _new(self) -> bytes:
        self._count += 1
        name = b"%d" % self._count
        if self._random.random() < 0.2:
            name = (self._random.choice(ODD_NAMES) + name)[-255:]
        elif self._random.random() < 0.3:
            name += b"n" * self._random.randrange(150)
        return os.path.join(self._directory(), name)
