"""Whole files: upload and download."""

import os

from .area import Area
from .codec import CHUNK, Failure
from .daemon_connection import DaemonConnection, Refused
from .describe import describe_place, entry_of
from .new_file import NewFile
from .request import Request

_BUFFER = 256 << 10
"""Bytes per step, few enough to stay in the processor's cache."""


def upload(area: Area, request: Request, daemon: DaemonConnection) -> None:
    path = request.path()
    with area.place(path, make_parents=request.flag("make_parents"), writes=True) as place:
        area.refuse_protected(place)
        replace = request.flag("replace")
        _refuse_existing(place.parent, place.name, replace=replace)
        refuse_without_room(area, place.parent, request.number("size"))
        with NewFile(area, place.parent) as file:
            daemon.ready()
            buffer = memoryview(bytearray(_BUFFER))
            while count := daemon.receive_into(buffer):
                file.write(buffer[:count])
            file.commit(place.name, request.number("mode"), replace=replace)
            daemon.entry(describe_place(place, request.shown))
            daemon.done()


def _refuse_existing(parent: int, name: bytes, *, replace: bool) -> None:
    """Refuse before any byte is sent; `commit` checks again."""
    try:
        there = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return
    kind = entry_of(b"", there).type
    if kind == 2 or (replace and kind not in (1, 3)):
        raise Refused(Failure.NOT_A_FILE)
    if not replace:
        raise Refused(Failure.EXISTS)


def refuse_without_room(area: Area, parent: int, size: int) -> None:
    """Refuse what certainly does not fit; in the end the kernel decides."""
    there = os.fstatvfs(parent)
    free_bytes, free_files = there.f_bavail * there.f_frsize, there.f_favail
    if area.room_bytes is not None:
        free_bytes = min(free_bytes, area.room_bytes)
    if area.room_files is not None:
        free_files = min(free_files, area.room_files)
    has_inodes = there.f_files > 0 or area.room_files is not None
    if size > free_bytes or (has_inodes and free_files < 1):
        raise Refused(Failure.FULL, first=free_bytes, second=free_files)


def download(area: Area, request: Request, daemon: DaemonConnection) -> None:
    descriptor = area.open_file(request.path())
    try:
        status = os.fstat(descriptor)
        daemon.entry(entry_of(request.shown, status))
        position = min(request.number("offset"), status.st_size)
        end = status.st_size
        if length := request.number("length"):
            end = min(end, position + length)
        os.posix_fadvise(descriptor, position, end - position, os.POSIX_FADV_SEQUENTIAL)
        send_range(daemon, descriptor, position, end)
        daemon.done()
    finally:
        os.close(descriptor)


def send_range(daemon: DaemonConnection, descriptor: int, position: int, end: int) -> None:
    """Send part of a file in frames of CHUNK bytes. Each is read before its header is sent, because
    a file may become shorter at any time."""
    buffer = memoryview(bytearray(min(CHUNK, max(end - position, 1))))
    while position < end:
        chunk = buffer[: min(CHUNK, end - position)]
        filled = 0
        while filled < len(chunk):
            count = os.preadv(descriptor, [chunk[filled:]], position + filled)
            if not count:
                raise Refused(Failure.CHANGED)
            filled += count
        daemon.data(chunk)
        position += filled
