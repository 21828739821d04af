"""The event loop behind the sync classes: one thread per process, started on first use."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sandboxd_client.connection import close_all
from sandboxd_client.tracebacks import edge

T = TypeVar("T")
INTERRUPT_SECONDS = 5.0
"""Limit for work to end after Ctrl-C."""
END_SECONDS = 60.0
"""Limit for closing clients that were left open when the process ends."""


class _Errand:
    """A function for the caller's thread to run while it waits for the loop."""

    def __init__(self, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[object] = self._loop.create_future()

    def run(self) -> None:
        try:
            answer = self._function(*self._arguments)
        except BaseException as error:
            self._loop.call_soon_threadsafe(self._settle, None, error)
        else:
            self._loop.call_soon_threadsafe(self._settle, answer, None)

    def _settle(self, answer: object, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(answer)
        else:
            self.done.set_exception(error)


class _Mailbox(SimpleQueue["_Errand | None"]):
    """Functions for the waiting thread; None when the work is done."""


_caller: ContextVar[_Mailbox] = ContextVar("caller")


def _run_errands(mailbox: _Mailbox, timeout: float | None) -> None:
    while (errand := mailbox.get(timeout=timeout)) is not None:
        errand.run()


def _take_over(context: Context) -> None:
    """Copy the context variables that the work has set to the caller's context."""
    for variable, value in context.items():
        if variable is not _caller and variable.get(None) is not value:
            variable.set(value)


def here(function: Callable[..., object] | None) -> Any:
    """A callback that runs in the thread that waits for the call, not in the loop's thread."""
    if not callable(function):
        return function  # None, or what the call refuses

    async def errand(*arguments: object) -> object:
        errand = _Errand(function, arguments)
        _caller.get().put(errand)
        return await errand.done

    return errand


class Portal:
    """A thread with an event loop that other threads call into."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work on the loop and wait. An interrupt cancels it and waits for its end."""
        loop, mailbox = self.loop, _Mailbox()
        context = copy_context()
        context.run(_caller.set, mailbox)
        task: asyncio.Task[None] | None = None
        answers: list[T] = []
        errors: list[BaseException] = []

        async def do() -> None:
            try:
                answers.append(await work)
            except BaseException as error:
                errors.append(error)  # for the caller's thread, and not for the loop
            finally:
                mailbox.put(None)  # not in a callback of the task, a turn of the loop later

        def begin() -> None:
            nonlocal task
            task = loop.create_task(do(), context=context)
            task.add_done_callback(end)

        def end(_: object) -> None:
            # For a task that was cancelled before its first step, so that `do` never ran.
            work.close()
            mailbox.put(None)

        loop.call_soon_threadsafe(begin)
        try:
            _run_errands(mailbox, None)
        except BaseException:
            loop.call_soon_threadsafe(lambda: task and task.cancel())
            with suppress(Empty):
                _run_errands(mailbox, INTERRUPT_SECONDS)
            raise
        _take_over(context)
        if errors:
            with edge:
                raise errors.pop()
        return answers.pop()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._start()
            assert self._loop is not None
            return self._loop

    def _start(self) -> None:
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=loop.run_forever, name="sandboxd client", daemon=True
        )
        self._thread.start()
        # Runs before Python joins threads and closes executors, which a daemon in this process
        # needs to stop. atexit would be too late; the function registered last runs first.
        importlib.import_module("concurrent.futures.thread")
        register = getattr(threading, "_register_atexit")  # noqa: B009  # not in typeshed
        register(self._end)

    def _end(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None:
            return  # registered by the parent, before a fork
        ending = asyncio.run_coroutine_threadsafe(self._close_all(), loop)
        try:
            ending.result(END_SECONDS)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(END_SECONDS)

    @staticmethod
    async def _close_all() -> None:
        await close_all()
        this = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not this]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


portal = Portal()


def _begin_anew() -> None:
    """In a forked child the thread is gone."""
    portal.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_begin_anew)
