"""What the guest does to itself before anything else runs beside it."""

import ctypes
import os
import signal

from .commands.named_shell import STATE
from .commands.shell import GATE

PR_SET_DUMPABLE = 4


def harden() -> None:
    """Close the guest against the commands it will run, which have the same uid.

    Not dumpable: no ptrace, no /proc/1/{mem,fd,environ}. SIGINT back to its default: signals
    without a handler do not reach PID 1 and Python would install one. Own descriptors on /dev/null;
    also those numbers that new shells use, so that no pipe of theirs is overwritten on its way.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    for descriptor in (GATE, STATE):
        os.dup2(null, descriptor, inheritable=False)
    if null not in (GATE, STATE):
        os.close(null)
    os.umask(0o022)
