"""A guest link over a connection in memory."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sandboxd.guest import frames
from sandboxd.guest.frames import Exited, Kind, Remark, StartFailure, Stream
from sandboxd.link import GuestLink


def receive(link: GuestLink, data: bytes) -> None:
    """Let a link read these bytes, as a transport does."""
    while data:
        buffer = link.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        link.buffer_updated(size)
        data = data[size:]


NOTHING_ARRIVED = open(os.devnull, "rb")  # noqa: SIM115  # for all tests


class Wire(asyncio.Transport):
    """The daemon's end of a connection, in memory."""

    def __init__(self) -> None:
        super().__init__({"socket": NOTHING_ARRIVED})
        self.written = bytearray()
        self.unsent_bytes = 0
        self.is_aborted = False

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def abort(self) -> None:
        self.is_aborted = True

    def frames(self) -> list[frames.Frame]:
        """What was written since the last look."""
        written, self.written = bytes(self.written), bytearray()
        return list(frames.Decoder(frames.MAX_DAEMON_PAYLOAD).feed(written))


class Heard:
    """A channel that remembers what it was told."""

    def __init__(self) -> None:
        self.output = bytearray()
        self.pieces: list[tuple[Stream, int, bytes, int]] = []
        self.input_taken: list[int] = []
        self.sweep_reports = 0
        self.skips: list[tuple[Stream, int]] = []
        self.remarks = Remark(0)
        self.pids: list[int] = []
        self.ends: list[object] = []

    def on_output(self, stream: Stream, offset: int, data: bytes, frame_count: int) -> None:
        self.output += data
        self.pieces.append((stream, offset, data, frame_count))

    def on_skipped(self, stream: Stream, count: int) -> None:
        self.skips.append((stream, count))

    def on_input_taken(self, count: int) -> None:
        self.input_taken.append(count)

    def on_sweeping(self) -> None:
        self.sweep_reports += 1

    def on_swept(self, *, was_known: bool) -> None:
        self.ends.append(was_known)

    def on_remarks(self, remarks: Remark) -> None:
        self.remarks = remarks

    def on_exited(self, exited: Exited) -> None:
        self.ends.append(exited)

    def on_started(self, pid: int) -> None:
        self.pids.append(pid)

    def on_refused(self, failure: StartFailure, why: str) -> None:
        self.ends.append(f"refused: {failure.name}: {why}")

    def on_lost(self, why: str) -> None:
        self.ends.append(f"lost: {why}")


class Rig:
    """A link that has been greeted, and what it told."""

    def __init__(self, *, is_greeted: bool = True) -> None:
        self.closed: list[str] = []
        self.wire = Wire()
        self.link = GuestLink(on_closed=self.closed.append)
        self.link.connection_made(self.wire)
        if is_greeted:
            self.receive(frames.encode_hello(1) + frames.encode(Kind.READY))

    def receive(self, data: bytes) -> None:
        """Read it from the guest."""
        receive(self.link, data)

    def start(self, heard: Heard | None = None) -> tuple[int, Heard]:
        heard = heard or Heard()
        return self.link.start(b"{}", heard), heard

    @contextmanager
    def unread(self, data: bytes) -> Iterator[None]:
        """For the block, these bytes have arrived, and the event loop has not read them."""
        ours, its_end = socket.socketpair()
        ours.setblocking(False)
        with ours, its_end:
            its_end.sendall(data)
            self.wire._extra["socket"] = ours  # type: ignore[attr-defined]
            yield
            self.wire._extra["socket"] = NOTHING_ARRIVED  # type: ignore[attr-defined]


class Clock:
    """The time of the event loop and the timers that are set from now on, moved by a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        self._call_later = loop.call_later
        self._timers: list[tuple[float, asyncio.TimerHandle, Callable[[], object]]] = []
        monkeypatch.setattr(loop, "time", lambda: self.now)
        monkeypatch.setattr(loop, "call_later", self._later)

    def advance(self, seconds: float) -> None:
        """Let time pass and each timer run when it is due."""
        until = self.now + seconds
        while (due := self._next()) is not None and due[0] <= until:
            self.now = max(self.now, due[0])
            self._run(due)
        self.now = until

    def stand_still(self, seconds: float) -> None:
        """Let time pass in which the daemon does not run; then all that is due runs late."""
        self.now += seconds
        self.advance(0.0)

    def _next(self) -> tuple[float, asyncio.TimerHandle, Callable[[], object]] | None:
        self._timers = [timer for timer in self._timers if not timer[1].cancelled()]
        return min(self._timers, key=lambda timer: timer[0], default=None)

    def _run(self, timer: tuple[float, asyncio.TimerHandle, Callable[[], object]]) -> None:
        _, handle, callback = timer
        handle.cancel()
        callback()

    def _later(self, delay: float, callback: Callable[..., object], *args: Any) -> Any:
        handle = self._call_later(3600.0, callback, *args)
        self._timers.append((self.now + delay, handle, lambda: callback(*args)))
        return handle


class Timers:
    """The timers that are set from now on; they expire when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._call_later = self._loop.call_later
        self.set: list[tuple[asyncio.TimerHandle, Callable[[], object]]] = []
        monkeypatch.setattr(self._loop, "call_later", self._later)

    @property
    def pending(self) -> int:
        return sum(not handle.cancelled() for handle, _ in self.set)

    def expire(self, position: int) -> None:
        """Let the timer that was set as number `position` run out, unless it was cancelled."""
        handle, callback = self.set[position]
        if not handle.cancelled():
            handle.cancel()
            callback()

    def _later(self, delay: float, callback: Callable[..., object], *args: Any) -> Any:
        handle = self._call_later(3600.0, callback, *args)
        self.set.append((handle, lambda: callback(*args)))
        return handle
