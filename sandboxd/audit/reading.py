"""Pages of the audit log, newest line first, in bounded work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sandboxd.audit.chain import BrokenLine, decode
from sandboxd.audit.files import audit_files

MAX_SCANNED = 200_000
"""Lines that one page looks at."""


class AuditPage(NamedTuple):
    entries: Sequence[Mapping[str, Any]]
    """Newest first."""
    next_before: int
    """Sequence before which the next page begins; 0 if there is no older line."""


def newest(
    directory: Path,
    *,
    before: int,
    count: int,
    matches: Callable[[Mapping[str, Any]], bool],
) -> AuditPage:
    """The newest entries that match, of lines before a sequence (0: of all)."""
    found: list[Mapping[str, Any]] = []
    last = 0
    for scanned, entry in enumerate(_backwards(directory, before)):
        if len(found) == count or scanned == MAX_SCANNED:
            return AuditPage(found, last)
        last = int(entry["seq"])
        if matches(entry):
            found.append(entry)
    return AuditPage(found, 0)


def _backwards(directory: Path, before: int) -> Iterator[Mapping[str, Any]]:
    """Intact entries, newest first. A file is read as a whole: its size is limited."""
    for audit_file in reversed(audit_files(directory)):
        if before and audit_file.first >= before:
            continue
        lines: deque[bytes] = deque()
        with audit_file.path.open("rb") as file:
            lines.extend(file)
        while lines:
            try:
                entry, head = decode(lines.pop())
            except BrokenLine:
                continue  # `check` reports it
            if not before or head.sequence < before:
                yield entry
