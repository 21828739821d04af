"""The execs of one session: those that run, wait for a shell, or ended lately."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakValueDictionary

import structlog

from sandboxd.errors import ExecConflict, ExecLimitReached, ExecNotFound, SandboxLost
from sandboxd.exec_records import ExecRecords, Labels
from sandboxd.exec_spec import ExecSpec
from sandboxd.execs import Exec, ExitStatus, Facts, Ladder, Reason
from sandboxd.guest.frames import STREAMS, ExecState, Stream
from sandboxd.journal import Journal
from sandboxd.sandbox import Sandbox
from sandboxd.spool import Spool, SpoolBudget, SpoolSettings
from sandboxd.spool import sweep as sweep_spools

log = structlog.get_logger()

SETTLE_SECONDS = 1.0
"""How long a guest keeps what has ended, in case the daemon dies meanwhile."""
MOST_UNSETTLED = 128
AT_ONCE = 16
"""Of those that have to be written down, which takes some hundred microseconds each."""
PAUSE_SECONDS = 0.02
LITTLE_BYTES = 4096
"""Output that stays in memory although its command has ended."""


@dataclass(frozen=True, kw_only=True)
class ShelfSettings:
    """How execs are kept, for all sessions of a daemon."""

    spools: SpoolSettings
    session_spool_bytes: int
    max_running: int
    """In one session."""
    max_running_in_all: int
    user_spool_bytes: int = 0
    """In all sessions of one user; 0 means no limit."""
    max_running_of_user: int = 0
    """In all sessions of one user; 0 means no limit."""
    memory_seconds: float
    """How long an ended exec is there for late readers."""
    max_ended: int = 512
    """Of one session; a few more until they are looked through, which is not done on the way of a
    command."""


class ExecHouse:
    """What the shelves of all sessions share."""

    def __init__(
        self,
        settings: ShelfSettings,
        labels: Labels,
        records: ExecRecords,
        budget: SpoolBudget,
        journal: Journal | None = None,
    ) -> None:
        self.settings = settings
        self.labels = labels
        self.records = records
        self.budget = budget
        self.journal = journal or Journal()
        self.ladder = Ladder()
        self.running = 0
        self._running_of: Counter[str] = Counter()
        """By user."""
        self._budgets: WeakValueDictionary[str, SpoolBudget] = WeakValueDictionary()
        """By user, as long as there is a shelf of theirs."""

    def began(self, user_id: str) -> None:
        self.running += 1
        self._running_of[user_id] += 1

    def ended(self, user_id: str) -> None:
        self.running -= 1
        self._running_of[user_id] -= 1
        if not self._running_of[user_id]:
            del self._running_of[user_id]

    def budget_of(self, user_id: str) -> SpoolBudget:
        """What the shelves of a user take their disk space from."""
        limit = self.settings.user_spool_bytes
        if not limit:
            return self.budget
        budget = self._budgets.get(user_id) or SpoolBudget(limit, self.budget)
        self._budgets[user_id] = budget
        return budget

    def sweep(self, prefixes: tuple[str, ...]) -> None:
        """Delete what is kept of execs whose keys do not begin so."""
        keys = {path.stem for path in self.settings.spools.directory.glob("*")}
        sweep_spools(self.settings.spools, [key for key in keys if key.startswith(prefixes)])
        self.records.sweep(prefixes)

    def check_room(self, user_id: str) -> None:
        limit = self.settings.max_running_of_user
        if limit and self._running_of[user_id] >= limit:
            raise ExecLimitReached(
                f"This user already runs {limit} commands; wait for one to end.",
                retry_after_seconds=1.0,
            )
        if self.running >= self.settings.max_running_in_all:
            raise ExecLimitReached(
                f"The daemon already runs {self.running} commands; try again later.",
                retry_after_seconds=1.0,
            )


class _Queued(NamedTuple):
    execution: Exec
    request: bytes


class ExecShelf:
    """Starts execs of one session on its sandbox, and keeps them for a while after their end."""

    def __init__(
        self, house: ExecHouse, name: str, *, user_id: str, on_ended: Callable[[Exec], None]
    ) -> None:
        self._house = house
        self._name = name
        """Begins the keys of everything that is kept on disk."""
        self._user_id = user_id
        self._tell_session = on_ended
        self._budget = SpoolBudget(house.settings.session_spool_bytes, house.budget_of(user_id))
        self.running: dict[str, Exec] = {}
        """Queued ones too."""
        self._ended: OrderedDict[str, tuple[Exec, float]] = OrderedDict()
        """With the time of their end, oldest first."""
        self._queues: dict[str, deque[_Queued]] = {}
        """By shell: the one that runs, then those that wait."""
        self._unsettled: deque[Exec] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self.running)

    def __iter__(self) -> Iterator[Exec]:
        """Newest first."""
        found = [*(execution for execution, _ in self._ended.values()), *self.running.values()]
        return iter(sorted(found, key=lambda one: (one.facts.started_at, one.id), reverse=True))

    # --- start ---

    def start(self, spec: ExecSpec, sandbox: Sandbox) -> tuple[Exec, bool]:
        """Start a command once; False if an exec of this id and content is there already."""
        if spec.is_kept and (there := self._there(spec.exec_id)) is not None:
            if there.facts.digest != spec.digest:
                raise ExecConflict(spec.exec_id)
            return there, False
        settings = self._house.settings
        if len(self.running) >= settings.max_running:
            raise ExecLimitReached(
                f"This session already runs {len(self.running)} commands; wait for one to end.",
                retry_after_seconds=1.0,
            )
        self._house.check_room(self._user_id)
        facts = Facts.of(spec)
        # Before anything is made or waits: what is too large once encoded is refused here.
        request = spec.encode(self._house.labels.seal(facts, sandbox.id) if spec.is_kept else "")
        execution = self._make(facts, sandbox, spec)
        self.running[execution.id] = execution
        self._house.began(self._user_id)
        try:
            if spec.shell_name:
                self._enqueue(execution, request)
            else:
                execution.start(request)
        except BaseException:
            self._leave(execution)
            raise
        return execution, True

    def _make(self, facts: Facts, sandbox: Sandbox, spec: ExecSpec | None = None) -> Exec:
        spool = None
        if spec is None or spec.is_kept:
            key = self._key(facts.exec_id)
            # After a restart there may be something to go on with.
            reopened = (
                None if spec else Spool.reopen(self._house.settings.spools, key, self._budget)
            )
            spool = reopened or Spool(self._house.settings.spools, key, self._budget)
        return Exec(
            facts,
            sandbox,
            on_ended=self._on_ended,
            ladder=self._house.ladder,
            spool=spool,
            capture_bytes=spec.capture_bytes if spec else None,
        )

    def _enqueue(self, execution: Exec, request: bytes) -> None:
        name = execution.facts.shell_name
        if name not in self._queues:
            execution.start(request)
        self._queues.setdefault(name, deque()).append(_Queued(execution, request))

    def _next_of_shell(self, ended: Exec) -> None:
        queue = self._queues.get(ended.facts.shell_name)
        if queue is None:
            return
        was_first = queue[0].execution is ended
        remaining = deque(one for one in queue if one.execution is not ended)
        self._queues[ended.facts.shell_name] = remaining
        if not remaining:
            del self._queues[ended.facts.shell_name]
        elif was_first:
            following = remaining[0]
            try:
                following.execution.start(following.request)
            except SandboxLost as error:
                following.execution.on_lost(error.why)

    # --- find ---

    def find(self, exec_id: str) -> Exec:
        if (execution := self._there(exec_id)) is None:
            raise ExecNotFound(exec_id)
        return execution

    def _there(self, exec_id: str) -> Exec | None:
        if exec_id in self.running:
            return self.running[exec_id]
        ended = self._ended.get(exec_id)
        return ended[0] if ended else None

    # --- ends ---

    def _leave(self, execution: Exec) -> None:
        if self.running.pop(execution.id, None) is not None:
            self._house.ended(self._user_id)

    def _on_ended(self, execution: Exec) -> None:
        self._leave(execution)
        self._tell_session(execution)
        if execution.is_kept:
            self._ended[execution.id] = (execution, time.monotonic())
            self._unsettled.append(execution)
            self._settle_soon()
        if execution.facts.shell_name:
            self._next_of_shell(execution)

    def _settle_soon(self) -> None:
        if len(self._unsettled) >= MOST_UNSETTLED:
            self._settle_some()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SETTLE_SECONDS, self._settle_some)

    def _settle_some(self) -> None:
        """Not too many at once: others wait for the loop."""
        self._cancel_timer()
        written = 0
        while self._unsettled and written < AT_ONCE:
            written += self._settle(self._unsettled.popleft())
        self._forget_beyond(self._house.settings.max_ended)
        if self._unsettled:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PAUSE_SECONDS, self._settle_some)

    def settle(self) -> None:
        """Write down all that has ended."""
        self._cancel_timer()
        while self._unsettled:
            self._settle(self._unsettled.popleft())
        self._forget_beyond(self._house.settings.max_ended)

    def _settle(self, execution: Exec) -> bool:
        """Keep here what the guest need not keep any more; whether that went to disk.

        An id that the daemon made up is known to nobody who could ask after a restart.
        """
        if execution.exit is None or self._there(execution.id) is not execution:
            return False
        assert execution.output is not None
        execution.output.let_go()
        length = sum(execution.length(stream) for stream in STREAMS)
        is_written = execution.facts.is_chosen or length > LITTLE_BYTES
        if is_written:
            execution.output.spool.persist()
            execution.output.spool.close()
        if execution.facts.is_chosen:
            self._house.records.save(self._key(execution.id), execution.facts, execution.exit)
        execution.release()
        return is_written

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end_all(self, reason: Reason) -> None:
        for execution in tuple(self.running.values()):
            execution.end(reason)

    def forget_old(self) -> None:
        horizon = time.monotonic() - self._house.settings.memory_seconds
        while self._ended:
            exec_id, (_, ended_at) = next(iter(self._ended.items()))
            if ended_at > horizon:
                return
            self._forget(exec_id)

    def _forget_beyond(self, count: int) -> None:
        if len(self._ended) <= count:
            return
        # Not those that someone reads: they go when the reader has.
        idle = [one for one, (execution, _) in self._ended.items() if not _is_read(execution)]
        for exec_id in idle[: max(0, len(self._ended) - count)]:
            self._forget(exec_id)

    def _forget(self, exec_id: str) -> None:
        execution, _ = self._ended.pop(exec_id)
        assert execution.output is not None
        execution.output.spool.delete()
        if execution.facts.is_chosen:
            self._house.records.delete(self._key(exec_id))
        execution.release()

    def close(self) -> None:
        """The daemon ends; what runs is left to the next one, and what is on disk stays for it."""
        for execution in self.running.values():
            execution.let_go()
        self.settle()

    def delete(self) -> None:
        """Forget everything, on disk too."""
        self._cancel_timer()
        self._unsettled.clear()
        for exec_id in tuple(self._ended):
            self._forget(exec_id)

    # --- after a restart ---

    def adopt(self, sandbox: Sandbox, states: Mapping[int, ExecState]) -> None:
        """Go on with what an earlier daemon started in this sandbox."""
        for key, facts, status in self._house.records.load(self._key("")):
            if key == self._key(facts.exec_id):
                self._recall(facts, status, sandbox)
        for number, state in states.items():
            facts_of = self._house.labels.open(state.label, sandbox.id) if state.label else None
            # A guest may well show a label twice, or one that it should have forgotten.
            if facts_of is None or self._there(facts_of.exec_id) is not None:
                self._disown(number, state, sandbox)
            else:
                self._resume(number, state, facts_of, sandbox)

    def _recall(self, facts: Facts, status: ExitStatus, sandbox: Sandbox) -> None:
        execution = self._make(facts, sandbox)
        execution.recall(status)
        self._ended[facts.exec_id] = (execution, time.monotonic())

    def _resume(self, number: int, state: ExecState, facts: Facts, sandbox: Sandbox) -> None:
        execution = self._make(facts, sandbox)
        assert execution.output is not None
        spool = execution.output.spool
        self.running[facts.exec_id] = execution
        self._house.began(self._user_id)
        if facts.shell_name:
            queue = self._queues.setdefault(facts.shell_name, deque())
            queue.append(_Queued(execution, request=b""))  # it was started before
        execution.adopt(number, state, {stream: spool.durable(stream) for stream in STREAMS})

    def _disown(self, number: int, state: ExecState, sandbox: Sandbox) -> None:
        """Nobody can ask about it: its caller went with the earlier daemon, or it is settled."""
        facts = _UNKNOWN._replace(exec_id=f"disowned-{number}", started_at=time.time())
        execution = Exec(
            facts, sandbox, on_ended=Exec.release, ladder=self._house.ladder, spool=None
        )
        have = {Stream.STDOUT: state.stdout_bytes, Stream.STDERR: state.stderr_bytes}
        execution.adopt(number, state, have)
        if state.exited is None:
            execution.end(Reason.CANCELLED)

    def _key(self, exec_id: str) -> str:
        return f"{self._name}-{exec_id}"


def _is_read(execution: Exec) -> bool:
    return execution.output is not None and execution.output.is_followed


_UNKNOWN = Facts(
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


def shelves_on_disk(names: Sequence[str]) -> tuple[str, ...]:
    """How the keys begin of what these shelves keep."""
    return tuple(f"{name}-" for name in names)
