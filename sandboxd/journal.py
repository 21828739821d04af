"""What is remembered of sessions and their commands: audit log, history and statistics.

Told on the way of every command, so nothing here waits, and what can be worked out later is.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, NamedTuple

from sandboxd.access import current_caller
from sandboxd.audit import AuditLog, Note
from sandboxd.calls import current
from sandboxd.errors import SandboxdError
from sandboxd.exec_spec import ExecSpec
from sandboxd.execs import Exec, Reason
from sandboxd.history import History
from sandboxd.registry.contract import (
    ExecutionFigures,
    ExecutionRecord,
    SessionRecord,
    SessionState,
)
from sandboxd.statistics import Statistics

if TYPE_CHECKING:
    from sandboxd.traces import Traces

MAX_COMMAND = 4096
"""Characters of a command in the audit log."""
SETTLE_SECONDS = 0.02
"""How long what commands did waits to be told, so that it is not on their way."""
DAEMON = "daemon"
"""Who does what nobody has asked for, such as ending idle sessions."""
NOT_STARTED = "NOT_STARTED"
"""Ending of a command that the sandbox could not start."""
ALLOWED = "allowed"
_LIMITS = {
    Reason.TIMED_OUT: "TIMEOUT",
    Reason.NO_OUTPUT: "NO_OUTPUT_TIMEOUT",
    Reason.OUT_OF_MEMORY: "MEMORY",
    Reason.PROCESS_LIMIT: "PROCESSES",
    Reason.DISK_FULL: "DISK",
}
OUTPUT_LIMIT = "OUTPUT"


class Journal:
    """Is told what happens. This one remembers nothing."""

    def on_opened(self, record: SessionRecord, outcome: str, seconds: float) -> None:
        """A session was got."""

    def on_reset(self, record: SessionRecord) -> None:
        """A session was given a fresh sandbox."""

    def on_session_ended(self, record: SessionRecord) -> None:
        """A session is not active any more."""

    def on_started(
        self, record: SessionRecord, execution: Exec, spec: ExecSpec, decision: str = ALLOWED
    ) -> None:
        """A command was started, and why it was allowed to."""

    def on_ended(self, record: SessionRecord, execution: Exec) -> None:
        """A command has ended."""

    def on_file_moved(
        self, record: SessionRecord, action: str, path: str, *, bytes_in: int, bytes_out: int
    ) -> None:
        """A file came or went; `action` is a word such as `file.written`."""

    def on_refused(self, error: SandboxdError, asked: Mapping[str, Any]) -> None:
        """A call was refused; `asked` is what it named."""


class _Started(NamedTuple):
    record: SessionRecord
    execution: Exec
    spec: ExecSpec
    decision: str
    who: str


class _Ended(NamedTuple):
    record: SessionRecord
    execution: Exec


class _Running(NamedTuple):
    who: str
    spec: ExecSpec | None
    decision: str
    note: Note | None


_EARLIER = _Running(DAEMON, None, "", None)
"""Of a command that an earlier daemon started."""


class KeptJournal(Journal):
    """Remembers in all three, and tells traces where they are wanted."""

    def __init__(
        self,
        audit: AuditLog,
        history: History,
        statistics: Statistics,
        traces: Traces | None = None,
    ) -> None:
        self.audit = audit
        self.history = history
        self.statistics = statistics
        self.traces = traces
        self._running: dict[Exec, _Running] = {}
        self._noticed: list[_Started | _Ended] = []
        """What commands did, in order, that is not told yet."""
        self._timer: asyncio.TimerHandle | None = None

    def settle(self) -> None:
        """Tell what commands did: not when they do it, but once their callers have the answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        noticed, self._noticed = self._noticed, []
        for one in noticed:
            if isinstance(one, _Started):
                self._tell_started(one)
            else:
                self._tell_ended(one)

    def _settle_soon(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            # In no call's context: it is about the commands of many.
            self._timer = loop.call_later(SETTLE_SECONDS, self.settle, context=Context())

    async def executions(
        self, session_id: str, *, size: int, before: int | None
    ) -> list[ExecutionRecord]:
        """Commands of a session that ended, newest first, those before a place."""
        self.settle()
        return await self.history.page(session_id, size=size, before=before)

    async def execution_figures(self, quantiles: Sequence[float]) -> ExecutionFigures:
        """Commands that the history has, in numbers."""
        self.settle()
        return await self.history.figures(quantiles)

    def on_opened(self, record: SessionRecord, outcome: str, seconds: float) -> None:
        self.settle()
        self.statistics.opens[outcome] += 1
        if outcome != "ATTACHED":
            self.statistics.open_seconds.observe(seconds)
        who = caller()
        self.audit.tell(lambda: {**_of("session.opened", who, record), "outcome": outcome.lower()})

    def on_reset(self, record: SessionRecord) -> None:
        self.settle()
        who = caller()
        self.audit.tell(lambda: _of("session.reset", who, record))

    def on_session_ended(self, record: SessionRecord) -> None:
        self.settle()
        self.statistics.session_ends[record.state.name] += 1
        who = caller() if record.state == SessionState.CLOSED else DAEMON
        self.audit.tell(
            lambda: {
                **_of("session.ended", who, record),
                "state": record.state.value,
                "why": record.end_reason,
            }
        )

    def on_started(
        self, record: SessionRecord, execution: Exec, spec: ExecSpec, decision: str = ALLOWED
    ) -> None:
        if execution.exit is not None:
            return  # it could not even begin, and that was told
        self._noticed.append(_Started(record, execution, spec, decision, caller()))
        self._settle_soon()
        if self.traces is not None:
            self.traces.begin_exec(record, execution)

    def _tell_started(self, one: _Started) -> None:
        record, execution, spec, decision, who = one
        note = self.audit.tell(
            lambda: _started("exec.started", who, record, spec, decision),
            at=execution.facts.started_at,
        )
        self._running[execution] = _Running(who, spec, decision, note)

    def on_ended(self, record: SessionRecord, execution: Exec) -> None:
        self._noticed.append(_Ended(record, execution))
        self._settle_soon()
        if self.traces is not None:
            self.traces.end_exec(execution, _ending(execution))

    def _tell_ended(self, one: _Ended) -> None:
        record, execution = one
        self._count(execution)
        who, spec, decision, note = self._running.pop(execution, _EARLIER)
        self.history.add(lambda: _execution(record, execution))
        # Of a short command one entry is enough.
        if note is None or not self.audit.amend(
            note,
            lambda: {**_started("exec", who, record, spec, decision), **_ended(execution)},
        ):
            self.audit.tell(
                lambda: {
                    **_of("exec.ended", who, record),
                    "exec": execution.id,
                    **({} if spec else {"command": execution.facts.command}),
                    **_ended(execution),
                }
            )

    def on_file_moved(
        self, record: SessionRecord, action: str, path: str, *, bytes_in: int, bytes_out: int
    ) -> None:
        self.settle()
        self.statistics.input_bytes += bytes_in
        self.statistics.output_bytes += bytes_out
        who = caller()
        self.audit.tell(
            lambda: {
                **_of(action, who, record),
                "path": path[:MAX_COMMAND],
                "bytes_in": bytes_in,
                "bytes_out": bytes_out,
            }
        )

    def on_refused(self, error: SandboxdError, asked: Mapping[str, Any]) -> None:
        self.settle()
        self.statistics.refusals[error.reason] += 1
        who, call = caller(), current.get()
        named = {"method": call.method, "session": call.session_id} if call else {}
        self.audit.tell(
            lambda: {
                "action": "call.refused",
                "who": who,
                **named,
                **asked,
                "reason": error.reason,
                "message": error.message,
            }
        )

    def _count(self, execution: Exec) -> None:
        status, statistics = execution.exit, self.statistics
        assert status is not None
        statistics.exec_ends[_ending(execution)] += 1
        statistics.exec_seconds.observe(status.duration_seconds)
        if status.code == 0 and status.reason is Reason.EXITED:
            statistics.execs_succeeded += 1
        if status.usage is not None:
            statistics.exec_cpu_seconds += status.usage.cpu_seconds
        statistics.output_bytes += status.stdout_bytes + status.stderr_bytes
        statistics.input_bytes += execution.input_bytes
        if (limit := _LIMITS.get(status.reason)) is not None:
            statistics.violations[limit] += 1
        if dropped := status.stdout_dropped + status.stderr_dropped:
            statistics.violations[OUTPUT_LIMIT] += 1
            statistics.dropped_bytes += dropped


def caller() -> str:
    """Who asked for what is being done."""
    return current_caller().name if current.get() is not None else DAEMON


def _of(action: str, who: str, record: SessionRecord) -> dict[str, Any]:
    return {
        "action": action,
        "who": who,
        "user": record.user_id,
        "thread": record.thread_id,
        "session": record.session_id,
        "incarnation": record.incarnation,
    }


def _started(
    action: str, who: str, record: SessionRecord, spec: ExecSpec | None, decision: str
) -> dict[str, Any]:
    assert spec is not None
    command = spec.shell if spec.shell is not None else shlex.join(spec.argv)
    fields = {
        **_of(action, who, record),
        "exec": spec.exec_id,
        "command": command[:MAX_COMMAND],
        "decision": decision,
    }
    if len(command) > MAX_COMMAND:
        fields["command_characters"] = len(command)
    return fields


def _ended(execution: Exec) -> dict[str, Any]:
    status = execution.exit
    assert status is not None
    return {
        "ending": _ending(execution),
        "code": status.code,
        "signal": status.signal,
        "seconds": round(status.duration_seconds, 6),
        "bytes_in": execution.input_bytes,
        "bytes_out": status.stdout_bytes + status.stderr_bytes,
    }


def _ending(execution: Exec) -> str:
    status = execution.exit
    assert status is not None
    if status.reason is Reason.EXITED and status.code is None:
        return NOT_STARTED
    return status.reason.name


def _execution(record: SessionRecord, execution: Exec) -> ExecutionRecord:
    status, facts = execution.exit, execution.facts
    assert status is not None
    usage = status.usage
    return ExecutionRecord(
        session_id=record.session_id,
        incarnation=record.incarnation,
        exec_id=execution.id,
        command=facts.command,
        started_at=facts.started_at,
        duration_seconds=status.duration_seconds,
        ending=_ending(execution),
        code=status.code,
        signal=status.signal,
        hint=status.hint,
        stdin_bytes=execution.input_bytes,
        stdout_bytes=status.stdout_bytes,
        stderr_bytes=status.stderr_bytes,
        stdout_dropped=status.stdout_dropped,
        stderr_dropped=status.stderr_dropped,
        cpu_seconds=usage.cpu_seconds if usage else None,
        peak_memory_bytes=usage.peak_memory_bytes if usage else None,
        peak_processes=usage.peak_processes if usage else None,
        oom_kills=usage.oom_kills if usage else None,
        refused_forks=usage.refused_forks if usage else None,
    )
