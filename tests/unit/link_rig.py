"""A guest link over a connection in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sandboxd.guest import frames
from sandboxd.guest.frames import Exited, Kind, Stream
from sandboxd.link import GuestLink


def receive(link: GuestLink, data: bytes) -> None:
    """Let a link read these bytes, as a transport does."""
    while data:
        buffer = link.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        link.buffer_updated(size)
        data = data[size:]


class Wire(asyncio.Transport):
    """The daemon's end of a connection, in memory."""

    def __init__(self) -> None:
        super().__init__()
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
        self.ends: list[object] = []

    def on_output(self, stream: Stream, offset: int, data: bytes, frame_count: int) -> None:
        self.output += data
        self.pieces.append((stream, offset, data, frame_count))

    def on_input_taken(self, count: int) -> None:
        self.input_taken.append(count)

    def on_exited(self, exited: Exited) -> None:
        self.ends.append(exited)

    def on_refused(self, why: str) -> None:
        self.ends.append(f"refused: {why}")

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

    def start(self) -> tuple[int, Heard]:
        heard = Heard()
        return self.link.start(b"{}", heard), heard


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
