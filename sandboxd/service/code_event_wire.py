"""Events of runs of code to messages."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import TYPE_CHECKING

from sandboxd.code import events
from sandboxd.code.events import Placed
from sandboxd_proto.v1 import code_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

    _Frames = RepeatedCompositeFieldContainer[pb.CodeFrame]


def fill_display(message: pb.Display, display: events.Display) -> None:
    for one in display.data:
        message.data.add(media_type=one.media_type, data=one.data)
    message.left_out.extend(display.left_out)


def fill_result(message: pb.CodeResult, result: events.Result) -> None:
    message.json = result.json
    message.truncated = result.truncated
    for one in result.conversions:
        message.conversions.add(path=one.path, what=one.what)


def fill_error(message: pb.CodeError, error: events.Error) -> None:
    """With its causes, each within the one that it is the cause of."""
    for one in (error, *error.causes):
        if one is not error:
            message = message.cause
        message.type, message.message = one.type, one.message
        message.traceback = one.traceback
        _fill_frames(message.frames, one.frames)


def _fill_frames(messages: _Frames, frames: Iterable[events.Frame]) -> None:
    for one in frames:
        messages.add(
            file=one.file,
            line=one.line,
            function=one.function,
            source=one.source,
            left_out_frames=one.left_out_frames,
            number=one.number,
        )


def fill_log(message: pb.CodeLog, log: events.Log) -> None:
    message.time.seconds, micros = divmod(min(log.microseconds, _LAST_MICROSECOND), 1_000_000)
    message.time.nanos = micros * 1000
    message.level, message.message = log.level, log.message
    message.variable, message.value, message.type = log.variable, log.value, log.type


_LAST_MICROSECOND = 253402300799 * 1_000_000
"""A Timestamp cannot be later."""


def variable(found: events.Variable) -> pb.Variable:
    return pb.Variable(
        name=found.name,
        type=found.type,
        value=found.value,
        previous_value=found.previous_value,
        handle=found.handle,
        size_bytes=found.size_bytes,
        length=found.length,
    )


def violation(found: events.Violation) -> pb.CodeViolation:
    return pb.CodeViolation(
        rule=found.rule, line=found.line, name=found.name, message=found.message
    )


def _fill_step(message: pb.DebugStep, step: events.Step) -> None:
    message.number = step.number
    message.reason = step.reason  # type: ignore[assignment]  # the same numbers
    message.file, message.line = step.file, step.line
    message.source, message.function = step.source, step.function
    message.depth, message.thread = step.depth, step.thread
    message.changed.extend(map(variable, step.changed))
    message.removed.extend(step.removed)
    message.breakpoint_id = step.breakpoint_id
    message.stdout_offset, message.stderr_offset = step.stdout_offset, step.stderr_offset
    message.return_value = step.return_value
    message.left_out_variables = step.left_out_variables
    if step.error is not None:
        fill_error(message.error, step.error)


def _fill_answer(message: pb.DebugAnswer, answer: events.Answer) -> None:
    message.command = answer.command
    match answer.body:
        case events.Variable():
            message.value.CopyFrom(variable(answer.body))
        case events.Stack():
            _fill_frames(message.stack.frames, answer.body.frames)
            message.stack.left_out_frames = answer.body.left_out_frames
            message.stack.thread = answer.body.thread
        case events.Variables():
            message.variables.variables.extend(map(variable, answer.body.variables))
            message.variables.left_out = answer.body.left_out
        case events.Breakpoint():
            message.breakpoint.CopyFrom(breakpoint_message(answer.body))
        case events.Failure():
            message.failure = answer.body.reason
        case events.Accepted():
            message.accepted.SetInParent()
    if answer.error is not None:
        fill_error(message.error, answer.error)


def breakpoint_message(found: events.Breakpoint) -> pb.Breakpoint:
    return pb.Breakpoint(
        id=found.id,
        file=found.file,
        line=found.line,
        condition=found.condition,
        function=found.function,
    )


def fill_event(message: pb.CodeEvent, placed: Placed) -> None:
    message.offset, message.next_offset = placed.offset, placed.next_offset
    _fill(placed.event, message)


@singledispatch
def _fill(event: events.Event, message: pb.CodeEvent) -> None:
    raise TypeError(f"unknown event {event!r}")


@_fill.register
def _(event: events.Value, message: pb.CodeEvent) -> None:
    message.value.SetInParent()
    fill_display(message.value, event.display)


@_fill.register
def _(event: events.Display, message: pb.CodeEvent) -> None:
    message.display.SetInParent()
    fill_display(message.display, event)


@_fill.register
def _(event: events.Result, message: pb.CodeEvent) -> None:
    message.result.SetInParent()
    fill_result(message.result, event)


@_fill.register
def _(event: events.Error, message: pb.CodeEvent) -> None:
    message.error.SetInParent()
    fill_error(message.error, event)


@_fill.register
def _(event: events.Log, message: pb.CodeEvent) -> None:
    fill_log(message.log, event)


@_fill.register
def _(event: events.Step, message: pb.CodeEvent) -> None:
    _fill_step(message.step, event)


@_fill.register
def _(event: events.Note, message: pb.CodeEvent) -> None:
    message.note = event.text


@_fill.register
def _(event: events.Answer, message: pb.CodeEvent) -> None:
    message.answer.SetInParent()
    _fill_answer(message.answer, event)


@_fill.register
def _(event: events.Violation, message: pb.CodeEvent) -> None:
    message.violation.CopyFrom(violation(event))


@_fill.register
def _(event: events.LeftOut, message: pb.CodeEvent) -> None:
    message.note = (
        f"{event.displays} displays and {event.logs} log lines were left out because of a limit."
    )
