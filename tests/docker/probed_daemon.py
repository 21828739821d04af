"""A daemon that writes how long its event loop was held, to the file that LOOP_PROBE names.

A line for each turn that came late: how late it was, and how much processor time the daemon has
used meanwhile, in seconds. What the host gives to others makes a turn late, too, but uses none.
"""

import asyncio
import os
import time

import sandboxd.daemon.composition
from sandboxd.cli import run
from sandboxd.daemon.composition import Daemon

EVERY_SECONDS = 0.005
LATE_SECONDS = 0.002


class ProbedDaemon(Daemon):
    def __init__(self, **parts: object) -> None:
        super().__init__(**parts)  # type: ignore[arg-type]
        self._file = os.open(os.environ["LOOP_PROBE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._turn(time.monotonic(), time.process_time())

    def _turn(self, was_due: float, used: float) -> None:
        now, uses = time.monotonic(), time.process_time()
        if now - was_due > LATE_SECONDS:
            line = f"{now - was_due:.6f} {uses - used:.6f}\n"
            os.write(self._file, line.encode())
        loop = asyncio.get_running_loop()
        loop.call_later(EVERY_SECONDS, self._turn, time.monotonic() + EVERY_SECONDS, uses)


if __name__ == "__main__":
    sandboxd.daemon.composition.Daemon = ProbedDaemon  # type: ignore[misc]
    run()
