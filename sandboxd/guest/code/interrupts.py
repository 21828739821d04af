"""Interrupts of a run: they reach the user's code, never the runner's own writes, and no later run.

Signals are handled in the main thread. While the runner does something that must be whole, a signal
is only noted; the places where it waits look at the note.
"""

from __future__ import annotations

from _signal import (  # type: ignore[import-not-found]
    ITIMER_REAL,
    SIG_UNBLOCK,
    SIGALRM,
    SIGINT,
    SIGRTMAX,
    default_int_handler,
    pthread_sigmask,
    setitimer,
    signal,
)
from _thread import get_ident
from collections.abc import Callable
from posix import getpid
from typing import Any

SIGHARD = SIGRTMAX - 2
"""Interrupts code that ignores, blocks or handles SIGINT."""
SIGCOMMAND = SIGRTMAX - 3
"""Input for a run under the debugger has come."""


class TimeLimit(BaseException):
    """Something of the user's code that is asked for a value took too long."""


def _nothing() -> None:
    pass


class Interrupts:
    def __init__(self) -> None:
        self._pid = getpid()
        self.main = get_ident()
        self.is_active = False
        self.count = 0
        """Interrupts that were raised in this run."""
        self._critical = 0
        self._pending = False
        self.later: Callable[[], None] | None = None
        """What a signal asked for while interrupts were held back, to be done afterwards."""

    def install(self) -> None:
        """Before each run: code may have replaced or blocked them."""
        signal(SIGINT, self._handle)
        signal(SIGHARD, self._handle)
        pthread_sigmask(SIG_UNBLOCK, (SIGINT, SIGHARD, SIGCOMMAND, SIGALRM))

    def _handle(self, number: int, frame: Any) -> None:
        if getpid() != self._pid:
            default_int_handler(number, frame)
        if not self.is_active:
            return
        if self._critical:
            self._pending = True
            return
        self.count += 1
        raise KeyboardInterrupt

    def activate(self) -> None:
        """From here on interrupts are for the user's code; an earlier one is handled before."""
        for _ in range(2):
            _nothing()
        self.count, self._pending, self._critical = 0, False, 0
        self.is_active = True

    def deactivate(self) -> None:
        self.is_active = False

    def begin(self) -> None:
        """Hold interrupts back, in the main thread; end() comes in any case."""
        if get_ident() == self.main:
            self._critical += 1

    def end(self) -> None:
        if get_ident() == self.main:
            self._critical -= 1

    def check(self) -> None:
        """Raise what was held back, where nothing is left half done."""
        if get_ident() != self.main or self._critical:
            return
        if self._pending and self.is_active:
            self._pending = False
            self.count += 1
            raise KeyboardInterrupt
        if self.later is not None:
            later, self.later = self.later, None
            later()

    @property
    def is_critical(self) -> bool:
        return self._critical > 0

    @property
    def is_pending(self) -> bool:
        return self._pending and self.is_active and get_ident() == self.main


class Limit:
    """Raises TimeLimit in the block, in the main thread, again and again until its end."""

    def __init__(self, interrupts: Interrupts, seconds: float) -> None:
        self._interrupts = interrupts
        self._seconds = seconds
        self._is_armed = False
        self._before: Any = None

    def __enter__(self) -> None:
        if get_ident() == self._interrupts.main:
            self._before = (
                signal(SIGALRM, self._handle),
                setitimer(ITIMER_REAL, self._seconds, 0.05),
            )
            self._is_armed = True

    def __exit__(self, *raised: object) -> None:
        self._is_armed = False
        if self._before is not None:
            handler, (delay, interval) = self._before
            self._before = None
            setitimer(ITIMER_REAL, 0)
            signal(SIGALRM, handler if handler is not None else 0)
            if delay:
                setitimer(ITIMER_REAL, delay, interval)

    def _handle(self, number: int, frame: Any) -> None:
        if self._is_armed:
            raise TimeLimit
