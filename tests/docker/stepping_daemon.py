"""A daemon whose wall clock is an hour ahead after SIGUSR1, and an hour behind after SIGUSR2, as if
somebody had set the clock of the host. The clock that nobody can set goes on as it does."""

import signal
import time

from sandboxd.cli import run

HOUR = 3600.0
_real = time.time
_offset = 0.0


def stepped() -> float:
    return _real() + _offset


def step(number: int, frame: object) -> None:
    global _offset
    _offset = HOUR if number == signal.SIGUSR1 else -HOUR


if __name__ == "__main__":
    time.time = stepped
    signal.signal(signal.SIGUSR1, step)
    signal.signal(signal.SIGUSR2, step)
    run()
