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
from .spawner import Spawner


class Settings(TypedDict):
    """What the daemon tells a guest about its sandbox."""

    workspace: str
    directories: list[str]
    """To be made in the workspace."""
    env: dict[str, str]
    asks_to_place: bool
    """Whether each new shell has to be moved by the daemon to where commands belong."""
    is_first_victim: bool
    """Whether commands share their memory limit with the guest and have to go before it does."""


SOCKET = "/.sandboxd/link/guest.sock"
DIAL_SECONDS = 20.0


def main() -> None:
    """Dial the daemon, take its settings, serve until it goes away.

    Returning ends PID 1, and the kernel ends everything else in the sandbox with it.
    """
    harden()
    spawner = Spawner()  # before the hello: the daemon then finds its thread
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(DIAL_SECONDS)
    connection.connect(SOCKET)
    connection.sendall(frames.encode_hello(os.getpid()))
    settings = _welcome(connection)
    for name in settings["directories"]:
        os.makedirs(os.path.join(settings["workspace"], name), exist_ok=True)
    # The image's own variables are what its author meant commands to see.
    environment = {**os.environ, **settings["env"]}
    # Nothing that lives now will ever be garbage; collections should not look at it again.
    gc.collect()
    gc.freeze()
    Guest(
        connection,
        spawner,
        workspace=settings["workspace"],
        env=environment,
        asks_to_place=settings["asks_to_place"],
        is_first_victim=settings["is_first_victim"],
    ).serve()


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
