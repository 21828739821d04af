"""Guests without containers: they dial the daemon's socket, speak frames and obey a script.

A command is a line of steps: `echo X`, `err X`, `flood N`, `exit N`, `signal N`, `sleep` (until it
is killed), `stubborn` (sleeps and does not die of a KILL), `refuse X`, `die`, `lie NAME`, joined
with `; `. A line that runs out of steps exits with 0, so `true` needs no step of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from sandboxd.engine.contract import Container, ContainerId, ContainerSpec, Engine
from sandboxd.guest import frames
from sandboxd.guest.frames import Cause, Ending, Exited, Kind, Stream
from sandboxd.isolation.host import Host
from sandboxd.isolation.uids import UidRange
from sandboxd.sandbox import SandboxMaker, SandboxSettings
from tests.fakes.engine import FakeEngine
from tests.fakes.lies import LIES

LINK_TARGET = "/.sandboxd/link"

_being_started: ContextVar[FakeGuest] = ContextVar("_being_started")
"""The daemon starts a container and pins its process in one task, so this tells whose it is."""


@dataclass(eq=False)
class Command:
    """One command as its guest sees it."""

    guest: FakeGuest
    channel: int
    request: dict[str, Any]
    steps: list[str]
    window: int = frames.WINDOW
    sent: dict[Stream, int] = field(default_factory=lambda: dict.fromkeys(Stream, 0))
    flood_left: int = 0
    is_stubborn: bool = False
    kills: int = 0

    @property
    def line(self) -> str:
        return self.request["shell"] or " ".join(self.request["argv"])

    @property
    def is_running(self) -> bool:
        return self.guest.running.get(self.channel) is self

    @property
    def is_held_back(self) -> bool:
        """Whether it has something to send and may not."""
        return self.flood_left > 0 and self.window <= 0

    @property
    def unread_bytes(self) -> int:
        """What the daemon holds of its output, as far as credit tells."""
        return frames.WINDOW - self.window


class FakeGuest(asyncio.Protocol):
    """Serves one sandbox until it is dropped."""

    def __init__(self, guests: FakeGuests, spec: ContainerSpec) -> None:
        self._guests = guests
        self._link = next(Path(b.source) for b in spec.binds if b.target == LINK_TARGET)
        self._decoder = frames.Decoder(frames.MAX_DAEMON_PAYLOAD)
        self._transport: asyncio.Transport | None = None
        self.running: dict[int, Command] = {}
        self.settings: dict[str, Any] | None = None
        self.pings = 0
        self.process: FakeProcess | None = None
        self.is_connected = False
        self.disconnected = asyncio.Event()

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self, str(self._link / "guest.sock"))

    def drop(self) -> None:
        """Be gone at once, as a killed process is."""
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
        assert self._transport is not None
        self._transport.pause_reading()

    # --- towards the daemon ---

    def say(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def hello(self) -> None:
        self.say(frames.encode_hello(1))

    def output(self, command: Command, stream: Stream, data: bytes) -> None:
        offset = command.sent[stream]
        command.sent[stream] += len(data)
        command.window -= len(data) + frames.FRAME_COST
        self.say(frames.encode_output(command.channel, stream, offset, data))

    def exit(
        self, command: Command, ending: Ending, value: int, cause: Cause = Cause.ITSELF
    ) -> None:
        if self.running.pop(command.channel, None) is not None:
            exited = Exited(ending, cause, value, *command.sent.values())
            self.say(frames.encode_exited(command.channel, exited))

    # --- from the daemon ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_connected = True
        self._guests.greet(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_connected = False
        self.disconnected.set()
        self._guests.engine.notify()

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            self._handle(frame)
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
            case Kind.CREDIT if command := self.running.get(frame.channel):
                command.window += frames.decode_credit(frame.payload)
                self._advance(command)
            case Kind.KILL if command := self.running.get(frame.channel):
                command.kills += 1
                if not command.is_stubborn:
                    self.exit(command, Ending.SIGNAL, 9, Cause.KILLED)

    def _start(self, channel: int, request: dict[str, Any]) -> None:
        command = Command(self, channel, request, [])
        command.steps = command.line.split("; ")
        self.running[channel] = command
        self._guests.commands.append(command)
        self._advance(command)

    def _advance(self, command: Command) -> None:
        while command.is_running and self.is_connected:
            self._flood(command)
            if command.flood_left:
                return
            if not command.steps:
                self.exit(command, Ending.CODE, 0)
            elif command.steps[0] in ("sleep", "stubborn"):
                command.is_stubborn = command.steps[0] == "stubborn"
                return
            else:
                self._step(command, *command.steps.pop(0).partition(" ")[::2])

    def _step(self, command: Command, verb: str, argument: str) -> None:
        match verb:
            case "echo":
                self.output(command, Stream.STDOUT, argument.encode() + b"\n")
            case "err":
                self.output(command, Stream.STDERR, argument.encode() + b"\n")
            case "flood":
                command.flood_left = int(argument)
            case "exit":
                self.exit(command, Ending.CODE, int(argument))
            case "signal":
                self.exit(command, Ending.SIGNAL, int(argument))
            case "refuse":
                del self.running[command.channel]
                self.say(frames.encode(Kind.REFUSED, command.channel, argument.encode()))
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


class FakeProcess:
    """The first process of a fake container: killing it drops its guest and nothing else."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.kills = 0
        self.is_closed = False
        self._guest = _being_started.get()
        self._guest.process = self

    def kill(self) -> bool:
        if self.is_closed:
            return False
        self.kills += 1
        self._guest.drop()
        return True

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
        self.greet: Callable[[FakeGuest], None] = FakeGuest.hello
        """What a guest does once it is connected."""
        self.welcome: Callable[[FakeGuest], None] = lambda guest: guest.say(
            frames.encode(Kind.READY)
        )
        """What a guest does once it has its settings."""
        self.answers_pings = True
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

    async def aclose(self) -> None:
        await asyncio.gather(*self._connecting, return_exceptions=True)
        for guest in self.by_container.values():
            guest.drop()
            if guest.is_connected:
                await guest.disconnected.wait()

    async def _on_start(self, spec: ContainerSpec, container: Container) -> None:
        guest = FakeGuest(self, spec)
        self.by_container[container.id] = guest
        _being_started.set(guest)
        connecting = asyncio.ensure_future(guest.connect())
        self._connecting.append(connecting)
        if not self.connects_late:
            await asyncio.shield(connecting)  # a process does not care who gave up its start

    async def _on_remove(self, spec: ContainerSpec, container: Container) -> None:
        if container.id in self.by_container:
            self.by_container[container.id].drop()
