"""Entry point inside the sandbox."""

import ctypes
import gc
import json
import os
import socket
from typing import cast

from . import frames
from .commands.spawner import Spawner
from .frames import Kind
from .hardening import harden
from .loop import Guest
from .settings import Settings

SOCKET = "/.sandboxd/link/guest.sock"
DIAL_SECONDS = 20.0
M_TRIM_THRESHOLD = -1
KEPT_HEAP = 4 << 20
"""Free memory at the end of the heap that is not given back: output comes and goes there, and every
page that it gets anew costs more than copying what goes into it."""


def main() -> None:
    """Dial the daemon, take its settings, serve until no daemon will come any more.

    Returning ends PID 1, and the kernel ends everything else in the sandbox with it.
    """
    harden()
    ctypes.CDLL(None).mallopt(M_TRIM_THRESHOLD, KEPT_HEAP)
    spawner = Spawner()  # before the hello: the daemon then finds its thread
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(DIAL_SECONDS)
    connection.connect(SOCKET)
    connection.sendall(frames.encode_hello(os.getpid()))
    settings = _welcome(connection)
    for name in settings["directories"]:
        os.makedirs(os.path.join(settings["workspace"], name), exist_ok=True)
    for name, target in settings.get("links", {}).items():
        os.symlink(target, os.path.join(settings["workspace"], name))
    # Nothing that lives now will ever be garbage; collections should not look at it again.
    gc.collect()
    gc.freeze()
    Guest(connection, spawner, settings, _dial_again).serve()


def _dial_again() -> socket.socket | None:
    """A connection to the next daemon, if there is one by now."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        connection.connect(SOCKET)
    except OSError:
        connection.close()
        return None
    return connection


def _welcome(connection: socket.socket) -> Settings:
    decoder = frames.Decoder(frames.MAX_DAEMON_PAYLOAD)
    while True:
        data = connection.recv(1 << 16)
        if not data:
            raise SystemExit(1)
        for frame in decoder.feed(data):
            if frame.kind != Kind.WELCOME:
                raise SystemExit(1)
            return cast(Settings, json.loads(bytes(frame.payload)))
