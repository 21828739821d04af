"""Records sessions and their commands in the audit log, the history and the statistics.

Every command passes here before its caller has the answer, so nothing waits, and whatever can be
done later is.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, NamedTuple

from sandboxd.access import current_caller
from sandboxd.audit import AuditLog, PendingEntry
from sandboxd.code.outcome import status_of
from sandboxd.data.records import QueryRecord
from sandboxd.errors import SandboxdError
from sandboxd.execs.ending import VIOLATED_LIMITS
from sandboxd.execs.exec import Exec
from sandboxd.execs.spec import ExecSpec
from sandboxd.observability.calls import current
from sandboxd.observability.history import History
from sandboxd.observability.statistics import Statistics
from sandboxd.observability.strangers import StrangersLog
from sandboxd.projects.records import ProjectKey
from sandboxd.registry.contract import (
    ExecutionFigures,
    ExecutionRecord,
    SessionRecord,
    SessionState,
)
from sandboxd.sessions.journal import Journal
from sandboxd.snapshots.contract import Snapshot

if TYPE_CHECKING:
    from sandboxd.observability.traces import Traces

MAX_COMMAND = 4096
"""Characters of a command in the audit log."""
FLUSH_SECONDS = 0.02
"""How long starts and ends of commands wait to be recorded, so that their callers do not."""
DAEMON = "daemon"
"""Name of the daemon as the one who acts without a call, such as to end idle sessions."""
SANDBOX = "sandbox"
"""Name of the code of a session as the one who acts."""
OUTPUT_LIMIT = "OUTPUT"


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
    entry: PendingEntry | None


_EARLIER = _Running(DAEMON, None, "", None)
"""Stands for the start of a command that an earlier daemon recorded."""


class KeptJournal(Journal):
    """Records in all three, and in traces where they are enabled."""

    def __init__(
        self,
        audit: AuditLog,
        history: History,
        statistics: Statistics,
        strangers: StrangersLog,
        traces: Traces | None = None,
    ) -> None:
        self.audit = audit
        self.history = history
        self.statistics = statistics
        self.strangers = strangers
        self.traces = traces
        self._running: dict[Exec, _Running] = {}
        self._pending: list[_Started | _Ended] = []
        """Starts and ends of commands that are not recorded yet, in order."""
        self._timer: asyncio.TimerHandle | None = None

    def flush(self) -> None:
        """Record pending starts and ends of commands."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        for event in pending:
            if isinstance(event, _Started):
                self._record_started(event)
            else:
                self._record_ended(event)

    def _flush_soon(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            # In an empty context: the commands are those of many calls.
            self._timer = loop.call_later(FLUSH_SECONDS, self.flush, context=Context())

    async def executions(
        self, session_id: str, *, size: int, before: int | None
    ) -> tuple[Sequence[ExecutionRecord], int | None]:
        """Ended commands of a session before a place, newest first, and the next page's place."""
        self.flush()
        return await self.history.page(session_id, size=size, before=before)

    async def execution_figures(self, quantiles: Sequence[float]) -> ExecutionFigures:
        """Figures of the commands in the history."""
        self.flush()
        return await self.history.figures(quantiles)

    def on_opened(self, record: SessionRecord, outcome: str, seconds: float) -> None:
        self.flush()
        self.statistics.opens[outcome] += 1
        if outcome != "ATTACHED":
            self.statistics.open_seconds.observe(seconds)
        who = caller()
        added = {"project": record.project} if record.project else {}
        if record.packages:
            added["packages"] = ", ".join(record.packages)
        self.audit.append(
            lambda: {
                **_entry("session.opened", who, record),
                "outcome": outcome.lower(),
                **added,
            }
        )

    def on_reset(self, record: SessionRecord) -> None:
        self.flush()
        who = caller()
        self.audit.append(lambda: _entry("session.reset", who, record))

    def on_changed(
        self, record: SessionRecord, labels: Mapping[str, str], removed_labels: Collection[str]
    ) -> None:
        self.flush()
        who = caller()
        # The names of the labels: their values are the caller's own.
        self.audit.append(
            lambda: {
                **_entry("session.changed", who, record),
                "idle_seconds": record.idle_seconds,
                "labels": sorted(labels),
                "removed_labels": sorted(removed_labels),
            }
        )

    def on_session_ended(self, record: SessionRecord) -> None:
        self.flush()
        self.statistics.session_ends[record.state.name] += 1
        who = caller() if record.state == SessionState.CLOSED else DAEMON
        self.audit.append(
            lambda: {
                **_entry("session.ended", who, record),
                "state": record.state.value,
                "why": record.end_reason,
            }
        )

    def on_started(
        self, record: SessionRecord, execution: Exec, spec: ExecSpec, decision: str
    ) -> None:
        if execution.exit is not None:
            return  # it did not even begin, and its end is recorded
        self._pending.append(_Started(record, execution, spec, decision, caller()))
        self._flush_soon()
        if self.traces is not None:
            self.traces.begin_exec(record, execution)

    def _record_started(self, started: _Started) -> None:
        record, execution, spec, decision, who = started
        entry = self.audit.append(
            lambda: _start_entry("exec.started", who, record, spec, decision),
            at=execution.details.started_at,
        )
        self._running[execution] = _Running(who, spec, decision, entry)

    def on_ended(self, record: SessionRecord, execution: Exec) -> None:
        self._pending.append(_Ended(record, execution))
        self._flush_soon()
        if self.traces is not None:
            self.traces.end_exec(execution, _ending(execution))

    def _record_ended(self, ended: _Ended) -> None:
        record, execution = ended
        self._count(execution)
        who, spec, decision, entry = self._running.pop(execution, _EARLIER)
        self.history.add(lambda: _execution_record(record, execution))
        # A short command gets one entry instead of two.
        if entry is None or not self.audit.amend(
            entry,
            lambda: {**_start_entry("exec", who, record, spec, decision), **_end_fields(execution)},
        ):
            self.audit.append(
                lambda: {
                    **_entry("exec.ended", who, record),
                    "exec": execution.id,
                    **({} if spec else {"command": execution.details.command}),
                    **_end_fields(execution),
                }
            )

    def on_file_moved(
        self, record: SessionRecord, action: str, path: str, *, bytes_in: int, bytes_out: int
    ) -> None:
        self.flush()
        self.statistics.input_bytes += bytes_in
        self.statistics.output_bytes += bytes_out
        who = caller()
        self.audit.append(
            lambda: {
                **_entry(action, who, record),
                "path": path[:MAX_COMMAND],
                "bytes_in": bytes_in,
                "bytes_out": bytes_out,
            }
        )

    def on_environment(self, action: str, environment: str, detail: str = "") -> None:
        self.flush()
        who = caller()
        entry = {"action": action, "who": who, "environment": environment}
        self.audit.append(lambda: {**entry, "detail": detail} if detail else entry)

    def on_project(
        self, action: str, key: ProjectKey, name: str = "", *, bytes_in: int = 0, bytes_out: int = 0
    ) -> None:
        self.flush()
        self.statistics.input_bytes += bytes_in
        self.statistics.output_bytes += bytes_out
        who = caller()
        file = {"name": name, "bytes_in": bytes_in, "bytes_out": bytes_out} if name else {}
        self.audit.append(
            lambda: {
                "action": action,
                "who": who,
                "user": key.user_id,
                "project": key.project_id,
                **file,
            }
        )

    def on_query(self, record: QueryRecord) -> None:
        self.flush()
        self.statistics.queries[record.outcome] += 1
        self.statistics.query_rows += record.rows
        self.statistics.query_seconds.observe(record.seconds)
        who = SANDBOX if record.is_from_inside else caller()
        self.audit.append(lambda: _query_entry(record, who))

    def on_parked(self, record: SessionRecord, snapshot: Snapshot) -> None:
        self.statistics.session_ends[record.state.name] += 1
        self._record_snapshot("session.parked", DAEMON, record, snapshot.number)

    def on_rewound(self, record: SessionRecord, snapshot: Snapshot) -> None:
        self.statistics.rewinds += 1
        self._record_snapshot("session.rewound", caller(), record, snapshot.number)

    def on_snapshot(
        self, action: str, record: SessionRecord, number: int, detail: str = ""
    ) -> None:
        self.statistics.snapshot_actions[action] += 1
        self._record_snapshot(action, caller(), record, number, detail)

    def on_turn(self, record: SessionRecord, snapshot: Snapshot, seconds: float) -> None:
        self.statistics.turns += 1
        self.statistics.turn_bytes += snapshot.stored_bytes
        self.statistics.turn_seconds.observe(seconds)

    def on_turn_failed(self, record: SessionRecord) -> None:
        self.statistics.turns_failed += 1

    def _record_snapshot(
        self, action: str, who: str, record: SessionRecord, number: int, detail: str = ""
    ) -> None:
        self.flush()
        added = {"detail": detail[:MAX_COMMAND]} if detail else {}
        self.audit.append(lambda: {**_entry(action, who, record), "snapshot": number, **added})

    def on_door(self, record: SessionRecord, action: str, details: Mapping[str, Any]) -> None:
        self.flush()
        self.statistics.doors[action] += details.get("times", 1)
        who = caller()
        self.audit.append(lambda: {**_entry(action, who, record), **details})

    def on_refused(self, error: SandboxdError, asked: Mapping[str, Any]) -> None:
        self.flush()
        self.statistics.refusals[error.reason] += 1
        who, call = caller(), current.get()
        named = {"method": call.method, "session": call.session_id} if call else {}
        self.audit.append(
            lambda: {
                "action": "call.refused",
                "who": who,
                **named,
                **asked,
                "reason": error.reason,
                "message": error.message,
            }
        )

    def on_stranger_refused(self, error: SandboxdError, method: str, peer: str) -> None:
        self.statistics.refusals[error.reason] += 1
        self.strangers.add(peer, method)

    def _count(self, execution: Exec) -> None:
        status, statistics = execution.exit, self.statistics
        assert status is not None
        statistics.exec_ends[_ending(execution)] += 1
        if execution.is_code:
            statistics.code_runs[status_of(status).name] += 1
        statistics.exec_seconds.observe(status.duration_seconds)
        if status.is_success:
            statistics.execs_succeeded += 1
        if status.usage is not None:
            statistics.exec_cpu_seconds += status.usage.cpu_seconds
        statistics.output_bytes += status.stdout_bytes + status.stderr_bytes
        statistics.input_bytes += execution.input_bytes
        if (limit := VIOLATED_LIMITS[status.reason]) is not None:
            statistics.violations[limit] += 1
        if dropped := status.stdout_dropped + status.stderr_dropped:
            statistics.violations[OUTPUT_LIMIT] += 1
            statistics.dropped_bytes += dropped


def caller() -> str:
    """Name of the caller that is being served, or of the daemon."""
    return current_caller().name if current.get() is not None else DAEMON


def _entry(action: str, who: str, record: SessionRecord) -> dict[str, Any]:
    return {
        "action": action,
        "who": who,
        "user": record.user_id,
        "thread": record.thread_id,
        "session": record.session_id,
        "incarnation": record.incarnation,
    }


def _query_entry(record: QueryRecord, who: str) -> dict[str, Any]:
    fields = {
        "action": f"data.{record.operation}",
        "who": who,
        "user": record.user_id,
        "session": record.session_id,
        "query": record.query_id,
        "source": record.source,
        "statement": record.sql,
        "statement_sha256": record.sql_sha256,
        "kind": record.kind,
        "params": dict(record.params),
        "rows": record.rows,
        "bytes_out": record.bytes,
        "changed_rows": record.changed_rows,
        "seconds": round(record.seconds, 6),
        "outcome": record.outcome,
        "truncated": record.truncated,
        "sqlstate": record.sqlstate,
        "rule": record.rule,
    }
    return {name: value for name, value in fields.items() if value or name == "rows"}


def _start_entry(
    action: str, who: str, record: SessionRecord, spec: ExecSpec | None, decision: str
) -> dict[str, Any]:
    assert spec is not None
    command = _command(spec)
    fields: dict[str, Any] = {
        **_entry(action, who, record),
        "exec": spec.exec_id,
        "command": command[:MAX_COMMAND],
        "decision": decision,
    }
    if spec.code is not None:
        fields["context"] = spec.code.context
    if len(command) > MAX_COMMAND:
        fields["command_characters"] = len(command)
    return fields


def _command(spec: ExecSpec) -> str:
    if spec.code is not None:
        return spec.code.code
    return spec.shell if spec.shell is not None else shlex.join(spec.argv)


def _end_fields(execution: Exec) -> dict[str, Any]:
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
    return status.ending


def _execution_record(record: SessionRecord, execution: Exec) -> ExecutionRecord:
    status, details = execution.exit, execution.details
    assert status is not None
    usage = status.usage
    return ExecutionRecord(
        session_id=record.session_id,
        incarnation=record.incarnation,
        exec_id=execution.id,
        command=details.command,
        started_at=details.started_at,
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
        context=details.context,
    )
