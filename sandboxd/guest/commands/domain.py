"""A Landlock domain for each shell.

Commands of one session share a uid, so what one of them left running could open the descriptors and
the memory of later ones under /proc, and first of all of the shell that waits for the next command.
The kernel refuses that across domains: a process reaches into its own domain only. Signals and
files pass as before.
"""

import ctypes
import os
import struct
from contextlib import suppress

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls; the same on every architecture that Docker Engine supports."""
_RULE_PATH_BENEATH = 1
_REFER = 1 << 13
"""Moving files between directories. A domain has to restrict something, and restricts this in any
case: it is allowed below the root, which is everywhere."""

_libc = ctypes.CDLL(None, use_errno=True)


class Domains:
    """Makes domains, where the kernel has Landlock (from Linux 5.19 on)."""

    def __init__(self) -> None:
        self._ruleset = _new_ruleset()

    @property
    def are_available(self) -> bool:
        return self._ruleset is not None

    def enter_new(self) -> None:
        """Put this thread, and with it all that it starts from now on, into a new domain."""
        if self._ruleset is not None:
            with suppress(PermissionError):  # without no_new_privs, which every sandbox has
                _call(_RESTRICT_SELF, self._ruleset, 0)


def _new_ruleset() -> int | None:
    """The descriptor of what every domain restricts; None if the kernel cannot."""
    handled = struct.pack("=Q", _REFER)
    try:
        ruleset = _call(_CREATE_RULESET, handled, len(handled), 0)
    except OSError:
        return None
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", _REFER, root)
        _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(root)
    return ruleset


def _call(number: int, *arguments: object) -> int:
    result = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(result)
