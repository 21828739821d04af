"""Executes the code of a run in the context's namespace, with top-level await."""

from __future__ import annotations

import asyncio
from _ast import Expr, Expression, Module, PyCF_ALLOW_TOP_LEVEL_AWAIT, PyCF_ONLY_AST
from types import CodeType, CoroutineType
from typing import Any

from .tracebacks import is_own

_CANCEL_SECONDS = 0.15
"""How long an interrupted task may take to end before it is left behind."""


class Program:
    """Compiled code: statements, and the last expression if there is one."""

    def __init__(self, code: str, file: str) -> None:
        self.file = file
        self.code = code
        self.tree = compile(code, file, "exec", PyCF_ONLY_AST | PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        self.parts: list[CodeType] = []
        self.has_value = False

    def compile(self) -> None:
        """Raises SyntaxError, also for what the parser lets pass."""
        body = list(self.tree.body)
        last = body.pop() if body and type(body[-1]) is Expr else None
        self.has_value = last is not None
        if body:
            module = Module(body=body, type_ignores=[])
            self.parts.append(self._compiled(module, "exec"))
        if last is not None:
            self.parts.append(self._compiled(Expression(body=last.value), "eval"))

    def _compiled(self, tree: Any, mode: str) -> CodeType:
        made: CodeType = compile(tree, self.file, mode, PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        return made

    @property
    def is_async(self) -> bool:
        return any(part.co_flags & _COROUTINE for part in self.parts)


_COROUTINE = 0x80 | 0x200  # of a coroutine, or of an asynchronous generator


class Executor:
    """Runs programs; one event loop for the context's whole life."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.stack: list[tuple[Any, int]] = []
        """Where a task stood when it was interrupted: the exception itself does not show it."""

    def execute(self, program: Program, names: dict[str, Any]) -> Any:
        self.stack = []
        if not program.is_async:
            value = None
            for part in program.parts:
                value = eval(part, names)
            return value
        return self._run(program, names)

    async def _all(self, program: Program, names: dict[str, Any]) -> Any:
        value = None
        for part in program.parts:
            value = eval(part, names)
            if type(value) is CoroutineType and part.co_flags & _COROUTINE:
                value = await value
        return value

    def _run(self, program: Program, names: dict[str, Any]) -> Any:
        if self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
        loop = self._loop
        asyncio.set_event_loop(loop)
        task = loop.create_task(self._all(program, names))
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                self.stack = _stack(task)
                self._cancel(loop, task)
            raise

    def _cancel(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        """End an interrupted task; one that swallows the end is left behind, standing still."""
        task.cancel()
        timer = loop.call_later(_CANCEL_SECONDS, loop.stop)
        task.add_done_callback(lambda ended: loop.stop())
        try:
            loop.run_forever()
        finally:
            timer.cancel()
            if task.done() and not task.cancelled():
                task.exception()  # looked at, so that nothing complains about it later


def _stack(task: asyncio.Task[Any]) -> list[tuple[Any, int]]:
    """Frames of a waiting task, through the coroutines that it awaits, outermost first."""
    found: list[tuple[Any, int]] = []
    inner: Any = task.get_coro()
    while type(inner) is CoroutineType and len(found) < 200:
        frame = inner.cr_frame
        if frame is None:
            break
        if not is_own(frame):
            found.append((frame, frame.f_lineno))
        inner = inner.cr_await
    return found
