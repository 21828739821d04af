"""Whole files: upload and download."""

import os

from .area import Area, Place
from .codec import CHUNK, Failure
from .daemon_connection import DaemonConnection, Refused
from .describe import describe_place, entry_of
from .new_file import NewFile, mode_to_keep
from .request import Request

_BUFFER = 256 << 10
"""Bytes per step, few enough to stay in the processor's cache."""
MAX_MADE_UP = 4 << 20
"""Most bytes of a file that the kernel makes up as it is read."""
_MADE_UP_SIZE = 64 << 10
"""No file in /sys that is made up claims to be larger."""


def upload(area: Area, request: Request, daemon: DaemonConnection) -> None:
    path, parents = request.path(), request.flag("make_parents")
    replace = request.flag("replace")
    with area.place(path, follow=replace, make_parents=parents, writes=True) as place:
        place.refuse_protected()
        mode = mode_to_keep(place, replace=replace)
        refuse_without_room(place, request.number("size"))
        if not request.flag("keep_mode"):
            mode = request.number("mode")
        with NewFile(place.area, place.parent) as file:
            daemon.ready()
            buffer = memoryview(bytearray(_BUFFER))
            while count := daemon.receive_into(buffer):
                file.write(buffer[:count])
            file.commit(place.name, mode, replace=replace)
            daemon.entry(describe_place(place, request.shown))
            daemon.done()


def refuse_without_room(place: Place, size: int) -> None:
    """Refuse what certainly does not fit; in the end the kernel decides."""
    area, there = place.area, os.fstatvfs(place.parent)
    if not there.f_blocks:
        return  # it has no figures, such as /proc
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
        entry = entry_of(request.shown, status)
        if request.is_outside and may_be_made_up(status):
            content = _made_up(descriptor)
            daemon.entry(entry._replace(size=len(content)))
            begin, end = _range(request, len(content))
            for position in range(begin, end, CHUNK):
                daemon.data(memoryview(content)[position : min(position + CHUNK, end)])
        else:
            daemon.entry(entry)
            begin, end = _range(request, status.st_size)
            os.posix_fadvise(descriptor, begin, end - begin, os.POSIX_FADV_SEQUENTIAL)
            _send_range(daemon, descriptor, begin, end)
        daemon.done()
    finally:
        os.close(descriptor)


def _range(request: Request, size: int) -> tuple[int, int]:
    """The first byte to send and the end."""
    begin = min(request.number("offset"), size)
    length = request.number("length")
    return begin, min(size, begin + length) if length else size


def may_be_made_up(status: os.stat_result) -> bool:
    """Whether the kernel may make up the content as it is read, as in /proc and /sys: the size of
    such a file says nothing."""
    return not status.st_blocks and status.st_size <= _MADE_UP_SIZE


def _made_up(descriptor: int) -> bytes:
    """What a read returns, however large the file claims to be."""
    content = bytearray()
    while block := os.read(descriptor, _BUFFER):
        content += block
        if len(content) > MAX_MADE_UP:
            raise Refused(Failure.TOO_LARGE, first=MAX_MADE_UP)
    return bytes(content)


def _send_range(daemon: DaemonConnection, descriptor: int, position: int, end: int) -> None:
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
