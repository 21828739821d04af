"""Puts commands under the CPU quota, a moment after they have started.

They do not start under it: the process that starts them would have to wait for CPU time that others
have used up. A short command ends before it is moved, so it costs no move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from sandboxd.isolation.cgroups import CommandGroup

log = structlog.get_logger()

WORK_SECONDS = 0.05
"""Seconds after which work on files comes under the quota; most of it has ended by then, and the
guest limits what all of it uses."""
FIRST_SECONDS = 0.05
NEXT_SECONDS = 0.2
LIFTED_SECONDS = 1.0
"""Seconds without a quota for commands that are being killed."""


class Quota:
    """Moves new processes of one sandbox under the quota for as long as there are any."""

    def __init__(self, group: CommandGroup, cpu_quota_us: int) -> None:
        self._group = group
        self._cpu_quota_us = cpu_quota_us
        self._lifted: asyncio.TimerHandle | None = None
        self._running = 0
        self._may_leave = False
        self._throttling: asyncio.Task[None] | None = None
        self.moves = 0
        """How often processes were moved, workers among them."""

    def begin(self) -> None:
        """A command starts, which may leave processes behind."""
        self._may_leave = True
        self._begin()

    def _begin(self) -> None:
        self._running += 1
        if self._throttling is None:
            self._throttling = asyncio.get_running_loop().create_task(self._keep_throttling())

    def end(self) -> None:
        self._running -= 1

    @contextmanager
    def over_work(self) -> Iterator[None]:
        """Include the guest's workers for as long as the block lasts, unless it ends soon."""
        is_begun = False

        def begin() -> None:
            nonlocal is_begun
            is_begun = True
            self._begin()

        timer = asyncio.get_running_loop().call_later(WORK_SECONDS, begin)
        try:
            yield
        finally:
            timer.cancel()
            if is_begun:
                self.end()

    def lift(self) -> None:
        """Suspend the quota: a process needs CPU time to die, and may have used up its share."""
        if self._lifted is not None:
            self._lifted.cancel()
        self._set(0)
        loop = asyncio.get_running_loop()
        self._lifted = loop.call_later(LIFTED_SECONDS, self._set, self._cpu_quota_us)

    def _set(self, cpu_quota_us: int) -> None:
        try:
            self._group.set_quota(cpu_quota_us)
        except OSError as error:
            log.debug("quota.sandbox_gone", error=str(error))

    def close(self) -> None:
        for pending in (self._throttling, self._lifted):
            if pending is not None:
                pending.cancel()

    async def _keep_throttling(self) -> None:
        """Repeat until no command runs and none has left new processes behind."""
        pause = FIRST_SECONDS
        try:
            while True:
                await asyncio.sleep(pause)
                pause = NEXT_SECONDS
                self.moves += 1
                # In a thread: the kernel may take 20 ms for a move.
                found = await asyncio.to_thread(self._group.throttle)
                if not self._running and not (found and self._may_leave):
                    return
        except OSError as error:
            log.debug("quota.sandbox_gone", error=str(error))
        finally:
            self._may_leave = False
            self._throttling = None
