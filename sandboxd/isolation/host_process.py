"""Ending a process of the host for good, without mistaking another for it."""

from __future__ import annotations

import os
import signal
from typing import Protocol


class Pinned(Protocol):
    """A process that can be killed for as long as it is not closed."""

    def kill(self) -> bool: ...

    def close(self) -> None: ...


class HostProcess:
    """A process pinned by a pidfd, so that a reused pid is never hit."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def kill(self) -> bool:
        """SIGKILL; False if this daemon may not (it is not root) or the process is gone."""
        if self._pidfd < 0:
            return False
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except (PermissionError, ProcessLookupError):
            return False
        return True

    def close(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
