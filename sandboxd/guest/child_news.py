"""A descriptor that tells when a child has ended.

Not a handler and its wake-up socket: a signal that is handled breaks off the wait for events, and
the way back to them costs as much as the news does.
"""

import ctypes
import os
import signal

_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
"""As signalfd takes them."""
_SIGSET_BYTES = 128
_INFO_BYTES = 128

_libc = ctypes.CDLL(None, use_errno=True)


class ChildNews:
    """Readable once a child has ended. For a process whose every thread blocks SIGCHLD."""

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
        bits = 1 << (signal.SIGCHLD - 1)
        signals = ctypes.create_string_buffer(bits.to_bytes(8, "little"), _SIGSET_BYTES)
        self.descriptor = int(_libc.signalfd(-1, signals, _NONBLOCK | _CLOEXEC))
        if self.descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def take(self) -> None:
        """It is known now; what ends from here on is told again."""
        try:
            os.read(self.descriptor, _INFO_BYTES)
        except BlockingIOError:
            pass  # taken already
