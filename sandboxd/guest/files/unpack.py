"""An archive extracted below a directory, member by member, each of them distrusted."""

import errno
import os
import stat
from collections.abc import Callable

from .area import Area, Place, make_directory, open_directory
from .codec import MAX_PATH, Failure, LeftOut, Why
from .daemon_connection import DaemonConnection, Refused
from .new_file import NewFile, rename, temporary_name
from .request import Request
from .tar_stream import DIRECTORY, FILE_KINDS, HARD_LINK, SPECIAL_KINDS, SYMLINK, Member, TarStream

MAX_LISTED = 1000
"""Members left out that are named; further ones are only counted."""
MAX_LATER = 100_000
"""Most directories that get their time and permissions, which are set at the end."""
MAX_NAME = 255
_LATEST_NS = (1 << 62) - 1

_WHY = {
    errno.EEXIST: Why.EXISTS,
    errno.EISDIR: Why.EXISTS,
    errno.ENOTEMPTY: Why.EXISTS,
    errno.ENOTDIR: Why.NOT_A_DIRECTORY,
    errno.ELOOP: Why.OUTSIDE,
    errno.ENOENT: Why.NOT_A_DIRECTORY,
    errno.ENAMETOOLONG: Why.NAME_TOO_LONG,
    errno.EFBIG: Why.TOO_LARGE,
    errno.EACCES: Why.NOT_PERMITTED,
    errno.EPERM: Why.NOT_PERMITTED,
    errno.EROFS: Why.PROTECTED,
    errno.EBUSY: Why.PROTECTED,
    errno.EXDEV: Why.NO_SUCH_TARGET,
    errno.EMLINK: Why.TOO_MANY_LINKS,
}
_WHY_REFUSED = {
    Failure.OUTSIDE: Why.OUTSIDE,
    Failure.NOT_A_FILE: Why.EXISTS,
    Failure.PROTECTED: Why.PROTECTED,
    Failure.EXISTS: Why.EXISTS,
}


class _LeaveOut(Exception):
    """This member is left out."""

    def __init__(self, why: Why) -> None:
        super().__init__(why.name)
        self.why = why


class _Extraction:
    def __init__(self, area: Area, request: Request, stream: TarStream) -> None:
        self._area = area
        self._stream = stream
        self._replace = request.flag("replace")
        self._max_file_bytes = request.number("max_file_bytes")
        self._later: list[tuple[list[bytes], Member]] = []
        self.count = 0
        self.bytes = 0
        self.left_out: list[LeftOut] = []
        self.left_out_count = 0

    def extract(self, member: Member) -> None:
        try:
            self._extract(member)
            self.count += 1
        except _LeaveOut as left:
            self._leave_out(member, left.why)
        except Refused as refused:
            if refused.failed.failure not in _WHY_REFUSED:
                raise
            self._leave_out(member, _WHY_REFUSED[refused.failed.failure])
        except OSError as error:
            if error.errno not in _WHY:
                raise
            self._leave_out(member, _WHY[error.errno])

    def _leave_out(self, member: Member, why: Why) -> None:
        self.left_out_count += 1
        if len(self.left_out) < MAX_LISTED:
            self.left_out.append(LeftOut(why, member.name))

    def _extract(self, member: Member) -> None:
        if member.is_sparse:
            raise _LeaveOut(Why.SPARSE)
        if member.kind in SPECIAL_KINDS:
            raise _LeaveOut(Why.SPECIAL)
        parts = _parts(member.name)
        if member.kind == DIRECTORY:
            self._make_directory(parts, member)
            return
        if not parts:
            raise _LeaveOut(Why.NO_NAME)
        self._refuse_without_room()
        with self._area.place(parts, make_parents=True) as place:
            place.refuse_protected()
            if member.kind in FILE_KINDS:
                self._write(place, member)
            elif member.kind == SYMLINK:
                self._make_symlink(place, member)
            elif member.kind == HARD_LINK:
                self._make_hard_link(place, member)
            else:
                raise _LeaveOut(Why.UNKNOWN_KIND)

    def _refuse_without_room(self) -> None:
        if self._area.room_files is not None and self.count >= self._area.room_files:
            raise Refused(Failure.FULL)

    def _write(self, place: Place, member: Member) -> None:
        if self._max_file_bytes and member.size > self._max_file_bytes:
            raise _LeaveOut(Why.TOO_LARGE)
        if not self._replace and _is_there(place):
            raise _LeaveOut(Why.EXISTS)
        room = self._area.room_bytes
        area = self._area if room is None else self._area._replace(room_bytes=room - self.bytes)
        with NewFile(area, place.parent) as file:
            self._stream.copy(file.write)
            file.set_modified(_clamped(member.modified_ns))
            file.commit(place.name, member.mode, replace=self._replace)
        self.bytes += member.size

    def _make_directory(self, parts: list[bytes], member: Member) -> None:
        with self._area.place(parts, make_parents=True) as place:
            if place.is_area:
                return
            try:
                make_directory(place.parent, place.name, self._area.directory_mode(0o700))
            except FileExistsError:
                there = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
                if not stat.S_ISDIR(there.st_mode):
                    raise
                if place.is_protected:
                    return
        if len(self._later) < MAX_LATER:
            self._later.append((parts, member))

    def _make_symlink(self, place: Place, member: Member) -> None:
        if not member.target or len(member.target) > MAX_PATH or b"\0" in member.target:
            raise _LeaveOut(Why.NO_SUCH_TARGET)
        self._put(place, lambda name: os.symlink(member.target, name, dir_fd=place.parent))
        moment = _clamped(member.modified_ns)
        os.utime(place.name, ns=(moment, moment), dir_fd=place.parent, follow_symlinks=False)

    def _make_hard_link(self, place: Place, member: Member) -> None:
        parts = _parts(member.target)
        if not parts:
            raise _LeaveOut(Why.NO_SUCH_TARGET)
        try:
            with self._area.place(parts) as source:
                there = os.stat(source.name, dir_fd=source.parent, follow_symlinks=False)
                if not stat.S_ISREG(there.st_mode):
                    raise _LeaveOut(Why.NO_SUCH_TARGET)

                def link(name: bytes) -> None:
                    os.link(
                        source.name,
                        name,
                        src_dir_fd=source.parent,
                        dst_dir_fd=place.parent,
                        follow_symlinks=False,
                    )

                self._put(place, link)
        except FileNotFoundError:
            raise _LeaveOut(Why.NO_SUCH_TARGET) from None

    def _put(self, place: Place, make: Callable[[bytes], None]) -> None:
        """Make an entry, with `replace` in place of a regular file or a link."""
        try:
            make(place.name)
            return
        except FileExistsError:
            if not self._replace or _is_directory(place):
                raise
        temporary = temporary_name()
        make(temporary)
        try:
            rename(place.parent, temporary, place.parent, place.name, replace=True)
        finally:
            try:  # a rename between two names of the same file does nothing
                os.unlink(temporary, dir_fd=place.parent)
            except FileNotFoundError:
                pass

    def finish(self) -> None:
        """Set times and permissions of directories, now that nothing is written in them."""
        for parts, member in reversed(self._later):
            try:
                with self._area.place(parts) as place:
                    descriptor = open_directory(place.parent, place.name)
                    try:
                        moment = _clamped(member.modified_ns)
                        os.utime(descriptor, ns=(moment, moment))
                        os.fchmod(descriptor, self._area.directory_mode(member.mode))
                    finally:
                        os.close(descriptor)
            except (OSError, Refused):
                pass  # a command or a later member replaced it


def _parts(name: bytes) -> list[bytes]:
    """The parts of a member's name, which never leads out of the directory."""
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if name.startswith(b"/") or b".." in parts:
        raise _LeaveOut(Why.OUTSIDE)
    if len(name) > MAX_PATH or any(len(part) > MAX_NAME for part in parts):
        raise _LeaveOut(Why.NAME_TOO_LONG)
    if b"\0" in name:
        raise _LeaveOut(Why.NO_NAME)
    return parts


def _clamped(modified_ns: int) -> int:
    return max(-_LATEST_NS, min(modified_ns, _LATEST_NS))


def _is_there(place: Place) -> bool:
    try:
        os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_directory(place: Place) -> bool:
    there = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
    return stat.S_ISDIR(there.st_mode)


def unpack(area: Area, request: Request, daemon: DaemonConnection) -> None:
    with area.place(request.path(), follow=True, make_parents=True, writes=True) as place:
        try:
            make_directory(place.parent, place.name, place.area.directory_mode(0o755))
        except FileExistsError:
            pass
        top = open_directory(place.parent, place.name)
    try:
        daemon.ready()
        stream = TarStream(daemon)
        extraction = _Extraction(place.as_area(top), request, stream)
        try:
            while (member := stream.next()) is not None:
                extraction.extract(member)
        finally:
            extraction.finish()
        stream.finish()
        daemon.left_out(extraction.left_out)
        daemon.done(extraction.count, extraction.bytes, extraction.left_out_count)
    finally:
        os.close(top)
