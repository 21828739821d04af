"""A guest without a container: PID 1 of a PID namespace, and the daemon's end of its link."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from sandboxd.guest import frames
from sandboxd.guest.frames import (
    Ack,
    ExecState,
    Exited,
    Kind,
    Remark,
    StartFailure,
    Stream,
    Target,
)

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0
"""Seconds after which a guest that does not answer hangs."""

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from guest import pid1
from guest.commands import shell, waiting_starts
pid1.SOCKET = sys.argv[2]
if sys.argv[3] == "no bash":
    shell.IMAGE_BASHES, shell.OWN_BASH = (), "/bin/bash"
if sys.argv[3].startswith("gated"):
    import errno, os, time
    spawn = shell.posix_spawn
    def pass_gate(name):
        while os.path.exists(f"{sys.argv[2]}.{name}"):
            time.sleep(0.002)
    def gated_spawn(*arguments, **more):
        pass_gate("late")
        if os.path.exists(sys.argv[2] + ".refused"):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        pid = spawn(*arguments, **more)
        with open(sys.argv[2] + ".spawned", "a") as file:
            print(pid, file=file)
        pass_gate("late_after")
        return pid
    shell.posix_spawn = gated_spawn
if sys.argv[3] == "stopped again":
    import os
    wake = shell.WaitingShell.wake
    def is_stopper_there():
        names = [name for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        return any(b"left.py" in open(f"/proc/{name}/cmdline", "rb").read() for name in names)
    shell.WaitingShell.wake = lambda self: is_stopper_there() or wake(self)
if sys.argv[3] == "gated, impatient":
    waiting_starts.WAIT_SECONDS = 0.3
try:
    pid1.main()
except Exception:
    import traceback
    with open(sys.argv[2] + ".error", "w") as file:
        traceback.print_exc(file=file)
    raise
"""


class Closed(Exception):
    """The guest closed the link."""


class Channel:
    """What a daemon knows of one exec."""

    def __init__(self) -> None:
        self.output = {stream: bytearray() for stream in Stream}
        self.context: frames.ContextRun | None = None
        self.order: list[tuple[Stream, bytes]] = []
        """Output as it came, across streams."""
        self.exited: Exited | None = None
        self.remarks = Remark(0)
        self.refused: str | None = None
        self.failure: StartFailure | None = None
        self.pids: list[int] = []
        self.taken = 0
        self.sweep_reports = 0
        self.swept: bool | None = None
        self.window = frames.WINDOW

    @property
    def stdout(self) -> bytes:
        return bytes(self.output[Stream.STDOUT])

    @property
    def stderr(self) -> bytes:
        return bytes(self.output[Stream.STDERR])

    @property
    def events(self) -> bytes:
        return bytes(self.output[Stream.EVENTS])

    @property
    def is_over(self) -> bool:
        return self.exited is not None or self.refused is not None


class Connection:
    """One link, from accepting it to its end. Reads only when asked to."""

    def __init__(self, peer: socket.socket, channels: dict[int, Channel], *, acks: bool) -> None:
        self.peer = peer
        self._channels = channels
        self.acks = acks
        self._decoder = frames.Decoder(frames.MAX_GUEST_PAYLOAD)
        self.hello: tuple[int, int, bool] | None = None
        self.is_ready = False
        self.states: dict[int, ExecState] = {}
        self.resumed: set[int] = set()
        self.pongs: list[bytes] = []
        self.places = 0
        self.answers_place = True
        self.contexts: list[frames.ContextState] = []
        """Descriptions of contexts, as they came."""
        self.code_parents: list[int] = []
        self.log: list[tuple[Kind, int]] = []

    def send(self, data: bytes) -> None:
        self.peer.sendall(data)

    def read(self, size: int = 1 << 16) -> None:
        """Handle some of what the guest sent."""
        ready, _, _ = select.select([self.peer], [], [], PATIENCE)
        assert ready, f"the guest is silent; last heard {self.log[-5:]}"
        try:
            data = self.peer.recv(size)
        except ConnectionResetError:
            raise Closed from None
        if not data:
            raise Closed
        for frame in self._decoder.feed(data):
            self._handle(frame.kind, frame.channel, bytes(frame.payload))

    def until(self, condition: Callable[[], object]) -> None:
        give_up_at = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < give_up_at, f"it did not happen; last heard {self.log[-5:]}"
            self.read()

    def _handle(self, kind: int, number: int, payload: bytes) -> None:
        self.log.append((Kind(kind), number))
        if kind == Kind.HELLO:
            self.hello = frames.decode_hello(payload)
        elif kind == Kind.READY:
            self.is_ready = True
        elif kind == Kind.STATE:
            assert not self.is_ready
            self.states[number] = frames.decode_state(payload)
        elif kind == Kind.PONG:
            self.pongs.append(payload)
        elif kind == Kind.PLACE:
            self.places += 1
            if self.answers_place:
                self.send(frames.encode(Kind.PLACED))
        elif kind == Kind.CONTEXT and not number:
            self.contexts.append(frames.decode_context(payload))
        elif kind == Kind.CODE_PARENT:
            self.code_parents.append(frames.decode_code_parent(payload))
            if self.answers_place:
                self.send(frames.encode(Kind.CODE_PARENT_PLACED))
        else:
            self._handle_news(kind, number, self._channels[number], payload)

    def _handle_news(self, kind: int, number: int, channel: Channel, payload: bytes) -> None:
        assert number in self.resumed, "news of an exec that was not asked for"
        if kind == Kind.OUTPUT:
            stream, offset, data = frames.decode_output(payload)
            assert offset == len(channel.output[stream])
            assert channel.window > 0
            channel.window -= len(data) + frames.FRAME_COST
            channel.output[stream] += data
            channel.order.append((stream, bytes(data)))
            if self.acks:
                self.acknowledge(number, stream, len(data) + frames.FRAME_COST)
        elif kind == Kind.SKIPPED:
            stream, offset = frames.decode_skipped(payload)
            assert offset > len(channel.output[stream])
            channel.output[stream] = channel.output[stream].ljust(offset, b"?")
        elif kind == Kind.CONTEXT:
            channel.context = frames.decode_context_run(payload)
        elif kind == Kind.STARTED:
            channel.pids.append(frames.decode_started(payload))
        elif kind == Kind.INPUT_TAKEN:
            channel.taken = frames.decode_input_taken(payload)
        else:
            self._handle_end(kind, channel, payload)

    def _handle_end(self, kind: int, channel: Channel, payload: bytes) -> None:
        if kind == Kind.EXITED:
            channel.exited = frames.decode_exited(payload)
            lengths = {stream: len(data) for stream, data in channel.output.items()}
            assert channel.exited.counts == lengths
        elif kind == Kind.REMARKS:
            assert channel.exited is None
            channel.remarks = frames.decode_remarks(payload)
        elif kind == Kind.SWEPT:
            channel.swept = frames.decode_swept(payload)
        elif kind == Kind.SWEEPING:
            channel.sweep_reports += 1
            assert frames.decode_sweeping(payload) == channel.sweep_reports
        else:
            assert kind == Kind.REFUSED
            channel.failure, channel.refused = frames.decode_refused(
                payload, frames.PROTOCOL_VERSION
            )

    def acknowledge(self, number: int, stream: Stream, credit: int) -> None:
        channel = self._channels[number]
        channel.window += credit
        self.send(frames.encode_ack(number, Ack(stream, len(channel.output[stream]), credit)))

    def resume(self, number: int) -> None:
        channel = self._channels.setdefault(number, Channel())
        channel.window = frames.WINDOW
        channel.sweep_reports = 0
        self.resumed.add(number)
        have = {stream: len(data) for stream, data in channel.output.items()}
        self.send(frames.encode_resume(number, have, frames.PROTOCOL_VERSION))

    def close(self) -> None:
        self.peer.close()


class Rig:
    """A daemon of one guest."""

    def __init__(self, directory: Path, settings: Mapping[str, object], mode: str = "") -> None:
        self._directory = directory
        self._socket = directory / "guest.sock"
        self._settings = {
            "workspace": str(directory / "workspace"),
            "directories": [],
            "env": {"HOME": str(directory / "workspace"), "GIVEN": "by the daemon"},
            "asks_to_place": False,
            "is_first_victim": False,
            "takes_remarks": True,
            **settings,
        }
        self._mode = mode
        self.workspace = directory / "workspace"
        self.channels: dict[int, Channel] = {}
        self.acks = True
        """Whether further links acknowledge what they get."""
        self._links: list[Connection] = []
        self._last = 0

    def __enter__(self) -> Self:
        self.workspace.mkdir()
        # The package as it is inside a sandbox, where it has no parent.
        self._listener = self._listen()
        unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        if os.geteuid() != 0:
            unshare.append("--map-root-user")
        program = [sys.executable, "-I", "-S", "-c", PROGRAM]
        package = str(ROOT / "sandboxd")
        self.process = subprocess.Popen(
            [*unshare, *program, package, str(self._socket), self._mode],
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "IN_IMAGE": "yes"},
        )
        try:
            self.link = self.accept()
            self.welcome(self.link)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        for link in self._links:
            link.close()
        self.process.kill()  # which ends its child, and so the whole namespace
        self.process.wait(PATIENCE)

    def _listen(self) -> socket.socket:
        self._socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._socket))
        listener.listen(8)
        listener.settimeout(PATIENCE)
        return listener

    def accept(self) -> Connection:
        """The next link, with its hello read."""
        peer, _ = self._listener.accept()
        link = Connection(peer, self.channels, acks=self.acks)
        self._links.append(link)
        link.until(lambda: link.hello)
        return link

    def welcome(self, link: Connection, **settings: object) -> None:
        given = json.dumps({**self._settings, **settings}).encode()
        link.send(frames.encode(Kind.WELCOME, payload=given))
        link.until(lambda: link.is_ready)

    def reconnect(self) -> Connection:
        """Take the guest's next link, and resume everything it has."""
        self.link.close()
        self.link = self.accept()
        self.welcome(self.link)
        for number in self.link.states:
            self.link.resume(number)
        return self.link

    def hide(self) -> None:
        """Nobody listens any more."""
        self._listener.close()
        self._socket.unlink()

    def show(self) -> None:
        self._listener = self._listen()

    def acknowledge_nothing(self) -> None:
        self.acks = self.link.acks = False

    # --- starting processes, in a gated guest ---

    def close_gate(self, how: str) -> None:
        """From here on a process is `refused`, comes `late`, or is told of late (`late_after`)."""
        Path(f"{self._socket}.{how}").touch()

    def open_gate(self, how: str) -> None:
        Path(f"{self._socket}.{how}").unlink()

    @property
    def spawned(self) -> int:
        """How many shells were started."""
        path = Path(f"{self._socket}.spawned")
        return len(path.read_text().splitlines()) if path.exists() else 0

    # --- execs ---

    def start(
        self,
        line: str | None,
        *,
        argv: list[str] | None = None,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        **more: object,
    ) -> int:
        self._last += 1
        self.channels[self._last] = Channel()
        self.link.resumed.add(self._last)
        request = {"shell": line, "argv": argv or [], "cwd": cwd, "env": dict(env or {}), **more}
        data = json.dumps(request, ensure_ascii=False).encode()
        self.link.send(frames.encode(Kind.START, self._last, data))
        return self._last

    def start_code(
        self,
        code: str,
        context: str = "main",
        *,
        generation: int = 0,
        options: Mapping[str, object] | None = None,
        **more: object,
    ) -> int:
        settings = {"name": context, "cwd": "", "env": {}, "limits": {"open_files": 100}}
        asked = {"name": context, "settings": settings, "label": f"of {context}"}
        return self.start(
            None,
            code=code,
            context={**asked, "generation": generation},
            options={"sync": True, **(options or {})},
            **more,
        )

    def run_code(self, code: str, context: str = "main", **more: object) -> Channel:
        return self.finish(self.start_code(code, context, **more))  # type: ignore[arg-type]

    def describe_context(self, name: str = "main") -> frames.ContextState:
        self.link.contexts.clear()
        self.link.send(frames.encode(Kind.CONTEXT, payload=name.encode()))
        self.link.until(lambda: any(state.name == name for state in self.link.contexts))
        return next(state for state in self.link.contexts if state.name == name)

    def drop_context(self, name: str = "main", *, is_forgotten: bool = False) -> None:
        self.link.send(frames.encode_drop_context(name, is_forgotten=is_forgotten))

    def finish(self, number: int) -> Channel:
        channel = self.channels[number]
        self.link.until(lambda: channel.is_over)
        return channel

    def run(self, line: str | None, **more: object) -> Channel:
        return self.finish(self.start(line, **more))  # type: ignore[arg-type]

    def wait_for(self, number: int, text: bytes) -> None:
        """Until it has written this."""
        self.link.until(lambda: text in self.channels[number].stdout)

    def input(self, number: int, offset: int, data: bytes) -> None:
        self.link.send(frames.encode_input(number, offset, data))

    def signal(self, number: int, which: signal.Signals, target: Target = Target.GROUP) -> None:
        self.link.send(frames.encode_signal(number, which, target))

    def say(self, kind: Kind, number: int) -> None:
        self.link.send(frames.encode(kind, number))

    def kill(self, number: int, *, report_seconds: float) -> None:
        self.link.send(frames.encode_kill(number, report_seconds))

    def sweep(self, number: int) -> bool | None:
        """As after a command that ran out of memory."""
        channel = self.channels.setdefault(number, Channel())
        self.link.resumed.add(number)
        self.link.send(frames.encode_sweep(number, 0.05))
        self.link.until(lambda: channel.swept is not None)
        return channel.swept

    def ping(self) -> None:
        """Until the guest has handled what was sent before."""
        token = os.urandom(8)
        self.link.send(frames.encode(Kind.PING, payload=token))
        self.link.until(lambda: token in self.link.pongs)

    @property
    def error(self) -> str:
        """What the guest died of."""
        path = Path(f"{self._socket}.error")
        return path.read_text() if path.exists() else ""


def wait_until(condition: Callable[[], object]) -> None:
    """For what happens without a word from the guest."""
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(0.01)


@contextmanager
def guest(directory: Path, *, mode: str = "", **settings: object) -> Iterator[Rig]:
    with Rig(directory, settings, mode) as rig:
        yield rig
