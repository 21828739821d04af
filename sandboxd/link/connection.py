"""One connection to one guest, and everything a guest is not allowed to do on it."""

from __future__ import annotations

import array
import asyncio
import json
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol, cast

from sandboxd.guest import frames
from sandboxd.guest.frames import (
    Ack,
    Cause,
    ContextRun,
    ContextState,
    Ending,
    ExecState,
    Exited,
    Frame,
    Kind,
    ProtocolError,
    Purpose,
    Remark,
    StartFailure,
    Stream,
    Target,
)
from sandboxd.link.patience import PatientTimer, patient_timeout

MAX_UNSENT_BYTES = 8 << 20
"""A guest that leaves more than this unread no longer serves."""
MAX_CHANNEL = 1 << 31
"""Far more than there can have been; numbers after it still fit a frame."""
HAND_OVER_SECONDS = 5.0
"""Until what was sent before has left, so that a socket can be handed over."""
HAND_OVER_LOOK_SECONDS = 0.001
READ_SECONDS = 5.0
"""Seconds in which a guest has to read what there is no more room behind."""
RECEIVE_BYTES = 512 << 10
"""Most that is read at once."""
FRAME_SECONDS = 5.0
"""A frame that has begun must be whole after this time."""
PING_SECONDS = 15.0
"""Seconds in which a guest has to answer; a host that is overloaded may well take some of them."""
SWEEP_REPORT_SECONDS = 0.05
"""Seconds between two reports of a guest that is ending a command."""
MAX_PENDING_READS = 16
"""Reads in a row of what has arrived: more than a socket holds."""


class LinkClosed(Exception):
    """The guest is gone or was cut off; the text is the reason."""


class Channel(Protocol):
    """What is called about one exec. Calls come from the event loop and must not block."""

    def on_output(self, stream: Stream, offset: int, data: bytes, frame_count: int) -> None: ...

    def on_skipped(self, stream: Stream, count: int) -> None:
        """Output follows that an earlier daemon had and that is lost."""

    def on_remarks(self, remarks: Remark) -> None:
        """What its end has to be read with; the end comes next."""
        ...

    def on_exited(self, exited: Exited) -> None: ...

    def on_started(self, pid: int) -> None:
        """It runs, as this process of the sandbox; only if its request asked for the report."""
        ...

    def on_context(self, run: ContextRun) -> None:
        """The process that a run of code got; once, before its output."""
        ...

    def on_refused(self, failure: StartFailure, why: str) -> None: ...

    def on_input_taken(self, count: int) -> None: ...

    def on_sweeping(self) -> None:
        """The guest is still ending it, or what it has left, as it was asked to."""
        ...

    def on_swept(self, *, was_known: bool) -> None:
        """After its end, and only if that was asked for: what it had left is gone, unless the guest
        no longer knew it."""
        ...

    def on_lost(self, why: str) -> None: ...


class _ChannelAccount:
    """What one channel has sent and may send."""

    __slots__ = (
        "channel",
        "due_at",
        "has_context",
        "has_remarks",
        "has_started",
        "input_sent",
        "input_taken",
        "is_code",
        "is_killed",
        "kill_sent_at",
        "received",
        "skippable",
        "sweep_reports",
        "window",
    )

    def __init__(self, channel: Channel, due_at: float, *, is_code: bool) -> None:
        self.channel = channel
        self.is_code = is_code
        """Whether it may have events, and end with its process alive."""
        self.has_context = False
        self.due_at = due_at
        """Deadline, from which on a guest may end it by itself."""
        self.has_remarks = False
        self.has_started = False
        self.is_killed = False
        self.kill_sent_at: float | None = None
        """Time of the KILL on this link; absent if only an earlier daemon may have sent one."""
        self.sweep_reports = 0
        self.window = frames.WINDOW
        self.received: dict[Stream, int] = dict.fromkeys(frames.STREAMS, 0)
        self.skippable: dict[Stream, int] | None = None
        """Offsets that SKIPPED may reach in each stream, after a resume."""
        self.input_sent = 0
        self.input_taken: int | None = 0
        """Absent after a resume, until the guest has reported it."""


class _Gathered:
    """Output of one stream that came in one read, frame after frame: it is passed on as a whole."""

    __slots__ = ("account", "offset", "parts", "stream")

    def __init__(self, account: _ChannelAccount, output: frames.Output) -> None:
        self.account = account
        self.stream = output.stream
        self.offset = output.offset
        self.parts = [output.data]


class _Received(threading.local):
    """What was just read. One buffer for all links of an event loop: it is given out for one read,
    and nothing refers to it when the next begins."""

    def __init__(self) -> None:
        self.buffer = bytearray(RECEIVE_BYTES)


_received = _Received()


class GuestLink(asyncio.BufferedProtocol):
    """Speaks with one guest. The first broken rule cuts it off for good."""

    def __init__(
        self,
        on_closed: Callable[[str], None],
        on_place: Callable[[], None] | None = None,
        on_code_parent: Callable[[int], None] | None = None,
    ) -> None:
        self._on_closed = on_closed
        self._on_place = on_place
        self._on_code_parent = on_code_parent
        self.on_context: Callable[[ContextState], None] = lambda state: None
        """Called with every description of a context that comes after the greeting."""
        self.contexts: dict[str, ContextState] = {}
        """Contexts that a resumed guest had when it was greeted."""
        self._asked: dict[str, list[asyncio.Future[ContextState]]] = {}
        self._context_reports = 0
        """Reports that may still come; each run and each question allows for some."""
        self._code_parents = 0
        self._is_placing = False
        self._places = 0
        self._has_killed = False
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._decoder = frames.Decoder(frames.MAX_GUEST_PAYLOAD)
        self._transport: asyncio.Transport | None = None
        self._open: dict[int, _ChannelAccount] = {}
        self._swept: dict[int, _ChannelAccount] = {}
        """Ended execs whose remains the guest is ending."""
        self._last_channel = 0
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._states: dict[int, ExecState] = {}
        """Execs of a resumed guest, until each is resumed or killed."""
        self._is_resumed = False
        self._guest_version = 0
        self._pongs: dict[bytes, asyncio.Future[None]] = {}
        self._pings = 0
        self._frame_timer: PatientTimer | None = None
        self._last_worker = 0
        self._at_end: list[Callable[[], None]] = []
        self._gathered: _Gathered | None = None
        self._has_room = asyncio.Event()
        """Cleared while the transport holds what the kernel does not take."""
        self._has_room.set()
        self.closed_because: str | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self.closed_because is None

    # --- what the daemon does ---

    async def greet(
        self, prepare: Callable[[], Awaitable[Mapping[str, object]]]
    ) -> Mapping[int, ExecState]:
        """Wait for the guest's hello, give it the settings that `prepare` makes, wait until it can
        take commands. Returns the execs that it already has, each to be resumed or killed."""
        await self._greeted
        settings = json.dumps({**await prepare(), "takes_remarks": True}).encode()
        self._send(frames.encode(Kind.WELCOME, payload=settings))
        await self._ready
        self._last_channel = max(self._states, default=0)
        return dict(self._states)

    def resume(
        self, number: int, channel: Channel, have: Mapping[Stream, int], *, is_code: bool = False
    ) -> None:
        """Go on with an exec that the guest already has; output follows from what we have on."""
        state = self._states.pop(number)
        # Its deadline is for the channel to check.
        account = _ChannelAccount(channel, self._loop.time(), is_code=is_code)
        self._open[number] = account
        if state.is_code and not is_code:
            self.close("the guest broke the protocol: it has events of a command")
            raise LinkClosed(self.closed_because)
        self._context_reports += is_code
        account.received |= have
        account.skippable = state.counts
        account.input_taken = None
        # By the daemon before us, for all that we know.
        account.is_killed = self._has_killed = True
        self._send(frames.encode_resume(number, account.received, self._guest_version))

    def placed(self) -> None:
        """Report to the guest that its new processes are where commands belong."""
        self._is_placing = False
        with suppress(LinkClosed):  # what waits for the guest ends with the link
            self._send(frames.encode(Kind.PLACED))

    def workspace_moved(self) -> None:
        """Report to the guest, before its first command, that its workspace is another filesystem;
        LinkClosed if it is gone."""
        self._send(frames.encode(Kind.MOVED))

    async def ping(self) -> None:
        """Return once the guest has answered; LinkClosed if it is gone, TimeoutError if it is
        late."""
        self._pings += 1
        payload = self._pings.to_bytes(8, "big")
        pong: asyncio.Future[None] = self._loop.create_future()
        self._pongs[payload] = pong
        self._send(frames.encode(Kind.PING, payload=payload))
        timer = PatientTimer(PING_SECONDS, lambda: self._on_pong_overdue(pong))
        try:
            await pong
        finally:
            timer.cancel()

    def _on_pong_overdue(self, pong: asyncio.Future[None]) -> None:
        self.read_pending()
        if not pong.done():
            pong.set_exception(TimeoutError("the guest did not answer a ping"))

    def start(
        self,
        request: bytes,
        channel: Channel,
        seconds: float = float("inf"),
        *,
        is_code: bool = False,
    ) -> int:
        """Hand over a command, or a run of code, that has so much time; what happens to it is
        called on the channel. Returns its number."""
        if len(request) > self.max_request_bytes:
            raise ValueError("request over the frame limit")
        self._last_channel += 1
        due_at = self._loop.time() + seconds
        self._open[self._last_channel] = _ChannelAccount(channel, due_at, is_code=is_code)
        self._context_reports += is_code
        self._send(frames.encode(Kind.START, self._last_channel, request))
        return self._last_channel

    def kill(self, number: int) -> None:
        """Ask the guest to end an exec with all its processes."""
        account = self._open.get(number)
        if account is not None:
            account.is_killed = self._has_killed = True
            account.kill_sent_at = self._loop.time()
            self._send(frames.encode_kill(number, SWEEP_REPORT_SECONDS))

    def sweep(self, number: int, channel: Channel) -> bool:
        """Ask the guest to end what an ended exec has left, which it answers on the channel; False
        if it is of a release that cannot."""
        if self._guest_version < frames.SWEEP_VERSION:
            return False
        self._swept[number] = account = _ChannelAccount(channel, float("inf"), is_code=False)
        account.kill_sent_at = self._loop.time()
        self._has_killed = True
        self._send(frames.encode_sweep(number, SWEEP_REPORT_SECONDS))
        return True

    def acknowledge(self, number: int, ack: Ack) -> None:
        """Let the guest forget output, and send more."""
        account = self._open.get(number)
        if account is not None and self.is_open:
            account.window += ack.credit
            with suppress(LinkClosed):  # which the channel has been called with
                self._send(frames.encode_ack(number, ack))

    def widen(self, number: int, credit: int) -> None:
        """Let the guest send more, without forgetting anything."""
        self.acknowledge(number, Ack(Stream.STDOUT, 0, credit))

    def release(self, number: int) -> None:
        """Let the guest forget an ended exec."""
        if self.is_open and number not in self._open:
            with suppress(LinkClosed):  # then it has forgotten everything
                self._send(frames.encode(Kind.RELEASE, number))

    def signal(self, number: int, signal: int, target: Target) -> None:
        if number in self._open:
            self._send(frames.encode_signal(number, signal, target))

    def resize(self, number: int, rows: int, columns: int) -> None:
        if number in self._open:
            self._send(frames.encode_resize(number, rows, columns))

    def input(self, number: int, offset: int, data: bytes) -> None:
        """Pass standard input on; the channel is called with how much was taken."""
        if number in self._open:
            account = self._open[number]
            account.input_sent = max(account.input_sent, offset + len(data))
            self._send(frames.encode_input(number, offset, data))

    def end_input(self, number: int) -> None:
        if number in self._open:
            self._send(frames.encode(Kind.INPUT_END, number))

    # --- contexts of code ---

    @property
    def runs_code(self) -> bool:
        """Whether the guest is recent enough for contexts."""
        return self._guest_version >= frames.CODE_VERSION

    async def ask_context(self, name: str) -> ContextState:
        """What the guest says of a context; LinkClosed, or TimeoutError if it does not."""
        return await self._context_answer(name, frames.encode(Kind.CONTEXT, payload=name.encode()))

    async def drop_context(self, name: str, *, is_forgotten: bool) -> ContextState:
        """End the process of a context; likewise."""
        return await self._context_answer(
            name, frames.encode_drop_context(name, is_forgotten=is_forgotten)
        )

    async def _context_answer(self, name: str, question: bytes) -> ContextState:
        answer: asyncio.Future[ContextState] = self._loop.create_future()
        self._asked.setdefault(name, []).append(answer)
        self._context_reports += 2  # it may be lost meanwhile
        self._has_killed = True
        self._send(question)
        async with patient_timeout(PING_SECONDS):
            return await answer

    def code_parent_placed(self) -> None:
        """Report to the guest that the parent of contexts is where it belongs."""
        with suppress(LinkClosed):  # what waits for the guest ends with the link
            self._send(frames.encode(Kind.CODE_PARENT_PLACED))

    @property
    def reports_starts(self) -> bool:
        """Whether the guest is recent enough to report that a command runs, if it is asked to, and
        for the options that came with that."""
        return self._guest_version >= frames.START_REPORTS_VERSION

    @property
    def max_request_bytes(self) -> int:
        """Largest request that the guest accepts."""
        return frames.MAX_DAEMON_PAYLOAD if self.reports_starts else frames.MAX_EARLIER_PAYLOAD

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the guest has not read, beyond what the kernel holds."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def wait_for_room(self) -> None:
        """Return once the guest has read nearly all that was sent. One that takes too long is cut
        off; LinkClosed then."""
        try:
            async with patient_timeout(READ_SECONDS):
                await self._has_room.wait()
        except TimeoutError:
            self.close("the guest stopped reading")
        if not self.is_open:
            raise LinkClosed(self.closed_because or "not connected")

    def knows(self, purpose: Purpose) -> bool:
        """Whether the guest is recent enough to start such a worker."""
        return self._guest_version >= frames.FIRST_VERSION[purpose]

    async def start_worker(self, its_end: socket.socket, purpose: Purpose) -> int:
        """Make the guest start a worker that has this end of a pair of sockets; returns its number.

        LinkClosed, or TimeoutError while the guest does not read.
        """
        async with asyncio.timeout(HAND_OVER_SECONDS):
            while True:
                number = self._hand_over(its_end, purpose)
                if number is not None:
                    return number
                await asyncio.sleep(HAND_OVER_LOOK_SECONDS)

    @property
    def keeps_workers(self) -> bool:
        """Whether the guest is recent enough for workers that stay for further requests."""
        return self._guest_version >= frames.STAYING_VERSION

    def at_end(self, release: Callable[[], None]) -> None:
        """Call this once the link is closed or left to the next daemon: it releases what was kept
        for the guest."""
        self._at_end.append(release)

    def _release_kept(self) -> None:
        releases, self._at_end = self._at_end, []
        for release in releases:
            release()

    def wake_worker(self, number: int) -> None:
        """Make the guest continue a worker that a command may have stopped."""
        if self.is_open:
            with suppress(LinkClosed):
                self._send(frames.encode(Kind.WORKER_WAKE, number))

    def end_worker(self, number: int) -> None:
        """Make the guest kill a worker, unless it has ended."""
        if self.is_open:
            with suppress(LinkClosed):  # then it has ended
                self._send(frames.encode(Kind.WORKER_END, number))

    def _hand_over(self, its_end: socket.socket, purpose: Purpose) -> int | None:
        """None while something else has to be sent first: a transport cannot send descriptors, and
        what bypasses it must not overtake what it holds."""
        if self._transport is None or self.closed_because is not None:
            raise LinkClosed(self.closed_because or "not connected")
        if self._transport.get_write_buffer_size():
            return None
        number = self._last_worker % MAX_CHANNEL + 1
        data = frames.encode_worker(number, purpose)
        rights = array.array("i", [its_end.fileno()])
        descriptor = os.dup(self._transport.get_extra_info("socket").fileno())
        try:
            with socket.socket(fileno=descriptor) as beside:
                sent = beside.sendmsg(
                    [data],
                    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)],
                    socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL,
                )
        except BlockingIOError:
            return None
        except OSError as error:
            raise LinkClosed("the guest went away") from error
        self._last_worker = number
        if sent < len(data):
            self._send(data[sent:])
        return number

    def close(self, why: str) -> None:
        """Cut the guest off and report why to every open channel. Later calls change nothing."""
        if self.closed_because is not None:
            return
        self.closed_because = why
        if self._frame_timer is not None:
            self._frame_timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        accounts = [*self._open.values(), *self._swept.values()]
        self._open, self._swept = {}, {}
        for account in accounts:
            account.channel.on_lost(why)
        waiters: list[asyncio.Future[Any]] = [self._greeted, self._ready, *self._pongs.values()]
        for answers in self._asked.values():
            waiters += answers
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(LinkClosed(why))
                waiter.exception()  # retrieved, as there may be no one who waits
        self._pongs.clear()
        self._asked.clear()
        self._has_room.set()
        self._release_kept()
        self._on_closed(why)

    def detach(self) -> None:
        """Leave the guest to the next daemon, without a word to the channels."""
        self.closed_because = "it was left to the next daemon"
        self._has_room.set()
        if self._frame_timer is not None:
            self._frame_timer.cancel()
        self._open.clear()
        self._swept.clear()
        self._release_kept()
        if self._transport is not None:
            self._transport.close()

    def _send(self, data: bytes) -> None:
        if self._transport is None or self.closed_because is not None:
            raise LinkClosed(self.closed_because or "not connected")
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.close("the guest stopped reading")
            raise LinkClosed("the guest stopped reading")

    # --- what the guest does ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close("the guest went away")

    def pause_writing(self) -> None:
        self._has_room.clear()

    def resume_writing(self) -> None:
        self._has_room.set()

    def get_buffer(self, sizehint: int) -> bytearray:
        return _received.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._take(memoryview(_received.buffer)[:nbytes])

    def read_pending(self) -> None:
        """Handle what has arrived and the event loop has not read yet. Before a guest is called
        late: timers may run before sockets are read."""
        for _ in range(MAX_PENDING_READS):
            if self._transport is None or self.closed_because is not None:
                return
            descriptor = self._transport.get_extra_info("socket").fileno()
            try:
                count = os.readv(descriptor, [_received.buffer])
            except OSError:  # nothing is there, or the transport will see that the guest is gone
                return
            if not count:
                return
            self.buffer_updated(count)

    def _take(self, data: memoryview) -> None:
        progressed = False
        try:
            for frame in self._decoder.feed(data):
                if self.closed_because is not None:
                    return
                progressed = True
                if frame.kind == Kind.OUTPUT:
                    self._gather(frame)
                    continue
                if self._gathered is not None:
                    self._pass_on()
                self._handle(frame)
            if self._gathered is not None:
                self._pass_on()
        except ProtocolError as error:
            self._pass_on()
            self.close(f"the guest broke the protocol: {error}")
            return
        if self._frame_timer is not None or self._decoder.is_mid_frame:
            self._watch_for_half_frames(progressed)

    def _watch_for_half_frames(self, progressed: bool) -> None:
        """The time is for one frame: a steady flow may well end in the middle of one each time."""
        if self._frame_timer is not None and (progressed or not self._decoder.is_mid_frame):
            self._frame_timer.cancel()
            self._frame_timer = None
        if self._frame_timer is None and self._decoder.is_mid_frame:
            self._frame_timer = PatientTimer(FRAME_SECONDS, self._on_frame_overdue)

    def _on_frame_overdue(self) -> None:
        timer = self._frame_timer
        self.read_pending()
        if self._frame_timer is timer:
            self.close("the guest sent half a frame and no more")

    def _handle(self, frame: Frame) -> None:
        if frame.kind == Kind.EXITED:
            self._on_exited(frame)
        elif frame.kind == Kind.REFUSED:
            self._on_refused(frame)
        elif frame.kind == Kind.STARTED:
            self._on_started(frame)
        elif frame.kind == Kind.PONG:
            self._on_pong(frame)
        elif frame.kind == Kind.INPUT_TAKEN:
            self._on_input_taken(frame)
        elif frame.kind == Kind.REMARKS:
            self._on_remarks(frame)
        elif frame.kind == Kind.SWEEPING:
            self._on_sweeping(frame)
        elif frame.kind == Kind.PLACE:
            self._on_place_asked(frame)
        elif frame.kind == Kind.CONTEXT:
            self._on_context(frame)
        else:
            self._handle_seldom(frame)

    def _handle_seldom(self, frame: Frame) -> None:
        """Frames that come while the guest is greeted, behind a resume, or about what failed."""
        if frame.kind == Kind.CODE_PARENT:
            self._on_code_parent_started(frame)
        elif frame.kind == Kind.SKIPPED:
            self._on_skipped(frame)
        elif frame.kind == Kind.SWEPT:
            self._on_swept(frame)
        elif frame.kind == Kind.STATE:
            self._on_state(frame)
        elif frame.kind == Kind.HELLO:
            self._on_hello(frame)
        elif frame.kind == Kind.READY:
            self._on_ready(frame)
        else:
            raise ProtocolError(f"a guest may not send frames of kind {frame.kind}")

    def _on_hello(self, frame: Frame) -> None:
        version, pid, self._is_resumed = frames.decode_hello(frame.payload)
        if self._greeted.done():
            raise ProtocolError("second hello")
        if not frames.OLDEST_VERSION <= version <= frames.PROTOCOL_VERSION:
            spoken = f"{frames.OLDEST_VERSION} to {frames.PROTOCOL_VERSION}"
            raise ProtocolError(f"it speaks version {version}, and this daemon {spoken}")
        if pid != 1:
            raise ProtocolError("it is not PID 1")
        self._guest_version = version
        self._greeted.set_result(None)

    def _on_ready(self, frame: Frame) -> None:
        if self._ready.done() or not self._greeted.done() or frame.payload:
            raise ProtocolError("ready out of order")
        self._ready.set_result(None)

    def _on_state(self, frame: Frame) -> None:
        is_in_order = self._greeted.done() and self._is_resumed and not self._ready.done()
        is_new = 0 < frame.channel <= MAX_CHANNEL and frame.channel not in self._states
        if not is_in_order or not is_new or len(self._states) >= frames.MAX_EXECS:
            raise ProtocolError("reported an exec out of order")
        self._states[frame.channel] = frames.decode_state(frame.payload, self._guest_version)

    def _on_context(self, frame: Frame) -> None:
        if not self.runs_code:
            raise ProtocolError("a context, of which its version knows nothing")
        if frame.channel:
            self._on_context_of_run(frame)
            return
        state = frames.decode_context(frame.payload)
        if not self._ready.done():
            is_new = self._is_resumed and state.name not in self.contexts
            if not is_new or len(self.contexts) >= frames.MAX_CONTEXTS:
                raise ProtocolError("reported a context out of order")
            self.contexts[state.name] = state
            return
        self._context_reports -= 1
        if self._context_reports < 0:
            raise ProtocolError("more reports of contexts than there can be")
        for answer in self._asked.pop(state.name, ()):
            if not answer.done():
                answer.set_result(state)
        self.on_context(state)

    def _on_context_of_run(self, frame: Frame) -> None:
        account = self._account(frame.channel)
        if not account.is_code or account.has_context:
            raise ProtocolError("a context where none belongs")
        account.has_context = True
        account.channel.on_context(frames.decode_context_run(frame.payload))

    def _on_code_parent_started(self, frame: Frame) -> None:
        pid = frames.decode_code_parent(frame.payload)
        is_in_order = self._ready.done() and self.runs_code and self._on_code_parent is not None
        # One for each time that commands have killed it.
        self._code_parents += 1
        limit = 2 * self._last_channel + 10 * (self._loop.time() - self._began) + 16
        if not is_in_order or self._code_parents > limit:
            raise ProtocolError("a parent of contexts out of order")
        assert self._on_code_parent is not None
        self._on_code_parent(pid)

    def _on_input_taken(self, frame: Frame) -> None:
        account = self._account(frame.channel)
        count = frames.decode_input_taken(frame.payload)
        if account.input_taken is None:
            # It took that from the daemon before us, and may hold more of it.
            account.input_sent = count + frames.MAX_INPUT
        elif not account.input_taken <= count <= account.input_sent:
            raise ProtocolError("it took input that was not sent")
        account.input_taken = count
        account.channel.on_input_taken(count)

    def _on_remarks(self, frame: Frame) -> None:
        account = self._account(frame.channel)
        if account.has_remarks:
            raise ProtocolError("second remarks about an exec")
        account.has_remarks = True
        account.channel.on_remarks(frames.decode_remarks(frame.payload))

    def _on_sweeping(self, frame: Frame) -> None:
        account = self._swept.get(frame.channel) or self._account(frame.channel)
        number = frames.decode_sweeping(frame.payload)
        if account.kill_sent_at is None:
            raise ProtocolError("it reports the end of an exec that it was not asked to kill")
        if number != account.sweep_reports + 1:
            raise ProtocolError("report of a kill out of order")
        # Twice as often as it may, as no two clocks round alike.
        if self._loop.time() - account.kill_sent_at < number * SWEEP_REPORT_SECONDS / 2:
            raise ProtocolError("reports of a kill more often than they may come")
        account.sweep_reports = number
        account.channel.on_sweeping()

    def _on_swept(self, frame: Frame) -> None:
        account = self._swept.pop(frame.channel, None)
        if account is None:
            raise ProtocolError("it swept what it was not asked to sweep")
        account.channel.on_swept(was_known=frames.decode_swept(frame.payload))

    def _on_place_asked(self, frame: Frame) -> None:
        is_in_order = self._greeted.done() and not self._is_placing and not frame.payload
        if self._on_place is None or not is_in_order:
            raise ProtocolError("asked to place a shell out of order")
        # A shell for each command, and some that did not live to see one.
        self._places += 1
        if self._places > 2 * self._last_channel + 10 * (self._loop.time() - self._began) + 16:
            raise ProtocolError("asked to place more shells than there can be")
        self._is_placing = True
        self._on_place()

    def _on_pong(self, frame: Frame) -> None:
        pong = self._pongs.pop(bytes(frame.payload), None)
        if pong is None:
            raise ProtocolError("answer to a ping that was not sent")
        if not pong.done():
            pong.set_result(None)

    def _account(self, number: int) -> _ChannelAccount:
        account = self._open.get(number)
        if account is None:
            raise ProtocolError(f"frame for exec {number}, which does not run")
        return account

    def _gather(self, frame: Frame) -> None:
        account = self._account(frame.channel)
        output = frames.decode_output(frame.payload)
        stream, offset, data = output
        if stream is Stream.EVENTS and not account.is_code:
            raise ProtocolError("events of a command")
        if offset != account.received[stream]:
            raise ProtocolError("output out of order")
        # The guest may start a frame while any window is left, so it can go below zero once.
        if account.window <= 0:
            raise ProtocolError("more output than was allowed")
        account.window -= len(data) + frames.FRAME_COST
        account.received[stream] += len(data)
        gathered = self._gathered
        if gathered is not None and gathered.account is account and gathered.stream is stream:
            gathered.parts.append(data)
            return
        self._pass_on()
        self._gathered = _Gathered(account, output)

    def _pass_on(self) -> None:
        """Give the channel what was gathered for it, unless the link was closed."""
        gathered, self._gathered = self._gathered, None
        if gathered is not None and self.closed_because is None:
            parts = gathered.parts
            channel = gathered.account.channel
            channel.on_output(gathered.stream, gathered.offset, b"".join(parts), len(parts))

    def _on_skipped(self, frame: Frame) -> None:
        account = self._account(frame.channel)
        stream, offset = frames.decode_skipped(frame.payload)
        # Once, and no further than it had got when it was resumed.
        end = account.skippable.pop(stream, 0) if account.skippable else 0
        count = offset - account.received[stream]
        if not 0 < count <= end - account.received[stream]:
            raise ProtocolError("it skipped output that it has to send")
        account.received[stream] = offset
        account.channel.on_skipped(stream, count)

    def _on_exited(self, frame: Frame) -> None:
        account = self._account(frame.channel)
        exited = frames.decode_exited(frame.payload, self._guest_version)
        if exited.counts != account.received:
            raise ProtocolError("it counts other output than it sent")
        if exited.ending == Ending.DONE and not account.is_code:
            raise ProtocolError("a command that ended without its process")
        if not self._may_be(exited.cause, account):
            raise ProtocolError("it killed what it was not asked to kill")
        del self._open[frame.channel]
        account.channel.on_exited(exited)

    def _may_be(self, cause: Cause, account: _ChannelAccount) -> bool:
        if cause == Cause.ITSELF:
            return True
        if cause == Cause.KILLED:
            return account.is_killed
        now = self._loop.time()
        if cause == Cause.DEADLINE:
            return account.due_at <= now
        return self._has_killed or any(other.due_at <= now for other in self._open.values())

    def _on_started(self, frame: Frame) -> None:
        account = self._account(frame.channel)
        if account.has_started:
            raise ProtocolError("second start of an exec")
        account.has_started = True
        account.channel.on_started(frames.decode_started(frame.payload))

    def _on_refused(self, frame: Frame) -> None:
        account = self._account(frame.channel)
        if account.has_started or any(account.received.values()):
            raise ProtocolError("malformed refusal")
        failure, text = frames.decode_refused(frame.payload, self._guest_version)
        del self._open[frame.channel]
        # It goes into messages and logs, so nothing in it may break out of a line.
        why = "".join(c if c.isprintable() else "?" for c in text)
        account.channel.on_refused(failure, why)
