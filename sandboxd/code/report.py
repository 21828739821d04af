"""What a run of code reported, collected from its events for a caller that is answered once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sandboxd.code.events import (
    Answer,
    Display,
    Error,
    Event,
    EventParser,
    LeftOut,
    Log,
    Note,
    Result,
    Value,
    Variables,
    Violation,
)
from sandboxd.execs.exec import Exec
from sandboxd.guest.frames import Stream

MAX_DISPLAYS = 100
MAX_DISPLAY_BYTES = 8 << 20
"""Bytes of all displays in one answer."""
MAX_LOGS = 2000
MAX_LOG_CHARACTERS = 2 << 20
MAX_NOTES = 100
MAX_VIOLATIONS = 50
PIECE_BYTES = 1 << 20
MUCH_BYTES = 256 << 10
"""Bytes of events from which on they are read in a thread."""


@dataclass
class Report:
    """The events of a run, bounded whatever the code wrote."""

    result: Result | None = None
    value: Display | None = None
    displays: list[Display] = field(default_factory=list)
    error: Error | None = None
    logs: list[Log] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    variables: Variables | None = None
    """The answer to a question about the context."""
    left_out_displays: int = 0
    left_out_logs: int = 0
    _display_bytes: int = 0
    _log_characters: int = 0

    def add(self, event: Event) -> None:
        match event:
            case Result():
                self.result = event
            case Value():
                self.value = event.display
            case Display():
                self._add_display(event)
            case Error():
                self.error = event
            case Log():
                self._add_log(event)
            case Note() if len(self.notes) < MAX_NOTES:
                self.notes.append(event.text)
            case Violation() if len(self.violations) < MAX_VIOLATIONS:
                self.violations.append(event)
            case LeftOut():
                self.left_out_displays += event.displays
                self.left_out_logs += event.logs
            case Answer(body=Variables() as variables):
                self.variables = variables

    def _add_display(self, display: Display) -> None:
        size = sum(len(one.data) for one in display.data)
        is_much = self._display_bytes + size > MAX_DISPLAY_BYTES
        if is_much or len(self.displays) >= MAX_DISPLAYS:
            self.left_out_displays += 1
            return
        self._display_bytes += size
        self.displays.append(display)

    def _add_log(self, log: Log) -> None:
        size = len(log.message) + len(log.value)
        is_much = self._log_characters + size > MAX_LOG_CHARACTERS
        if is_much or len(self.logs) >= MAX_LOGS:
            self.left_out_logs += 1
            return
        self._log_characters += size
        self.logs.append(log)


async def report_of(execution: Exec) -> Report:
    """What an ended run reported."""
    if execution.length(Stream.EVENTS) > MUCH_BYTES:
        return await asyncio.to_thread(_read, execution)
    return _read(execution)


def _read(execution: Exec) -> Report:
    report, parser, offset = Report(), EventParser(), 0
    spool, end = execution.kept_output.spool, execution.length(Stream.EVENTS)
    while offset < end:
        piece = spool.read(Stream.EVENTS, offset, PIECE_BYTES)
        if piece.skipped:
            report.add(Note("More events were reported than are kept; the rest was left out."))
            break
        if not piece.data:
            break
        offset += len(piece.data)
        for placed in parser.feed(piece.data):
            report.add(placed.event)
    return report
