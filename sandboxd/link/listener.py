"""The socket that one guest dials, and who it is that dials it."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

SOCKET_NAME = "guest.sock"
_PEER_CREDENTIALS = struct.Struct("3i")
_SO_PASSRIGHTS = 83
"""Since Linux 6.16; not in the socket module yet."""


class GuestListener:
    """A listening socket in a directory of its own, for as long as the block lasts.

    Unlinked and closed afterwards: a read-only bind does not stop a command from connecting to a
    socket, its absence does.
    """

    def __init__(self, directory: Path, uid: int) -> None:
        self._directory = directory
        self._uid = uid
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> GuestListener:
        try:
            self._listen()
        except BaseException:
            self._socket.close()
            raise
        return self

    def _listen(self) -> None:
        self._directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        path = self._directory / SOCKET_NAME
        path.unlink(missing_ok=True)  # of a daemon that was killed
        self._socket.bind(str(path))
        # Root gives the socket to the sandbox; others can only open it to all, and the check of the
        # peer's pid keeps strangers out.
        if os.geteuid() == 0:
            os.chown(path, self._uid, self._uid)
            path.chmod(0o600)
        else:
            path.chmod(0o666)
        # Descriptors that a guest sends along would be closed in the daemon's read, and a close can
        # take as long as the sender likes. Connections inherit this; an older kernel lacks it.
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
        self._socket.listen(8)
        self._socket.setblocking(False)

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        (self._directory / SOCKET_NAME).unlink(missing_ok=True)

    async def dialled(self) -> None:
        """Return when there is a connection to accept."""
        readable = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._socket)

    async def accept(self) -> socket.socket:
        """The next connection. Not loop.sock_accept: a cancel in the right moment would lose
        one."""
        while True:
            with suppress(BlockingIOError):
                return self._socket.accept()[0]
            await self.dialled()


def peer_pid(peer: socket.socket) -> int:
    """Who is at the other end, as the kernel knows it."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    return int(_PEER_CREDENTIALS.unpack(credentials)[0])
