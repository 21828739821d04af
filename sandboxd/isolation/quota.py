"""Putting commands under the processor quota, a moment after they have begun.

They do not begin under it: whoever starts them would have to wait for processor time that others
have used up. A short command is over before it is moved, and costs no move.
"""

from __future__ import annotations

import asyncio

import structlog

from sandboxd.isolation.cgroups import CommandGroup

log = structlog.get_logger()

FIRST_SECONDS = 0.05
NEXT_SECONDS = 0.2
LIFTED_SECONDS = 1.0
"""How long commands that are being killed have processor time to die in."""


class Quota:
    """Looks for new processes of one sandbox for as long as there are any."""

    def __init__(self, group: CommandGroup, cpu_quota_us: int) -> None:
        self._group = group
        self._cpu_quota_us = cpu_quota_us
        self._lifted: asyncio.TimerHandle | None = None
        self._running = 0
        self._look: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """A command begins."""
        self._running += 1
        if self._look is None:
            self._look = asyncio.get_running_loop().create_task(self._keep_looking())

    def end(self) -> None:
        self._running -= 1

    def lift(self) -> None:
        """Something is being killed: to die takes processor time, which it may have used up."""
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
        for pending in (self._look, self._lifted):
            if pending is not None:
                pending.cancel()

    async def _keep_looking(self) -> None:
        """Until no command runs and a look found nobody: what a command leaves behind counts."""
        pause = FIRST_SECONDS
        try:
            while True:
                await asyncio.sleep(pause)
                pause = NEXT_SECONDS
                # In a thread: the kernel may take 20 ms for a move.
                found = await asyncio.to_thread(self._group.throttle)
                if not self._running and not found:
                    return
        except OSError as error:
            log.debug("quota.sandbox_gone", error=str(error))
        finally:
            self._look = None
