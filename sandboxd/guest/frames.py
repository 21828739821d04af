"""Frames between the daemon and a guest: the codec that both ends share.

A frame is a header (payload length, kind, channel) and a payload. Channel 0 is the link itself, any
other is the number of an exec, chosen by the daemon and not used again while the guest knows it.
What the guest sends has a fixed binary form: the daemon parses nothing recursive from a guest that
may be hostile. Labels are the daemon's own words, which the guest hands back unread.

Flow control: each channel starts with a window of WINDOW, and every output frame takes its bytes
and FRAME_COST from it. The guest sends no output while it is used up, and keeps what it has sent
until an ACK says that the daemon has it for good; the ACK also gives window back.

A link that breaks is dialled again by the guest, for as long as its settings say. Meanwhile
commands go on, up to their windows. After a second hello, with is_resumed set, the guest names its
execs with one STATE each, ended ones that were not released included, and then says READY. The
daemon answers each with RESUME, which says up to where it has the output; from there on the guest
sends it again, with a fresh window less what is sent. An ended exec is sent its EXITED again. If
the daemon has lost output that the guest was allowed to forget, the guest first says with SKIPPED
where it goes on, once for each stream.

A command that is killed may take a while to end: its processes need processor time to die in. Every
so often, as KILL asked for, the guest then reports with SWEEPING that it is still ending them, so
that the daemon can tell a guest that is busy from one that hangs.

Workers do not use the link: each WORKER carries a descriptor, the socket to a process that the
guest forks for the purpose named in the frame. For a purpose that it does not know, a guest closes
the socket. From STAYING_VERSION on, a worker for files stays for further requests if it is asked
to, and WORKER_WAKE continues one that a command has stopped meanwhile.

Sandboxes outlive a daemon, so a guest may be older than the daemon that adopts it. The daemon
accepts every version from OLDEST_VERSION on, and refuses others by closing the link. REMARKS and
Cause.DEADLINE are for daemons whose settings say that they take remarks; others do not know them.
From START_REPORTS_VERSION on, a guest reports with STARTED that a command runs, if its START asks
for that, and again behind a RESUME; it says with REFUSED of which kind the failure is, it takes
larger requests, and it can give a command one pipe for both streams.

From CODE_VERSION on a guest runs code in contexts: processes that outlive a run. A run is an exec
whose START names a context; it has a third stream, EVENTS, and may end as DONE, and neither is
allowed on any other exec. STATE, RESUME and EXITED have three counts then. CONTEXT on the channel
of a run says which process of the context it got; on channel 0 it describes a context: before READY
each one, later one that was asked about or that was lost.

Only the daemon knows that a command ran out of memory. From SWEEP_VERSION on, it then asks with
SWEEP for an end of what the ended exec has left. The guest reports with SWEEPING as for a KILL, and
with SWEPT when it is done.
"""

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum, IntFlag
from typing import NamedTuple

PROTOCOL_VERSION = 9
OLDEST_VERSION = 4
"""The first version that the daemon still speaks."""
HEADER = struct.Struct("!IBI")
WINDOW = 1 << 20
FRAME_COST = 1024
"""What an output frame takes from the window besides its bytes, so that tiny ones are not free: it
bounds how many of them a hostile guest can make the daemon handle in one turn."""
MAX_CHUNK = 1 << 16
MAX_PIPE = 1 << 20
"""What a pipe holds at most, unless the host's fs.pipe-max-size was raised."""
PIPES_COST = 2 * MAX_PIPE + 64 * FRAME_COST
"""The window that both pipes of a command take, however full they are."""
MAX_REFUSAL = 256
NO_PROCESS = "no process could be started"
"""How a refusal begins that another try a moment later may not meet."""
START_REPORTS_VERSION = 6
CODE_VERSION = 7
STAYING_VERSION = 8
SWEEP_VERSION = 9
MAX_CONTEXTS = 64
"""Contexts that a guest may report; the daemon allows far fewer."""
MAX_VERSION = 32
MAX_CONTEXT_LABEL = 48 << 10
MAX_BACKGROUND = 4096
"""Bytes of what a context wrote between runs that are kept."""
MAX_PID = 1 << 22
"""The kernel gives no larger number to a process."""
MAX_GUEST_PAYLOAD = MAX_CHUNK + 64
"""Largest payload the daemon accepts."""
MAX_DAEMON_PAYLOAD = 4 << 20
"""Largest payload the guest accepts: as many arguments as the kernel takes, each byte escaped."""
MAX_EARLIER_PAYLOAD = 1 << 20
"""Largest payload that a guest before START_REPORTS_VERSION accepts."""

Payload = bytes | memoryview

MAX_LABEL = 1024
MAX_EXECS = 4096
"""Execs that a guest may hold, running and ended; more STATE frames are a lie."""
MAX_INPUT = 1 << 16
"""Bytes of standard input in one frame, and in the guest on their way to the command."""

_HELLO = struct.Struct("!HIB")
_OUTPUT = struct.Struct("!BQ")
_EXITED = struct.Struct("!BBiQQQ")
_EARLIER_EXITED = struct.Struct("!BBiQQ")
_ACK = struct.Struct("!BQI")
_STATE = struct.Struct("!BBBiQQQ")
_EARLIER_STATE = struct.Struct("!BBBiQQ")
_RESUME = struct.Struct("!QQQ")
_EARLIER_RESUME = struct.Struct("!QQ")
_CONTEXT_RUN = struct.Struct("!II")
_CONTEXT = struct.Struct("!IIBBiBBH")
_DROP_CONTEXT = struct.Struct("!B")
_KILL = struct.Struct("!H")
_SWEEPING = struct.Struct("!I")
_SWEPT = struct.Struct("!?")
_OFFSET = struct.Struct("!Q")
_SIGNAL = struct.Struct("!BB")
_SIZE = struct.Struct("!HH")
_WORKER = struct.Struct("!B")
_REMARKS = struct.Struct("!B")
_STARTED = struct.Struct("!I")


class Kind(IntEnum):
    """What a frame says; the comment names its payload."""

    HELLO = 1  # guest: protocol version, pid the guest sees itself as, is_resumed
    WELCOME = 2  # daemon: JSON settings
    READY = 3  # guest: a shell waits
    START = 4  # daemon: JSON command
    REFUSED = 5  # guest: kind of failure, UTF-8 text; the command was not started
    OUTPUT = 6  # guest: stream, offset, bytes
    EXITED = 7  # guest: ending, cause, value, bytes of stdout, stderr and events
    ACK = 8  # daemon: stream, offset up to which it has the output, window given back
    KILL = 9  # daemon: end this exec and all its processes; milliseconds between two reports of it
    PING = 10  # daemon: anything up to 64 bytes
    PONG = 11  # guest: the same bytes
    PLACE = 12  # guest: a shell was started that has to be moved to where commands belong
    PLACED = 13  # daemon: it was
    STATE = 14  # guest: has_ended, ending, cause, value, bytes of each stream so far, label
    RESUME = 15  # daemon: bytes of each stream that it has; the guest sends the rest again
    RELEASE = 16  # daemon: forget this ended exec
    INPUT = 17  # daemon: offset, bytes for standard input
    INPUT_END = 18  # daemon: no more standard input
    INPUT_TAKEN = 19  # guest: bytes of standard input taken in all; the next may be sent
    SIGNAL = 20  # daemon: signal number, target
    RESIZE = 21  # daemon: rows, columns of the terminal
    WORKER = 22  # daemon: purpose; the channel is the worker's number, its socket is attached
    WORKER_END = 23  # daemon: the worker of this number is no longer needed
    SWEEPING = 24  # guest: number of this report, from 1; a KILL or SWEEP is not done yet
    REMARKS = 25  # guest: what the end of an exec has to be read with; its EXITED comes next
    SKIPPED = 26  # guest: stream, offset; after RESUME, what was before it is no longer kept
    STARTED = 27  # guest: pid in the sandbox; the command runs
    CONTEXT = 28  # guest: a run's generation and number, or a context; daemon: name, asks for it
    DROP_CONTEXT = 29  # daemon: whether to forget it, name; ends the process of a context
    CODE_PARENT = 30  # guest: pid in the sandbox; contexts will be its children
    CODE_PARENT_PLACED = 31  # daemon: it is where contexts belong
    MOVED = 32  # daemon: before the first command, another filesystem is where the workspace was
    WORKER_WAKE = 33  # daemon: the worker of this number does not answer; it may be stopped
    SWEEP = 34  # daemon: end what this ended exec has left; milliseconds between two reports of it
    SWEPT = 35  # guest: SWEEP is answered; whether the exec was still known


class Stream(IntEnum):
    STDOUT = 1
    STDERR = 2
    EVENTS = 3  # of a run of code; opaque for the guest

    # That of an enumeration is a function in Python, and streams are keys wherever output passes.
    __hash__ = int.__hash__


STREAMS = tuple(Stream)
"""Quicker to go through than the enumeration."""
TEXT_STREAMS = (Stream.STDOUT, Stream.STDERR)
"""Those that people read."""


class Ending(IntEnum):
    """What the first process of a command did."""

    CODE = 0
    SIGNAL = 1
    DONE = 2  # a run of code; its context lives on


class RunEnd(IntEnum):
    """How a run of code ended whose context lives on."""

    OK = 0
    RAISED = 1
    INTERRUPTED = 2
    REFUSED = 3  # by the policy; nothing has run


class ContextPhase(IntEnum):
    IDLE = 0
    BUSY = 1
    LOST = 2  # its process has ended
    ABSENT = 3  # there is none of this name


_PHASES = tuple(ContextPhase)
"""By value."""


class Cause(IntEnum):
    """On whose account a command ended."""

    ITSELF = 0
    KILLED = 1  # by a KILL for it
    SWEPT = 2  # by a KILL or SWEEP for another exec that took everything in the sandbox along
    DEADLINE = 3  # by the guest itself: its time was over, and no KILL came


_ENDINGS, _CAUSES = tuple(Ending), tuple(Cause)
"""By value."""
_ENDING_VALUES = ((0, 255), (1, 64), (0, 3))
"""Lowest and highest value of each ending."""


class Remark(IntFlag):
    """What an agent should know before it believes the end of a command."""

    COMPANY = 1  # processes that earlier commands left running were there when it began
    HINDERED = 2  # it did not get to run; those processes were ended
    BROKE_CHANNEL = 4  # a run of code that closed the channel of its context, or wrote to it


_ALL_REMARKS = int(Remark.COMPANY | Remark.HINDERED | Remark.BROKE_CHANNEL)


class StartFailure(IntEnum):
    """Why a command was not started."""

    OTHER = 0
    NO_PROCESS = 1  # another try a moment later may succeed
    NO_PROGRAM = 2
    NOT_EXECUTABLE = 3
    NO_DIRECTORY = 4
    NO_SHELL = 5  # the image lacks what runs command lines, or named shells
    TOO_MANY_SHELLS = 6
    TOO_LARGE = 7  # more arguments than the kernel, or the image's shell, takes
    CONTEXT_LOST = 8  # the context is not on the generation that was asked for
    NO_INTERPRETER = 9  # the image has none for the language of the context
    TOO_MANY_CONTEXTS = 10


_START_FAILURES = tuple(StartFailure)
"""By value."""


class Target(IntEnum):
    """Whom a signal is for."""

    GROUP = 0  # the foreground process group of the terminal, or the group of the first process
    LEADER = 1  # the first process alone


_TARGETS = tuple(Target)
"""By value."""


class Purpose(IntEnum):
    """What a worker is for."""

    FILES = 1  # of the workspace
    FILES_ANYWHERE = 2  # of the workspace and outside of it


FIRST_VERSION = {Purpose.FILES: 4, Purpose.FILES_ANYWHERE: 6}
"""The first version in which a guest knows a purpose. One of version 4 does not read the purpose:
it takes every worker to be one for files."""


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: memoryview
    """Of the bytes that were fed; output is large, so it is not copied on the way."""


class Output(NamedTuple):
    stream: Stream
    offset: int
    data: Payload


class Exited(NamedTuple):
    ending: Ending
    cause: Cause
    value: int
    stdout_bytes: int
    stderr_bytes: int
    events_bytes: int = 0

    @property
    def counts(self) -> dict[Stream, int]:
        return _counts(self.stdout_bytes, self.stderr_bytes, self.events_bytes)


class Refused(NamedTuple):
    failure: StartFailure
    text: str
    """Why, in words."""


class Ack(NamedTuple):
    stream: Stream
    offset: int
    credit: int


class ExecState(NamedTuple):
    """An exec as a guest has it after a broken link."""

    exited: Exited | None
    """How it ended; absent while it runs."""
    stdout_bytes: int
    stderr_bytes: int
    label: bytes
    events_bytes: int = 0

    @property
    def counts(self) -> dict[Stream, int]:
        return _counts(self.stdout_bytes, self.stderr_bytes, self.events_bytes)

    @property
    def is_code(self) -> bool:
        """Whether it has what only a run of code may have."""
        is_done = self.exited is not None and self.exited.ending == Ending.DONE
        return is_done or self.events_bytes > 0


def _counts(*values: int) -> dict[Stream, int]:
    return dict(zip(STREAMS, values, strict=True))


class ContextRun(NamedTuple):
    """The process that a run of code got."""

    generation: int
    run: int
    """Number of the run in this generation, from 1; the daemon's questions do not count."""


class ContextState(NamedTuple):
    """A context as its guest describes it."""

    name: str
    generation: int
    runs: int
    """Runs in this generation."""
    phase: ContextPhase
    ending: Ending
    value: int
    """How the process of this generation ended, if it is lost."""
    background: bytes
    """The end of what was written between runs."""
    label: bytes
    version: str = ""
    """Of the interpreter, as it says."""


class ProtocolError(Exception):
    """The other end broke the protocol; the link is of no more use."""


def encode(kind: Kind, channel: int = 0, payload: bytes = b"") -> bytes:
    return HEADER.pack(len(payload), kind, channel) + payload


def encode_hello(pid: int, *, is_resumed: bool = False) -> bytes:
    return encode(Kind.HELLO, payload=_HELLO.pack(PROTOCOL_VERSION, pid, is_resumed))


def encode_output_head(channel: int, stream: Stream, offset: int, size: int) -> bytes:
    """What goes before `size` bytes of output to make them a frame."""
    head = HEADER.pack(_OUTPUT.size + size, Kind.OUTPUT, channel)
    return head + _OUTPUT.pack(stream, offset)


def encode_refused(channel: int, failure: StartFailure, why: str) -> bytes:
    text = why.encode(errors="replace")[:MAX_REFUSAL]
    return encode(Kind.REFUSED, channel, bytes([failure]) + text)


def encode_started(channel: int, pid: int) -> bytes:
    return encode(Kind.STARTED, channel, _STARTED.pack(pid))


def encode_exited(channel: int, exited: Exited) -> bytes:
    return encode(Kind.EXITED, channel, _EXITED.pack(*exited))


def encode_remarks(channel: int, remarks: Remark) -> bytes:
    return encode(Kind.REMARKS, channel, _REMARKS.pack(remarks))


def encode_ack(channel: int, ack: Ack) -> bytes:
    return encode(Kind.ACK, channel, _ACK.pack(*ack))


def encode_state(channel: int, state: ExecState) -> bytes:
    end = state.exited
    fields = (1, end.ending, end.cause, end.value) if end else (0, 0, 0, 0)
    head = _STATE.pack(*fields, state.stdout_bytes, state.stderr_bytes, state.events_bytes)
    return encode(Kind.STATE, channel, head + state.label)


def encode_resume(channel: int, counts: Mapping[Stream, int], version: int) -> bytes:
    """For a guest of this version: earlier ones know two streams."""
    values = [counts[stream] for stream in STREAMS]
    if version < CODE_VERSION:
        return encode(Kind.RESUME, channel, _EARLIER_RESUME.pack(*values[:2]))
    return encode(Kind.RESUME, channel, _RESUME.pack(*values))


def encode_context_run(channel: int, run: ContextRun) -> bytes:
    return encode(Kind.CONTEXT, channel, _CONTEXT_RUN.pack(*run))


def encode_context(state: ContextState) -> bytes:
    name, version = state.name.encode(), state.version.encode()[:MAX_VERSION]
    background = state.background[-MAX_BACKGROUND:]
    head = _CONTEXT.pack(
        state.generation,
        state.runs,
        state.phase,
        state.ending,
        state.value,
        len(name),
        len(version),
        len(background),
    )
    return encode(Kind.CONTEXT, payload=head + name + version + background + state.label)


def encode_drop_context(name: str, *, is_forgotten: bool) -> bytes:
    return encode(Kind.DROP_CONTEXT, payload=_DROP_CONTEXT.pack(is_forgotten) + name.encode())


def encode_code_parent(pid: int) -> bytes:
    return encode(Kind.CODE_PARENT, payload=_STARTED.pack(pid))


def encode_skipped(channel: int, stream: Stream, offset: int) -> bytes:
    return encode(Kind.SKIPPED, channel, _OUTPUT.pack(stream, offset))


def encode_kill(channel: int, report_seconds: float) -> bytes:
    return encode(Kind.KILL, channel, _KILL.pack(round(report_seconds * 1000)))


def encode_sweep(channel: int, report_seconds: float) -> bytes:
    return encode(Kind.SWEEP, channel, _KILL.pack(round(report_seconds * 1000)))


def encode_swept(channel: int, *, was_known: bool) -> bytes:
    return encode(Kind.SWEPT, channel, _SWEPT.pack(was_known))


def encode_sweeping(channel: int, number: int) -> bytes:
    return encode(Kind.SWEEPING, channel, _SWEEPING.pack(number))


def encode_input(channel: int, offset: int, data: bytes) -> bytes:
    return encode(Kind.INPUT, channel, _OFFSET.pack(offset) + data)


def encode_input_taken(channel: int, count: int) -> bytes:
    return encode(Kind.INPUT_TAKEN, channel, _OFFSET.pack(count))


def encode_signal(channel: int, number: int, target: Target) -> bytes:
    return encode(Kind.SIGNAL, channel, _SIGNAL.pack(number, target))


def encode_resize(channel: int, rows: int, columns: int) -> bytes:
    return encode(Kind.RESIZE, channel, _SIZE.pack(rows, columns))


def encode_worker(number: int, purpose: Purpose) -> bytes:
    return encode(Kind.WORKER, number, _WORKER.pack(purpose))


def decode_hello(payload: Payload) -> tuple[int, int, bool]:
    """Version, pid, and whether the guest had a link before."""
    version, pid, is_resumed = _unpack(_HELLO, payload)
    return version, pid, bool(is_resumed)


def decode_output(payload: Payload) -> Output:
    if len(payload) <= _OUTPUT.size:
        raise ProtocolError("output frame without output")
    stream, offset = _OUTPUT.unpack_from(payload)
    return Output(_stream(stream), offset, payload[_OUTPUT.size :])


def _stream(number: int) -> Stream:
    if number not in (1, 2, 3):
        raise ProtocolError(f"output on unknown stream {number}")
    return STREAMS[number - 1]


def decode_skipped(payload: Payload) -> tuple[Stream, int]:
    stream, offset = _unpack(_OUTPUT, payload)
    return _stream(stream), offset


def decode_refused(payload: Payload, version: int) -> Refused:
    """Of a guest of this version: earlier ones send only the text."""
    text = bytes(payload)
    failure = StartFailure.OTHER
    if version >= START_REPORTS_VERSION:
        if not text or text[0] >= len(_START_FAILURES):
            raise ProtocolError("unknown kind of refusal")
        failure, text = _START_FAILURES[text[0]], text[1:]
    elif text.startswith(NO_PROCESS.encode()):
        failure = StartFailure.NO_PROCESS
    if len(text) > MAX_REFUSAL:
        raise ProtocolError("malformed refusal")
    return Refused(failure, text.decode(errors="replace"))


def decode_started(payload: Payload) -> int:
    pid = _unpack(_STARTED, payload)[0]
    if not 1 < pid <= MAX_PID:
        raise ProtocolError(f"impossible process {pid}")
    return pid


def decode_exited(payload: Payload, version: int = PROTOCOL_VERSION) -> Exited:
    """Of a guest of this version: earlier ones count two streams."""
    return _exited(*_unpack(_EXITED if version >= CODE_VERSION else _EARLIER_EXITED, payload))


def _exited(
    ending: int,
    cause: int,
    value: int,
    stdout_bytes: int,
    stderr_bytes: int,
    events_bytes: int = 0,
) -> Exited:
    if cause not in (0, 1, 2, 3):
        raise ProtocolError("unknown way of ending")
    found = _ending(ending, value)
    return Exited(found, _CAUSES[cause], value, stdout_bytes, stderr_bytes, events_bytes)


def _ending(ending: int, value: int) -> Ending:
    if ending not in (0, 1, 2):
        raise ProtocolError("unknown way of ending")
    low, high = _ENDING_VALUES[ending]
    if not low <= value <= high:
        raise ProtocolError(f"impossible exit value {value}")
    return _ENDINGS[ending]


def decode_remarks(payload: Payload) -> Remark:
    bits = _unpack(_REMARKS, payload)[0]
    if not bits or bits & ~_ALL_REMARKS:
        raise ProtocolError("unknown remarks")
    return Remark(bits)


def decode_ack(payload: Payload) -> Ack:
    stream, offset, credit = _unpack(_ACK, payload)
    return Ack(_stream(stream), offset, credit)


def decode_state(payload: Payload, version: int = PROTOCOL_VERSION) -> ExecState:
    """Of a guest of this version: earlier ones count two streams."""
    layout = _STATE if version >= CODE_VERSION else _EARLIER_STATE
    label = bytes(payload[layout.size :])
    if len(label) > MAX_LABEL:
        raise ProtocolError("a label that nobody gave")
    has_ended, ending, cause, value, *counts = _unpack(layout, payload[: layout.size])
    exited = _exited(ending, cause, value, *counts) if has_ended else None
    return ExecState(exited, counts[0], counts[1], label, *counts[2:])


def decode_resume(payload: Payload) -> tuple[int, ...]:
    """Bytes of each stream; a daemon before CODE_VERSION knows two of them."""
    if len(payload) == _EARLIER_RESUME.size:
        return (*_EARLIER_RESUME.unpack(payload), 0)
    return _unpack(_RESUME, payload)


def decode_context_run(payload: Payload) -> ContextRun:
    generation, run = _unpack(_CONTEXT_RUN, payload)
    if not generation:
        raise ProtocolError("a run without a context")
    return ContextRun(generation, run)


def decode_context(payload: Payload) -> ContextState:
    head = _unpack(_CONTEXT, payload[: _CONTEXT.size])
    generation, runs, phase, ending, value, *sizes = head
    if phase >= len(_PHASES) or sizes[1] > MAX_VERSION or sizes[2] > MAX_BACKGROUND:
        raise ProtocolError("malformed context")
    rest = bytes(payload[_CONTEXT.size :])
    if not sum(sizes) <= len(rest) <= sum(sizes) + MAX_CONTEXT_LABEL:
        raise ProtocolError("malformed context")
    name, version, background, label = _cut(rest, *sizes)
    text = version.decode(errors="replace")
    return ContextState(
        name.decode(errors="replace"),
        generation,
        runs,
        _PHASES[phase],
        _ending(ending, value),
        value,
        background,
        label,
        "".join(c if c.isprintable() else "?" for c in text),
    )


def _cut(data: bytes, *sizes: int) -> Iterator[bytes]:
    """Pieces of these sizes, then the rest."""
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


def decode_drop_context(payload: Payload) -> tuple[str, bool]:
    """Name, and whether it is to be forgotten."""
    is_forgotten = bool(_unpack(_DROP_CONTEXT, payload[: _DROP_CONTEXT.size])[0])
    try:
        return bytes(payload[_DROP_CONTEXT.size :]).decode(), is_forgotten
    except UnicodeDecodeError:
        raise ProtocolError("the name of a context is not text") from None


def decode_code_parent(payload: Payload) -> int:
    return decode_started(payload)


def decode_kill(payload: Payload) -> float:
    """Seconds between two reports; infinity if the daemon asks for none, as older ones do."""
    return _unpack(_KILL, payload)[0] / 1000 if payload else float("inf")


def decode_sweeping(payload: Payload) -> int:
    return int(_unpack(_SWEEPING, payload)[0])


def decode_swept(payload: Payload) -> bool:
    return bool(_unpack(_SWEPT, payload)[0])


def decode_input(payload: Payload) -> tuple[int, bytes]:
    if len(payload) < _OFFSET.size:
        raise ProtocolError("input without an offset")
    return int(_OFFSET.unpack_from(payload)[0]), bytes(payload[_OFFSET.size :])


def decode_input_taken(payload: Payload) -> int:
    return int(_unpack(_OFFSET, payload)[0])


def decode_signal(payload: Payload) -> tuple[int, Target]:
    number, target = _unpack(_SIGNAL, payload)
    if target not in (0, 1):
        raise ProtocolError(f"signal for unknown target {target}")
    return number, _TARGETS[target]


def decode_resize(payload: Payload) -> tuple[int, int]:
    rows, columns = _unpack(_SIZE, payload)
    return rows, columns


def decode_worker(payload: Payload) -> int:
    """The purpose, which a newer daemon may have chosen."""
    return int(_unpack(_WORKER, payload)[0])


def _unpack(layout: struct.Struct, payload: Payload) -> tuple[int, ...]:
    if len(payload) != layout.size:
        raise ProtocolError(f"payload of {len(payload)} bytes where {layout.size} belong")
    return layout.unpack(payload)


class Decoder:
    """Cuts a byte stream into frames, holding at most one incomplete frame."""

    def __init__(self, max_payload: int) -> None:
        self._max_payload = max_payload
        self._parts: list[bytes] = []
        """Of a frame that is not whole yet; put together once, when it is: a drip of single bytes
        must not be copied over and over."""
        self._held = 0
        self._needed = HEADER.size
        """Bytes of it that have to be there before there is anything new to say."""

    @property
    def is_mid_frame(self) -> bool:
        return bool(self._held)

    def feed(self, data: Payload) -> Iterator[Frame]:
        """Yield the frames that `data` completes; ProtocolError if one is over the limit.

        Only a frame that began before `data` is copied; the others are views of it.
        """
        buffer = memoryview(data)
        if self._held:
            buffer = self._fill_up(buffer)
            if self._held < self._needed:
                return
            whole = b"".join(self._parts)
            self._hold(b"", HEADER.size)
            _, kind, channel = HEADER.unpack_from(whole)
            yield Frame(kind, channel, memoryview(whole)[HEADER.size :])
        position, end, needed = 0, len(buffer), HEADER.size
        try:
            while end - position >= HEADER.size:
                size, kind, channel = HEADER.unpack_from(buffer, position)
                self._check(size)
                body = position + HEADER.size
                if end - body < size:
                    needed = HEADER.size + size
                    break
                position = body + size
                yield Frame(kind, channel, buffer[body:position])
        finally:
            if position < end:
                self._hold(bytes(buffer[position:]), needed)

    def _fill_up(self, buffer: memoryview) -> memoryview:
        """Give the held frame what it lacks, and return the rest."""
        while buffer and self._held < self._needed:
            piece = bytes(buffer[: self._needed - self._held])
            buffer = buffer[len(piece) :]
            self._parts.append(piece)
            self._held += len(piece)
            if self._held == self._needed == HEADER.size:
                header = b"".join(self._parts)
                size, _, _ = HEADER.unpack(header)
                self._check(size)
                self._parts = [header]
                self._needed += size
        return buffer

    def _hold(self, rest: bytes, needed: int) -> None:
        self._parts = [rest] if rest else []
        self._held, self._needed = len(rest), needed

    def _check(self, size: int) -> None:
        if size > self._max_payload:
            raise ProtocolError(f"frame of {size} bytes, at most {self._max_payload}")
