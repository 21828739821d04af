"""What is measured. Every contender answers for those tasks that it has a way to do."""

from __future__ import annotations

OPEN_WARM = "open_warm"
OPEN_NEW = "open_new"
TRUE = "true"
ECHO = "echo"
SHELL = "shell"
WRITE_SMALL = "write_small"
READ_SMALL = "read_small"
WRITE_LARGE = "write_large"
READ_LARGE = "read_large"
CODE_KEPT = "code_kept"
CODE_NEW = "code_new"

TITLES = {
    OPEN_WARM: "open a session and run `echo hi`, warm pool",
    OPEN_NEW: "open a session and run `echo hi`, no pool",
    TRUE: "`true` in an open session",
    ECHO: "`echo hi` in an open session",
    SHELL: "`true` in a shell that stays",
    WRITE_SMALL: "write a file of 1 kB",
    READ_SMALL: "read a file of 1 kB",
    WRITE_LARGE: "write a file of 1 MB",
    READ_LARGE: "read a file of 1 MB",
    CODE_KEPT: "Python `1 + 1`, variables are kept",
    CODE_NEW: "Python `1 + 1`, new interpreter",
}
SIZES = {
    WRITE_SMALL: 1_000,
    READ_SMALL: 1_000,
    WRITE_LARGE: 1_000_000,
    READ_LARGE: 1_000_000,
}
READ_OF = {WRITE_SMALL: READ_SMALL, WRITE_LARGE: READ_LARGE}


def content(size: int) -> str:
    """Text, because not every contender writes bytes."""
    line = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+\n"
    return (line * (size // len(line) + 1))[:size]
