"""One daemon per state directory, with a name that survives restarts."""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import AsyncExitStack, ExitStack
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


def lock(path: Path, stack: ExitStack | AsyncExitStack) -> bool:
    """Hold a file until the stack unwinds; False if another process does.

    It then has the number of this process. A forked child does not hold it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartRefused(
            f"cannot write to {path.parent} ({error.strerror}); run as root, or set "
            "SANDBOXD_STATE_DIR and SANDBOXD_RUN_DIR to directories that this user can write"
        ) from error
    _held.add(descriptor)
    stack.callback(_let_go, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return True


def _lock(directory: Path, stack: AsyncExitStack) -> None:
    if not lock(directory / "lock", stack):
        raise StartRefused(
            f"another sandboxd already runs on {directory}; stop it (./scripts/stop), or set "
            "SANDBOXD_STATE_DIR, SANDBOXD_RUN_DIR and PORT for a second one"
        )


_held: set[int] = set()


def _let_go(descriptor: int) -> None:
    if descriptor in _held:
        _held.discard(descriptor)
        os.close(descriptor)


def _let_go_of_all() -> None:
    """In a forked child of a program: its parent holds them, and may end before it."""
    for descriptor in list(_held):
        _let_go(descriptor)


os.register_at_fork(after_in_child=_let_go_of_all)
