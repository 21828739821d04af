"""Acting on a process of the host without hitting another one that reuses its pid."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from sandboxd.isolation import attachment, namespaces
from sandboxd.isolation.attachment import AttachFailed, Attachment

T = TypeVar("T")


class Pinned(Protocol):
    """A process that can be killed and waited for until `close`."""

    def kill(self) -> bool: ...

    def attach(self, attachments: Sequence[Attachment]) -> None:
        """Mount directories of the host where it sees them; blocks. AttachFailed if that fails."""
        ...

    def in_network(self, make: Callable[[], T]) -> T:
        """Call it in the network namespace of the process; blocks. OSError or EnterFailed."""
        ...

    def read_proc(self, name: str, max_bytes: int) -> bytes:
        """The beginning of a file of its directory in /proc; OSError. Blocks for a moment."""
        ...

    def open_directory(self, path: str) -> int:
        """A directory as the process sees it, opened for reading; OSError. Only for paths of which
        no command can change a component."""
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
        try:
            with self._held() as pidfd:
                attachment.attach(pidfd, attachments)
        except ProcessLookupError as error:
            raise AttachFailed("attach to a sandbox", error) from error

    def in_network(self, make: Callable[[], T]) -> T:
        """See Pinned. In any thread."""
        with self._held() as pidfd:
            return namespaces.in_network(pidfd, make)

    def read_proc(self, name: str, max_bytes: int) -> bytes:
        """See Pinned. In any thread."""
        with self._held() as pidfd:
            with Path(f"/proc/{self.pid}/{name}").open("rb") as file:
                content = file.read(max_bytes)
            # As long as it exists, no other process has its pid.
            signal.pidfd_send_signal(pidfd, 0)
        return content

    @contextmanager
    def _held(self) -> Iterator[int]:
        """The pidfd, which stays open meanwhile; ProcessLookupError once it is closed."""
        with self._closing:
            if self._pidfd < 0:
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
            held = os.dup(self._pidfd)
        try:
            yield held
        finally:
            os.close(held)

    def open_directory(self, path: str) -> int:
        """See Pinned. In any thread."""
        with self._held() as pidfd:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            opened = os.open(f"/proc/{self.pid}/root{path}", flags)
            try:
                signal.pidfd_send_signal(pidfd, 0)  # or the number belongs to another process
            except BaseException:
                os.close(opened)
                raise
            return opened

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
