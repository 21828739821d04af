"""The log of strangers: counted by peer, bounded, and written once per window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.audit import AuditLog, AuditSettings
from sandboxd.audit import log as log_module
from sandboxd.audit.check import entries
from sandboxd.observability import strangers as module
from sandboxd.observability.strangers import MAX_PEERS, OTHER_PEERS, StrangersLog
from tests.fakes.waiting import eventually


@pytest.fixture
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditLog]:
    monkeypatch.setattr(log_module, "COLLECT_SECONDS", 0.01)
    with AuditLog(AuditSettings(directory=tmp_path)) as audit:
        yield audit


@pytest.fixture
def lines(audit: AuditLog, tmp_path: Path) -> Callable[[], Any]:
    async def read() -> list[dict[str, Any]]:
        await eventually(lambda: audit.is_flushed)
        return [entry for entry, _ in entries(tmp_path)]

    return read


async def test_calls_of_a_peer_are_one_line(audit: AuditLog, lines: Callable[[], Any]) -> None:
    """Whatever port they come from; each peer has a line by itself."""
    log = StrangersLog(audit)
    for port in range(1000):
        log.add(f"ipv4:10.0.0.1:{port}", "Run")
    log.add("ipv6:%5B::1%5D:5", "Exec")
    log.add("unix:", "Run")
    log.flush()

    assert [(line["peer"], line["methods"]) for line in await lines()] == [
        ("ipv4:10.0.0.1", {"Run": 1000}),
        ("ipv6:%5B::1%5D", {"Exec": 1}),
        ("unix", {"Run": 1}),
    ]


async def test_number_of_lines_is_bounded(audit: AuditLog, lines: Callable[[], Any]) -> None:
    """Peers beyond the limit share a line, and no call is left out of the count."""
    log = StrangersLog(audit)
    for number in range(3 * MAX_PEERS):
        log.add(f"ipv4:10.0.{number >> 8}.{number & 255}:1", "Run")
    log.flush()
    found = await lines()

    assert len(found) == MAX_PEERS + 1
    assert (found[-1]["peer"], found[-1]["calls"]) == (OTHER_PEERS, 2 * MAX_PEERS)


async def test_counts_are_written_when_their_window_ends(
    audit: AuditLog, lines: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to ask for them, and the next window counts from zero."""
    monkeypatch.setattr(module, "WINDOW_SECONDS", 0.01)
    log = StrangersLog(audit)
    for sequence in (1, 2):
        log.add("ipv4:10.0.0.1:1", "Run")
        await eventually(lambda: audit.head.sequence == sequence)  # noqa: B023  # awaited here

    assert [line["calls"] for line in await lines()] == [1, 1]
