"""The guest's event loop: one thread, one daemon at a time, any number of commands."""

import errno
import json
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping

from . import frames, named_shell, processes
from .child_news import ChildNews
from .daemon_link import LINGER_SECONDS, DaemonLink
from .ended import EndedExecs
from .execution import Exec, Output
from .file_workers import FileWorkers
from .frames import Cause, Kind, Stream
from .interaction import Interaction
from .processes import Beginning
from .request import command_of, label_of
from .settings import Settings, environment_of, start_dir_of
from .shell import Refusal, Shells
from .spawner import PATIENCE_SECONDS, Late, Spawner
from .waiting_starts import WaitingStart, WaitingStarts

OUTGOING_HIGH = 512 * 1024
"""Above this no output is read from commands: the daemon is behind."""
CHUNKS_PER_TURN = 8
"""Each turn costs as much as reading a chunk does; with many more, others would wait."""
YOUNG_SECONDS = 0.02
LINGER_BYTES = 4096
RETRY_SECONDS = 0.1
"""Before a shell that could not be prepared is tried again."""
IDLE_SECONDS = 0.001
"""Quiet time before the next shell is prepared, so that it does not delay an answer."""
HURRY_SECONDS = 0.005
"""A command that comes so soon after the end of the last one is probably followed by the next as
soon: its shell is prepared at once, for after any quiet time that would come too late."""
PLACE_SECONDS = 5.0
"""A daemon that takes longer to move a shell does not serve any more."""
REDIAL_SECONDS = 0.05
MAX_KEPT_ALONE = 4 << 20
"""Output of all commands together that is kept while no daemon is there to take it."""
FIRST_VICTIM = "echo 1000 2>/dev/null >/proc/self/oom_score_adj\n"
"""Where commands share the guest's memory limit, the kernel should take them first."""
SETTLE_SECONDS = 0.002
SETTLE_LOOKS = 5
"""How often, and after how long each, a new shell is looked at until it has read its arguments."""
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
        self._workspace = settings["workspace"]
        self._start_dir = start_dir_of(settings)
        self._shells = Shells(
            workspace=self._start_dir,
            environment=environment_of(settings),
            spawner=spawner,
            place=self._have_placed if self._asks_to_place else lambda: None,
            set_up=FIRST_VICTIM if settings["is_first_victim"] else "",
        )
        self._running: dict[int, Exec] = {}
        self._ended = EndedExecs()
        self._by_pid: dict[int, Exec] = {}
        self._by_fd: dict[int, tuple[Exec, Output]] = {}
        self._waiting_starts = WaitingStarts()
        self._young: deque[Exec] = deque()
        """Commands whose pipes are not watched yet, oldest first."""
        self._settle_looks = 0
        """Left for a new shell."""
        self._prepare_after = 0.0
        self._ended_at = 0.0
        """When the last command ended."""
        self._is_hurried = False
        """Whether commands come one right after the other."""
        self._leftovers: frozenset[tuple[int, int]] = frozenset()
        """What was there when the last command had ended."""
        self._leftovers_known = True
        self._poll = select.epoll()
        # Output pipes have a poll of their own, not watched while the daemon is behind.
        self._pipes = select.epoll()
        self._pipes_watched = True
        self._interaction = Interaction(self._poll)
        self._workers = FileWorkers()
        self._link = DaemonLink(self._poll)
        self._is_welcome = True
        self._is_lost = False
        """The link broke; dealt with at the end of the turn."""
        self._redial_at = self._end_at = float("inf")
        self._child_news = ChildNews()
        self._link.open(connection)
        self._poll.register(self._child_news.descriptor, select.EPOLLIN)
        self._poll.register(self._pipes.fileno(), select.EPOLLIN)

    def serve(self) -> None:
        """Until the daemon is gone for good. SystemExit where going on would be wrong."""
        try:
            self._shells.prepare()
        except ConnectionError:
            pass  # the first turn sees it
        self._link.send(frames.encode(Kind.READY))
        while self._turn():
            pass

    def _turn(self) -> bool:
        """One round of the loop; False once no daemon will come any more."""
        self._flush_if_due()
        self._watch_grown_up()
        events = self._poll.poll(self._patience())
        for descriptor, mask in events:
            self._on_event(descriptor, mask)
        self._finish_execs()
        self._interaction.read_states()
        if self._waiting_starts and not self._is_lost:
            self._retry_starts()
        self._interaction.tell_taken(self._link)
        if self._is_lost:
            return self._lose_daemon()
        if self._redial_at <= time.monotonic():
            return self._redial()
        if not events and not self._link.outgoing:
            self._use_idle_time()
            # Whoever waited for a shell to be moved has read what else came meanwhile.
            self._handle_received()
        return True

    def _on_event(self, descriptor: int, mask: int) -> None:
        if descriptor == self._link.descriptor:
            if mask & ~select.EPOLLOUT:
                self._receive()
        elif descriptor == self._child_news.descriptor:
            self._child_news.take()
            self._reap()
        elif descriptor == self._pipes.fileno():
            self._read_pipes()
        else:
            self._interaction.on_event(descriptor)

    def _use_idle_time(self) -> None:
        """What neither an answer nor a command should wait for. Whoever is sent something begins
        to run when we go to sleep, not before: the kernel gives it our place on the processor."""
        if not self._leftovers_known:
            self._note_leftovers()
        self._shells.clear_up()
        if self._workers.give_up_at <= time.monotonic():
            self._workers.give_up()
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
        there = processes.living() if processes.are_any() else ()
        workers = self._workers.pids
        self._leftovers = frozenset((p.pid, p.started) for p in there if p.pid not in workers)

    def _prepare_quietly(self) -> None:
        """Fails at the limit of processes, or when a command kills what it can see; then the next
        command starts a shell of its own."""
        if time.monotonic() < self._prepare_after:
            return
        try:
            if self._asks_to_place and not self._is_welcome:
                raise ConnectionError(errno.ENOTCONN, "nobody could move it")
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
        if self._waiting_starts:
            due.append(self._waiting_starts.next_try_at)
        if not self._leftovers_known:
            due.append(now + self._idle_seconds)
        if self._young:
            due.append(self._young[0].started_at + LINGER_SECONDS)
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
        """Nobody is at the other end any more; False if nobody will be."""
        now = time.monotonic()
        # One that only hangs up is not asked again at once.
        self._redial_at = now if self._is_welcome else now + REDIAL_SECONDS
        self._end_at = min(self._end_at, now + self._grace_seconds)
        self._link.close()
        self._workers.end_all()
        self._is_lost = self._is_welcome = False
        self._ended.flow_is_lost()
        self._watch_pipes(True)
        for execution in (*self._running.values(), *self._ended.all()):
            execution.is_attached = execution.is_told = False
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
        self._redial_at = min(now + REDIAL_SECONDS, self._end_at)
        if not self._link.is_open:
            connection = self._dial()
            if connection is not None:
                self._link.open(connection)
                self._link.send(frames.encode_hello(os.getpid(), is_resumed=True))
        return True

    def _be_welcomed(self, settings: Settings) -> None:
        """Tell a new daemon what there is; it says of each how much it has."""
        self._is_welcome = True
        self._watch_pipes(True)
        self._redial_at = self._end_at = float("inf")
        self._grace_seconds = settings.get("grace_seconds", self._grace_seconds)
        if "workspace" in settings and "env" in settings:
            self._workspace = settings["workspace"]
            self._start_dir = start_dir_of(settings)
            self._shells.change(workspace=self._start_dir, environment=environment_of(settings))
        for execution in self._ended.all():
            state = execution.state(has_ended=True)
            self._link.send(frames.encode_state(execution.channel, state))
        for execution in self._running.values():
            state = execution.state(has_ended=False)
            self._link.send(frames.encode_state(execution.channel, state))
        for waited in self._waiting_starts:
            self._link.send(frames.encode_state(waited.channel, waited.state()))
        self._link.send(frames.encode(Kind.READY))

    def _resume(self, channel: int, stdout_bytes: int, stderr_bytes: int) -> None:
        execution = self._running.get(channel) or self._ended.get(channel)
        if execution is None:
            if (waited := self._waiting_starts.get(channel)) is not None:
                waited.resume()
            return
        execution.stdout.rewind(stdout_bytes)
        execution.stderr.rewind(stderr_bytes)
        self._ended.count(execution)
        execution.window = frames.WINDOW
        execution.is_attached = True
        self._interaction.resume(execution)
        self._send_what_is_kept(execution)
        self._watch_if_allowed(execution)

    # --- towards the daemon ---

    def _flush_if_due(self) -> None:
        if self._link.flush_if_due():
            self._ended.has_left(self._link.flushed)
            self._watch_pipes(self._link.outgoing_bytes < OUTGOING_HIGH)

    def _watch_pipes(self, watched: bool) -> None:
        if watched != self._pipes_watched:
            self._pipes_watched = watched
            self._poll.modify(self._pipes.fileno(), select.EPOLLIN if watched else 0)

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
            self._tell_end(execution)

    def _tell_end(self, execution: Exec) -> None:
        if not execution.is_attached or execution.is_told or execution.is_behind:
            return
        execution.is_told = True
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

    def _have_placed(self) -> None:
        """Have new processes moved to where commands belong, and wait until they are;
        ConnectionError if nobody is there to do it.

        Nothing else is served meanwhile: the command of a shell that is not there yet must wait.
        """
        if not self._is_welcome:
            raise ConnectionError(errno.ENOTCONN, "nobody could move it")
        self._link.send(frames.encode(Kind.PLACE))
        poll = select.poll()
        poll.register(self._link.descriptor, select.POLLIN)
        give_up_at = time.monotonic() + PLACE_SECONDS
        placed = (int(Kind.PLACED), 0, b"")
        while placed not in self._link.inbox:
            self._flush_if_due()
            if time.monotonic() > give_up_at:
                raise SystemExit(1)
            if poll.poll(50) and not self._link.read_frames():
                self._is_lost = True
                raise ConnectionError(errno.ECONNRESET, "whoever moves it is gone")
        self._link.inbox.remove(placed)

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
            self._kill(channel)
        elif kind == Kind.RELEASE:
            self._ended.forget(channel)
        elif kind == Kind.PING:
            self._link.send(frames.encode(Kind.PONG, payload=payload))
        elif kind == Kind.RESUME:
            self._resume(channel, *frames.decode_resume(payload))
        elif kind in (Kind.FILES, Kind.FILES_END):
            self._have_worked(kind, channel)
        else:
            self._interact(kind, channel, payload)

    def _interact(self, kind: int, channel: int, payload: bytes) -> None:
        if not self._waiting_starts.keep(kind, channel, payload):
            self._interaction.handle(kind, self._running.get(channel), payload)

    def _have_worked(self, kind: int, number: int) -> None:
        if kind == Kind.FILES:
            self._workers.start(number, self._link.take_descriptor(), self._workspace)
        else:
            self._workers.end(number)

    def _start(
        self, channel: int, request: Mapping[str, object], waited: WaitingStart | None = None
    ) -> None:
        """Start a command, `waited` if it is not the first try; if it cannot be, it waits."""
        if waited is None and self._waiting_starts:
            self._put_off(WaitingStart(channel, request), "others wait for one")
            return
        if not self._leftovers_known:
            self._note_leftovers()
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
            self._refuse(channel, str(refusal))
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
        self._running[channel] = execution
        self._by_pid[execution.pid] = execution
        for output in execution.outputs:
            if output.descriptor >= 0:
                self._by_fd[output.descriptor] = (execution, output)
        self._young.append(execution)
        if streams.stdin >= 0 or started.saving is not None:
            self._interaction.connect(execution, started)

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
            self._refuse(waited.channel, f"{frames.NO_PROCESS} ({why})")
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
        # Whoever waited for a shell to be moved has read what else came meanwhile.
        self._handle_received()

    def _should_make_room(self, error: BlockingIOError, waited: WaitingStart | None) -> bool:
        """A process that only takes its time is waited for first: on a host that is overloaded,
        what earlier commands have left behind is not to blame."""
        return waited.needs_room() if waited is not None else not isinstance(error, Late)

    def _make_room(self) -> None:
        """No process is left for a command: end those that earlier commands have left behind."""
        running = {one.pid for one in self._running.values() if one.status is None}
        self._shells.give_up()
        self._workers.give_up()
        processes.end_leftovers(running | self._workers.pids, self._reap)

    def _refuse(self, channel: int, why: str) -> None:
        text = why.encode(errors="replace")[: frames.MAX_REFUSAL]
        self._link.send(frames.encode(Kind.REFUSED, channel, text))

    def _acknowledge(self, channel: int, ack: frames.Ack) -> None:
        execution = self._running.get(channel) or self._ended.get(channel)
        if execution is None:
            return  # it was forgotten while this was on its way
        output = execution.stdout if ack.stream == Stream.STDOUT else execution.stderr
        output.forget(min(ack.offset, output.sent))
        execution.window += ack.credit
        self._ended.count(execution)
        if execution.is_behind and execution.is_attached:
            self._send_what_is_kept(execution)
        self._watch_if_allowed(execution)

    def _watch_if_allowed(self, execution: Exec) -> None:
        if execution.window > 0 and execution.is_open and execution not in self._young:
            self._watch(execution)

    def _watch_grown_up(self) -> None:
        """Most commands are over in a moment. Their pipes are read once, when they have ended, and
        the two hang-ups just before that do not wake us."""
        while self._young and self._young[0].started_at + LINGER_SECONDS <= time.monotonic():
            execution = self._young.popleft()
            if execution.window > 0:
                self._watch(execution)

    def _watch(self, execution: Exec) -> None:
        if not execution.is_watched:
            execution.is_watched = True
            for output in execution.outputs:
                if output.descriptor >= 0:
                    self._pipes.register(output.descriptor, select.EPOLLIN)

    def _pause(self, execution: Exec) -> None:
        # Unregistered, not masked: a masked pipe still reports its hang-up, over and over.
        if execution.is_watched:
            execution.is_watched = False
            for output in execution.outputs:
                if output.descriptor >= 0:
                    self._pipes.unregister(output.descriptor)

    def _is_alone(self, execution: Exec) -> bool:
        """Whether nothing but the waiting shell would have to be spared."""
        ours = {execution.pid, self._shells.waiting_pid}
        is_only = len(self._by_pid) == 1 and not self._workers.pids
        return is_only and not any(pid not in ours for pid, _ in execution.beginning.seen)

    def _kill(self, channel: int) -> None:
        execution = self._running.get(channel)
        if execution is None:
            self._cancel_start(channel)
            return
        if execution.status is not None:
            return
        self._spawner.disown()
        self._workers.give_up()
        others = [one for one in self._running.values() if one is not execution]
        spared = {one.pid for one in others if one.status is None}
        if self._shells.waiting_pid is not None:
            spared.add(self._shells.waiting_pid)
        spared |= self._workers.pids
        execution.cause = Cause.KILLED
        if self._is_alone(execution):
            self._shells.give_up()
            processes.sweep(self._reap)
            return
        swept_all = processes.end_command(
            leader=execution.pid,
            beginning=execution.beginning,
            spared_leaders=spared,
            reap=self._reap,
        )
        if swept_all:
            self._shells.give_up()
            for one in others:
                if one.pid in spared:
                    one.cause = Cause.SWEPT

    def _cancel_start(self, channel: int) -> None:
        """A command that waits ends as one that was killed."""
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
        self._tell_end(execution)

    # --- from the commands ---

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._shells.forget(pid)
            self._workers.forget(pid)
            execution = self._by_pid.pop(pid, None)
            if execution is not None:
                execution.has_ended(status)
                self._read_what_is_there(execution)
                execution.note_debt()
                if execution.saving is not None:
                    self._keep_state(execution)

    def _read_pipes(self) -> None:
        """A few chunks from each pipe that has something, so that none starves another."""
        for descriptor, _ in self._pipes.poll(0):
            if not self._is_welcome and self._keeps_enough():
                self._watch_pipes(False)
                return
            for _ in range(CHUNKS_PER_TURN):
                if descriptor not in self._by_fd or not self._read(descriptor):
                    break

    def _keeps_enough(self) -> bool:
        kept = sum(execution.kept_bytes for execution in self._running.values())
        return kept + self._ended.kept_bytes >= MAX_KEPT_ALONE

    def _read_what_is_there(self, execution: Exec) -> None:
        for output in execution.outputs:
            while output.descriptor >= 0 and self._read(output.descriptor):
                pass

    def _read(self, descriptor: int) -> bool:
        """Pass one chunk on; False when the pipe is empty or closed, or the window is used up."""
        execution, output = self._by_fd[descriptor]
        if execution.window <= 0:
            self._pause(execution)
            return False
        try:
            data = os.read(descriptor, min(frames.MAX_CHUNK, execution.window))
        except BlockingIOError:
            output.owed = 0  # a terminal owes less than was assumed
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""  # how a terminal says that nobody has it open any more
        if not data:
            self._close_output(execution, output)
            return False
        execution.window -= len(data) + frames.FRAME_COST
        is_next = execution.is_attached and output.sent == output.read
        output.keep(data)
        if is_next:
            self._send_output(execution, output, data)
        return True

    def _close_output(self, execution: Exec, output: Output) -> None:
        if execution.is_terminal and execution.is_watched:
            # Closing would not end the watch: for input there is a copy of the descriptor.
            self._pipes.unregister(output.descriptor)
        del self._by_fd[output.descriptor]
        os.close(output.descriptor)  # which also ends its watch
        output.descriptor = -1

    def _keep_state(self, execution: Exec) -> None:
        saving = self._interaction.take_state(execution)
        if saving is not None and not self._shells.keep_state(saving):
            self._tell_user(execution, f"the state of shell {saving.name} is too large to be kept")

    def _tell_user(self, execution: Exec, message: str) -> None:
        """Add a line to standard error."""
        execution.stderr.keep(f"{named_shell.MESSAGE}{message}\n".encode(errors="replace"))
        if execution.is_attached:
            self._send_what_is_kept(execution)

    def _finish_execs(self) -> None:
        for execution in tuple(self._running.values()):
            if execution.is_finished:
                self._finish(execution)

    def _finish(self, execution: Exec) -> None:
        for output in execution.outputs:
            if output.descriptor >= 0:
                self._close_output(execution, output)
        self._interaction.disconnect(execution)
        del self._running[execution.channel]
        if execution in self._young:
            self._young.remove(execution)
        self._leftovers_known = False
        self._ended_at = time.monotonic()
        self._ended.add(execution)
        self._tell_end(execution)
