"""A daemon whose event loop stands still when it gets SIGUSR1, as a fault of ours would make it."""

import asyncio
import signal
import time

from sandboxd.cli import run
from sandboxd.daemon.composition import Daemon


def stand_still() -> None:
    time.sleep(3600)


class StallingDaemon(Daemon):
    def __init__(self, **parts: object) -> None:
        super().__init__(**parts)  # type: ignore[arg-type]
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, stand_still)


if __name__ == "__main__":
    import sandboxd.daemon.composition

    sandboxd.daemon.composition.Daemon = StallingDaemon  # type: ignore[misc]
    run()
