"""The debugger on a terminal: where the code is, what changed, and what it wrote."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import click

from sandboxd.cli import keyboard, table
from sandboxd_client import AsyncDebugger, CodeRun, DebuggerError, DebugStep, Variable

AROUND = 3
"""Source lines shown before and after the current one."""
WIDEST = 160
PROMPT = "(debug) "
HELP = """\
n  next line, over calls          b LINE [if CONDITION]  set a breakpoint
s  step into a call               b                      list breakpoints
o  step out of this function      d ID                   delete a breakpoint
c  continue to a breakpoint       p EXPRESSION           evaluate in this frame
w  where: the stack               v [NAME]               variables, or parts of one
l  list the source around here    q                      quit
Enter repeats the last step; Ctrl-C pauses code that runs."""


async def debug_screen(debugger: AsyncDebugger, code: str) -> CodeRun | None:
    """Debug until the run ends or the user quits."""
    async with debugger:
        screen = _Screen(debugger, code)
        await screen.run()
    return debugger.result


class _Screen:
    def __init__(self, debugger: AsyncDebugger, code: str) -> None:
        self._debugger = debugger
        self._lines = code.splitlines()
        self._file = debugger.step.file if debugger.step else ""
        self._last_move = "n"
        self._commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "b": self._set_breakpoint,
            "d": self._delete_breakpoint,
            "p": self._print,
            "w": self._where,
            "l": self._list,
            "v": self._variables,
            "h": self._help,
        }
        self._moves: dict[str, Callable[[], Awaitable[DebugStep | None]]] = {
            "n": debugger.step_over,
            "s": debugger.step_in,
            "o": debugger.step_out,
            "c": debugger.continue_,
        }

    async def run(self) -> None:
        if self._debugger.step is None:
            return
        self._show(self._debugger.step)
        async for line in _typed_lines():
            word, _, rest = line.strip().partition(" ")
            word = word or self._last_move
            if word == "q":
                break
            if not await self._obey(word, rest.strip()):
                return
        await self._debugger.quit()

    async def _obey(self, word: str, rest: str) -> bool:
        """Carry out a command; False at the end of the run."""
        try:
            if word in self._moves:
                return await self._move(word)
            command = self._commands.get(word)
            if command is None:
                click.echo(f"{table.printable(word)!r} is not a command; h lists them")
            else:
                await command(rest)
        except DebuggerError as error:
            click.echo(f"sandboxd: {error}")
        return True

    async def _move(self, word: str) -> bool:
        self._last_move = word
        with self._pausing():
            step = await self._moves[word]()
        if step is None:
            click.echo("the code has ended")
            return False
        self._show(step)
        return True

    @contextmanager
    def _pausing(self) -> Iterator[None]:
        """Ctrl-C stops code that runs."""
        loop = asyncio.get_running_loop()
        pausing: set[asyncio.Task[object]] = set()

        def pause() -> None:
            pausing.add(loop.create_task(_ignored(self._debugger)))

        loop.add_signal_handler(signal.SIGINT, pause)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            for task in pausing:
                task.cancel()

    def _show(self, step: DebugStep) -> None:
        where = f"line {step.line}" if step.file == self._file else f"{step.file}:{step.line}"
        thread = f", thread {step.thread}" if step.thread else ""
        click.echo(f"-- {step.number}: {where} in {step.function}{thread} ({step.reason})")
        if step.file == self._file:
            self._show_source(step.line)
        else:
            click.echo(_cut(f" > {step.line:4}  {step.source}"))
        if step.return_value:
            click.echo(_cut(f"   returns {step.return_value}"))
        for variable in step.changed:
            click.echo(_cut(f"   {_changed(variable)}"))
        for name in step.removed:
            click.echo(f"   {name} is gone")
        if step.error is not None:
            click.echo(_cut(f"   {step.error.type}: {step.error.message}"))

    def _show_source(self, line: int) -> None:
        first = max(1, line - AROUND)
        for number, text in enumerate(self._lines[first - 1 : line + AROUND], first):
            mark = ">" if number == line else " "
            click.echo(_cut(f" {mark} {number:4}  {text}"))

    async def _set_breakpoint(self, rest: str) -> None:
        if not rest:
            for one in self._debugger.breakpoints:
                condition = f" if {one.condition}" if one.condition else ""
                click.echo(f"{one.id}: line {one.line}{condition}")
            return
        place, _, condition = rest.partition(" if ")
        if not place.strip().isdigit():
            click.echo("use: b LINE [if CONDITION]")
            return
        found = await self._debugger.set_breakpoint(int(place), condition=condition.strip())
        click.echo(f"breakpoint {found.id} at line {found.line}")

    async def _delete_breakpoint(self, rest: str) -> None:
        if rest.isdigit():
            await self._debugger.clear_breakpoint(int(rest))
        else:
            click.echo("use: d ID")

    async def _print(self, rest: str) -> None:
        found = await self._debugger.evaluate(rest)
        if found.error is not None:
            click.echo(_cut(f"{found.error.type}: {found.error.message}"))
        else:
            click.echo(table.printable(found.value))

    async def _where(self, rest: str) -> None:
        for frame in await self._debugger.stack():
            place = (
                f"line {frame.line}" if frame.file == self._file else f"{frame.file}:{frame.line}"
            )
            click.echo(_cut(f"  {frame.number}: {place} in {frame.function}: {frame.source}"))

    async def _list(self, rest: str) -> None:
        step = self._debugger.step
        if step is not None:
            self._show_source(step.line)

    async def _variables(self, rest: str) -> None:
        found = await self._debugger.variables()
        if rest:
            with suppress(KeyError):
                found = await self._debugger.variables(handle=found[rest].handle)
        for variable in found:
            click.echo(_cut(f"   {variable.name}: {variable.type} = {variable.value}"))
        if found.left_out:
            click.echo(f"   and {found.left_out} more")

    async def _help(self, rest: str) -> None:
        click.echo(HELP)


async def _ignored(debugger: AsyncDebugger) -> None:
    with suppress(DebuggerError):
        await debugger.pause()


def _changed(variable: Variable) -> str:
    was = "" if variable.previous_value is None else f"  (was {variable.previous_value})"
    return f"{variable.name} = {variable.value}{was}"


def _cut(text: str) -> str:
    shown = table.printable(text)
    return shown if len(shown) <= WIDEST else shown[: WIDEST - 1] + "…"


async def _typed_lines() -> AsyncIterator[str]:
    """Lines of standard input, with a prompt before each."""
    rest = b""
    _prompt()
    async for chunk in keyboard.StandardInput().chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
            _prompt()
    if rest:
        yield rest.decode(errors="replace")


def _prompt() -> None:
    if keyboard.is_terminal():
        sys.stdout.write(PROMPT)
        sys.stdout.flush()
