"""The area of a workspace that only the API can write to."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandboxd.guest.files.area import Area
from sandboxd.guest.files.worker import serve
from sandboxd.link.workers import Controls


@dataclass(frozen=True)
class ProjectArea:
    """The host's directory behind it. No command can change anything there, so workers that write
    to it run as threads of the daemon."""

    directory: Path
    name: str
    """Its path as commands see it."""
    max_bytes: int
    max_files: int

    async def start(self, its_end: socket.socket) -> Controls:
        """Start a worker, which ends when its socket is closed."""
        threading.Thread(target=self._serve, args=(its_end,), daemon=True).start()
        return Controls(kill=lambda: None)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            root = os.open(self.directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                used_bytes, used_files = self._used()
                area = Area(
                    root,
                    os.fsencode(self.name),
                    is_shared=True,
                    room_bytes=max(0, self.max_bytes - used_bytes),
                    room_files=max(0, self.max_files - used_files),
                )
                serve(area, connection)
            finally:
                os.close(root)

    def _used(self) -> tuple[int, int]:
        size = count = 0
        for directory, names, files in os.walk(self.directory):
            count += len(names) + len(files)
            for name in files:
                with suppress(FileNotFoundError):  # removed by another worker
                    size += os.lstat(os.path.join(directory, name)).st_blocks * 512
        return size, count
