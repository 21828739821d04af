"""The daemon as a process: its signals, its service manager, its memory."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sandboxd.config import Config
from sandboxd.daemon import Daemon, running
from sandboxd.loop_watch import LoopWatch
from sandboxd.notify import ServiceManager
from sandboxd.tasks import Tasks
from sandboxd.watchdog import Watchdog

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From malloc.h."""
YOUNG_OBJECTS, YOUNG_LOOKS, OLDER_LOOKS = 5_000, 5, 4
"""How many are made before the collector looks at them, and after how many such looks it goes on to
older ones, then to all: rarely at the young, for a list of files makes thousands; at all about as
often as it would."""


async def serve(config: Config, *, on_ready: Callable[[Daemon], None]) -> None:
    """Run a daemon until SIGTERM or SIGINT; SIGHUP reads again what can be, tokens for example."""
    _keep_freed_memory()
    _allow_open_files()
    manager = ServiceManager.of(os.environ)
    stop, hang_up = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, hang_up.set)
    with LoopWatch():
        async with _attended(manager) as watchdog, running(config) as daemon:
            _spare_the_collector()
            on_ready(daemon)
            manager.ready()
            with watchdog.over(check=daemon.registry.ping, status=lambda: daemon.status):
                while not await _first_of(stop, hang_up):
                    hang_up.clear()
                    manager.reloading()
                    await daemon.reloads.run()
                    manager.ready()
            manager.stopping()


@asynccontextmanager
async def _attended(manager: ServiceManager) -> AsyncIterator[Watchdog]:
    """The service manager hears that we live, also while we start and stop."""
    watchdog, tasks = Watchdog(manager), Tasks()
    tasks.spawn(watchdog.keep_telling(), "watchdog")
    try:
        yield watchdog
    finally:
        tasks.cancel("watchdog")
        await tasks.finish()


async def _first_of(stop: asyncio.Event, other: asyncio.Event) -> bool:
    """Wait for one of them; whether it is time to stop."""
    waits = [asyncio.ensure_future(event.wait()) for event in (stop, other)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return stop.is_set()


def _keep_freed_memory() -> None:
    """Let the allocator reuse large buffers.

    As glibc is set, one of over 128 KiB comes from the kernel page by page and goes back each time;
    for a stream of output that costs several times as much as the copying.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def _spare_the_collector() -> None:
    """What is there by now, modules above all, stays; to look through it takes 50 ms each time, in
    which nobody is served."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_LOOKS, OLDER_LOOKS)


def _allow_open_files() -> None:
    """Take what the hard limit gives: services and shells often start with 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
