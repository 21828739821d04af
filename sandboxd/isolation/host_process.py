"""Acting on a process of the host without hitting another one that reuses its pid."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Sequence
from typing import Protocol

from sandboxd.isolation import attachment
from sandboxd.isolation.attachment import AttachFailed, Attachment


class Pinned(Protocol):
    """A process that can be killed and waited for until `close`."""

    def kill(self) -> bool: ...

    def attach(self, attachments: Sequence[Attachment]) -> None:
        """Mount directories of the host where it sees them; blocks. AttachFailed if that fails."""
        ...

    async def gone(self, seconds: float) -> bool:
        """Wait for its end; False if it does not end in time."""
        ...

    def close(self) -> None: ...


class HostProcess:
    """A process held by a pidfd, so that a reused pid is never hit."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._closing = threading.Lock()

    def kill(self) -> bool:
        """Send SIGKILL; False if the daemon may not (it is not root) or the process is gone."""
        if self._pidfd < 0:
            return False
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except (PermissionError, ProcessLookupError):
            return False
        return True

    def attach(self, attachments: Sequence[Attachment]) -> None:
        """See Pinned. In any thread."""
        with self._closing:
            if self._pidfd < 0:
                gone = OSError(errno.ESRCH, os.strerror(errno.ESRCH))
                raise AttachFailed("attach to a sandbox", gone)
            held = os.dup(self._pidfd)
        try:
            attachment.attach(held, attachments)
        finally:
            os.close(held)

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
        with self._closing:
            if self._pidfd >= 0:
                os.close(self._pidfd)
                self._pidfd = -1
