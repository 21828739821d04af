"""The guest's event loop: one thread, one daemon at a time, any number of commands."""

import errno
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping

from . import frames
from .child_exits import ChildExits
from .commands import named_shell, processes
from .commands.code_parent import CodeParents
from .commands.context import Context
from .commands.contexts import CodeRequest, Contexts, code_request_of
from .commands.ended_execs import EndedExecs
from .commands.execution import Exec, Output
from .commands.interaction import Interaction
from .commands.output_pipes import OutputPipes
from .commands.processes import Beginning, Census, Process
from .commands.refusal import Refusal
from .commands.request import command_of, label_of, seconds_of
from .commands.shell import Shells
from .commands.spawner import PATIENCE_SECONDS, Late, Spawner
from .commands.supervision import Supervision
from .commands.sweep_reports import SweepReports
from .commands.waiting_starts import WaitingStart, WaitingStarts
from .daemon_link import DaemonLink
from .frames import Cause, ContextPhase, Kind, Remark, StartFailure
from .settings import Settings, environment_of, start_dir_of
from .workers import Workers

OUTGOING_HIGH = 512 * 1024
"""Above this no output is read from commands: the daemon is behind."""
YOUNG_SECONDS = 0.02
LINGER_BYTES = 4096
RETRY_SECONDS = 0.1
"""Before a shell that could not be prepared is tried again."""
IDLE_SECONDS = 0.001
"""Quiet time before the next shell is prepared, so that it does not delay an answer."""
HURRY_SECONDS = 0.005
"""A command that comes so soon after the end of the last one is probably followed by the next as
soon: its shell is prepared at once, for after any quiet time that would come too late."""
PLACE_SECONDS = 60.0
"""A daemon that takes longer to move a shell no longer serves. Long, because giving up costs the
session its sandbox, and a busy host may keep the daemon from its processor for seconds."""
PLACE_LOOK_MILLISECONDS = 50
REDIAL_SECONDS, LONGEST_REDIAL_SECONDS = 0.05, 0.5
MAX_KEPT_ALONE = 4 << 20
"""Output of all commands together that is kept while no daemon is there to take it."""
FIRST_VICTIM = "echo 1000 2>/dev/null >/proc/self/oom_score_adj\n"
"""Where commands share the guest's memory limit, the kernel should take them first."""
SETTLE_SECONDS = 0.002
SETTLE_LOOKS = 5
"""How often, and after how long each, a new shell is looked at until it has read its arguments."""
_NOBODY = Census([], True)
MAX_TRIES = 3
"""Of a context to come to be: commands can kill the parent of contexts, or stop it."""
_NO_INTERPRETER = "the interpreter did not start"
_ABOUT_CODE = (Kind.CONTEXT, Kind.DROP_CONTEXT, Kind.CODE_PARENT_PLACED)
_ABOUT_WORKERS = (Kind.WORKER, Kind.WORKER_END, Kind.WORKER_WAKE)
_parse = json.JSONDecoder().raw_decode
"""Requests are ours, so nothing has to be found out about them."""


class Guest:
    """Serves the daemon at the other end of `connection`, and after it those that `dial` finds."""

    def __init__(
        self,
        connection: socket.socket,
        spawner: Spawner,
        settings: Settings,
        dial: Callable[[], socket.socket | None],
    ) -> None:
        self._dial = dial
        self._spawner = spawner
        self._asks_to_place = settings["asks_to_place"]
        self._grace_seconds = settings.get("grace_seconds", 0.0)
        self._takes_remarks = settings.get("takes_remarks", False)
        self._workspace = settings["workspace"]
        self._start_dir = start_dir_of(settings)
        self._shells = Shells(
            workspace=self._start_dir,
            environment=environment_of(settings),
            spawner=spawner,
            place=self._wait_until_placed if self._asks_to_place else lambda: None,
            has_company=lambda: bool(self._running or self._company or not self._company_known),
            set_up=FIRST_VICTIM if settings["is_first_victim"] else "",
        )
        self._running: dict[int, Exec] = {}
        self._ended = EndedExecs()
        self._by_pid: dict[int, Exec] = {}
        self._waiting_starts = WaitingStarts()
        self._settle_looks = 0
        """Left for a new shell."""
        self._prepare_after = 0.0
        self._ended_at = 0.0
        """When the last command ended."""
        self._is_hurried = False
        """Whether commands come one right after the other."""
        self._leftovers: frozenset[tuple[int, int]] = frozenset()
        """What was there when the last command had ended."""
        self._session = os.getsid(0)
        self._company: list[Process] = []
        """Those of them that belong to no running command."""
        self._company_known = True
        """Whether there was certainly no more of it."""
        self._leftovers_known = True
        self._supervision = Supervision()
        self._poll = select.epoll()
        self._pipes = OutputPipes(self._poll, self._send_output)
        self._interaction = Interaction(self._poll)
        self._contexts = Contexts(
            self._poll,
            CodeParents(
                self._poll,
                spawner,
                environment_of(settings),
                self._start_dir,
                place=self._wait_until_placed if self._asks_to_place else lambda: None,
                is_first_victim=settings["is_first_victim"],
            ),
            on_born=self._on_born,
            on_done=self._on_done,
            on_lost=self._on_context_lost,
            on_failed=self._on_context_failed,
            on_parent=lambda pid: self._link.send(frames.encode_code_parent(pid)),
        )
        self._workers = Workers()
        self._workers.budget.set_share(settings.get("worker_share", 0.0))
        self._link = DaemonLink(self._poll)
        self._sweep_reports = SweepReports(self._link)
        self._is_welcome = True
        self._is_lost = False
        """The link broke; dealt with at the end of the turn."""
        self._lost_at = 0.0
        self._redial_at = self._end_at = float("inf")
        self._child_exits = ChildExits()
        self._link.open(connection)
        self._poll.register(self._child_exits.descriptor, select.EPOLLIN)

    def serve(self) -> None:
        """Until the daemon is gone for good. SystemExit where going on would be wrong."""
        try:
            self._shells.prepare_first()
        except ConnectionError:
            pass  # the first turn sees it
        self._link.send(frames.encode(Kind.READY))
        while self._turn():
            pass

    def _turn(self) -> bool:
        """One round of the loop; False once no further daemon will come."""
        if self._sweep_reports:
            self._sweep_reports.send_due()
        self._flush_if_due()
        self._pipes.watch_grown_up()
        events = self._poll.poll(self._patience())
        for descriptor, mask in events:
            self._on_event(descriptor, mask)
        if self._supervision.next_look_at <= time.monotonic():
            self._look_at_running()
        if self._contexts:
            self._look_at_contexts()
        self._finish_execs()
        self._interaction.read_states()
        if self._waiting_starts and not self._is_lost:
            self._retry_starts()
        if self._workers.next_start_at != float("inf"):
            self._workers.start_due()
        self._interaction.report_taken(self._link)
        if self._is_lost:
            return self._lose_daemon()
        if self._redial_at <= time.monotonic():
            return self._redial()
        if not events and not self._link.outgoing:
            self._use_idle_time()
            # A wait for a shell to be moved has read what else came meanwhile.
            self._handle_received()
        return True

    def _on_event(self, descriptor: int, mask: int) -> None:
        if descriptor == self._link.descriptor:
            if mask & ~select.EPOLLOUT:
                self._receive()
        elif descriptor == self._child_exits.descriptor:
            self._child_exits.clear()
            self._reap()
        elif descriptor == self._pipes.descriptor:
            self._read_pipes()
        elif not self._contexts or not self._contexts.on_event(descriptor, mask):
            self._interaction.on_event(descriptor)

    def _look_at_contexts(self) -> None:
        self._contexts.answer_syncs()
        if self._contexts.next_look_at <= time.monotonic():
            self._contexts.look()

    def _use_idle_time(self) -> None:
        """Do what neither an answer nor a command should wait for. A process that we have sent
        something to begins to run when we sleep, not before: it gets our place on the processor."""
        if not self._leftovers_known:
            self._note_leftovers()
        self._shells.clear_up()
        if self._workers.give_up_at <= time.monotonic():
            self._workers.stop_waiting()
        if self._interaction.next_look_at != float("inf"):
            return  # a command is about to end
        if self._waiting_starts:
            return  # the next process is theirs
        if self._shells.waiting_pid is None:
            if self._grown_up_at <= time.monotonic():
                self._prepare_quietly()
                self._settle_looks = SETTLE_LOOKS
        elif self._settle_looks:
            self._settle_looks = 0 if self._shells.settle() else self._settle_looks - 1
        elif self._workers.is_one_wanted:
            self._workers.prepare(self._workspace)

    def _note_leftovers(self) -> None:
        """After the answer, and before the next command at the latest."""
        self._leftovers_known = True
        self._shells.settle_states()
        there, self._company_known = processes.census() if processes.are_any() else _NOBODY
        workers = self._workers.pids
        self._leftovers = frozenset((p.pid, p.started) for p in there if p.pid not in workers)
        left = processes.left_behind(there, self._leaders() | self._shells.unused_pids | workers)
        # Workers that were given up and are not gone are in our session, which no command can join.
        self._company = [process for process in left if process.session != self._session]

    def _has_company(self) -> bool:
        """Whether what was left behind is still there, or has a successor."""
        # A shell that was started late may not have been known before.
        ours = self._leaders() | self._shells.unused_pids
        self._company = [process for process in self._company if process.pid not in ours]
        if not any(map(processes.is_alive, self._company)):
            self._note_leftovers()
        return bool(self._company)

    def _leaders(self) -> set[int]:
        """First processes of running commands, the shell that waits, and those of contexts."""
        pids = {execution.pid for execution in self._running.values() if execution.status is None}
        pids |= self._contexts.pids
        pids.discard(0)  # of a context that is not there yet
        if self._shells.waiting_pid is not None:
            pids.add(self._shells.waiting_pid)
        return pids

    def _prepare_quietly(self) -> None:
        """Fails at the limit of processes, or when a command kills what it can see; then the next
        command starts a shell of its own."""
        if time.monotonic() < self._prepare_after:
            return
        try:
            if self._asks_to_place and not self._is_welcome:
                raise ConnectionError(errno.ENOTCONN, "there is no daemon to move it")
            self._spawner.patience = PATIENCE_SECONDS
            self._shells.prepare()
        except OSError:
            self._prepare_after = time.monotonic() + RETRY_SECONDS

    def _patience(self) -> float:
        """Seconds to wait for the next event."""
        now = time.monotonic()
        due = [execution.due_at for execution in self._running.values()]
        if self._link.outgoing and not self._link.is_writable_watched:
            due.append(self._link.linger_until)
        elif self._interaction.next_look_at != float("inf"):
            due.append(self._interaction.next_look_at)
        elif self._shells.waiting_pid is None and not self._waiting_starts:
            due.append(max(now + self._idle_seconds, self._prepare_after, self._grown_up_at))
        elif self._settle_looks:
            due.append(now + SETTLE_SECONDS)
        elif self._workers.is_one_wanted:
            due.append(now + IDLE_SECONDS)
        due.append(self._workers.give_up_at)
        due.append(self._workers.next_start_at)
        if self._waiting_starts:
            due.append(self._waiting_starts.next_try_at)
        if not self._leftovers_known:
            due.append(now + self._idle_seconds)
        if self._contexts:
            due.append(self._contexts.next_look_at)
        due.append(self._pipes.grown_up_at)
        due.append(self._supervision.next_look_at)
        if self._sweep_reports:
            due.append(self._sweep_reports.next_at)
        due.append(self._redial_at)
        soonest = min(due)
        return -1 if soonest == float("inf") else max(0.0, soonest - now)

    @property
    def _idle_seconds(self) -> float:
        """Quiet time before what can wait is done; what cannot leave yet keeps us from it."""
        return 0.0 if self._is_hurried and not self._link.outgoing else IDLE_SECONDS

    @property
    def _grown_up_at(self) -> float:
        """When a command that runs alone is no longer a short one. Until then the next shell would
        only be in its way: starting one costs as much as most commands do."""
        if len(self._running) != 1:
            return 0.0
        return next(iter(self._running.values())).started_at + YOUNG_SECONDS

    # --- the daemon goes and comes ---

    def _lose_daemon(self) -> bool:
        """Go on without a daemon; False if none will come."""
        now = time.monotonic()
        # One that only hangs up is not asked again at once.
        self._redial_at = now if self._is_welcome else now + REDIAL_SECONDS
        self._lost_at = now if self._is_welcome else self._lost_at
        self._end_at = min(self._end_at, now + self._grace_seconds)
        self._link.close()
        self._workers.end_all()
        self._sweep_reports.clear()
        self._is_lost = self._is_welcome = False
        self._ended.flow_is_lost()
        self._pipes.watch(True)
        for execution in (*self._running.values(), *self._ended.all()):
            execution.is_attached = execution.is_end_sent = False
        for waited in self._waiting_starts:
            waited.is_attached = False
        return now < self._end_at

    def _redial(self) -> bool:
        """Look for the next daemon; False when the time for that is over.

        One that has not welcomed us does not count: it may go as the last one did.
        """
        now = time.monotonic()
        if now >= self._end_at:
            return False
        # Less and less often: hundreds of guests would keep a processor busy with it.
        pause = (now - self._lost_at) / 10
        pause = max(REDIAL_SECONDS, min(pause, LONGEST_REDIAL_SECONDS))
        self._redial_at = min(now + pause, self._end_at)
        if not self._link.is_open:
            connection = self._dial()
            if connection is not None:
                self._link.open(connection)
                self._link.send(frames.encode_hello(os.getpid(), is_resumed=True))
        return True

    def _be_welcomed(self, settings: Settings) -> None:
        """Report all execs to a new daemon, which answers how much output of each it has."""
        self._is_welcome = True
        self._pipes.watch(True)
        self._redial_at = self._end_at = float("inf")
        self._grace_seconds = settings.get("grace_seconds", self._grace_seconds)
        self._takes_remarks = settings.get("takes_remarks", False)
        self._workers.budget.set_share(settings.get("worker_share", 0.0))
        if "workspace" in settings and "env" in settings:
            self._workspace = settings["workspace"]
            self._start_dir = start_dir_of(settings)
            environment = environment_of(settings)
            self._shells.change(workspace=self._start_dir, environment=environment)
            self._contexts.change(environment)
        for execution in self._ended.all():
            if execution.cause == Cause.DEADLINE and not self._takes_remarks:
                execution.cause = Cause.KILLED
            state = execution.state(has_ended=True)
            self._link.send(frames.encode_state(execution.channel, state))
        for execution in self._running.values():
            state = execution.state(has_ended=False)
            self._link.send(frames.encode_state(execution.channel, state))
        for waited in self._waiting_starts:
            self._link.send(frames.encode_state(waited.channel, waited.state()))
        for context in self._contexts.states():
            self._link.send(frames.encode_context(context))
        self._link.send(frames.encode(Kind.READY))
        self._contexts.announce_parent()

    def _resume(self, channel: int, counts: tuple[int, ...]) -> None:
        execution = self._running.get(channel) or self._ended.get(channel)
        if execution is None:
            if (waited := self._waiting_starts.get(channel)) is not None:
                waited.resume()
            return
        for output, count in zip(execution.outputs, counts, strict=False):
            self._rewind(execution, output, count)
        self._ended.count(execution)
        execution.window = frames.WINDOW
        execution.is_attached = True
        if execution.context_run is not None and execution.pid:
            self._link.send(frames.encode_context_run(channel, execution.context_run))
        if execution.reports_start:
            self._report_pid(execution)
        self._interaction.resume(execution)
        self._send_what_is_kept(execution)
        self._pipes.watch_if_allowed(execution)

    def _rewind(self, execution: Exec, output: Output, offset: int) -> None:
        if not output.rewind(offset):
            self._link.send(frames.encode_skipped(execution.channel, output.stream, output.sent))

    # --- towards the daemon ---

    def _flush_if_due(self) -> None:
        if self._link.flush_if_due():
            self._ended.has_left(self._link.flushed)
            self._pipes.watch(self._link.outgoing_bytes < OUTGOING_HIGH)

    def _send_output(self, execution: Exec, output: Output, data: bytes) -> None:
        is_young = time.monotonic() - execution.started_at < YOUNG_SECONDS
        linger = is_young and len(data) < LINGER_BYTES
        head = frames.encode_output_head(execution.channel, output.stream, output.sent, len(data))
        output.sent += len(data)
        self._link.send(head, linger=linger)
        self._link.send(data, linger=linger)

    def _send_what_is_kept(self, execution: Exec) -> None:
        """Send what was read while nobody listened, then the end if there is one."""
        for output in execution.outputs:
            for data in output.unsent():
                while data and execution.window > 0:
                    piece, data = data[: execution.window], data[execution.window :]
                    execution.window -= len(piece) + frames.FRAME_COST
                    self._send_output(execution, output, piece)
        if self._ended.get(execution.channel) is not None:
            self._send_end(execution)

    def _send_end(self, execution: Exec) -> None:
        if not execution.is_attached or execution.is_end_sent or execution.is_behind:
            return
        execution.is_end_sent = True
        if execution.remarks and self._takes_remarks:
            self._link.send(frames.encode_remarks(execution.channel, execution.remarks))
        self._link.send(frames.encode_exited(execution.channel, execution.ending()))
        if not execution.is_kept:
            self._ended.forget_after(execution, self._link.queued)

    # --- from the daemon ---

    def _receive(self) -> None:
        if not self._link.read_frames():
            self._is_lost = True
        self._handle_received()

    def _handle_received(self) -> None:
        while self._link.inbox:
            self._handle(*self._link.inbox.popleft())

    def _wait_until_placed(self) -> None:
        """Ask the daemon to move new processes to where commands belong, and wait until it has;
        ConnectionError if there is no daemon.

        Nothing else is served meanwhile: the command of a shell that is not there yet must wait.
        """
        if not self._is_welcome:
            raise ConnectionError(errno.ENOTCONN, "there is no daemon to move it")
        # The daemon moves whatever it finds, and workers do not belong with the commands.
        self._workers.give_up()
        self._link.send(frames.encode(Kind.PLACE))
        poll = select.poll()
        poll.register(self._link.descriptor, select.POLLIN)
        give_up_at = time.monotonic() + PLACE_SECONDS
        placed = (int(Kind.PLACED), 0, b"")
        self._flush_if_due()
        while placed not in self._link.inbox:
            if time.monotonic() > give_up_at:
                raise SystemExit(1)
            poll.poll(PLACE_LOOK_MILLISECONDS)
            self._report_meanwhile()
            if self._is_lost:
                raise ConnectionError(errno.ECONNRESET, "the daemon that moves it is gone")
        self._link.inbox.remove(placed)

    def _report_meanwhile(self) -> None:
        """While nothing is served, see which commands the daemon wants ended and report those."""
        if not self._link.read_frames():
            self._is_lost = True
        for kind, channel, payload in self._link.inbox:
            is_known = channel in self._running or self._waiting_starts.get(channel) is not None
            if kind == Kind.SWEEP or (kind == Kind.KILL and is_known):
                self._sweep_reports.begin(channel, frames.decode_kill(payload))
        self._sweep_reports.send_due()
        self._flush_if_due()

    def _handle(self, kind: int, channel: int, payload: bytes) -> None:
        if not self._is_welcome:
            if kind != Kind.WELCOME:
                raise frames.ProtocolError("something before the welcome")
            self._be_welcomed(json.loads(payload))
        elif kind == Kind.START:
            self._start(channel, _parse(payload.decode(errors="surrogatepass"))[0])
        elif kind == Kind.ACK:
            self._acknowledge(channel, frames.decode_ack(payload))
        elif kind == Kind.KILL:
            self._kill(channel, frames.decode_kill(payload))
        elif kind == Kind.RELEASE:
            self._ended.forget(channel)
        elif kind == Kind.PING:
            self._link.send(frames.encode(Kind.PONG, payload=payload))
        elif kind == Kind.RESUME:
            self._resume(channel, frames.decode_resume(payload))
        elif kind in _ABOUT_WORKERS:
            self._handle_worker(kind, channel, payload)
        else:
            self._handle_other(kind, channel, payload)

    def _handle_other(self, kind: int, channel: int, payload: bytes) -> None:
        if kind in _ABOUT_CODE:
            self._handle_code(kind, payload)
        elif kind == Kind.SWEEP:
            self._sweep(channel, frames.decode_kill(payload))
        elif kind == Kind.MOVED:
            self._shells.replace()
            self._prepare_quietly()  # at once: a command comes soon
        else:
            self._interact(kind, channel, payload)

    def _interact(self, kind: int, channel: int, payload: bytes) -> None:
        if not self._waiting_starts.keep(kind, channel, payload):
            self._interaction.handle(kind, self._running.get(channel), payload)

    def _handle_worker(self, kind: int, number: int, payload: bytes) -> None:
        if kind == Kind.WORKER:
            purpose, descriptor = frames.decode_worker(payload), self._link.take_descriptor()
            self._workers.start(number, purpose, descriptor, self._workspace)
        elif kind == Kind.WORKER_WAKE:
            self._workers.wake(number)
        else:
            self._workers.end(number)

    def _handle_code(self, kind: int, payload: bytes) -> None:
        if kind == Kind.CONTEXT:
            self._link.send(frames.encode_context(self._contexts.state(payload.decode())))
        elif kind == Kind.CODE_PARENT_PLACED:
            self._contexts.parent_is_placed()
        else:
            self._drop_context(*frames.decode_drop_context(payload))

    def _drop_context(self, name: str, is_forgotten: bool) -> None:
        """End the process of a context; a run that is under way in it ends as killed."""
        context = self._contexts.end(name, is_forgotten=is_forgotten)
        if context is not None and context.phase != ContextPhase.LOST:
            self._end_context(context, Cause.KILLED)
        self._link.send(frames.encode_context(self._contexts.state(name)))

    def _end_context(self, context: Context, cause: Cause) -> None:
        execution = context.execution
        if execution is None:  # between two runs: what runs have left is known by its session
            self._note_leftovers()
            beginning = Beginning(processes.ticks_now(), self._leftovers)
            execution = Exec(0, pid=context.pid, beginning=beginning, stdout=-1, stderr=-1)
        self._end_processes(execution, cause)

    def _start_code(
        self,
        channel: int,
        request: Mapping[str, object],
        asked: CodeRequest,
        waited: WaitingStart | None,
    ) -> None:
        """Give code to its context. What runs beside it is no reason to look again at what earlier
        commands left: a context outlives them anyway."""
        beginning = Beginning(processes.ticks_now(), self._leftovers)
        self._spawner.patience = PATIENCE_SECONDS if waited is None else 0.0
        try:
            context = self._contexts.obtain(asked, waited.tries if waited is not None else 0)
        except Refusal as refusal:
            self._link.send(frames.encode_refused(channel, refusal.failure, str(refusal)))
            return
        except OSError as error:
            self._put_off(waited or WaitingStart(channel, request), error.strerror)
            return
        execution = Exec(
            channel,
            pid=context.pid,
            beginning=beginning,
            stdout=context.stdout,
            stderr=context.stderr,
            events=context.events,
        )
        execution.label = label_of(request)
        execution.is_kept = request.get("keep") is True
        self._running[channel] = execution
        execution.reports_start = request.get("report_start") is True
        execution.tries = waited.tries if waited is not None else 0
        execution.request = request
        self._contexts.begin(context, execution, asked)
        self._pipes.add(execution)
        if context.pid:
            self._on_born(execution)

    def _on_born(self, execution: Exec) -> None:
        """Its process is there; its time begins."""
        if execution.request is not None:
            self._supervision.begin(execution, seconds_of(execution.request))
        execution.request = None
        if execution.is_attached and execution.context_run is not None:
            run = frames.encode_context_run(execution.channel, execution.context_run)
            self._link.send(run, linger=True)
        self._report_pid(execution)
        self._pipes.watch_if_allowed(execution)

    def _report_pid(self, execution: Exec) -> None:
        """Unless it is that of a context which is only being made."""
        if execution.reports_start and execution.is_attached and execution.pid:
            self._link.send(frames.encode_started(execution.channel, execution.pid))

    def _on_done(self, execution: Exec, status: int) -> None:
        """A run has ended and its context lives on: its output is in the pipes."""
        self._pipes.read_all(execution)
        execution.has_done(status)

    def _on_context_lost(self, context: Context) -> None:
        if self._is_welcome:
            self._link.send(frames.encode_context(context.describe()))

    def _on_context_failed(self, execution: Exec) -> None:
        """Its context did not come to be, so nothing of it has run: try again, a few times."""
        self._pipes.remove(execution)
        self._interaction.disconnect(execution)
        del self._running[execution.channel]
        assert execution.request is not None
        waited = WaitingStart(execution.channel, execution.request)
        waited.tries, waited.is_attached = execution.tries + 1, execution.is_attached
        # What earlier runs have left running may have taken all processes.
        processes.end_followers(self._contexts.idle_pids, self._reap_and_report)
        if waited.tries < MAX_TRIES:
            self._put_off(waited, _NO_INTERPRETER)
            return
        self._sweep_reports.end(execution.channel)
        why = f"{frames.NO_PROCESS} ({_NO_INTERPRETER})"
        self._link.send(frames.encode_refused(execution.channel, StartFailure.NO_PROCESS, why))

    def _start(
        self, channel: int, request: Mapping[str, object], waited: WaitingStart | None = None
    ) -> None:
        """Start a command or a run of code, `waited` if it is not the first try; if it cannot be,
        it waits."""
        if waited is None and self._waiting_starts:
            self._put_off(WaitingStart(channel, request), "others wait for one")
            return
        if not self._leftovers_known:
            self._note_leftovers()
        if (code := code_request_of(request, self._start_dir)) is not None:
            self._start_code(channel, request, code, waited)
        else:
            self._start_command(channel, request, waited)

    def _start_command(
        self, channel: int, request: Mapping[str, object], waited: WaitingStart | None
    ) -> None:
        self._is_hurried = time.monotonic() - self._ended_at < HURRY_SECONDS
        command = command_of(request, self._start_dir)
        self._spawner.patience = PATIENCE_SECONDS if waited is None else 0.0
        beginning = Beginning(processes.ticks_now(), self._leftovers)
        try:
            try:
                started = self._shells.start(command)
            except BlockingIOError as error:
                if not self._should_make_room(error, waited):
                    raise
                self._make_room()
                started = self._shells.start(command)
        except Refusal as refusal:
            self._link.send(frames.encode_refused(channel, refusal.failure, str(refusal)))
            return
        except OSError as error:
            self._put_off(waited or WaitingStart(channel, request), error.strerror)
            return
        streams = started.shell.streams
        execution = Exec(
            channel,
            pid=started.shell.pid,
            beginning=beginning,
            stdout=streams.stdout,
            stderr=streams.stderr,
        )
        execution.label = label_of(request)
        execution.is_kept = request.get("keep") is True
        execution.merges_stderr = command.merges_stderr
        execution.shell = started.shell
        self._running[channel] = execution
        self._by_pid[execution.pid] = execution
        self._pipes.add(execution)
        self._supervision.begin(execution, seconds_of(request))
        if self._company and self._has_company():
            execution.remarks = Remark.COMPANY
        if streams.stdin >= 0 or started.saving is not None or started.gate is not None:
            self._interaction.connect(execution, started)
        if request.get("report_start") is True:
            execution.reports_start = True
            self._link.send(frames.encode_started(channel, execution.pid))

    def _catch_up(self, execution: Exec, waited: WaitingStart) -> None:
        """Do what was asked of a command while it waited."""
        execution.is_attached = waited.is_attached
        if waited.is_resumed:
            self._interaction.resume(execution)
        for kind, payload in waited.kept():
            self._interaction.handle(kind, execution, payload)

    def _put_off(self, waited: WaitingStart, why: str | None) -> None:
        """Try again soon, unless it has taken too long or too many wait."""
        if waited.is_overdue or self._waiting_starts.is_full:
            why = f"{frames.NO_PROCESS} ({why})"
            self._link.send(frames.encode_refused(waited.channel, StartFailure.NO_PROCESS, why))
        else:
            self._waiting_starts.add(waited)

    def _retry_starts(self) -> None:
        """Give the first that waits another try, which takes no time: what is late stays late."""
        waited = self._waiting_starts.take_due()
        if waited is None:
            return
        self._start(waited.channel, waited.request, waited)
        if (execution := self._running.get(waited.channel)) is not None:
            self._catch_up(execution, waited)
        for waited in self._waiting_starts.take_overdue():
            self._put_off(waited, "others wait for one")
        # A wait for a shell to be moved has read what else came meanwhile.
        self._handle_received()

    def _should_make_room(self, error: BlockingIOError, waited: WaitingStart | None) -> bool:
        """A process that only takes its time is waited for first: on a host that is overloaded,
        what earlier commands have left behind is not to blame."""
        return waited.needs_room() if waited is not None else not isinstance(error, Late)

    def _make_room(self) -> None:
        """No process is left for a command: end those that earlier commands have left behind."""
        self._shells.give_up()
        self._workers.give_up()
        processes.end_leftovers(self._leaders() | self._workers.pids, self._reap_and_report)

    def _acknowledge(self, channel: int, ack: frames.Ack) -> None:
        execution = self._running.get(channel) or self._ended.get(channel)
        if execution is None:
            return  # it was forgotten before this arrived
        output = execution.output(ack.stream)
        output.forget(min(ack.offset, output.sent))
        execution.window += ack.credit
        self._ended.count(execution)
        if execution.is_behind and execution.is_attached:
            self._send_what_is_kept(execution)
        self._pipes.watch_if_allowed(execution)

    def _is_alone(self, execution: Exec) -> bool:
        """Whether nothing but the waiting shell would have to be spared."""
        ours = {execution.pid, self._shells.waiting_pid}
        is_only = len(self._by_pid) == 1 and not self._workers.pids and not self._contexts.pids
        return is_only and not any(pid not in ours for pid, _ in execution.beginning.seen)

    def _kill(self, channel: int, report_seconds: float) -> None:
        execution = self._running.get(channel)
        if execution is None:
            self._cancel_start(channel)
            return
        self._sweep_reports.begin(channel, report_seconds)
        if execution.status is None:
            self._end(execution, Cause.KILLED)

    def _end(self, execution: Exec, cause: Cause) -> None:
        """End a command with all its processes."""
        is_hindered = self._is_hindered(execution)
        self._end_processes(execution, cause)
        if is_hindered:
            self._free_from_company(execution)

    def _end_processes(self, execution: Exec, cause: Cause) -> None:
        self._spawner.disown()
        self._workers.give_up()
        execution.cause = cause
        if execution.context is not None and not execution.pid:
            self._contexts.abandon(execution.context)
            execution.has_ended(int(signal.SIGKILL))
            return
        if self._is_alone(execution):
            self._shells.give_up()
            processes.sweep(self._reap)
            return
        spared = self._leaders() - {execution.pid}
        self._end_all_of(execution.pid, execution.beginning, spared, waits=False)

    def _end_all_of(
        self, leader: int, beginning: Beginning, spared: set[int], *, waits: bool
    ) -> None:
        others = [other for other in self._running.values() if other.pid in spared]
        swept_all = processes.end_command(
            leader=leader,
            beginning=beginning,
            spared_leaders=spared | self._workers.pids,
            reap=self._reap_and_report,
            waits=waits,
        )
        if swept_all:
            self._shells.give_up()
            for other in others:
                other.cause = Cause.SWEPT

    def _sweep(self, channel: int, report_seconds: float) -> None:
        """End what an exec has left that ran out of memory, as if its time had been over."""
        failed = self._ended.failed(channel)
        if failed is not None:
            self._sweep_reports.begin(channel, report_seconds)
            self._spawner.disown()
            self._workers.give_up()
            spared = self._leaders()
            lives = failed.context is not None and failed.context.status is None
            # The number of a process that has ended may be that of another by now.
            leader = 0 if failed.pid in spared and not lives else failed.pid
            self._end_all_of(leader, failed.beginning, spared, waits=True)
        self._sweep_reports.end(channel)
        self._link.send(frames.encode_swept(channel, was_known=failed is not None))

    def _is_hindered(self, execution: Exec) -> bool:
        """Whether what earlier commands left running kept it from running: nothing else stops a
        shell, except a terminal."""
        if Remark.COMPANY not in execution.remarks or execution.is_terminal:
            return False
        return processes.is_stopped(execution.pid) or not execution.has_begun()

    def _free_from_company(self, execution: Exec) -> None:
        """End what hinders it, and would hinder the next one."""
        execution.remarks |= Remark.HINDERED
        self._make_room()

    def _look_at_running(self) -> None:
        found = self._supervision.look(self._running.values())
        for execution in found.hindered:
            if execution.remarks == Remark.COMPANY:
                self._free_from_company(execution)
                execution.has_begun()
        for execution in found.overdue:
            cause = Cause.DEADLINE if self._takes_remarks else Cause.KILLED
            if execution.context is None or execution.is_interrupted or not execution.pid:
                self._end(execution, cause)
            else:  # its variables are kept if it stops
                execution.is_interrupted, execution.cause = True, cause
                os.kill(execution.pid, signal.SIGINT)

    def _cancel_start(self, channel: int) -> None:
        """A command that waits ends as one that was killed."""
        self._sweep_reports.end(channel)
        waited = self._waiting_starts.take(channel)
        if waited is None:
            return
        beginning = Beginning(processes.ticks_now(), self._leftovers)
        execution = Exec(channel, pid=0, beginning=beginning, stdout=-1, stderr=-1)
        execution.label = waited.label
        execution.is_kept = waited.request.get("keep") is True
        execution.is_attached = waited.is_attached
        execution.status, execution.cause = int(signal.SIGKILL), Cause.KILLED
        self._ended.add(execution)
        self._send_end(execution)

    # --- from the commands ---

    def _reap_and_report(self) -> None:
        self._reap()
        self._report_meanwhile()

    def _reap(self) -> None:
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._shells.forget(pid)
            self._workers.forget(pid, used.ru_utime + used.ru_stime)
            execution = self._by_pid.pop(pid, None) or self._contexts.forget(pid, status)
            if execution is not None:
                execution.has_ended(status)
                self._pipes.read_all(execution)
                execution.note_debt()
                if execution.saving is not None:
                    self._keep_state(execution)

    def _read_pipes(self) -> None:
        for descriptor in self._pipes.ready():
            if not self._is_welcome and self._keeps_enough():
                self._pipes.watch(False)
                return
            self._pipes.read_some(descriptor)

    def _keeps_enough(self) -> bool:
        kept = sum(execution.kept_bytes for execution in self._running.values())
        return kept + self._ended.kept_bytes >= MAX_KEPT_ALONE

    def _keep_state(self, execution: Exec) -> None:
        saving = self._interaction.take_state(execution)
        if saving is not None and not self._shells.keep_state(saving):
            self._write_to_stderr(
                execution, f"the state of shell {saving.name} is too large to be kept"
            )

    def _write_to_stderr(self, execution: Exec, message: str) -> None:
        """Add a line of ours to the output of a command."""
        output = execution.stdout if execution.merges_stderr else execution.stderr
        output.keep(f"{named_shell.MESSAGE}{message}\n".encode(errors="replace"))
        if execution.is_attached:
            self._send_what_is_kept(execution)

    def _finish_execs(self) -> None:
        for execution in tuple(self._running.values()):
            if execution.is_finished:
                self._finish(execution)

    def _finish(self, execution: Exec) -> None:
        self._pipes.remove(execution)
        self._interaction.disconnect(execution)
        self._contexts.finish(execution)
        del self._running[execution.channel]
        self._sweep_reports.end(execution.channel)
        self._leftovers_known = False
        self._ended_at = time.monotonic()
        self._ended.add(execution)
        self._send_end(execution)
