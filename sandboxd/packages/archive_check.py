"""Checks archives of packages: wheels before anything unpacks them, others file by file.

Runs in the confined worker, with nothing but the standard library.
"""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

from sandboxd.packages.work_report import Refused

MAX_NAME_BYTES = 1024
_SET_ID = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_ENCRYPTED = 1


class ArchiveUnsafe(Refused):
    """The archive contains what no package needs; the text says what."""


class ArchiveTooLarge(Refused):
    """The archive unpacks to more than is allowed; the text says to what."""


def check_wheel(path: Path, *, max_bytes: int, max_files: int) -> tuple[int, int]:
    """Returns the bytes and the files that it says it unpacks to.

    ArchiveUnsafe for names that lead elsewhere and for anything but plain files and directories.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise ArchiveUnsafe(f"it is not a zip file ({error})") from None
    if len(entries) > max_files:
        raise ArchiveTooLarge(f"{len(entries)} files")
    if len({entry.filename for entry in entries}) < len(entries):
        raise ArchiveUnsafe("it contains two files of one name")
    for entry in entries:
        _check_entry(entry)
    if (unpacked := sum(entry.file_size for entry in entries)) > max_bytes:
        raise ArchiveTooLarge(f"{unpacked >> 20} MiB when unpacked")
    return unpacked, len(entries)


def _check_entry(entry: zipfile.ZipInfo) -> None:
    name = entry.filename
    # `orig_filename` is the name before the library cut it at a null byte.
    if entry.orig_filename != name:
        raise _ambiguous(name)
    check_name(name)
    mode = entry.external_attr >> 16
    if stat.S_IFMT(mode) == stat.S_IFLNK:
        raise ArchiveUnsafe(f"its file {shown(name)} is a symbolic link")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ArchiveUnsafe(f"its file {shown(name)} is neither a file nor a directory")
    check_mode(name, mode)
    if entry.flag_bits & _ENCRYPTED:
        raise ArchiveUnsafe(f"its file {shown(name)} is encrypted")


def check_name(name: str) -> None:
    """ArchiveUnsafe for a name of a file, or of a directory with a slash at its end, that leads out
    of the package or means different things to programs."""
    if len(name.encode(errors="surrogateescape")) > MAX_NAME_BYTES or not name.isprintable():
        raise ArchiveUnsafe("it contains a name that is too long or has control characters")
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or ".." in parts:
        raise ArchiveUnsafe(f"its file {shown(name)} leads out of the package")
    if "\\" in name or "" in parts or "." in parts:
        raise _ambiguous(name)


def check_mode(name: str, mode: int) -> None:
    if mode & _SET_ID:
        raise ArchiveUnsafe(f"its file {shown(name)} has a set-id bit")


def shown(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:80] + "...")


def _ambiguous(name: str) -> ArchiveUnsafe:
    return ArchiveUnsafe(f"its file {shown(name)} has a name that programs read differently")
