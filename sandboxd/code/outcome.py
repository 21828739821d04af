"""How a run of code ended, as its caller is told."""

from __future__ import annotations

from enum import Enum, auto

from sandboxd.execs.ending import ExitStatus, Reason
from sandboxd.execs.exec import ExecDetails
from sandboxd.guest.frames import RunEnd


class CodeStatus(Enum):
    OK = auto()
    RAISED = auto()
    INTERRUPTED = auto()
    TIMED_OUT = auto()
    CONTEXT_LOST = auto()
    REFUSED = auto()


class ContextOutcome(Enum):
    """Whether a run found the variables of earlier runs."""

    CREATED = auto()
    KEPT = auto()
    RECREATED = auto()


_ENDS = {
    RunEnd.OK: CodeStatus.OK,
    RunEnd.RAISED: CodeStatus.RAISED,
    RunEnd.INTERRUPTED: CodeStatus.INTERRUPTED,
    RunEnd.REFUSED: CodeStatus.REFUSED,
}


def status_of(exit_status: ExitStatus) -> CodeStatus:
    if exit_status.reason is Reason.TIMED_OUT:
        return CodeStatus.TIMED_OUT
    if exit_status.done is None:
        return CodeStatus.CONTEXT_LOST
    return _ENDS[RunEnd(exit_status.done)]


def outcome_of(details: ExecDetails) -> ContextOutcome:
    if details.run > 1:
        return ContextOutcome.KEPT
    return ContextOutcome.RECREATED if details.generation > 1 else ContextOutcome.CREATED
