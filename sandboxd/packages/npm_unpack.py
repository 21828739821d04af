"""Unpacks archives of npm packages, and makes their programs.

Runs in the confined worker, with nothing but the standard library. No script of a package runs.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import shlex
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from sandboxd.packages.archive_check import (
    ArchiveTooLarge,
    ArchiveUnsafe,
    check_mode,
    check_name,
    shown,
)
from sandboxd.packages.work_report import TooLarge, for_each

PROGRAMS = ".bin"
MAX_MANIFEST_BYTES = 1 << 20
MAX_PROGRAMS = 100
"""Of one package."""
_CHUNK_BYTES = 1 << 20
_BLOCK_BYTES = 512
_END_BYTES = 1 << 20
"""Of an archive after its last file."""
_PROGRAM_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}", re.ASCII)
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)
_STARTS_ITSELF = re.compile(rb"#![^\r\n]+\n|\x7fELF")
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class Limits(NamedTuple):
    unpacked_bytes: int
    """All packages together."""
    files: int


class _Bounded:
    """A stream that ends with an error where it would be longer than allowed, so that a small
    archive costs no more time than a large one."""

    def __init__(self, stream: gzip.GzipFile, max_bytes: int) -> None:
        self._stream = stream
        self._left = max_bytes

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise ArchiveTooLarge("more than is allowed when unpacked")
        return data


class Unpacker:
    """Unpacks one archive after the other, each to its place below a directory."""

    def __init__(self, archives: Path, target: Path, limits: Limits) -> None:
        self._archives = archives
        self._target = target
        self._limits = limits
        self._bytes = 0
        self._files = 0

    def unpack(self, archive: Mapping[str, Any]) -> None:
        """ArchiveUnsafe for an archive with anything but plain files and directories in it."""
        place = self._target / archive["place"]
        try:
            place.mkdir(parents=True)
            with gzip.open(self._archives / archive["file_name"]) as stream:
                self._unpack(stream, place)
        except FileExistsError:
            raise ArchiveUnsafe("it has two files of one name, or those of another one") from None
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
            raise ArchiveUnsafe(f"it is not an archive of npm ({error})") from None
        except OSError as error:
            if error.errno in _FULL:
                raise TooLarge("more than fits on the disk for building") from None
            raise ArchiveUnsafe(f"it cannot be unpacked ({error.strerror})") from None

    def _unpack(self, stream: gzip.GzipFile, place: Path) -> None:
        left = self._limits.unpacked_bytes - self._bytes
        heads = (self._limits.files - self._files) * 4 * _BLOCK_BYTES
        bounded = cast(IO[bytes], _Bounded(stream, left + heads + _END_BYTES))
        with tarfile.open(fileobj=bounded, mode="r|") as tar:
            for member in tar:
                self._count(member)
                check_name(member.name + ("/" if member.isdir() else ""))
                check_mode(member.name, member.mode)
                # All files are below one directory, which has any name.
                _, _, name = member.name.partition("/")
                if member.isdir():
                    (place / name).mkdir(parents=True, exist_ok=True)
                elif member.type in _PLAIN and not member.issparse() and name:
                    _write(tar, member, place / name)
                elif member.issym() or member.islnk():
                    raise ArchiveUnsafe(f"its file {shown(member.name)} is a link")
                else:
                    raise ArchiveUnsafe(f"its file {shown(member.name)} is not a plain file")

    def _count(self, member: tarfile.TarInfo) -> None:
        self._files += 1
        self._bytes += max(0, member.size)
        if self._files > self._limits.files:
            raise ArchiveTooLarge(f"more than {self._limits.files} files")
        if member.size < 0 or self._bytes > self._limits.unpacked_bytes:
            raise ArchiveTooLarge(f"{self._bytes >> 20} MiB when unpacked")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None
    with content, path.open("xb") as file:
        while chunk := content.read(_CHUNK_BYTES):
            file.write(chunk)
    path.chmod(0o755 if member.mode & 0o111 else 0o644)


def run(job: Mapping[str, Any]) -> int:
    """Unpack every archive of a job, those that contain others first, then make the programs."""
    target = Path(job["target"])
    unpacker = Unpacker(Path(job["directory"]), target, Limits(**job["limits"]))
    archives = sorted(job["archives"], key=lambda archive: str(archive["place"]))
    code = for_each(archives, unpacker.unpack)
    if code == 0:
        make_programs(target, job["shown_at"])
    return code


# --- programs ---


def make_programs(target: Path, shown_at: str) -> None:
    """A script for each program of each package, apart from those within others. The first package
    by name has a name that two want."""
    directory = target / PROGRAMS
    for place in sorted(_top(target)):
        for name, path in _programs(target / place):
            directory.mkdir(exist_ok=True)
            script = directory / name
            if not script.exists():
                script.write_text(_script(target / place / path, f"{shown_at}/{place}/{path}"))
                script.chmod(0o755)


def _top(target: Path) -> Iterator[str]:
    for path in target.iterdir():
        if path.name.startswith("@"):
            yield from (f"{path.name}/{inner.name}" for inner in path.iterdir())
        elif path.name != PROGRAMS:
            yield path.name


def _programs(package: Path) -> Iterator[tuple[str, str]]:
    """Names of programs with their files, as far as both make sense."""
    manifest = _manifest(package)
    listed = manifest.get("bin")
    if isinstance(listed, str):
        listed = {package.name: listed}
    if not isinstance(listed, dict):
        return
    for name, path in list(listed.items())[:MAX_PROGRAMS]:
        name = name.rpartition("/")[2]
        if not _PROGRAM_NAME.fullmatch(name) or not isinstance(path, str):
            continue
        path = os.path.normpath(path)
        if _is_file_within(package, path):
            yield name, path


def _manifest(package: Path) -> Mapping[str, Any]:
    try:
        with (package / "package.json").open("rb") as file:
            manifest = json.loads(file.read(MAX_MANIFEST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _is_file_within(package: Path, path: str) -> bool:
    try:
        check_name(path)
        return (package / path).is_file()
    except (ArchiveUnsafe, OSError, ValueError):
        return False


def _script(file: Path, seen_as: str) -> str:
    """Starts a program at its own place, where it finds its other files: by the interpreter that it
    names, otherwise by Node.js."""
    with file.open("rb") as opened:
        starts_itself = _STARTS_ITSELF.match(opened.read(_BLOCK_BYTES))
    if starts_itself:
        file.chmod(0o755)
    node = "" if starts_itself else "node "
    return f'#!/bin/sh\nexec {node}{shlex.quote(seen_as)} "$@"\n'
