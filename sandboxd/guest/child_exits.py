"""A descriptor that is readable once a child has ended.

Not a handler and its wake-up socket: a signal that is handled breaks off the wait for events, and
going back to it costs as much as reading the signal does.
"""

import ctypes
import os
import signal

_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
"""As signalfd takes them."""
_SIGSET_BYTES = 128
_INFO_BYTES = 128

_libc = ctypes.CDLL(None, use_errno=True)


class ChildExits:
    """Readable once a child has ended. For a process in which every thread blocks SIGCHLD."""

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
        bits = 1 << (signal.SIGCHLD - 1)
        signals = ctypes.create_string_buffer(bits.to_bytes(8, "little"), _SIGSET_BYTES)
        self.descriptor = int(_libc.signalfd(-1, signals, _NONBLOCK | _CLOEXEC))
        if self.descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def clear(self) -> None:
        """Make it readable again only for children that end from now on."""
        try:
            os.read(self.descriptor, _INFO_BYTES)
        except BlockingIOError:
            pass  # cleared already
