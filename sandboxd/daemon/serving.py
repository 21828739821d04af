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
from sandboxd.daemon.composition import Daemon, running
from sandboxd.daemon.loop_watch import LoopWatch
from sandboxd.daemon.notify import ServiceManager
from sandboxd.daemon.watchdog import Watchdog
from sandboxd.tasks import Tasks

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt, from malloc.h."""
GC_THRESHOLDS = (5_000, 5, 4)
"""Thresholds of the three generations: young objects are collected rarely, because a list of files
makes thousands of them, and all objects about as often as by default."""


async def serve(config: Config, *, on_ready: Callable[[Daemon], None]) -> None:
    """Run a daemon until SIGTERM or SIGINT; SIGHUP reloads tokens, certificates and the like."""
    _keep_freed_memory()
    _allow_open_files()
    manager = ServiceManager.from_environment(os.environ)
    stop, reload = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    with LoopWatch():
        async with _watchdog(manager) as watchdog, running(config) as daemon:
            _freeze_long_lived_objects()
            on_ready(daemon)
            manager.ready()
            with watchdog.checking(check=daemon.registry.ping, status=lambda: daemon.status):
                while await _wait_for_reload(reload, stop):
                    reload.clear()
                    manager.reloading()
                    await daemon.reloads.run()
                    manager.ready()
            manager.stopping()


@asynccontextmanager
async def _watchdog(manager: ServiceManager) -> AsyncIterator[Watchdog]:
    """A watchdog that runs while the daemon starts, serves and stops."""
    watchdog, tasks = Watchdog(manager), Tasks()
    tasks.spawn(watchdog.run(), "watchdog")
    try:
        yield watchdog
    finally:
        tasks.cancel("watchdog")
        await tasks.finish()


async def _wait_for_reload(reload: asyncio.Event, stop: asyncio.Event) -> bool:
    """Wait for either event; False if it is time to stop."""
    waits = [asyncio.ensure_future(event.wait()) for event in (reload, stop)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return not stop.is_set()


def _keep_freed_memory() -> None:
    """Let the allocator reuse large buffers.

    By default, glibc requests a buffer over 128 KiB from the kernel, page by page, and returns it
    each time; for a stream of output that costs several times as much as the copying.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_M_TRIM_THRESHOLD, 64 << 20)


def _freeze_long_lived_objects() -> None:
    """Exclude what exists by now, mostly modules, from garbage collection: scanning it blocks the
    loop for 50 ms each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _allow_open_files() -> None:
    """Raise the soft limit to the hard one: services and shells often start with 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
