"""Reads the audit log and checks that it is whole."""

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
    """Sequence of the oldest line."""
    since: str = ""
    """Time of the oldest line, before which nothing is known."""
    head: Head = START
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Gaps, repairs and prunings, which are not damage."""

    @property
    def is_whole(self) -> bool:
        return not self.problems


def check(directory: Path, expected: Head | None = None) -> Verdict:
    """Follow the chain from its oldest line; `expected` is a head that it must contain."""
    verdict = Verdict()
    pruned_up_to = 0
    was_seen = expected is None
    files = audit_files(directory)
    for number, audit_file in enumerate(files):
        verdict.files += 1
        is_newest = number == len(files) - 1
        with audit_file.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n") and is_newest:
                    verdict.notes.append("the last line is incomplete: it is just being written")
                    break
                entry = _add(verdict, line, audit_file.path.name)
                if entry is None:
                    continue
                if entry["action"] == "audit.pruned":
                    pruned_up_to = max(pruned_up_to, int(entry["up_to"]))
                _note(verdict, entry)
                was_seen = was_seen or verdict.head == expected
    if not verdict.lines:
        verdict.problems.append("it has no lines; a daemon writes one when it starts")
    if verdict.first > 1 and pruned_up_to < verdict.first - 1:
        verdict.problems.append(f"lines before {verdict.first} are missing and were not pruned")
    if not was_seen and expected is not None:
        verdict.problems.append(f"line {expected.sequence} with the expected hash is not there")
    return verdict


def _add(verdict: Verdict, line: bytes, file: str) -> dict[str, Any] | None:
    """Add a line to the chain; None if the line is broken."""
    where = f"{file}, after line {verdict.head.sequence}"
    try:
        entry, head = decode(line)
    except BrokenLine as error:
        verdict.problems.append(f"{where}: {error}")
        return None
    if not verdict.lines:
        verdict.first = head.sequence
        verdict.since = str(entry["time"])
        if head.sequence == 1 and entry["prev"] != GENESIS:
            verdict.problems.append(f"{where}: the first line is not the beginning")
    elif head.sequence != verdict.head.sequence + 1 or entry["prev"] != verdict.head.hash:
        verdict.problems.append(f"{where}: line {head.sequence} does not follow it")
    verdict.lines += 1
    verdict.head = head
    return entry


def _note(verdict: Verdict, entry: dict[str, Any]) -> None:
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
    """The entries of all intact lines, oldest first, each with the bytes of its line."""
    for audit_file in audit_files(directory):
        with audit_file.path.open("rb") as file:
            for line in file:
                try:
                    yield decode(line)[0], line
                except BrokenLine:
                    continue  # `check` reports it
