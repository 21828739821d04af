"""Records of a run of code, as its context writes them, or its code in their place."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random

from sandboxd.code.events import EventParser, Note, Placed
from sandboxd.guest.code import records
from sandboxd.guest.code.records import HEADER, Error, Forms, Frame, Kinds, Step, Variable
from tests.fuzz.target import Target, stateless

FRAME = Frame("<run 1>", 3, "f", "x = 1", 2, 1)
ERRORS = [Error("ValueError", "no", [FRAME], "Traceback"), Error("KeyError", "x", [], "")]
VARIABLE = Variable("x", "int", "1", "0", 5, 28, 3)


def _step() -> Step:
    return Step(1, 2, "<run 1>", 3, "x", "f", 1, [VARIABLE], ["y"], ERRORS, 1, 2, 3, 4, "r", 5)


SEEDS = [
    records.display(Kinds.DISPLAY, [("text/plain", b"x"), ("image/png", b"\x89")], ["text/html"]),
    records.display(Kinds.VALUE, [("text/plain", b"1")], []),
    records.result('{"a": null}', [("$.a", "NaN to null")], True),
    records.error(ERRORS),
    records.log(1_700_000_000_000_000, "INFO", "hello", ("x", "1", "int")),
    records.step(_step()),
    records.note("A fact."),
    records.answer(7, Forms.VALUE, records.variable(VARIABLE)),
    records.answer(7, Forms.STACK, records.frames([FRAME]) + records.u32(1) + records.u64(0)),
    records.answer(7, Forms.VARIABLES, records.variables([VARIABLE]) + records.u64(2)),
    records.breakpoint_set(7, records.Breakpoint(1, "<run 1>", 3, "x > 1", "")),
    records.answer(7, Forms.FAILURE, records.text("no"), raised=ERRORS),
    records.answer(7, Forms.ACCEPTED),
    records.violation("module", 3, "os", "is not allowed"),
    records.left_out(1, 2),
]


async def parse(data: bytes) -> Hashable:
    """In one piece and byte by byte: the same events; offsets grow and end within the input."""
    whole = list(EventParser().feed(data))
    parser = EventParser()
    pieces = [
        placed for start in range(0, len(data), 7) for placed in parser.feed(data[start:][:7])
    ]
    assert whole == pieces
    at = 0
    for placed in whole:
        assert placed.offset == at <= placed.next_offset <= len(data)
        at = placed.next_offset
    return tuple(sorted({_outcome(placed) for placed in whole}))


def _outcome(placed: Placed) -> str:
    is_end = isinstance(placed.event, Note) and placed.offset == placed.next_offset
    return "spoiled" if is_end else type(placed.event).__name__


def sized(data: bytes, random: Random) -> bytes:
    """The same with the size of the first record as it has to be."""
    if len(data) < HEADER.size:
        return data
    return HEADER.pack(data[0], len(data) - HEADER.size) + data[HEADER.size :]


CODE_EVENTS = Target(
    name="code-events",
    open=stateless(parse),
    seeds=[*SEEDS, b"".join(SEEDS)],
    words=[b"\0\0\0\1", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\1", b"\0"],
    repair=sized,
)
