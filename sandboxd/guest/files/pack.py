"""A directory as an archive, written as it is read."""

import errno
import os
import stat

from .area import Area, open_regular
from .codec import CHUNK, Failure, LeftOut, Why
from .daemon_connection import DaemonConnection, Refused
from .failures import failure_of
from .request import Request
from .tar_stream import BLOCK, DIRECTORY, HARD_LINK, SYMLINK
from .tree import joined, walk

MAX_LISTED = 1000
"""Members left out that are named; further ones are only counted."""
MAX_HARD_LINKS = 100_000
"""Most files whose other names become links; beyond that, each name gets a copy."""
_HELD = 256 << 10
"""A file up to this size is read before its header is written, so it is whole or left out."""
_FILE = b"0"
_PAX = b"x"
_MAX_OCTAL = 8**11 - 1


class _Archive:
    """The bytes of the archive, sent in whole chunks."""

    def __init__(self, daemon: DaemonConnection) -> None:
        self._daemon = daemon
        self._buffer = bytearray()
        self.members = 0

    def add(self, name: bytes, kind: bytes, status: os.stat_result, target: bytes = b"") -> None:
        """Add the head of a member; if the member has bytes, `write` and `pad` follow."""
        size = status.st_size if kind == _FILE else 0
        seconds, fraction = divmod(status.st_mtime_ns, 1_000_000_000)
        records = {}
        if fraction or not 0 <= seconds <= _MAX_OCTAL:
            records[b"mtime"] = _decimal(status.st_mtime_ns)
        if len(name) > 100:
            records[b"path"] = name
        if len(target) > 100:
            records[b"linkpath"] = target
        if size > _MAX_OCTAL:
            records[b"size"] = b"%d" % size
        if records:
            payload = b"".join(_record(key, value) for key, value in records.items())
            self.write(_header(b"./PaxHeaders/" + name[:80], _PAX, 0o644, len(payload), 0))
            self.write(payload)
            self.pad(len(payload))
        mode = stat.S_IMODE(status.st_mode)
        moment = min(max(seconds, 0), _MAX_OCTAL)
        self.write(_header(name, kind, mode, min(size, _MAX_OCTAL), moment, target))
        self.members += 1

    def write(self, data: bytes | memoryview) -> None:
        self._buffer += data
        while len(self._buffer) >= CHUNK:
            self._daemon.data(memoryview(bytes(self._buffer[:CHUNK])))
            del self._buffer[:CHUNK]

    def pad(self, size: int) -> None:
        self.write(bytes(-size % BLOCK))

    def finish(self) -> None:
        self.write(bytes(2 * BLOCK))
        self._daemon.data(memoryview(bytes(self._buffer)))


def _header(
    name: bytes, kind: bytes, mode: int, size: int, moment: int, target: bytes = b""
) -> bytes:
    head = b"".join(
        (
            name[:100].ljust(100, b"\0"),
            b"%07o\0%07o\0%07o\0" % (mode, 0, 0),
            b"%011o\0%011o\0" % (size, moment),
            b" " * 8,
            kind,
            target[:100].ljust(100, b"\0"),
            b"ustar\x0000",
        )
    ).ljust(BLOCK, b"\0")
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


def _record(key: bytes, value: bytes) -> bytes:
    """A record of an extended header; its length includes the length field."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def _decimal(nanoseconds: int) -> bytes:
    sign = b"-" if nanoseconds < 0 else b""
    seconds, fraction = divmod(abs(nanoseconds), 1_000_000_000)
    return b"%s%d.%09d" % (sign, seconds, fraction)


class _Packing:
    def __init__(self, daemon: DaemonConnection, archive: _Archive, *, is_outside: bool) -> None:
        self._daemon = daemon
        self._archive = archive
        self._least = int(is_outside)
        """Bytes to ask an empty file for: in /proc it may have some."""
        self._first_names: dict[tuple[int, int], bytes] = {}
        self.left_out: list[LeftOut] = []
        self.left_out_count = 0

    def visit(self, descriptor: int, path: bytes | None) -> list[bytes]:
        # Right before its content: other programs set its time once they have left it.
        if path:
            self._archive.add(path + b"/", DIRECTORY, os.fstat(descriptor))
        with os.scandir(descriptor) as entries:
            names = sorted(os.fsencode(entry.name) for entry in entries)
        directories = []
        for name in names:
            self._daemon.check()
            below = joined(path, name)
            if below is None:
                self._leave_out(name, Why.TOO_DEEP)
                continue
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    if self._may_enter(descriptor, name, below):
                        directories.append(name)
                else:
                    self._add(descriptor, name, below, status)
            except FileNotFoundError:
                continue  # removed meanwhile
        return directories[::-1]

    def _may_enter(self, parent: int, name: bytes, path: bytes) -> bool:
        if os.access(name, os.R_OK | os.X_OK, dir_fd=parent, effective_ids=False):
            return True
        self._leave_out(path, Why.NOT_PERMITTED)
        return False

    def _add(self, parent: int, name: bytes, path: bytes, status: os.stat_result) -> None:
        identity = (status.st_dev, status.st_ino)
        if stat.S_ISLNK(status.st_mode):
            self._archive.add(path, SYMLINK, status, os.readlink(name, dir_fd=parent))
        elif not stat.S_ISREG(status.st_mode):
            self._leave_out(path, Why.SPECIAL)
        elif identity in self._first_names:
            self._archive.add(path, HARD_LINK, status, self._first_names[identity])
        elif self._add_file(parent, name, path) and status.st_nlink > 1:
            self._remember(identity, path)

    def _remember(self, identity: tuple[int, int], path: bytes) -> None:
        if len(self._first_names) < MAX_HARD_LINKS:
            self._first_names[identity] = path

    def _add_file(self, parent: int, name: bytes, path: bytes) -> bool:
        try:
            descriptor = open_regular(parent, name)
        except PermissionError:
            self._leave_out(path, Why.NOT_PERMITTED)
            return False
        except (Refused, OSError) as error:
            if isinstance(error, OSError) and error.errno not in (errno.ELOOP, errno.ENXIO):
                raise
            self._leave_out(path, Why.CHANGED)
            return False
        try:
            return self._copy(descriptor, path)
        finally:
            os.close(descriptor)

    def _copy(self, descriptor: int, path: bytes) -> bool:
        status = os.fstat(descriptor)
        size = status.st_size
        if size <= _HELD:
            data = self._held(descriptor, max(size, self._least))
            if data is None or len(data) != size:
                self._leave_out(path, Why.NOT_PERMITTED if data is None else Why.CHANGED)
                return False
            self._archive.add(path, _FILE, status)
            self._archive.write(data)
        else:
            self._archive.add(path, _FILE, status)
            self._copy_long(descriptor, path, size)
        self._archive.pad(size)
        return True

    def _held(self, descriptor: int, size: int) -> bytes | None:
        """The content of a small file; None if the kernel refuses to read it."""
        if not size:
            return b""
        try:
            return os.pread(descriptor, size, 0)
        except OSError as error:
            if failure_of(error) not in (Failure.UNSUPPORTED, Failure.NOT_FOUND):
                raise
            return None

    def _copy_long(self, descriptor: int, path: bytes, size: int) -> None:
        buffer, position = memoryview(bytearray(_HELD)), 0
        while position < size:
            count = os.preadv(descriptor, [buffer[: min(_HELD, size - position)]], position)
            if not count:
                # The header with its length was sent, so it is padded, and listed as left out.
                self._leave_out(path, Why.CHANGED)
                buffer[:] = bytes(_HELD)
                count = min(_HELD, size - position)
                while position < size:
                    self._archive.write(buffer[: min(_HELD, size - position)])
                    position += _HELD
                return
            self._archive.write(buffer[:count])
            position += count

    def _leave_out(self, path: bytes, why: Why) -> None:
        self.left_out_count += 1
        if len(self.left_out) < MAX_LISTED:
            self.left_out.append(LeftOut(why, path))


def pack(area: Area, request: Request, daemon: DaemonConnection) -> None:
    with area.directory(request.path()) as top:
        daemon.ready()
        archive = _Archive(daemon)
        packing = _Packing(daemon, archive, is_outside=request.is_outside)
        walk(top, packing.visit)
        archive.finish()
    daemon.left_out(packing.left_out)
    daemon.done(archive.members, packing.left_out_count)
