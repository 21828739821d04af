"""Whether answers about the owner of one thread can be put into one order.

Each operation must seem to happen at one moment between its call and its answer. Ownership of a
thread is a sequence of tenures, each with an epoch; the claim that was granted it begins it, a
release ends it, and whoever was told of it was told so in between. Tenures follow each other in the
order of their epochs, so to begin and end each as early as possible decides the question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    GRANT = "grant"
    """A claim that made the caller the owner."""
    TELL = "tell"
    """A claim that was told who the owner is, the caller or another."""
    RELEASE = "release"


class Operation(NamedTuple):
    thread: int
    kind: Kind
    called_at: float
    answered_at: float
    worker: str
    """The owner by this answer."""
    session_id: str
    epoch: int


def violations(operations: Iterable[Operation]) -> list[str]:
    """What cannot be put into order; empty if the history is linearizable."""
    threads: dict[int, list[Operation]] = defaultdict(list)
    for operation in operations:
        threads[operation.thread].append(operation)
    return [fault for history in threads.values() for fault in _faults(history)]


def _faults(history: list[Operation]) -> list[str]:
    tenures: dict[int, list[Operation]] = defaultdict(list)
    for operation in history:
        tenures[operation.epoch].append(operation)
    faults = []
    is_free, at = True, float("-inf")
    for epoch in sorted(tenures):
        of_kind = {
            kind: [operation for operation in tenures[epoch] if operation.kind is kind]
            for kind in Kind
        }
        grants, releases = of_kind[Kind.GRANT], of_kind[Kind.RELEASE]
        if len(grants) != 1 or len(releases) > 1:
            faults.append(f"epoch {epoch}: {len(grants)} grants, {len(releases)} releases")
            continue
        if len({(operation.worker, operation.session_id) for operation in tenures[epoch]}) > 1:
            faults.append(f"epoch {epoch}: two owners or two sessions")
        if not is_free:
            faults.append(f"epoch {epoch}: granted while another tenure lasts")
        began_at = max(at, grants[0].called_at)
        if began_at > min(operation.answered_at for operation in tenures[epoch]):
            faults.append(f"epoch {epoch}: told before it began")
        at = max(began_at, *(operation.called_at for operation in tenures[epoch]))
        is_free = bool(releases)
        if releases and at > releases[0].answered_at:
            faults.append(f"epoch {epoch}: told after it ended")
    return faults
