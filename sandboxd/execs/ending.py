"""How a command ended: the reason, the limit it ran into, and the hint for its caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from signal import SIGKILL, SIGXFSZ
from typing import NamedTuple

from sandboxd.guest.frames import Remark, RunEnd, Stream
from sandboxd.isolation.meter import Usage

NOT_STARTED = "NOT_STARTED"
"""Ending of a command that the sandbox could not start."""


class Reason(Enum):
    """Why a command ended."""

    EXITED = auto()
    SIGNALLED = auto()
    TIMED_OUT = auto()
    NO_OUTPUT = auto()
    CANCELLED = auto()
    SESSION_CLOSED = auto()
    SANDBOX_LOST = auto()
    SWEPT = auto()
    OUT_OF_MEMORY = auto()
    PROCESS_LIMIT = auto()
    DISK_FULL = auto()


class ExitStatus(NamedTuple):
    """How a command ended. Neither code nor signal if its end was not seen."""

    reason: Reason
    duration_seconds: float
    stdout_bytes: int
    stderr_bytes: int
    hint: str
    code: int | None = None
    signal: int | None = None
    usage: Usage | None = None
    """Resources that the host counted; absent where it could not read them."""
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    events_bytes: int = 0
    events_dropped: int = 0
    done: int | None = None
    """How a run of code ended whose context lives on; see RunEnd. Absent if its process ended."""

    @property
    def counts(self) -> dict[Stream, int]:
        """Bytes of each stream."""
        return {
            Stream.STDOUT: self.stdout_bytes,
            Stream.STDERR: self.stderr_bytes,
            Stream.EVENTS: self.events_bytes,
        }

    @property
    def ending(self) -> str:
        """The reason by name, or NOT_STARTED."""
        if self.reason is Reason.EXITED and self.code is None:
            return NOT_STARTED
        return self.reason.name

    @property
    def is_success(self) -> bool:
        return self.code == 0 and self.reason is Reason.EXITED


def reason_of(ending: str) -> Reason:
    """The reason in an ending; what was not started has exited without a code."""
    return Reason.EXITED if ending == NOT_STARTED else Reason[ending]


VIOLATED_LIMITS: Mapping[Reason, str | None] = {
    Reason.EXITED: None,
    Reason.SIGNALLED: None,
    Reason.TIMED_OUT: "TIMEOUT",
    Reason.NO_OUTPUT: "NO_OUTPUT_TIMEOUT",
    Reason.CANCELLED: None,
    Reason.SESSION_CLOSED: None,
    Reason.SANDBOX_LOST: None,
    Reason.SWEPT: None,
    Reason.OUT_OF_MEMORY: "MEMORY",
    Reason.PROCESS_LIMIT: "PROCESSES",
    Reason.DISK_FULL: "DISK",
}
"""The limit, as statistics name it, that each reason is a violation of."""

HINTS: Mapping[Reason, str] = {
    Reason.EXITED: "",
    Reason.SIGNALLED: "The command was ended by signal {signal}, which sandboxd did not send.",
    Reason.TIMED_OUT: (
        "The command was ended after {timeout} s; output up to then is kept. Give it a longer "
        "timeout or less to do."
    ),
    Reason.NO_OUTPUT: (
        "The command was ended because it wrote nothing for {silence} s; it may have waited for "
        "input."
    ),
    Reason.CANCELLED: "The command was ended because its caller went away.",
    Reason.SESSION_CLOSED: "The command was ended with its session ({lost}).",
    Reason.SANDBOX_LOST: "The sandbox was lost ({lost}); open the session again.",
    Reason.SWEPT: "Ended along with a runaway command of this session; run it again.",
    Reason.OUT_OF_MEMORY: (
        "Out of memory: the kernel killed a process of the sandbox at its memory limit. Use less "
        "memory, or work on the data in pieces."
    ),
    Reason.PROCESS_LIMIT: (
        "Process limit reached: no further process or thread could be started. Run less at the "
        "same time."
    ),
    Reason.DISK_FULL: (
        "Disk full: {full} has no room left for bytes or for files. Delete what is no longer "
        "needed."
    ),
}
"""What happened and what to do, in words that a model understands."""


def is_killed(code: int | None, signal: int | None) -> bool:
    """Whether SIGKILL ended a command or, by the code of its shell, a part of it."""
    return signal == SIGKILL or code == 128 + SIGKILL


def reached_limit(
    usage: Usage | None, is_a_disk_full: Callable[[], bool], *, was_killed: bool
) -> Reason | None:
    """The limit that a failed command ran into, as the host saw it.

    The kernel counts the processes that it kills for all commands of a session together: with
    others beside it, only a command that was killed itself is known to be the one.
    """
    if usage is not None and usage.oom_kills and (was_killed or not usage.is_shared):
        return Reason.OUT_OF_MEMORY
    if usage is not None and usage.refused_forks:
        return Reason.PROCESS_LIMIT
    return Reason.DISK_FULL if is_a_disk_full() else None


class Circumstances(NamedTuple):
    """What a hint is about, besides the reason."""

    timeout_seconds: float
    no_output_seconds: float | None
    code: int | None = None
    signal: int | None = None
    usage: Usage | None = None
    refusal: str | None = None
    """Why the guest did not start the command."""
    loss: str | None = None
    """Why the sandbox was lost."""
    remarks: Remark = Remark(0)
    """What the guest says about the circumstances."""
    full: str = ""
    """What has no room left, by name."""
    is_run: bool = False
    """Whether it is a run of code."""
    done: RunEnd | None = None
    """How the run ended, if its context lives on."""
    was_swept: bool = False
    """Whether the guest has ended what the command had left."""


def hint(reason: Reason, found: Circumstances) -> str:
    """Explain an end that needs it; empty if there is nothing to add."""
    parts = (
        _explanation(reason, found),
        "What it had started was ended, so that its memory is free again."
        if found.was_swept
        else "",
        _file_limit(found.code, found.signal),
        passed_limits(reason, found.usage),
        _company(reason, found.remarks),
    )
    return " ".join(filter(None, parts))


def _explanation(reason: Reason, found: Circumstances) -> str:
    if found.refusal is not None:
        what = "code" if found.is_run else "command"
        return f"The {what} was not started: {found.refusal}."
    if found.is_run and (explained := _explanation_of_run(reason, found)):
        return explained
    if found.signal == SIGXFSZ:
        return ""  # _file_limit explains it better
    template = HINTS[reason]
    if reason is Reason.OUT_OF_MEMORY and found.usage is not None and found.usage.is_shared:
        template += " Processes of other commands of this session use it too."
    if reason is Reason.OUT_OF_MEMORY and found.loss:
        template += " The sandbox was lost; open the session again."
    return template.format(
        timeout=f"{found.timeout_seconds:g}",
        silence=f"{found.no_output_seconds or 0:g}",
        signal=found.signal,
        lost=found.loss or "it had not begun",
        full=found.full,
    )


RUN_ENDS: Mapping[Reason, str] = {
    Reason.EXITED: "The process of the context ended with code {code}.",
    Reason.SIGNALLED: "The process of the context was ended by signal {signal}, which sandboxd did "
    "not send.",
    Reason.TIMED_OUT: "The code ran longer than {timeout} s and did not stop when it was "
    "interrupted, so the process of its context was killed.",
    Reason.CANCELLED: "The code did not stop when it was interrupted, so the process of its "
    "context was killed.",
    Reason.OUT_OF_MEMORY: "Out of memory: the kernel killed the process of the context at its "
    "memory limit. Use less memory, or work on the data in pieces.",
    Reason.SWEPT: "The process of the context was ended along with a runaway command.",
}
"""What happened to a context, by the reason that its run ended for."""


def _explanation_of_run(reason: Reason, found: Circumstances) -> str:
    if found.done is not None:
        if reason is Reason.TIMED_OUT:
            return (
                f"The code was interrupted after {found.timeout_seconds:g} s; its context keeps "
                "its variables. Give it a longer timeout or less to do."
            )
        if reason is Reason.CANCELLED:
            return "The code was interrupted because its caller went away."
        return ""
    if Remark.BROKE_CHANNEL in found.remarks:
        what = "The code closed or used the channel of its context, so it was killed."
    elif reason in RUN_ENDS:
        what = RUN_ENDS[reason].format(
            code=found.code, signal=found.signal, timeout=f"{found.timeout_seconds:g}"
        )
    else:
        return ""
    return f"{what} Its variables are lost; the next run begins in a fresh context."


def _company(reason: Reason, remarks: Remark) -> str:
    """Name what earlier commands left running: an agent should not believe an end blindly then."""
    if Remark.HINDERED in remarks:
        then = "" if reason is Reason.EXITED else " Run it again."
        return (
            "Processes that earlier commands had left running kept this command from running; they "
            f"were ended.{then}"
        )
    if Remark.COMPANY in remarks:
        return "Processes that earlier commands left running were there while it ran."
    return ""


def _file_limit(code: int | None, signal: int | None) -> str:
    if signal == SIGXFSZ:
        return (
            "The kernel ended the command when it wrote more to a file than a single file may have "
            "(SIGXFSZ); write several smaller files."
        )
    if code == 128 + SIGXFSZ:
        return (
            f"Exit code {code} is how a shell reports that a program wrote more to a file than a "
            "single file may have (SIGXFSZ); write several smaller files."
        )
    return ""


def passed_limits(reason: Reason, usage: Usage | None) -> str:
    """Name limits that were reached although they are not why the command ended."""
    if usage is None or not (usage.oom_kills or usage.refused_forks):
        return ""
    if reason not in (Reason.EXITED, Reason.TIMED_OUT, Reason.NO_OUTPUT, Reason.CANCELLED):
        return ""
    limits = []
    if usage.oom_kills:
        limits.append("its memory limit (the kernel killed processes)")
    if usage.refused_forks:
        limits.append("its process limit")
    reached = " and ".join(limits)
    if usage.is_shared:
        return (
            f"While it ran, the session had reached {reached}; that may be due to processes that "
            "other commands started."
        )
    return f"It had reached {reached}."
