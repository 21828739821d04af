"""The files of the audit log, of which the newest is written."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from sandboxd.audit.chain import MAX_LINE, START, BrokenLine, Head, decode

_NAME = re.compile(r"audit-(\d{12})\.jsonl")


@dataclass(frozen=True)
class AuditFile:
    """One file, named after the sequence of its first line."""

    path: Path
    first: int


def audit_files(directory: Path) -> list[AuditFile]:
    """All files, oldest first."""
    found = [
        AuditFile(path, int(match[1]))
        for path in directory.glob("audit-*.jsonl")
        if (match := _NAME.fullmatch(path.name))
    ]
    return sorted(found, key=lambda file: file.first)


def strangers_directory(directory: Path) -> Path:
    """Where the log of calls of strangers is, next to an audit log."""
    return directory / "strangers"


def path_of(directory: Path, first: int) -> Path:
    return directory / f"audit-{first:012d}.jsonl"


@dataclass(frozen=True)
class Tail:
    """The end of a file as a writer finds it."""

    head: Head | None
    """Head after its last complete line; None if that line is broken."""
    good_bytes: int
    """Size up to the end of the last complete line."""
    torn: bytes
    """Bytes after it: the beginning of a line whose writer was killed."""


def read_tail(path: Path) -> Tail:
    """Read only the last lines, however large the file is."""
    size = path.stat().st_size
    begin = max(0, size - 2 * MAX_LINE)
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read(2 * MAX_LINE)
    complete, newline, torn = data.rpartition(b"\n")
    if not newline:
        return Tail(START if size <= MAX_LINE and begin == 0 else None, 0, data)
    last = complete[complete.rfind(b"\n") + 1 :] + newline
    try:
        head: Head | None = decode(last)[1]
    except BrokenLine:
        head = None
    return Tail(head, size - len(torn), torn)


def open_private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
