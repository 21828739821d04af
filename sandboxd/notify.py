"""What the service manager is told: the datagrams of sd_notify(3)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping

import structlog

log = structlog.get_logger()


class ServiceManager:
    """Who started us, if it wants to hear how we are."""

    def __init__(self, address: str | None = None, watchdog_seconds: float | None = None) -> None:
        self._address = address
        self.watchdog_seconds = watchdog_seconds
        """Without a sign of life for that long we are killed; None if nobody waits for one."""

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> ServiceManager:
        """As systemd tells a service. Taken out of the environment: it is not for our children."""
        address = environment.pop("NOTIFY_SOCKET", "")
        micros = environment.pop("WATCHDOG_USEC", "")
        whose = environment.pop("WATCHDOG_PID", "") or str(os.getpid())
        if not address.startswith(("/", "@")):
            return cls()
        is_watched = micros.isdecimal() and int(micros) > 0 and whose == str(os.getpid())
        return cls(address, int(micros) / 1e6 if is_watched else None)

    def ready(self) -> None:
        self._tell("READY=1")

    def reloading(self) -> None:
        """Until the next `ready`."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._tell("STOPPING=1", "STATUS=stopping")

    def alive(self) -> None:
        self._tell("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for whoever asks how the service is."""
        self._tell(f"STATUS={text.translate(_ONE_LINE)}")

    def _tell(self, *lines: str) -> None:
        if self._address is None:
            return
        # An @ stands for the zero byte that begins the name of an abstract socket.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            with socket.socket(socket.AF_UNIX, kind) as sender:
                sender.sendto("\n".join(lines).encode(), address)
        except OSError as error:  # whoever does not listen must not stop us
            log.warning("service_manager.not_told", lines=lines, error=str(error))


_ONE_LINE = str.maketrans("\r\n", "  ")
