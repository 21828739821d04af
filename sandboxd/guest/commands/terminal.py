"""Pseudo terminals."""

import os
import termios
from typing import NamedTuple

NEW_LINES = (b"\n", b"\r")


class Size(NamedTuple):
    rows: int
    columns: int


class Terminal(NamedTuple):
    """Both ends of a new one."""

    master: int
    slave: int
    path: str
    """A session leader without a terminal that opens it gets it as its controlling one."""


def open_terminal(size: Size) -> Terminal:
    master, slave = os.openpty()
    try:
        termios.tcsetwinsize(master, size)
        return Terminal(master, slave, os.ttyname(slave))
    except BaseException:
        os.close(master)
        os.close(slave)
        raise


def resize(master: int, size: Size) -> None:
    """The kernel tells the foreground group with SIGWINCH."""
    termios.tcsetwinsize(master, size)


def foreground_group(master: int) -> int | None:
    try:
        return os.tcgetpgrp(master) or None
    except OSError:
        return None  # nobody has it open


def end_of_input(master: int, last_byte: bytes) -> bytes:
    """What to type so that a reader sees the end.

    In line mode the character ends a line that has begun, and only a second one is the end. A
    program that reads single keys gets it once: line editors take it for the end themselves.
    """
    local_modes, characters = termios.tcgetattr(master)[3::3]
    end = characters[termios.VEOF]
    if end == b"\0":
        return b""  # it was switched off
    is_mid_line = local_modes & termios.ICANON and last_byte and last_byte not in NEW_LINES
    return bytes(end * 2 if is_mid_line else end)
