"""Connects this terminal to a command: sends what is typed, shows what it writes."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from functools import partial
from typing import Any

import click

from sandboxd.cli import keyboard
from sandboxd.cli.pipes import close_unread_output
from sandboxd_client import (
    AsyncCommandHandle,
    CommandResult,
    ExecEndedError,
    OutputChunk,
    OutputGap,
    SandboxError,
)


class Left(Enum):
    """Why following ended before the command did."""

    DETACHED = auto()
    """The user typed the detach keys; the command continues."""
    INTERRUPTED = auto()
    """The user pressed Ctrl-C."""
    UNREAD = auto()
    """Our output is no longer read."""


class Relay:
    """Follows one command, to its end or until the user detaches.

    Signals that we receive are passed on to the command. With `is_owner`, a second Ctrl-C kills the
    command, and so does closing our output; otherwise Ctrl-C leaves it running.
    """

    def __init__(
        self, command: AsyncCommandHandle, *, in_terminal: bool = False, is_owner: bool = True
    ) -> None:
        self._command = command
        self._in_terminal = in_terminal
        self._is_owner = is_owner
        self._tasks: set[asyncio.Task[object]] = set()
        self._left: asyncio.Future[Left] = asyncio.get_running_loop().create_future()
        self._interrupts = 0

    async def run(
        self, *, sends_input: bool, stdout_offset: int = 0, stderr_offset: int = 0
    ) -> CommandResult | Left:
        showing = asyncio.create_task(self._show(stdout_offset, stderr_offset), name="output")
        waited: set[asyncio.Future[Any]] = {showing, self._left}
        if sends_input:
            feeding = asyncio.create_task(self._feed(), name="input")
            self._tasks.add(feeding)
            waited.add(feeding)
        try:
            with self._signals():
                return await self._first(showing, waited)
        finally:
            self._tasks.add(showing)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _first(
        self, showing: asyncio.Task[CommandResult | Left], waited: set[asyncio.Future[Any]]
    ) -> CommandResult | Left:
        while True:
            done, waited = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if showing in done:
                return showing.result()
            if self._left in done:
                return self._left.result()
            for task in done:
                task.result()  # the input has ended, or failed

    async def _show(self, stdout_offset: int, stderr_offset: int) -> CommandResult | Left:
        stream = self._command.stream(stdout_offset=stdout_offset, stderr_offset=stderr_offset)
        try:
            async with stream as events:
                async for event in events:
                    show(event)
        except BrokenPipeError:
            close_unread_output()
            if self._is_owner:
                await self._command.kill()
            return Left.UNREAD
        assert events.result is not None
        return events.result

    async def _feed(self) -> None:
        keys = keyboard.DetachKeys()
        try:
            async for typed in keyboard.StandardInput().chunks():
                data, is_detached = keys.feed(typed) if self._in_terminal else (typed, False)
                await self._command.send_stdin(data)
                if is_detached:
                    self._leave(Left.DETACHED)
            if not self._in_terminal:
                await self._command.close_stdin()
        except ExecEndedError:
            pass  # it ended without reading all input

    def _leave(self, why: Left) -> None:
        if not self._left.done():
            self._left.set_result(why)

    # --- signals ---

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], None]] = {signal.SIGINT: self._interrupt}
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            handlers[number] = partial(self._pass_on, number)
        if self._in_terminal:
            handlers[signal.SIGWINCH] = self._resize
            self._resize()
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        self._interrupts += 1
        if not self._is_owner or self._interrupts > 2:
            self._leave(Left.INTERRUPTED)
        else:
            self._pass_on(signal.SIGINT if self._interrupts == 1 else signal.SIGKILL)

    def _pass_on(self, number: signal.Signals) -> None:
        if not self._is_owner and number != signal.SIGINT:
            self._leave(Left.INTERRUPTED)
        else:
            self._start(self._command.send_signal(number))

    def _resize(self) -> None:
        rows, columns = keyboard.screen_size()
        self._start(self._command.resize(rows, columns))

    def _start(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(_tolerant(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _tolerant(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except SandboxError:
        pass  # the command has ended, or the stream reports the error


def show(event: OutputChunk | OutputGap) -> None:
    """Write an event to the stream that the command wrote it to."""
    file = sys.stdout if event.stream == "stdout" else sys.stderr
    if isinstance(event, OutputGap):
        click.echo(f"[... {event.size_bytes} bytes are no longer kept ...]", err=True)
        return
    file.buffer.write(event.data)
    file.buffer.flush()
