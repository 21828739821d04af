"""One daemon per state directory, with a name that survives restarts."""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import AsyncExitStack
from pathlib import Path

from sandboxd.config import Config

MAX_SOCKET_PATH = 107
"""Bytes that the kernel accepts as the path of a unix socket."""
LINK_PATH_LENGTH = len("/links/0123456789abcdef/guest.sock")


class StartRefused(Exception):
    """The daemon cannot start; the text says why and what to do."""


def claim(config: Config, stack: AsyncExitStack) -> str:
    """Lock the state directory for this process and return the name of this instance."""
    longest = max(len(str(config.api_socket)), len(str(config.run_dir)) + LINK_PATH_LENGTH)
    if longest > MAX_SOCKET_PATH:
        raise StartRefused(
            f"the path {config.run_dir} is too long for sockets; set a shorter SANDBOXD_RUN_DIR"
        )
    _lock(config.state_dir, stack)
    if config.run_dir != config.state_dir:
        _lock(config.run_dir, stack)
    name_file = config.state_dir / "instance"
    if not name_file.exists() or not name_file.read_text():
        fresh = name_file.with_suffix(".new")
        fresh.write_text(secrets.token_hex(6))
        fresh.rename(name_file)
    return name_file.read_text()


def _lock(directory: Path, stack: AsyncExitStack) -> None:
    """Hold a directory until the stack unwinds."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartRefused(
            f"cannot write to {directory} ({error.strerror}); run as root, or set "
            "SANDBOXD_STATE_DIR and SANDBOXD_RUN_DIR to directories that this user can write"
        ) from error
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StartRefused(
            f"another sandboxd already runs on {directory}; stop it (./scripts/stop), or set "
            "SANDBOXD_STATE_DIR, SANDBOXD_RUN_DIR and PORT for a second one"
        ) from error
    # For those who find the file locked: the process to stop.
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
