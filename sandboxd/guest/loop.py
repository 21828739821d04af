"""The guest's event loop: one thread, one connection, any number of commands."""

import fcntl
import json
import os
import select
import signal
import socket
import struct
import termios
import time
from collections import deque
from collections.abc import Mapping
from itertools import islice

from . import frames, processes
from .frames import Cause, Ending, Exited, Kind, Stream
from .processes import Beginning
from .shell import Command, Refusal, Shells, Waiting
from .spawner import Spawner

MAX_PIECES = 256
"""Pieces given to one send; the kernel takes up to 1024."""
OUTGOING_HIGH = 512 * 1024
"""Above this no output is read from commands: the daemon is behind."""
CHUNKS_PER_TURN = 4
"""What a full pipe holds; each turn costs as much as reading a chunk does."""
LINGER_SECONDS = 0.001
"""How long a little output of a young command waits for the exit, to leave in one piece with it."""
YOUNG_SECONDS = 0.02
LINGER_BYTES = 4096
STRAGGLER_SECONDS = 0.1
"""How long output may stay open after the first process of a command has ended."""
RETRY_SECONDS = 0.1
"""Before a shell that could not be prepared is tried again."""
IDLE_SECONDS = 0.001
"""Quiet time before the next shell is prepared, so that it does not delay an answer."""
PLACE_SECONDS = 5.0
"""A daemon that takes longer to move a shell does not serve any more."""
FIRST_VICTIM = "echo 1000 2>/dev/null >/proc/self/oom_score_adj\n"
"""Where commands share the guest's memory limit, the kernel should take them first."""
SETTLE_SECONDS = 0.005
"""How long a new shell gets until it has read its arguments."""


class Exec:
    """One running command."""

    def __init__(self, channel: int, shell: Waiting, beginning: Beginning) -> None:
        self.channel = channel
        self.pid = shell.pid
        self.beginning = beginning
        self.started_at = time.monotonic()
        self.fds: dict[Stream, int] = {Stream.STDOUT: shell.stdout, Stream.STDERR: shell.stderr}
        self.sent: dict[Stream, int] = {Stream.STDOUT: 0, Stream.STDERR: 0}
        self.owed: dict[Stream, int] = {Stream.STDOUT: 0, Stream.STDERR: 0}
        """Bytes that were in the pipe when the first process ended: they must be sent."""
        self.window = frames.WINDOW
        self.is_watched = False
        """Its pipes are not watched while it is very young or its window is used up."""
        self.status: int | None = None
        self.cause = Cause.ITSELF
        self.give_up_at = float("inf")

    def has_ended(self, status: int) -> None:
        self.status = status
        self.give_up_at = time.monotonic() + STRAGGLER_SECONDS

    def note_debt(self) -> None:
        for stream, descriptor in self.fds.items():
            count = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4)
            self.owed[stream] = self.sent[stream] + struct.unpack("i", count)[0]

    @property
    def is_finished(self) -> bool:
        if self.status is None:
            return False
        if not self.fds:
            return True
        return time.monotonic() >= self.due_at

    @property
    def due_at(self) -> float:
        """When it is over even if its output stays open; never while output is owed, for then
        credit or the pipe itself brings us back."""
        all_paid = all(self.sent[stream] >= self.owed[stream] for stream in self.fds)
        return self.give_up_at if all_paid else float("inf")

    def ending(self) -> Exited:
        assert self.status is not None
        code = os.waitstatus_to_exitcode(self.status)
        kind, value = (Ending.CODE, code) if code >= 0 else (Ending.SIGNAL, -code)
        return Exited(kind, self.cause, value, self.sent[Stream.STDOUT], self.sent[Stream.STDERR])


class Guest:
    """Serves the daemon at the other end of `connection` until that closes."""

    def __init__(
        self,
        connection: socket.socket,
        spawner: Spawner,
        *,
        workspace: str,
        env: Mapping[str, str],
        asks_to_place: bool,
        is_first_victim: bool,
    ) -> None:
        self._connection = connection
        self._connection.setblocking(False)
        self._shells = Shells(
            workspace=workspace,
            environment=env,
            spawner=spawner,
            place=self._have_placed if asks_to_place else lambda: None,
            set_up=FIRST_VICTIM if is_first_victim else "",
        )
        self._inbox: deque[tuple[int, int, bytes]] = deque()
        self._workspace = workspace
        self._decoder = frames.Decoder(frames.MAX_DAEMON_PAYLOAD)
        self._execs: dict[int, Exec] = {}
        self._by_pid: dict[int, Exec] = {}
        self._by_fd: dict[int, tuple[Exec, Stream]] = {}
        self._young: deque[Exec] = deque()
        """Commands whose pipes are not watched yet, oldest first."""
        self._is_shell_new = False
        self._outgoing: deque[bytes | memoryview] = deque()
        self._outgoing_bytes = 0
        self._linger_until = 0.0
        self._prepare_after = 0.0
        self._leftovers: frozenset[tuple[int, int]] = frozenset()
        """What was there when the last command had ended."""
        self._leftovers_known = True
        self._poll = select.epoll()
        # Output pipes have a poll of their own, not watched while the daemon is behind.
        self._pipes = select.epoll()
        self._pipes_watched = True
        self._writable_watched = False
        self._woken, waker = socket.socketpair()
        self._woken.setblocking(False)
        waker.setblocking(False)
        self._waker = waker
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll.register(connection.fileno(), select.EPOLLIN)
        self._poll.register(self._woken.fileno(), select.EPOLLIN)
        self._poll.register(self._pipes.fileno(), select.EPOLLIN)

    def serve(self) -> None:
        self._shells.prepare()
        self._send(frames.encode(Kind.READY))
        while self._turn():
            pass

    def _turn(self) -> bool:
        """One round of the loop; False once the daemon is gone."""
        self._handle_all()  # what came while a shell was being placed
        self._flush_if_due()
        if not self._leftovers_known and not self._outgoing:
            self._note_leftovers()
        self._watch_grown_up()
        events = self._poll.poll(self._patience())
        for descriptor, mask in events:
            if descriptor == self._woken.fileno():
                self._drain_wakeups()
                self._reap()
            elif descriptor == self._pipes.fileno():
                self._read_pipes()
            elif mask & ~select.EPOLLOUT and not self._receive():
                return False
        self._finish_execs()
        if not events and not self._outgoing:
            self._use_idle_time()
        return True

    def _use_idle_time(self) -> None:
        if self._shells.waiting_pid is None:
            self._prepare_quietly()
            self._is_shell_new = True
        elif self._is_shell_new:
            self._shells.settle()
            self._is_shell_new = False

    def _note_leftovers(self) -> None:
        """After the answer and before the next command, so that neither waits for it."""
        self._leftovers_known = True
        there = processes.living() if processes.are_any() else ()
        self._leftovers = frozenset((one.pid, one.started) for one in there)

    def _prepare_quietly(self) -> None:
        """Fails at the limit of processes, or when a command kills what it can see; then the next
        command starts a shell of its own."""
        if time.monotonic() < self._prepare_after:
            return
        try:
            self._shells.prepare()
        except OSError:
            self._prepare_after = time.monotonic() + RETRY_SECONDS

    def _patience(self) -> float:
        """Seconds to wait for the next event."""
        now = time.monotonic()
        due = [execution.due_at for execution in self._execs.values()]
        if self._outgoing and not self._writable_watched:
            due.append(self._linger_until)
        elif self._shells.waiting_pid is None:
            due.append(max(now + IDLE_SECONDS, self._prepare_after))
        elif self._is_shell_new:
            due.append(now + SETTLE_SECONDS)
        if self._young:
            due.append(self._young[0].started_at + LINGER_SECONDS)
        soonest = min(due, default=float("inf"))
        return -1 if soonest == float("inf") else max(0.0, soonest - now)

    # --- towards the daemon ---

    def _send(self, data: bytes, *, linger: bool = False) -> None:
        if not linger:
            self._linger_until = 0.0
        elif not self._outgoing:
            self._linger_until = time.monotonic() + LINGER_SECONDS
        self._outgoing.append(data)
        self._outgoing_bytes += len(data)

    def _flush_if_due(self) -> None:
        if not self._outgoing:
            return
        if self._linger_until and time.monotonic() < self._linger_until:
            return
        try:
            self._drop(self._connection.sendmsg(list(islice(self._outgoing, MAX_PIECES))))
        except BlockingIOError:
            pass  # the writable event brings us back
        except (BrokenPipeError, ConnectionResetError):
            self._drop(self._outgoing_bytes)  # the read side will see the end
        self._watch_connection(writable=bool(self._outgoing))
        self._watch_pipes(self._outgoing_bytes < OUTGOING_HIGH)

    def _drop(self, count: int) -> None:
        """Forget the first `count` bytes of what is to be sent."""
        self._outgoing_bytes -= count
        while count:
            piece = self._outgoing.popleft()
            if len(piece) > count:
                self._outgoing.appendleft(memoryview(piece)[count:])
                return
            count -= len(piece)

    def _watch_connection(self, *, writable: bool) -> None:
        if writable != self._writable_watched:
            self._writable_watched = writable
            mask = select.EPOLLIN | (select.EPOLLOUT if writable else 0)
            self._poll.modify(self._connection.fileno(), mask)

    def _watch_pipes(self, watched: bool) -> None:
        if watched != self._pipes_watched:
            self._pipes_watched = watched
            self._poll.modify(self._pipes.fileno(), select.EPOLLIN if watched else 0)

    # --- from the daemon ---

    def _receive(self) -> bool:
        """Read and handle what the daemon sent; False once it is gone."""
        is_there = self._read_frames()
        self._handle_all()
        return is_there

    def _handle_all(self) -> None:
        while self._inbox:
            self._handle(*self._inbox.popleft())

    def _read_frames(self) -> bool:
        try:
            data = self._connection.recv(1 << 16)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        for frame in self._decoder.feed(data):
            self._inbox.append((frame.kind, frame.channel, bytes(frame.payload)))
        return bool(data)

    def _have_placed(self) -> None:
        """Have new processes moved to where commands belong, and wait until they are.

        Nothing else is served meanwhile: the command of a shell that is not there yet must wait.
        """
        self._send(frames.encode(Kind.PLACE))
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        give_up_at = time.monotonic() + PLACE_SECONDS
        placed = (int(Kind.PLACED), 0, b"")
        while placed not in self._inbox:
            self._flush_if_due()
            if time.monotonic() > give_up_at:
                raise SystemExit(1)
            if poll.poll(50) and not self._read_frames():
                raise SystemExit(1)
        self._inbox.remove(placed)

    def _handle(self, kind: int, channel: int, payload: frames.Payload) -> None:
        if kind == Kind.START:
            self._start(channel, json.loads(bytes(payload)))
        elif kind == Kind.CREDIT:
            self._add_credit(channel, frames.decode_credit(payload))
        elif kind == Kind.KILL:
            self._kill(channel)
        elif kind == Kind.PING:
            self._send(frames.encode(Kind.PONG, payload=bytes(payload)))
        else:
            raise frames.ProtocolError(f"unexpected frame of kind {kind}")

    def _start(self, channel: int, request: dict[str, object]) -> None:
        command = _command(request, self._workspace)
        beginning = Beginning(processes.ticks_now(), self._leftovers)
        try:
            try:
                shell = self._shells.start(command)
            except BlockingIOError:
                self._make_room()
                shell = self._shells.start(command)
        except Refusal as refusal:
            self._refuse(channel, str(refusal))
            return
        except OSError as error:
            self._refuse(channel, f"no process could be started ({error.strerror})")
            return
        execution = Exec(channel, shell, beginning)
        self._execs[channel] = execution
        self._by_pid[shell.pid] = execution
        for stream, descriptor in execution.fds.items():
            self._by_fd[descriptor] = (execution, stream)
        self._young.append(execution)
        shell.close_memory()

    def _make_room(self) -> None:
        """No process is left for a command: end those that earlier commands have left behind."""
        running = {one.pid for one in self._execs.values() if one.status is None}
        processes.end_leftovers(running, self._reap)

    def _refuse(self, channel: int, why: str) -> None:
        text = why.encode(errors="replace")[: frames.MAX_REFUSAL]
        self._send(frames.encode(Kind.REFUSED, channel, text))

    def _add_credit(self, channel: int, count: int) -> None:
        execution = self._execs.get(channel)
        if execution is None:
            return  # it ended while the credit was on its way
        execution.window += count
        if execution.window > 0 and execution not in self._young:
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
            for descriptor in execution.fds.values():
                self._pipes.register(descriptor, select.EPOLLIN)

    def _pause(self, execution: Exec) -> None:
        # Unregistered, not masked: a masked pipe still reports its hang-up, over and over.
        if execution.is_watched:
            execution.is_watched = False
            for descriptor in execution.fds.values():
                self._pipes.unregister(descriptor)

    def _is_alone(self, execution: Exec) -> bool:
        """Whether nothing but the waiting shell would have to be spared."""
        ours = {execution.pid, self._shells.waiting_pid}
        return len(self._by_pid) == 1 and not any(
            pid not in ours for pid, _ in execution.beginning.seen
        )

    def _kill(self, channel: int) -> None:
        execution = self._execs.get(channel)
        if execution is None or execution.status is not None:
            return
        others = [one for one in self._execs.values() if one is not execution]
        spared = {one.pid for one in others if one.status is None}
        if self._shells.waiting_pid is not None:
            spared.add(self._shells.waiting_pid)
        execution.cause = Cause.KILLED
        if self._is_alone(execution):
            processes.sweep(self._reap)
            return
        swept_all = processes.end_command(
            leader=execution.pid,
            beginning=execution.beginning,
            spared_leaders=spared,
            reap=self._reap,
        )
        if swept_all:
            for one in others:
                if one.pid in spared:
                    one.cause = Cause.SWEPT

    # --- from the commands ---

    def _drain_wakeups(self) -> None:
        try:
            while len(self._woken.recv(4096)) == 4096:
                pass
        except BlockingIOError:
            pass

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._shells.forget(pid)
            execution = self._by_pid.pop(pid, None)
            if execution is not None:
                execution.has_ended(status)
                self._read_what_is_there(execution)
                execution.note_debt()

    def _read_pipes(self) -> None:
        """A few chunks from each pipe that has something, so that none starves another."""
        for descriptor, _ in self._pipes.poll(0):
            for _ in range(CHUNKS_PER_TURN):
                if descriptor not in self._by_fd or not self._read(descriptor):
                    break

    def _read_what_is_there(self, execution: Exec) -> None:
        for descriptor in tuple(execution.fds.values()):
            while self._read(descriptor):
                pass

    def _read(self, descriptor: int) -> bool:
        """Pass one chunk on; False when the pipe is empty or closed, or the window is used up."""
        execution, stream = self._by_fd[descriptor]
        if execution.window <= 0:
            self._pause(execution)
            return False
        try:
            data = os.read(descriptor, min(frames.MAX_CHUNK, execution.window))
        except BlockingIOError:
            return False
        if not data:
            self._close_stream(execution, stream)
            return False
        offset = execution.sent[stream]
        execution.sent[stream] += len(data)
        execution.window -= len(data) + frames.FRAME_COST
        is_young = time.monotonic() - execution.started_at < YOUNG_SECONDS
        linger = is_young and len(data) < LINGER_BYTES
        head = frames.encode_output_head(execution.channel, stream, offset, len(data))
        self._send(head, linger=linger)
        self._send(data, linger=linger)
        return True

    def _close_stream(self, execution: Exec, stream: Stream) -> None:
        descriptor = execution.fds.pop(stream)
        del self._by_fd[descriptor]
        os.close(descriptor)  # which also ends its watch

    def _finish_execs(self) -> None:
        for execution in tuple(self._execs.values()):
            if execution.is_finished:
                for stream in tuple(execution.fds):
                    self._close_stream(execution, stream)
                del self._execs[execution.channel]
                if execution in self._young:
                    self._young.remove(execution)
                self._leftovers_known = False
                self._send(frames.encode_exited(execution.channel, execution.ending()))


def _command(request: dict[str, object], workspace: str) -> Command:
    shell, argv, cwd, env = (request.get(key) for key in ("shell", "argv", "cwd", "env"))
    assert isinstance(cwd, str)
    assert isinstance(env, dict)
    return Command(
        shell=shell if isinstance(shell, str) else None,
        argv=argv if isinstance(argv, list) else [],
        cwd=os.path.normpath(os.path.join(workspace, cwd)),
        env=env,
    )
