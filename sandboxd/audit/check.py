"""Reads the audit log and tells whether it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandboxd.audit.chain import GENESIS, START, BrokenLine, Head, decode
from sandboxd.audit.files import audit_files


@dataclass
class Verdict:
    """What a check found."""

    lines: int = 0
    files: int = 0
    first: int = 0
    """Sequence of the oldest line there is."""
    head: Head = START
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is no damage but should be known: gaps, repairs, what was pruned."""

    @property
    def is_whole(self) -> bool:
        return not self.problems


def check(directory: Path, expected: Head | None = None) -> Verdict:
    """Follow the chain from its oldest line; with a head known from elsewhere, it must be in it."""
    verdict = Verdict()
    pruned_up_to = 0
    was_seen = expected is None
    files = audit_files(directory)
    for number, one in enumerate(files):
        verdict.files += 1
        is_newest = number == len(files) - 1
        with one.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n") and is_newest:
                    verdict.notes.append("the last line is incomplete: it is just being written")
                    break
                entry = _take(verdict, line, one.path.name)
                if entry is None:
                    continue
                if entry["action"] == "audit.pruned":
                    pruned_up_to = max(pruned_up_to, int(entry["up_to"]))
                _remark(verdict, entry)
                was_seen = was_seen or verdict.head == expected
    if verdict.first > 1 and pruned_up_to < verdict.first - 1:
        verdict.problems.append(f"lines before {verdict.first} are missing and were not pruned")
    if not was_seen and expected is not None:
        verdict.problems.append(f"line {expected.sequence} with the expected hash is not there")
    return verdict


def _take(verdict: Verdict, line: bytes, file: str) -> dict[str, Any] | None:
    """Add a line to the chain; None if it is not as it was written."""
    where = f"{file}, after line {verdict.head.sequence}"
    try:
        entry, head = decode(line)
    except BrokenLine as error:
        verdict.problems.append(f"{where}: {error}")
        return None
    if not verdict.lines:
        verdict.first = head.sequence
        if head.sequence == 1 and entry["prev"] != GENESIS:
            verdict.problems.append(f"{where}: the first line is not the beginning")
    elif head.sequence != verdict.head.sequence + 1 or entry["prev"] != verdict.head.hash:
        verdict.problems.append(f"{where}: line {head.sequence} does not follow it")
    verdict.lines += 1
    verdict.head = head
    return entry


def _remark(verdict: Verdict, entry: dict[str, Any]) -> None:
    sequence = entry["seq"]
    match entry["action"]:
        case "audit.gap":
            verdict.notes.append(f"line {sequence}: {entry['lost']} entries were not written")
        case "audit.repaired":
            verdict.notes.append(
                f"line {sequence}: the daemon was killed while it wrote the line before"
            )
        case "audit.pruned":
            verdict.notes.append(f"line {sequence}: lines up to {entry['up_to']} were pruned")


def entries(directory: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """All lines that are as they were written, oldest first, each with its own bytes."""
    for one in audit_files(directory):
        with one.path.open("rb") as file:
            for line in file:
                try:
                    yield decode(line)[0], line
                except BrokenLine:
                    continue  # check tells about those
