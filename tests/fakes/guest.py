"""Guests without containers: they dial the daemon's socket, speak frames and obey a script.

A command is a line of steps: `echo X`, `err X`, `flood N`, `exit N`, `signal N`, `sleep` (until it
is killed or signalled), `cat` (echoes its input until the end of it), `stubborn` (sleeps and dies
neither of a KILL nor of a signal), `refuse X`, `die`, `lie NAME`, joined with `; `. A line that
runs out of steps exits with 0, so `true` needs no step of its own.

A guest outlives its daemon: commands go on without one, up to their windows, and it dials again
when a test says so.

Files are those of a directory of its own, worked on by the guest's own code, in threads.
"""

from __future__ import annotations

import array
import asyncio
import json
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from sandboxd.engine.contract import Container, ContainerId, ContainerSpec, Engine
from sandboxd.guest import frames
from sandboxd.guest.files import search
from sandboxd.guest.files.area import Area
from sandboxd.guest.files.worker import serve
from sandboxd.guest.frames import (
    Cause,
    Ending,
    ExecState,
    Exited,
    Kind,
    Output,
    StartFailure,
    Stream,
    Target,
)
from sandboxd.isolation.attachment import Attachment
from sandboxd.isolation.uids import UidRange
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.settings import SandboxSettings
from tests.fakes.contexts import FakeContexts
from tests.fakes.engine import FakeEngine
from tests.fakes.lies import LIES
from tests.fakes.output_frame import encode_output

T = TypeVar("T")

LINK_TARGET = "/.sandboxd/link"


@contextmanager
def _unlimited(seconds: float) -> Iterator[None]:
    """The clock of a search needs a process of its own."""
    yield


search.limited = _unlimited

_inspected: ContextVar[FakeGuest] = ContextVar("_inspected")
"""The daemon inspects a container and pins its process in one task, so this tells whose it is."""


@dataclass(eq=False)
class Command:
    """One command as its guest sees it."""

    guest: FakeGuest
    channel: int
    request: dict[str, Any]
    steps: list[str]
    window: int = frames.WINDOW
    sent: dict[Stream, int] = field(default_factory=lambda: dict.fromkeys(Stream, 0))
    unacknowledged: list[Output] = field(default_factory=list)
    flood_left: int = 0
    is_stubborn: bool = False
    is_attached: bool = True
    """Whether the daemon at the other end has taken it over."""
    kills: int = 0
    signals: list[tuple[int, Target]] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    input: bytearray = field(default_factory=bytearray)
    """What it was given and has not taken yet."""
    input_taken: int = 0
    is_input_closed: bool = False
    exited: Exited | None = None
    run: frames.ContextRun | None = None

    @property
    def line(self) -> str:
        return self.request["shell"] or self.request.get("code") or " ".join(self.request["argv"])

    @property
    def context(self) -> str:
        """Context of a run of code; empty for a command."""
        return str(self.request.get("context", {}).get("name", ""))

    @property
    def pid(self) -> int:
        return 100 + self.channel

    @property
    def label(self) -> bytes:
        return str(self.request.get("label", "")).encode()

    @property
    def is_running(self) -> bool:
        return self.guest.running.get(self.channel) is self

    @property
    def has_input(self) -> bool:
        return bool(self.request.get("stdin") or self.request.get("terminal"))

    @property
    def is_held_back(self) -> bool:
        """Whether it has something to send and may not."""
        return self.flood_left > 0 and self.window <= 0

    @property
    def unread_bytes(self) -> int:
        """What the daemon holds of its output, as far as credit tells."""
        return frames.WINDOW - self.window

    @property
    def state(self) -> ExecState:
        stdout_bytes, stderr_bytes, events_bytes = self.sent.values()
        return ExecState(self.exited, stdout_bytes, stderr_bytes, self.label, events_bytes)

    def forget(self, stream: Stream, offset: int) -> None:
        """The daemon has this stream up to here."""
        self.unacknowledged = [
            one
            for one in self.unacknowledged
            if one.stream != stream or one.offset + len(one.data) > offset
        ]

    def rewind(self, have: Mapping[Stream, int]) -> None:
        """Keep what a new daemon does not have, cut to where it begins."""
        for stream, offset in have.items():
            self.forget(stream, offset)
        self.unacknowledged = [
            Output(stream, max(offset, have[stream]), data[max(0, have[stream] - offset) :])
            for stream, offset, data in self.unacknowledged
        ]


class FakeGuest(asyncio.Protocol):
    """Serves one sandbox until it is dropped."""

    def __init__(self, guests: FakeGuests, spec: ContainerSpec) -> None:
        self._guests = guests
        self._link = next(Path(b.source) for b in spec.binds if b.target == LINK_TARGET)
        self._decoder = frames.Decoder(frames.MAX_DAEMON_PAYLOAD)
        self._transport: asyncio.Transport | None = None
        self._reading: socket.socket | None = None
        """The connection once more: a transport does not take descriptors that come along."""
        self._descriptors: deque[int] = deque()
        self.workspace = self._link / "workspace"
        self.outside = self._link / "outside"
        """What it has in place of the rest of a filesystem."""
        self.file_workers: list[int] = []
        """Numbers of those that were asked for."""
        self._worker_ends: list[socket.socket] = []
        self.running: dict[int, Command] = {}
        self.ended: dict[int, Command] = {}
        """Those that the daemon has not released."""
        self.contexts = FakeContexts()
        self.settings: dict[str, Any] | None = None
        self.pings = 0
        self.sweeps: list[int] = []
        """Ended execs whose remains it was asked to end."""
        self.process: FakeProcess | None = None
        self.is_alive = True
        self.is_connected = False
        self.disconnected = asyncio.Event()

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self, str(self._link / "guest.sock"))

    async def dial_again(self) -> None:
        """Dial until a daemon listens."""
        while self.is_alive:
            try:
                await self.connect()
                return
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(0.005)

    def drop(self) -> None:
        """Be gone at once, as a killed process is."""
        self.is_alive = False
        self.stop_reading()
        for end in self._worker_ends:
            with suppress(OSError):  # it has ended by itself
                end.shutdown(socket.SHUT_RDWR)
        if self._transport is not None:
            self._transport.abort()

    def leave(self) -> None:
        """Be gone once everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def fileno(self) -> int:
        assert self._transport is not None
        return int(self._transport.get_extra_info("socket").fileno())

    def raw_socket(self) -> socket.socket:
        """The connection once more, for what a transport does not do; to be closed."""
        return socket.socket(fileno=os.dup(self.fileno()))

    def stop_reading(self) -> None:
        if self._reading is not None:
            asyncio.get_running_loop().remove_reader(self._reading)
            self._reading.close()
            self._reading = None
        while self._descriptors:
            os.close(self._descriptors.popleft())

    # --- towards the daemon ---

    def say(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def hello(self) -> None:
        self.say(frames.encode_hello(1, is_resumed=self.settings is not None))

    def ready(self) -> None:
        """Say what it has, which is nothing at first."""
        for command in (*self.ended.values(), *self.running.values()):
            self.say(frames.encode_state(command.channel, command.state))
        for name in self.contexts.by_name:
            self.say(frames.encode_context(self.contexts.describe(name)))
        self.say(frames.encode(Kind.READY))

    def output(self, command: Command, stream: Stream, data: bytes) -> None:
        piece = Output(stream, command.sent[stream], data)
        command.sent[stream] += len(data)
        command.unacknowledged.append(piece)
        self._send_output(command, piece)

    def _send_output(self, command: Command, piece: Output) -> None:
        command.window -= len(piece.data) + frames.FRAME_COST
        if command.is_attached:
            data = bytes(piece.data)
            self.say(encode_output(command.channel, piece.stream, piece.offset, data))

    def exit(
        self, command: Command, ending: Ending, value: int, cause: Cause = Cause.ITSELF
    ) -> None:
        if self.running.pop(command.channel, None) is not None:
            if command.context and ending is Ending.CODE and cause is Cause.ITSELF:
                ending, value = Ending.DONE, min(value, 3)
            elif command.context:
                self.contexts.lose(command.context, ending, value)
            command.exited = Exited(ending, cause, value, *command.sent.values())
            if command.request.get("keep"):
                self.ended[command.channel] = command
            if command.is_attached:
                self.say(self._encode_exited(command.channel, command.exited))

    def _encode_exited(self, channel: int, exited: Exited) -> bytes:
        if self._guests.version >= frames.CODE_VERSION:
            return frames.encode_exited(channel, exited)
        return frames.encode(Kind.EXITED, channel, struct.pack("!BBiQQ", *exited[:5]))

    # --- from the daemon ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._decoder = frames.Decoder(frames.MAX_DAEMON_PAYLOAD)
        self._transport.pause_reading()
        self._reading = self.raw_socket()
        self._reading.setblocking(False)
        asyncio.get_running_loop().add_reader(self._reading, self._read)
        self.is_connected = True
        self.disconnected.clear()
        self._guests.greet(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_reading()
        self.is_connected = False
        for command in self.running.values():
            command.is_attached = False
        self.disconnected.set()
        self._guests.engine.notify()

    def _read(self) -> None:
        assert self._reading is not None
        try:
            data, rights, _, _ = self._reading.recvmsg(1 << 16, socket.CMSG_SPACE(64))
        except BlockingIOError:
            return
        except OSError:
            data, rights = b"", []
        for _level, _kind, numbers in rights:
            self._descriptors.extend(array.array("i", numbers))
        if data:
            self.data_received(data)
        else:
            self.stop_reading()
            assert self._transport is not None
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            is_about_context = frame.kind in (Kind.CONTEXT, Kind.DROP_CONTEXT)
            (self._handle_context if is_about_context else self._handle)(frame)
        self._guests.engine.notify()

    def _handle(self, frame: frames.Frame) -> None:
        match frame.kind:
            case Kind.WELCOME:
                self.settings = json.loads(bytes(frame.payload))
                self._guests.welcome(self)
            case Kind.PING:
                self.pings += 1
                if self._guests.answers_pings:
                    self.say(frames.encode(Kind.PONG, payload=bytes(frame.payload)))
            case Kind.START:
                self._start(frame.channel, json.loads(bytes(frame.payload)))
            case Kind.WORKER:
                self.file_workers.append(frame.channel)
                self._guests.work(self, socket.socket(fileno=self._descriptors.popleft()))
            case Kind.RELEASE | Kind.SWEEP:
                self._handle_ended(frame)
            case Kind.RESUME:
                resumed = self.running.get(frame.channel) or self.ended[frame.channel]
                self._resume(resumed, *frames.decode_resume(frame.payload))
            case Kind.ACK if frame.channel in self.ended:
                self.ended[frame.channel].forget(*frames.decode_ack(frame.payload)[:2])
            case _ if frame.channel in self.running:
                self._handle_running(self.running[frame.channel], frame)

    def _handle_ended(self, frame: frames.Frame) -> None:
        if frame.kind == Kind.RELEASE:
            self.ended.pop(frame.channel, None)
            return
        self.sweeps.append(frame.channel)
        if self._guests.answers_sweeps:
            self.say(frames.encode_swept(frame.channel, was_known=True))

    def _handle_running(self, command: Command, frame: frames.Frame) -> None:
        match frame.kind:
            case Kind.ACK:
                ack = frames.decode_ack(frame.payload)
                command.forget(ack.stream, ack.offset)
                command.window += ack.credit
            case Kind.KILL:
                command.kills += 1
                if not command.is_stubborn:
                    self.exit(command, Ending.SIGNAL, 9, Cause.KILLED)
            case Kind.SIGNAL:
                number, target = frames.decode_signal(frame.payload)
                command.signals.append((number, target))
                if command.context and not command.is_stubborn:
                    self.exit(command, Ending.CODE, frames.RunEnd.INTERRUPTED)
                elif not command.is_stubborn:
                    self.exit(command, Ending.SIGNAL, number)
            case Kind.INPUT:
                offset, data = frames.decode_input(frame.payload)
                assert offset == command.input_taken + len(command.input)
                command.input += data
            case Kind.INPUT_END:
                command.is_input_closed = True
            case Kind.RESIZE:
                command.sizes.append(frames.decode_resize(frame.payload))
        self.advance(command)

    def work_on_files(self, connection: socket.socket) -> None:
        """As a worker does that the guest would fork."""
        roots = []
        for directory in (self.workspace, self.outside):
            directory.mkdir(exist_ok=True)
            roots.append(os.open(directory, os.O_PATH | os.O_DIRECTORY))
        path = self.settings["workspace"].encode() if self.settings else b"/workspace"
        everything = Area(roots[1], b"/", workspace=None)
        area = Area(roots[0], path, everything=everything)
        self._worker_ends.append(connection)
        threading.Thread(target=self._serve, args=(area, roots, connection), daemon=True).start()

    def _serve(self, area: Area, roots: list[int], connection: socket.socket) -> None:
        try:
            with connection:
                serve(area, connection)
        finally:
            for root in roots:
                os.close(root)

    def _resume(self, command: Command, *counts: int) -> None:
        command.rewind(dict(zip(Stream, counts, strict=True)))
        command.is_attached = True
        command.window = frames.WINDOW
        if command.run is not None:
            self.say(frames.encode_context_run(command.channel, command.run))
        self.report_start(command)
        for piece in command.unacknowledged:
            self._send_output(command, piece)
        if command.exited is not None:
            self.say(frames.encode_exited(command.channel, command.exited))
        elif command.has_input:
            self.say(frames.encode_input_taken(command.channel, command.input_taken))
        self.advance(command)

    def _start(self, channel: int, request: dict[str, Any]) -> None:
        command = Command(self, channel, request, [])
        command.steps = command.line.split("; ")
        command.is_input_closed = not command.has_input
        if command.context:
            command.run = self.contexts.begin(request)
            if command.run is None:
                why = "another generation"
                self.say(frames.encode_refused(channel, StartFailure.CONTEXT_LOST, why))
                return
            self.say(frames.encode_context_run(channel, command.run))
        self.running[channel] = command
        self._guests.commands.append(command)
        if not command.steps[0].startswith("refuse "):
            self.report_start(command)
        self.advance(command)

    def _handle_context(self, frame: frames.Frame) -> None:
        name = bytes(frame.payload).decode()
        if frame.kind == Kind.DROP_CONTEXT:
            name, is_forgotten = frames.decode_drop_context(frame.payload)
            self.contexts.drop(name, is_forgotten)
        self.say(frames.encode_context(self.contexts.describe(name)))

    def report_start(self, command: Command) -> None:
        if command.request.get("report_start"):
            self.say(frames.encode_started(command.channel, command.pid))

    def advance(self, command: Command) -> None:
        """Take the steps that can be taken now."""
        while command.is_running and (self.is_connected or not command.is_attached):
            self._flood(command)
            if command.flood_left:
                return
            if not command.steps:
                self.exit(command, Ending.CODE, 0)
            elif command.steps[0] in ("sleep", "stubborn"):
                command.is_stubborn = command.steps[0] == "stubborn"
                return
            elif command.steps[0] == "cat":
                self._take_input(command)
                if command.input or not command.is_input_closed:
                    return
                command.steps.pop(0)
            else:
                self._step(command, *command.steps.pop(0).partition(" ")[::2])

    def _step(self, command: Command, verb: str, argument: str) -> None:
        match verb:
            case "echo" | "err":
                stream = Stream.STDOUT if verb == "echo" else Stream.STDERR
                self.output(command, stream, argument.encode() + b"\n")
            case "event":
                self.output(command, Stream.EVENTS, bytes.fromhex(argument))
            case "flood":
                command.flood_left = int(argument)
            case "exit":
                self.exit(command, Ending.CODE, int(argument))
            case "signal":
                self.exit(command, Ending.SIGNAL, int(argument))
            case "refuse":
                del self.running[command.channel]
                failure = StartFailure.OTHER
                if argument.startswith(frames.NO_PROCESS):
                    failure = StartFailure.NO_PROCESS
                self.say(frames.encode_refused(command.channel, failure, argument))
            case "die":
                self.drop()
            case "lie":
                self.say(LIES[argument].frames(command.channel))
                command.steps.insert(0, "sleep")

    def _flood(self, command: Command) -> None:
        while command.flood_left and command.window > 0:
            size = min(frames.MAX_CHUNK, command.flood_left, command.window)
            command.flood_left -= size
            self.output(command, Stream.STDOUT, b"x" * size)

    def _take_input(self, command: Command) -> None:
        while command.input and command.window > 0:
            data = bytes(command.input[: frames.MAX_CHUNK])
            del command.input[: len(data)]
            command.input_taken += len(data)
            self.output(command, Stream.STDOUT, data)
            if command.is_attached:
                self.say(frames.encode_input_taken(command.channel, command.input_taken))


class FakeProcess:
    """The first process of a fake container: killing it drops its guest and nothing else."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.kills = 0
        self.attached: list[Attachment] = []
        self.is_closed = False
        self._guest = _inspected.get()
        self._guest.process = self

    def kill(self) -> bool:
        if self.is_closed:
            return False
        self.kills += 1
        self._guest.drop()
        return True

    def attach(self, attachments: Sequence[Attachment]) -> None:
        self.attached.extend(attachments)

    def in_network(self, make: Callable[[], T]) -> T:
        """In the network of the tests themselves."""
        return make()

    def read_proc(self, name: str, max_bytes: int) -> bytes:
        return Path("/proc/self", name).read_bytes()[:max_bytes]

    def open_directory(self, path: str) -> int:
        """The same directory for every sandbox; a fake store of snapshots does not look into it."""
        return os.open("/", os.O_RDONLY | os.O_DIRECTORY)

    async def gone(self, seconds: float) -> bool:
        return True

    def close(self) -> None:
        self.is_closed = True


class FakeGuests:
    """Brings every container of a fake engine to life. What is set here holds for later guests."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        engine.on_start = self._on_start
        engine.on_remove = self._on_remove
        engine.on_inspect = self._on_inspect
        self.greet: Callable[[FakeGuest], None] = FakeGuest.hello
        """What a guest does once it is connected."""
        self.welcome: Callable[[FakeGuest], None] = FakeGuest.ready
        """What a guest does once it has its settings."""
        self.work: Callable[[FakeGuest, socket.socket], None] = FakeGuest.work_on_files
        """What a guest does with the socket to a worker."""
        self.answers_pings = self.answers_sweeps = True
        self.version = frames.PROTOCOL_VERSION
        """Version of the frames that guests send; what they greet with is theirs to say."""
        self.connects_late = False
        """Whether the engine answers a start before the guest has dialled."""
        self.start_seconds = 5.0
        self.by_container: dict[ContainerId, FakeGuest] = {}
        self.commands: list[Command] = []
        self.uids: UidRange | None = None
        self._connecting: list[asyncio.Future[None]] = []

    def maker(self, engine: Engine, settings: SandboxSettings, host: Host) -> SandboxMaker:
        """A maker of sandboxes that cannot kill anything real, and puts nothing into cgroups."""
        self.uids = host.uids
        bounded = replace(settings, start_seconds=self.start_seconds)
        harmless = replace(host, cgroups=None, pin=FakeProcess)
        return SandboxMaker(engine, bounded, harmless)

    def command(self, line: str) -> Command:
        """The newest command with this line."""
        return next(command for command in reversed(self.commands) if command.line == line)

    async def wait_for(self, line: str) -> Command:
        """The command with this line, once a guest has it."""
        await self.engine.wait_until(lambda: any(one.line == line for one in self.commands))
        return self.command(line)

    def lose(self, container_id: ContainerId) -> None:
        """End a container from outside."""
        self.engine.lose(container_id)
        self.by_container[container_id].drop()

    def dial_again(self) -> None:
        """Let every guest that has lost its daemon look for the next one."""
        for guest in self.by_container.values():
            if guest.is_alive and not guest.is_connected:
                self._connecting.append(asyncio.ensure_future(guest.dial_again()))

    async def aclose(self) -> None:
        for guest in self.by_container.values():
            guest.is_alive = False
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for guest in self.by_container.values():
            guest.drop()
            if guest.is_connected:
                await guest.disconnected.wait()

    async def _on_start(self, spec: ContainerSpec, container: Container) -> None:
        guest = FakeGuest(self, spec)
        self.by_container[container.id] = guest
        connecting = asyncio.ensure_future(guest.connect())
        self._connecting.append(connecting)
        if not self.connects_late:
            await asyncio.shield(connecting)  # a process does not care who gave up its start

    def _on_inspect(self, container: Container) -> None:
        if container.id in self.by_container:
            _inspected.set(self.by_container[container.id])

    async def _on_remove(self, spec: ContainerSpec, container: Container) -> None:
        if container.id in self.by_container:
            self.by_container[container.id].drop()
