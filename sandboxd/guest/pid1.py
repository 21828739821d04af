"""Entry point inside the sandbox."""

import gc
import json
import os
import socket
from typing import TypedDict, cast

from . import frames
from .frames import Kind
from .hardening import harden
from .loop import Guest


class Settings(TypedDict):
    """What the daemon tells a guest about its sandbox."""

    workspace: str
    env: dict[str, str]


SOCKET = "/.sandboxd/link/guest.sock"
DIAL_SECONDS = 20.0


def main() -> None:
    """Dial the daemon, take its settings, serve until it goes away.

    Returning ends PID 1, and the kernel ends everything else in the sandbox with it.
    """
    harden()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(DIAL_SECONDS)
    connection.connect(SOCKET)
    connection.sendall(frames.encode_hello(os.getpid()))
    settings = _welcome(connection)
    # The image's own variables are what its author meant commands to see.
    environment = {**os.environ, **settings["env"]}
    # Nothing that lives now will ever be garbage; collections should not look at it again.
    gc.collect()
    gc.freeze()
    Guest(connection, workspace=settings["workspace"], env=environment).serve()


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
