"""How long a run of code takes: in a fresh or a used context, with much output, with a figure."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from benchmarks import kernel as kernels
from benchmarks.client import CommandFailed
from benchmarks.daemon import Daemon
from benchmarks.kernel import Kernel
from benchmarks.race import Contestant, median, milliseconds, race
from benchmarks.table import Group
from sandboxd_client import AsyncSandbox, CodeRun, EnvironmentUnavailableError

HOST = "host `python3 -c pass`"
RUN = "Run `true`, by the SDK as the others"
FRESH = "RunCode, first result in a fresh context"
USED = "RunCode `1 + 1` in a used context"
MEGABYTE = "RunCode, 1 MB of output"
FIGURE = "RunCode, a figure"
KERNEL_START = "ipykernel, start to first result"
KERNEL_RUN = "ipykernel `1 + 1`"

PRINT_MEGABYTE = "print('x' * (1 << 20))"
PLOT = "plt.plot([1, 2, 3])"
AFTERMATH = 0.05
"""Time for the next context to be forked ahead."""
BUILD_SECONDS = 1800.0

Timed = Callable[[], Awaitable[float]]


async def code(daemon: Daemon, *, rounds: int, seconds: float) -> tuple[Group, dict[str, float]]:
    """Everything in one race, and the ratios that count."""
    async with AsyncExitStack() as stack:
        kernel = await stack.enter_async_context(kernels.running())
        sandbox = await stack.enter_async_context(
            await AsyncSandbox.create(server_url=daemon.unix_target)
        )
        contestants = [
            *_anchors(sandbox, kernel),
            Contestant(name=FRESH, call=_fresh(sandbox), aftermath_seconds=AFTERMATH),
            Contestant(name=USED, call=_timed(sandbox, "1 + 1")),
            Contestant(name=MEGABYTE, call=_timed(sandbox, PRINT_MEGABYTE), every=5),
        ]
        if (plotting := await _plotting(daemon, stack)) is not None:
            contestants.append(Contestant(name=FIGURE, call=_timed(plotting, PLOT), every=5))
        samples = await race(contestants, rounds=rounds, seconds=seconds)
    return _group(samples)


def _host() -> float:
    """The system's Python: a virtual environment would slow its start down."""
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    began = time.perf_counter()
    subprocess.run([python, "-c", "pass"], check=True)
    return time.perf_counter() - began


def _anchors(sandbox: AsyncSandbox, kernel: Kernel) -> list[Contestant]:
    async def host() -> float:
        return _host()

    async def command() -> float:
        began = time.perf_counter()
        await sandbox.commands.run("true", check=True)
        return time.perf_counter() - began

    return [
        Contestant(name=HOST, call=host),
        Contestant(name=RUN, call=command),
        Contestant(name=KERNEL_START, call=kernel.start, every=10, aftermath_seconds=0.2),
        Contestant(name=KERNEL_RUN, call=kernel.run),
    ]


async def _plotting(daemon: Daemon, stack: AsyncExitStack) -> AsyncSandbox | None:
    """A sandbox with matplotlib, imported; None on a host that cannot build one."""
    try:
        created = await AsyncSandbox.create(
            server_url=daemon.unix_target, environment="data", build_wait=BUILD_SECONDS
        )
    except EnvironmentUnavailableError:
        return None
    sandbox = await stack.enter_async_context(created)
    await sandbox.code.run("import matplotlib.pyplot as plt", timeout=60, check=True)
    return sandbox


def _timed(sandbox: AsyncSandbox, code: str) -> Timed:
    async def timed() -> float:
        began = time.perf_counter()
        run = await sandbox.code.run(code)
        taken = time.perf_counter() - began
        return _checked(run, taken)

    return timed


def _fresh(sandbox: AsyncSandbox) -> Timed:
    numbers = itertools.count()

    async def timed() -> float:
        name = f"fresh-{next(numbers)}"
        began = time.perf_counter()
        run = await sandbox.code.run("1 + 1", context=name)
        taken = time.perf_counter() - began
        await sandbox.code.delete_context(name)
        return _checked(run, taken)

    return timed


def _checked(run: CodeRun, taken: float) -> float:
    if not run.ok:
        raise CommandFailed(f"a run of code ended as {run.status}: {run.error or run.hint}")
    return taken


def _group(samples: dict[str, list[float]]) -> tuple[Group, dict[str, float]]:
    middle = {name: median(values) for name, values in samples.items()}
    rows = {
        name: {**milliseconds(values, 50, 95), "of_host": middle[name] / middle[HOST]}
        for name, values in samples.items()
    }
    ratios = {
        "fresh_context_of_host_python": middle[FRESH] / middle[HOST],
        "used_context_of_run": middle[USED] / middle[RUN],
        "ipykernel_start_of_fresh_context": middle[KERNEL_START] / middle[FRESH],
        "ipykernel_run_of_used_context": middle[KERNEL_RUN] / middle[USED],
    }
    return Group("code, against `python3 -c pass` and ipykernel", rows), ratios
