"""Killing a process of the host without hitting another one that reuses its pid."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Protocol


class Pinned(Protocol):
    """A process that can be killed and waited for until `close`."""

    def kill(self) -> bool: ...

    async def gone(self, seconds: float) -> bool:
        """Wait for its end; False if it does not end in time."""
        ...

    def close(self) -> None: ...


class HostProcess:
    """A process held by a pidfd, so that a reused pid is never hit."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def kill(self) -> bool:
        """Send SIGKILL; False if the daemon may not (it is not root) or the process is gone."""
        if self._pidfd < 0:
            return False
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except (PermissionError, ProcessLookupError):
            return False
        return True

    async def gone(self, seconds: float) -> bool:
        """See Pinned. The kernel ends all other processes of a sandbox before its first one."""
        if self._pidfd < 0:
            return True
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pidfd, ended.set)
        try:
            async with asyncio.timeout(seconds):
                await ended.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(self._pidfd)
        return True

    def close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
