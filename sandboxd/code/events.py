"""Events of a run: what a context reports besides output, parsed from its records.

User code can write to that pipe, so nothing here trusts it: the parser is iterative and bounded,
JSON inside is passed on as text, and a malformed record ends the events of that run only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from sandboxd.guest.code.records import (
    HEADER,
    MAX_CAUSES,
    MAX_FRAMES,
    MAX_ITEMS,
    MAX_RECORD,
    Forms,
    Kinds,
    Reasons,
)

T = TypeVar("T")


class Malformed(ValueError):
    """A record does not have its form."""


@dataclass(frozen=True, slots=True)
class DisplayData:
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Display:
    data: list[DisplayData]
    left_out: list[str]


@dataclass(frozen=True, slots=True)
class Value:
    """The value of the last expression."""

    display: Display


@dataclass(frozen=True, slots=True)
class Conversion:
    path: str
    what: str


@dataclass(frozen=True, slots=True)
class Result:
    json: str
    conversions: list[Conversion]
    truncated: bool


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str
    source: str
    left_out_frames: int
    number: int


@dataclass(frozen=True, slots=True)
class Error:
    """An exception; `causes` are those that it was raised from, in order."""

    type: str
    message: str
    frames: list[Frame]
    traceback: str
    causes: list[Error] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Log:
    microseconds: int
    level: str
    message: str
    variable: str
    value: str
    type: str


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    type: str
    value: str
    previous_value: str | None
    handle: int
    size_bytes: int
    length: int | None


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    reason: int
    file: str
    line: int
    source: str
    function: str
    depth: int
    changed: list[Variable]
    removed: list[str]
    error: Error | None
    thread: int
    breakpoint_id: int
    stdout_offset: int
    stderr_offset: int
    return_value: str
    left_out_variables: int


@dataclass(frozen=True, slots=True)
class Note:
    text: str


@dataclass(frozen=True, slots=True)
class Stack:
    frames: list[Frame]
    left_out_frames: int
    thread: int


@dataclass(frozen=True, slots=True)
class Variables:
    variables: list[Variable]
    left_out: int


@dataclass(frozen=True, slots=True)
class Breakpoint:
    id: int
    file: str
    line: int
    condition: str
    function: str


@dataclass(frozen=True, slots=True)
class Failure:
    reason: str


@dataclass(frozen=True, slots=True)
class Accepted:
    pass


Body = Variable | Stack | Variables | Breakpoint | Failure | Accepted


@dataclass(frozen=True, slots=True)
class Answer:
    command: int
    body: Body
    error: Error | None


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    line: int
    name: str
    message: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How much a run did not report because a limit was reached."""

    displays: int
    logs: int


Event = Value | Display | Result | Error | Log | Step | Note | Answer | Violation | LeftOut


@dataclass(frozen=True, slots=True)
class Placed:
    """An event and its place in the stream of events."""

    offset: int
    next_offset: int
    event: Event


class Reader:
    """Reads the parts of one record's body."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def _take(self, size: int) -> bytes:
        part = self._body[self._at : self._at + size]
        if len(part) != size:
            raise Malformed("a record ends too early")
        self._at += size
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def u8(self) -> int:
        return self.number(1)

    def u32(self) -> int:
        return self.number(4)

    def u64(self) -> int:
        return self.number(8)

    def data(self) -> bytes:
        return self._take(self.u32())

    def text(self) -> str:
        return self.data().decode("utf-8", "replace")

    def flag(self) -> bool:
        value = self.u8()
        if value > 1:
            raise Malformed("a flag is neither 0 nor 1")
        return value == 1

    def items(self, read: Callable[[], T], limit: int = MAX_ITEMS) -> list[T]:
        count = self.u32()
        if count > limit:
            raise Malformed("a list is too long")
        return [read() for _ in range(count)]

    def optional(self, read: Callable[[], T]) -> T | None:
        return read() if self.flag() else None

    def finish(self) -> None:
        if self._at != len(self._body):
            raise Malformed("a record has more than it should")

    def display_data(self) -> DisplayData:
        return DisplayData(self.text(), self.data())

    def display(self) -> Display:
        return Display(self.items(self.display_data), self.items(self.text))

    def value(self) -> Value:
        return Value(self.display())

    def conversion(self) -> Conversion:
        return Conversion(self.text(), self.text())

    def result(self) -> Result:
        return Result(self.text(), self.items(self.conversion), self.flag())

    def frame(self) -> Frame:
        return Frame(self.text(), self.u32(), self.text(), self.text(), self.u32(), self.u32())

    def frames(self) -> list[Frame]:
        return self.items(self.frame, MAX_FRAMES)

    def one_error(self) -> Error:
        return Error(self.text(), self.text(), self.frames(), self.text())

    def errors(self) -> Error | None:
        chain = self.items(self.one_error, MAX_CAUSES)
        if not chain:
            return None
        first = chain[0]
        return Error(first.type, first.message, first.frames, first.traceback, chain[1:])

    def error(self) -> Error:
        found = self.errors()
        if found is None:
            raise Malformed("an error is empty")
        return found

    def log(self) -> Log:
        return Log(self.u64(), self.text(), self.text(), self.text(), self.text(), self.text())

    def variable(self) -> Variable:
        return Variable(
            *(self.text(), self.text(), self.text(), self.optional(self.text)),
            *(self.u64(), self.u64(), self.optional(self.u64)),
        )

    def step(self) -> Step:
        step = Step(
            number=self.u64(),
            reason=self.u8(),
            file=self.text(),
            line=self.u32(),
            source=self.text(),
            function=self.text(),
            depth=self.u32(),
            changed=self.items(self.variable),
            removed=self.items(self.text),
            error=self.errors(),
            thread=self.u64(),
            breakpoint_id=self.u32(),
            stdout_offset=self.u64(),
            stderr_offset=self.u64(),
            return_value=self.text(),
            left_out_variables=self.u32(),
        )
        if not Reasons.ENTRY <= step.reason <= Reasons.CODE:
            raise Malformed("a step has an unknown reason")
        return step

    def note(self) -> Note:
        return Note(self.text())

    def stack(self) -> Stack:
        return Stack(self.frames(), self.u32(), self.u64())

    def variables(self) -> Variables:
        return Variables(self.items(self.variable), self.u64())

    def breakpoint(self) -> Breakpoint:
        return Breakpoint(self.u32(), self.text(), self.u32(), self.text(), self.text())

    def failure(self) -> Failure:
        return Failure(self.text())

    def answer(self) -> Answer:
        command, form, error = self.u64(), self.u8(), self.errors()
        read = _FORMS.get(form)
        if read is None:
            raise Malformed("an answer has an unknown form")
        return Answer(command, read(self), error)

    def violation(self) -> Violation:
        return Violation(self.text(), self.u32(), self.text(), self.text())

    def left_out(self) -> LeftOut:
        return LeftOut(self.u32(), self.u32())


_KINDS: dict[int, Callable[[Reader], Event]] = {
    Kinds.VALUE: Reader.value,
    Kinds.DISPLAY: Reader.display,
    Kinds.RESULT: Reader.result,
    Kinds.ERROR: Reader.error,
    Kinds.LOG: Reader.log,
    Kinds.STEP: Reader.step,
    Kinds.NOTE: Reader.note,
    Kinds.ANSWER: Reader.answer,
    Kinds.VIOLATION: Reader.violation,
    Kinds.LEFT_OUT: Reader.left_out,
}
_FORMS: dict[int, Callable[[Reader], Body]] = {
    Forms.VALUE: Reader.variable,
    Forms.STACK: Reader.stack,
    Forms.VARIABLES: Reader.variables,
    Forms.BREAKPOINT: Reader.breakpoint,
    Forms.FAILURE: Reader.failure,
    Forms.ACCEPTED: lambda reader: Accepted(),
}
SPOILED = "The events of this run cannot be read from here on: its code wrote to their descriptor."


class EventParser:
    """Parses the stream of events of one run, as it comes, from any record on.

    Holds at most one record. After a malformed one it reports that as a Note, and then nothing.
    """

    def __init__(self, offset: int = 0) -> None:
        self._offset = offset
        self._pending = bytearray()
        self.is_spoiled = False

    def feed(self, data: bytes | memoryview) -> Iterator[Placed]:
        if self.is_spoiled:
            return
        self._pending += data
        try:
            while (size := self._complete()) is not None:
                body = bytes(self._pending[HEADER.size : size])
                event = parse(self._pending[0], body)
                start, self._offset = self._offset, self._offset + size
                del self._pending[:size]
                yield Placed(start, self._offset, event)
        except Malformed:
            self.is_spoiled = True
            self._pending.clear()
            yield Placed(self._offset, self._offset, Note(SPOILED))

    def _complete(self) -> int | None:
        """Size of the first record, if all of it is there."""
        if len(self._pending) < HEADER.size:
            return None
        kind, size = HEADER.unpack_from(self._pending)
        if kind not in _KINDS or size > MAX_RECORD:
            raise Malformed("a record has an unknown kind or is too large")
        total: int = HEADER.size + size
        return total if len(self._pending) >= total else None


def parse(kind: int, body: bytes) -> Event:
    """The event of one record. Raises Malformed."""
    reader = Reader(body)
    event = _KINDS[kind](reader)
    reader.finish()
    return event
