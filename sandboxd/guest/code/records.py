"""Records of a run in the stream of events: what a context reports besides its output.

A record is `kind u8, size u32, body`. Bodies have a fixed binary form, so that the daemon parses
nothing recursive from code that may be hostile: numbers are big-endian, a text is its size (u32)
and UTF-8, a list is its length (u32) and its items, an optional is a u8 (0 or 1) and the item.
JSON in a RESULT is passed on as text.

    VALUE, DISPLAY  list of (text media type, text or bytes data), list of text left out
    RESULT          text json, list of (text path, text what), u8 truncated
    ERROR           errors
    LOG             u64 microseconds, text level, message, variable, value, type
    STEP            u64 number, u8 reason, text file, u32 line, text source, text function, u32
                    depth, variables, list of text removed, errors, u64 thread, u32 breakpoint,
                    u64 stdout offset, u64 stderr offset, text returned, u32 left-out variables
    NOTE            text
    ANSWER          u64 command, u8 form, errors, then by form: VALUE variable; STACK frames, u32
                    left out, u64 thread; VARIABLES variables, u64 left out; BREAKPOINT u32 id,
                    text file, u32 line, text condition, text function; FAILURE text; ACCEPTED
                    nothing
    VIOLATION       text rule, u32 line, text name, text message
    LEFT_OUT        u32 displays, u32 logs

    errors          list of (text type, text message, frames, text traceback); each one is the
                    cause of the one before it
    frames          list of (text file, u32 line, text function, text source, u32 left out, u32
                    number)
    variables       list of (text name, text type, text value, optional text previous, u64 handle,
                    u64 size, optional u64 length)
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

HEADER = Struct("!BI")
MAX_RECORD = 3 << 20
"""Largest body."""
MAX_RESULT = 1 << 20
MAX_MEDIA = 1 << 20
"""Bytes of one representation of a display."""
MAX_DISPLAY = 2 << 20
"""Bytes of all representations of a display."""
MAX_DISPLAYS = 100
MAX_DISPLAY_BYTES = 8 << 20
"""Bytes of all displays of a run."""
MAX_LOGS = 2000
MAX_NOTES = 100
MAX_STEPS = 20_000
MAX_STEP_BYTES = 8 << 20
MAX_CAUSES = 8
MAX_FRAMES = 200
MAX_VARIABLES = 50
MAX_ITEMS = 4096
"""Longest list in a record."""

_U8, _U32, _U64 = Struct("!B"), Struct("!I"), Struct("!Q")


class Kinds:
    VALUE, DISPLAY, RESULT, ERROR, LOG, STEP, NOTE, ANSWER, VIOLATION, LEFT_OUT = range(1, 11)


class Reasons:
    """Why the debugger stopped; numbers of StopReason."""

    ENTRY, STEP, BREAKPOINT, PAUSE, EXCEPTION, RETURN, CODE = range(1, 8)


class Forms:
    """What an ANSWER has."""

    VALUE, STACK, VARIABLES, BREAKPOINT, FAILURE, ACCEPTED = range(1, 7)


class Frame(NamedTuple):
    file: str
    line: int
    function: str
    source: str
    left_out: int = 0
    number: int = 0


class Error(NamedTuple):
    type: str
    message: str
    frames: list[Frame]
    traceback: str


class Variable(NamedTuple):
    name: str
    type: str
    value: str
    previous: str | None = None
    handle: int = 0
    size: int = 0
    length: int | None = None


class Breakpoint(NamedTuple):
    id: int
    file: str
    line: int
    condition: str
    function: str


class Step(NamedTuple):
    number: int
    reason: int
    file: str
    line: int
    source: str
    function: str
    depth: int
    changed: list[Variable]
    removed: list[str]
    errors: list[Error]
    thread: int = 0
    breakpoint: int = 0
    stdout: int = 0
    stderr: int = 0
    returned: str = ""
    left_out: int = 0


def record(kind: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return HEADER.pack(kind, len(body)) + body


def u8(value: int) -> bytes:
    return _U8.pack(value & 0xFF)


def u32(value: int) -> bytes:
    return _U32.pack(min(max(value, 0), 0xFFFFFFFF))


def u64(value: int) -> bytes:
    return _U64.pack(min(max(value, 0), 0xFFFFFFFFFFFFFFFF))


def data(value: bytes) -> bytes:
    return _U32.pack(len(value)) + value


def text(value: str) -> bytes:
    return data(value.encode("utf-8", "replace"))


def items(parts: list[bytes]) -> bytes:
    return _U32.pack(len(parts)) + b"".join(parts)


def texts(values: list[str]) -> bytes:
    return items([text(value) for value in values])


def optional(part: bytes | None) -> bytes:
    return b"\0" if part is None else b"\1" + part


def display(kind: int, media: list[tuple[str, bytes]], left_out: list[str]) -> bytes:
    """A VALUE or a DISPLAY."""
    return record(kind, items([text(name) + data(body) for name, body in media]), texts(left_out))


def result(json: str, conversions: list[tuple[str, str]], truncated: bool) -> bytes:
    converted = items([text(path) + text(what) for path, what in conversions])
    return record(Kinds.RESULT, text(json), converted, u8(truncated))


def errors(chain: list[Error]) -> bytes:
    return items(
        [
            text(error.type) + text(error.message) + frames(error.frames) + text(error.traceback)
            for error in chain
        ]
    )


def frames(stack: list[Frame]) -> bytes:
    return items([frame(one) for one in stack])


def frame(one: Frame) -> bytes:
    place = text(one.file) + u32(one.line) + text(one.function) + text(one.source)
    return place + u32(one.left_out) + u32(one.number)


def variables(values: list[Variable]) -> bytes:
    return items([variable(value) for value in values])


def variable(value: Variable) -> bytes:
    previous = optional(None if value.previous is None else text(value.previous))
    length = optional(None if value.length is None else u64(value.length))
    shown = text(value.name) + text(value.type) + text(value.value)
    return shown + previous + u64(value.handle) + u64(value.size) + length


def error(chain: list[Error]) -> bytes:
    return record(Kinds.ERROR, errors(chain))


def log(
    microseconds: int, level: str, message: str, inspected: tuple[str, str, str] = ("", "", "")
) -> bytes:
    return record(Kinds.LOG, u64(microseconds), *map(text, (level, message, *inspected)))


def note(sentence: str) -> bytes:
    return record(Kinds.NOTE, text(sentence))


def violation(rule: str, line: int, name: str, message: str) -> bytes:
    return record(Kinds.VIOLATION, text(rule), u32(line), text(name), text(message))


def left_out(displays: int, logs: int) -> bytes:
    return record(Kinds.LEFT_OUT, u32(displays), u32(logs))


def step(at: Step) -> bytes:
    return record(
        Kinds.STEP,
        *(u64(at.number), u8(at.reason), text(at.file), u32(at.line), text(at.source)),
        *(text(at.function), u32(at.depth), variables(at.changed), texts(at.removed)),
        *(errors(at.errors), u64(at.thread), u32(at.breakpoint), u64(at.stdout), u64(at.stderr)),
        *(text(at.returned), u32(at.left_out)),
    )


def answer(command: int, form: int, *body: bytes, raised: list[Error] | None = None) -> bytes:
    return record(Kinds.ANSWER, u64(command), u8(form), errors(raised or []), *body)


def breakpoint_set(command: int, point: Breakpoint) -> bytes:
    place = text(point.file) + u32(point.line) + text(point.condition) + text(point.function)
    return answer(command, Forms.BREAKPOINT, u32(point.id) + place)
