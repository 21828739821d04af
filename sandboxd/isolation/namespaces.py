"""Threads that enter namespaces of other processes, and sockets that they make there."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


class EnterFailed(Exception):
    """The daemon could not enter the network namespace of a sandbox."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot enter a network namespace: {error.strerror}")
        self.errno = error.errno


def in_own_thread(work: Callable[[], T]) -> T:
    """Do it in a thread that ends afterwards, because it leaves a namespace of the daemon.

    A thread of a pool would go on to work in the sandbox's. Blocks.
    """
    results: list[T] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=run, name="inside")
    thread.start()
    thread.join()
    for problem in problems:
        raise problem
    return results[0]


def in_network(pidfd: int, make: Callable[[], T]) -> T:
    """Call it in the network namespace of a process; sockets that it makes stay there. Blocks.

    EnterFailed, and what `make` raises. A pidfd names one process for ever, so the namespace of
    another that got the same pid is never entered.
    """

    def enter_and_make() -> T:
        try:
            checked(_libc.setns(pidfd, _CLONE_NEWNET))
        except OSError as error:
            raise EnterFailed(error) from error
        return make()

    return in_own_thread(enter_and_make)


def find_network_problem() -> str:
    """Why the daemon cannot enter network namespaces; empty if it can. Tries with its own."""
    try:
        pidfd = os.pidfd_open(os.getpid())
        try:
            in_network(pidfd, lambda: None)
        finally:
            os.close(pidfd)
    except (OSError, EnterFailed) as error:
        return str(error)
    return ""


def checked(result: int) -> int:
    """The result of a call of the C library, or the OSError that it reports."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
