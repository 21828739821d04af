"""The files of the audit log: one is written, older ones go when there are too many."""

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
    """Oldest first."""
    found = [
        AuditFile(path, int(match[1]))
        for path in directory.glob("audit-*.jsonl")
        if (match := _NAME.fullmatch(path.name))
    ]
    return sorted(found, key=lambda one: one.first)


def path_of(directory: Path, first: int) -> Path:
    return directory / f"audit-{first:012d}.jsonl"


@dataclass(frozen=True)
class Tail:
    """The end of a file as it was found."""

    head: Head | None
    """After its last good line; None if that line is not as it was written."""
    good_bytes: int
    """Up to and with the last complete line."""
    torn: bytes
    """What follows it: the beginning of a line whose writer was killed."""


def read_tail(path: Path) -> Tail:
    """Look at the last lines only, however large the file is."""
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
