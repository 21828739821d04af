"""Messages to the service manager: the datagrams of sd_notify(3)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping

import structlog

log = structlog.get_logger()


class ServiceManager:
    """The service manager that started this process, if it wants to be notified."""

    def __init__(self, address: str | None = None, watchdog_seconds: float | None = None) -> None:
        self._address = address
        self.watchdog_seconds = watchdog_seconds
        """Seconds without a keep-alive after which we are killed; None if none is expected."""

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> ServiceManager:
        """Read systemd's variables and remove them: they are not meant for our children."""
        address = environment.pop("NOTIFY_SOCKET", "")
        micros = environment.pop("WATCHDOG_USEC", "")
        watched_pid = environment.pop("WATCHDOG_PID", "") or str(os.getpid())
        if not address.startswith(("/", "@")):
            return cls()
        is_watched = micros.isdecimal() and int(micros) > 0 and watched_pid == str(os.getpid())
        return cls(address, int(micros) / 1e6 if is_watched else None)

    def ready(self) -> None:
        self._notify("READY=1")

    def reloading(self) -> None:
        """Report a reload, which lasts until the next `ready`."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._notify("STOPPING=1", "STATUS=stopping")

    def alive(self) -> None:
        self._notify("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._notify(f"STATUS={text.translate(_ONE_LINE)}")

    def _notify(self, *lines: str) -> None:
        if self._address is None:
            return
        # An @ stands for the zero byte that begins the name of an abstract socket.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            with socket.socket(socket.AF_UNIX, kind) as sender:
                sender.sendto("\n".join(lines).encode(), address)
        except OSError as error:  # a manager that does not listen must not stop us
            log.warning("service_manager.notify_failed", lines=lines, error=str(error))


_ONE_LINE = str.maketrans("\r\n", "  ")
