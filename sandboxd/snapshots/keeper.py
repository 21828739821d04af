"""A process that stops the writers of a filesystem, and lets them go on whatever happens.

A frozen filesystem outlives the process that froze it, and its writers cannot be killed. So it is
frozen by a process that does nothing else: it thaws on a word, when the daemon ends, and after half
a second. The daemon thaws, too, should this process be killed.

This file runs alone (`python -I -S keeper.py DESCRIPTOR`), so it imports nothing of ours.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

FREEZE, THAW = 0xC0045877, 0xC0045878
MOST_SECONDS = 0.5
_START_SECONDS = 5.0
"""For the process to start and for the kernel to freeze, which takes about 40 ms."""
_FROZEN, _IN_TIME, _LATE = b"f", b"t", b"l"


class NotFrozen(Exception):
    """The filesystem could not be frozen, or not for long enough."""


@contextmanager
def frozen(descriptor: int) -> Iterator[None]:
    """Freeze the filesystem of a directory for as long as the block lasts, at most MOST_SECONDS.

    NotFrozen at the start if that does not work, and at the end if it took too long.
    """
    command = [sys.executable, "-I", "-S", __file__, str(descriptor)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=[descriptor],
        bufsize=0,
    ) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        try:
            if _answer(keeper.stdout.fileno()) != _FROZEN:
                raise NotFrozen
            yield
            keeper.stdin.close()
            if _answer(keeper.stdout.fileno()) != _IN_TIME:
                raise NotFrozen
        finally:
            keeper.kill()
            thaw(descriptor)


def thaw(descriptor: int) -> bool:
    """Let writers go on; False if the filesystem was not frozen."""
    try:
        fcntl.ioctl(descriptor, THAW, 0)
    except OSError:
        return False
    return True


def _answer(pipe: int) -> bytes:
    readable, _, _ = select.select([pipe], [], [], _START_SECONDS)
    return os.read(pipe, 1) if readable else b""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    descriptor = int(sys.argv[1])
    fcntl.ioctl(descriptor, FREEZE, 0)
    try:
        os.write(1, _FROZEN)
        has_word, _, _ = select.select([0], [], [], MOST_SECONDS)
    finally:
        fcntl.ioctl(descriptor, THAW, 0)
    os.write(1, _IN_TIME if has_word else _LATE)


if __name__ == "__main__":
    main()
