"""The execs of one session: running, waiting for a shell, or recently ended."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import structlog

from sandboxd.access import Quotas
from sandboxd.errors import (
    CommandNotStartable,
    ExecConflict,
    ExecLimitReached,
    ExecNotFound,
    RequestTooLarge,
    SandboxLost,
)
from sandboxd.execs.ending import ExitStatus, Reason
from sandboxd.execs.exec import Exec, ExecDetails, KillCounts, State
from sandboxd.execs.policy import Clearance, CommandPolicies
from sandboxd.execs.records import ExecRecords, Labels, key_prefix
from sandboxd.execs.spec import ExecSpec, new_exec_id
from sandboxd.guest.frames import STREAMS, ExecState, StartFailure
from sandboxd.link import LinkClosed
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.spool import Spool, SpoolBudget, SpoolSettings
from sandboxd.spool import sweep as sweep_spools

log = structlog.get_logger()

Place: TypeAlias = tuple[float, str]
"""Place in a listing: start time and exec id."""

PERSIST_SECONDS = 1.0
"""How long a guest keeps an ended exec, in case the daemon dies meanwhile."""
MAX_UNPERSISTED = 128
MAX_WRITES_AT_ONCE = 16
"""Execs written to disk in one turn of the loop, at some hundred microseconds each."""
PAUSE_SECONDS = 0.02
"""Pause between such turns."""
MAX_UNWRITTEN_BYTES = 4096
"""Output that stays in memory after the end, if the daemon chose the id."""
LARGE_REQUEST = 64 << 10
"""Size from which on there may be no room for a request."""
MAX_UNSENT_BYTES = 2 << 20
"""What a guest may have left unread when a large request is sent to it: with the largest, it is
still within what the link allows."""
MAX_QUEUED_BYTES = 8 << 20
"""Requests of one session that wait for their shells."""


@dataclass(frozen=True, kw_only=True)
class ExecSettings:
    """How execs are kept, for all sessions of a daemon."""

    spools: SpoolSettings
    session_spool_bytes: int
    max_running: int
    """Commands at once in one session."""
    memory_seconds: float
    """How long an ended exec can still be read."""
    max_ended: int = 512
    """Ended execs of one session. There may be a few more until the next clean-up, which does not
    delay commands."""


class SharedExecState:
    """State that the execs of all sessions share."""

    def __init__(
        self,
        settings: ExecSettings,
        labels: Labels,
        records: ExecRecords,
        budget: SpoolBudget,
        policies: CommandPolicies,
        quotas: Quotas,
    ) -> None:
        self.settings = settings
        self.labels = labels
        self.records = records
        self.budget = budget
        self.policies = policies
        self.quotas = quotas
        self.kill_counts = KillCounts()
        self._user_budgets: WeakValueDictionary[str, SpoolBudget] = WeakValueDictionary()
        """Budgets of users who have a session."""

    def budget_of(self, user_id: str) -> SpoolBudget:
        """The budget that the sessions of a user share."""
        limit = self.quotas.limits.spool_bytes
        if not limit:
            return self.budget
        budget = self._user_budgets.get(user_id) or SpoolBudget(limit, self.budget)
        self._user_budgets[user_id] = budget
        return budget

    def sweep(self, prefixes: tuple[str, ...]) -> None:
        """Delete everything on disk whose key has none of these prefixes."""
        keys = {path.stem for path in self.settings.spools.directory.glob("*")}
        kept = frozenset(prefixes)
        sweep_spools(self.settings.spools, [key for key in keys if key_prefix(key) in kept])
        self.records.sweep(prefixes)

    def delete(self, prefix: str) -> None:
        """Delete everything on disk whose key has this prefix."""
        for path in self.settings.spools.directory.glob(f"{prefix}*"):
            path.unlink(missing_ok=True)
        self.records.delete_all(prefix)


class GuestIsBehind(Exception):
    """The guest has not read earlier requests; `SessionExecs.wait_for_guest` waits for that."""


class _Queued(NamedTuple):
    execution: Exec
    request: bytes


class SessionExecs:
    """Starts the execs of one session, and keeps them for a while after their end."""

    def __init__(
        self,
        shared: SharedExecState,
        name: str,
        *,
        user_id: str,
        on_ended: Callable[[Exec], None],
        policy: str = "",
    ) -> None:
        """With the name of the command policy; empty means the default."""
        self._shared = shared
        self.policy = shared.policies.get(policy)
        self._name = name
        """Prefix of the keys of everything on disk."""
        self._user_id = user_id
        self._notify_session = on_ended
        self._budget = SpoolBudget(shared.settings.session_spool_bytes, shared.budget_of(user_id))
        self.running: dict[str, Exec] = {}
        """Running and queued execs."""
        self._ended: OrderedDict[str, tuple[Exec, float]] = OrderedDict()
        """Ended execs with the time of their end, oldest first."""
        self._queues: dict[str, deque[_Queued]] = {}
        """For each named shell and each context the exec that runs, then those that wait."""
        self._unpersisted: list[Exec] = []
        """Oldest first. A list: an empty one is small, and there may be thousands of sessions."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self.running)

    def __iter__(self) -> Iterator[Exec]:
        """Newest first."""
        found = [*(execution for execution, _ in self._ended.values()), *self.running.values()]
        shown = [execution for execution in found if not execution.details.is_internal]
        return iter(sorted(shown, key=_place, reverse=True))

    @property
    def decision(self) -> str:
        """Why commands that were started may run, for the audit log."""
        return self.policy.decision

    # --- start ---

    async def clear(self, spec: ExecSpec) -> Clearance:
        """Check a command that takes long to check; CommandNotAllowed if the policy refuses it."""
        return await self.policy.clear(spec, self._user_id)

    async def wait_for_guest(self, sandbox: Sandbox) -> None:
        """Return once the guest has read earlier requests; SandboxLost if it does not."""
        try:
            await sandbox.link.wait_for_room()
        except LinkClosed as error:
            raise SandboxLost(str(error)) from None

    def start(
        self, spec: ExecSpec, sandbox: Sandbox, clearance: Clearance | None = None
    ) -> tuple[Exec, bool]:
        """Start a command once; False if an exec of this id and content is there already.

        CommandNotAllowed if the policy refuses it, CheckTakesLong if it needs a clearance,
        GuestIsBehind if there is no room for it yet.
        """
        if spec.code is None:  # code has policies and checks that belong to its context
            self.policy.check(spec, clearance)
        if spec.is_kept and (existing := self._get(spec.exec_id)) is not None:
            if existing.details.digest != spec.digest:
                raise ExecConflict(spec.exec_id)
            return existing, False
        settings = self._shared.settings
        if len(self.running) >= settings.max_running:
            raise ExecLimitReached(
                f"This session already runs {len(self.running)} commands; wait for one to end.",
                retry_after_seconds=1.0,
            )
        self._shared.quotas.check_exec(self._user_id)
        details = ExecDetails.from_spec(spec)
        # Before anything is created or queued: a request may be too large once encoded.
        request = spec.encode(self._shared.labels.seal(details, sandbox.id) if spec.is_kept else "")
        if spec.merges_stderr or len(request) > LARGE_REQUEST:
            self._check_guest(spec, request, sandbox)
        execution = self._make(details, sandbox, spec)
        execution.reports_start = spec.reports_start and sandbox.link.reports_starts
        self.running[execution.id] = execution
        self._shared.quotas.add_exec(self._user_id)
        try:
            if details.queue:
                self._enqueue(execution, request)
            else:
                execution.start(request)
        except BaseException:
            self._leave(execution)
            raise
        return execution, True

    def _check_guest(self, spec: ExecSpec, request: bytes, sandbox: Sandbox) -> None:
        """Refuse what the guest does not take, or not now. One of an earlier release knows less."""
        link = sandbox.link
        if spec.merges_stderr and not link.reports_starts:
            raise CommandNotStartable(
                "the sandbox is of an earlier release, which does not merge the streams; end the "
                "command with 2>&1, or reset the session",
                kind=StartFailure.OTHER.name.lower(),
            )
        if len(request) > link.max_request_bytes:
            raise RequestTooLarge(
                "command",
                f"the sandbox is of an earlier release and takes {link.max_request_bytes} bytes; "
                "use a file for data, or reset the session",
            )
        if link.unsent_bytes > MAX_UNSENT_BYTES:
            raise GuestIsBehind
        queued = sum(len(waiting.request) for queue in self._queues.values() for waiting in queue)
        if queued > MAX_QUEUED_BYTES:
            raise ExecLimitReached(
                "Large commands of this session already wait for their shells; wait for one to "
                "end.",
                retry_after_seconds=1.0,
            )

    def _make(self, details: ExecDetails, sandbox: Sandbox, spec: ExecSpec | None = None) -> Exec:
        spool = None
        if spec is None or spec.is_kept:
            key = self._key(details.exec_id)
            # An earlier daemon may have kept output.
            reopened = (
                None if spec else Spool.reopen(self._shared.settings.spools, key, self._budget)
            )
            spool = reopened or Spool(self._shared.settings.spools, key, self._budget)
        return Exec(
            details,
            sandbox,
            on_ended=self._on_ended,
            kill_counts=self._shared.kill_counts,
            spool=spool,
            excerpt_bytes=spec.capture_bytes or 0 if spec else 0,
            before_kill=self._record_reason if details.is_chosen else None,
        )

    def _enqueue(self, execution: Exec, request: bytes) -> None:
        name = execution.details.queue
        if name not in self._queues:
            execution.start(request)
        self._queues.setdefault(name, deque()).append(_Queued(execution, request))

    def _next_in_queue(self, ended: Exec) -> None:
        name = ended.details.queue
        queue = self._queues.get(name)
        if queue is None:
            return
        was_first = queue[0].execution is ended
        remaining = deque(queued for queued in queue if queued.execution is not ended)
        self._queues[name] = remaining
        if not remaining:
            del self._queues[name]
        elif was_first:
            following = remaining[0]
            if following.execution.number:
                return  # adopted: it already runs, and the end of the one before it came late
            try:
                following.execution.start(following.request)
            except SandboxLost as error:
                following.execution.on_lost(error.why)

    def in_context(self, name: str) -> Exec | None:
        """The run of code that a context is busy with."""
        queue = self._queues.get(f"context {name}")
        return queue[0].execution if queue else None

    def of_context(self, name: str) -> Sequence[Exec]:
        """The runs of a context that have not ended, in order."""
        return [queued.execution for queued in self._queues.get(f"context {name}", ())]

    def check_interpreter(self, program: str) -> None:
        """CommandNotAllowed unless the policy lets commands use this program: code could run what a
        command of it could."""
        script = ExecSpec(
            exec_id=new_exec_id(),
            shell=None,
            argv=(program, "run"),
            cwd="",
            env={},
            timeout_seconds=1.0,
        )
        self.policy.check(script)

    # --- find ---

    def find(self, exec_id: str) -> Exec:
        if (execution := self._get(exec_id)) is None:
            raise ExecNotFound(exec_id)
        return execution

    def page(
        self, *, state: State | None, size: int, after: Place | None
    ) -> tuple[Sequence[Exec], Place | None]:
        """A page of execs after a place, newest first, and the place of its last one if more
        follow.

        Places and not ids: by the next page an exec may be forgotten, or in another state.
        """
        found = [
            execution
            for execution in self
            if state in (None, execution.state) and (after is None or _place(execution) < after)
        ]
        page = found[:size]
        return page, _place(page[-1]) if len(found) > size else None

    def _get(self, exec_id: str) -> Exec | None:
        if exec_id in self.running:
            return self.running[exec_id]
        ended = self._ended.get(exec_id)
        return ended[0] if ended else None

    # --- ends ---

    def _leave(self, execution: Exec) -> None:
        if self.running.pop(execution.id, None) is not None:
            self._shared.quotas.remove_exec(self._user_id)

    def _on_ended(self, execution: Exec) -> None:
        self._leave(execution)
        self._notify_session(execution)
        if execution.is_kept:
            self._ended[execution.id] = (execution, time.monotonic())
            self._unpersisted.append(execution)
            self._persist_soon()
        if execution.details.queue:
            self._next_in_queue(execution)

    def _record_reason(self, execution: Exec, reason: Reason) -> None:
        """Before the kill, so that no daemon reports it as anything else."""
        if execution.is_kept and reason is not Reason.SESSION_CLOSED:
            self._shared.records.save_reason(self._key(execution.id), reason)

    def _persist_soon(self) -> None:
        if len(self._unpersisted) >= MAX_UNPERSISTED:
            self._persist_some()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PERSIST_SECONDS, self._persist_some)

    def _persist_some(self) -> None:
        """Write some ended execs to disk, and leave the rest for a later turn of the loop."""
        self._cancel_timer()
        written = 0
        while self._unpersisted and written < MAX_WRITES_AT_ONCE:
            written += self._persist_one(self._unpersisted.pop(0))
        self._forget_beyond(self._shared.settings.max_ended)
        if self._unpersisted:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PAUSE_SECONDS, self._persist_some)

    def persist(self) -> None:
        """Write all ended execs to disk."""
        self._cancel_timer()
        while self._unpersisted:
            self._persist_one(self._unpersisted.pop(0))
        self._forget_beyond(self._shared.settings.max_ended)

    def _persist_one(self, execution: Exec) -> bool:
        """Keep an ended exec here instead of in the guest; return whether that took a write.

        Nobody can ask after a restart for an id that the daemon chose, so it needs no record.
        """
        if execution.exit is None or self._get(execution.id) is not execution:
            return False
        output = execution.kept_output
        output.drop_recent()
        length = sum(execution.length(stream) for stream in STREAMS)
        is_written = execution.details.is_chosen or length > MAX_UNWRITTEN_BYTES
        if is_written:
            output.spool.persist()
            output.spool.close()
        if execution.details.is_chosen:
            self._shared.records.save(self._key(execution.id), execution.details, execution.exit)
        execution.forget_in_guest()
        return is_written

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end_all(self, reason: Reason) -> None:
        for execution in tuple(self.running.values()):
            execution.end(reason)

    def forget_old(self) -> None:
        horizon = time.monotonic() - self._shared.settings.memory_seconds
        while self._ended:
            exec_id, (_, ended_at) = next(iter(self._ended.items()))
            if ended_at > horizon:
                return
            self._forget(exec_id)

    def _forget_beyond(self, count: int) -> None:
        if len(self._ended) <= count:
            return
        # Not those that someone reads: they are forgotten after the reader has left.
        idle = [
            key for key, (execution, _) in self._ended.items() if not execution.output.is_followed
        ]
        for exec_id in idle[: max(0, len(self._ended) - count)]:
            self._forget(exec_id)

    def discard(self, execution: Exec) -> None:
        """Forget an ended exec that only the daemon asked for."""
        if execution.id in self._ended:
            self._forget(execution.id)

    def _forget(self, exec_id: str) -> None:
        execution, _ = self._ended.pop(exec_id)
        execution.kept_output.spool.delete()
        if execution.details.is_chosen:
            self._shared.records.delete(self._key(exec_id))
        execution.forget_in_guest()

    def close(self) -> None:
        """Leave running commands to the next daemon, with everything on disk: this one ends."""
        for execution in self.running.values():
            execution.hand_over()
        self.persist()

    def delete(self) -> None:
        """Forget all ended execs, also on disk."""
        self._cancel_timer()
        self._unpersisted.clear()
        for exec_id in tuple(self._ended):
            self._forget(exec_id)

    # --- after a restart ---

    def adopt(self, sandbox: Sandbox, states: Mapping[int, ExecState]) -> None:
        """Continue the execs that an earlier daemon started in this sandbox."""
        for key, details, status in self._shared.records.load(self._key("")):
            if key == self._key(details.exec_id):
                self._restore(details, status, sandbox)
        for number, state in states.items():
            found = self._shared.labels.open(state.label, sandbox.id) if state.label else None
            # A guest may present a label twice, or one that it should have forgotten.
            if found is None or self._get(found.exec_id) is not None:
                self._disown(number, state, sandbox)
            else:
                self._resume(number, state, found, sandbox)

    def _restore(self, details: ExecDetails, status: ExitStatus, sandbox: Sandbox) -> None:
        execution = self._make(details, sandbox)
        execution.restore(status)
        self._ended[details.exec_id] = (execution, time.monotonic())

    def _resume(
        self, number: int, state: ExecState, details: ExecDetails, sandbox: Sandbox
    ) -> None:
        execution = self._make(details, sandbox)
        spool = execution.kept_output.spool
        self.running[details.exec_id] = execution
        self._shared.quotas.add_exec(self._user_id)
        if details.queue:
            queue = self._queues.setdefault(details.queue, deque())
            queue.append(_Queued(execution, request=b""))  # already started
        have = {stream: spool.durable(stream) for stream in STREAMS}
        intent = self._shared.records.load_reason(self._key(details.exec_id))
        execution.adopt(number, state, have, intent=intent)

    def _disown(self, number: int, state: ExecState, sandbox: Sandbox) -> None:
        """End a command that nobody can ask about: its caller is gone, or it is on disk already."""
        details = _UNKNOWN._replace(exec_id=f"disowned-{number}", started_at=time.time())
        execution = Exec(
            details,
            sandbox,
            on_ended=Exec.forget_in_guest,
            kill_counts=self._shared.kill_counts,
            spool=None,
        )
        execution.adopt(number, state, state.counts, is_unknown=True)
        if state.exited is None:
            execution.end(Reason.CANCELLED)

    def _key(self, exec_id: str) -> str:
        return f"{self._name}-{exec_id}"


def _place(execution: Exec) -> Place:
    return execution.details.started_at, execution.id


_UNKNOWN = ExecDetails(
    exec_id="",
    digest="",
    command="",
    timeout_seconds=1.0,
    no_output_seconds=None,
    survives_disconnect=False,
    has_stdin=False,
    has_terminal=False,
    shell_name="",
    started_at=0.0,
)


def key_prefixes(names: Sequence[str]) -> tuple[str, ...]:
    """The key prefixes of everything that these sessions keep on disk."""
    return tuple(f"{name}-" for name in names)
