"""The process that fuzzes one target: `python -m tests.fuzz.process TARGET ...`.

A process of its own, because parsers written in C can take it down and cannot be interrupted. The
kernel ends it when an input takes too much processor time, which does not depend on how busy the
machine is. The input being tried is in a file that is still there then.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import mmap
import resource
import signal
import struct
import sys
import time
import traceback
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.fuzz.mutation import Mutation
from tests.fuzz.target import Run, Target

MAX_MEMORY_BYTES = 2 << 30
"""Beyond this it gets no memory, so that the machine stays usable."""
WARM_UP = 200
"""Inputs before memory is measured: until then caches fill, and modules are imported."""
_HEAD = struct.Struct("!QI")
HANG = signal.SIGPROF
"""What ends a process that takes too long; nobody else sends it."""


class Settings(NamedTuple):
    target: str
    processor_seconds: float
    """0 means no limit."""
    seconds: float
    seed: int
    box: str
    """Path of the file with the input being tried."""
    is_reproduced: bool = False
    """Whether the input in the file is to be tried, and no other."""


class Box:
    """The file in which the input being tried is found afterwards."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        with path.open("w+b") as file:
            file.truncate(_HEAD.size + max_bytes)
            self._memory = mmap.mmap(file.fileno(), 0)

    def put(self, number: int, data: bytes) -> None:
        end = _HEAD.size + len(data)
        self._memory[:end] = _HEAD.pack(number, len(data)) + data


def read_box(path: Path) -> tuple[int, bytes]:
    """The number of the last input, and the input."""
    content = path.read_bytes()
    if len(content) < _HEAD.size:
        return 0, b""
    number, size = _HEAD.unpack_from(content)
    return number, content[_HEAD.size : _HEAD.size + size]


class Grown(Exception):
    """It takes more memory than it may."""


class Fuzzing:
    """Tries inputs for a while."""

    def __init__(self, target: Target, settings: Settings) -> None:
        self._target = target
        self._settings = settings
        self._mutation = Mutation(target, Random(settings.seed))
        longest = max(target.max_bytes, *map(len, (*target.seeds, *target.found)))
        self._box = Box(Path(settings.box), longest)
        self._number = 0
        self._first_peak = 0

    async def run(self) -> dict[str, int]:
        with self._target.open() as run:
            began, worked = time.monotonic(), time.process_time()
            for data in (*self._target.found, *self._target.seeds):
                await self._try(run, data)
            while not self._is_over(began, worked):
                await self._try(run, self._mutation.draw())
        return {
            "inputs": self._number,
            "outcomes": self._mutation.outcomes,
            "growth": max(0, _peak_bytes() - self._first_peak) if self._first_peak else 0,
        }

    def _is_over(self, began: float, worked: float) -> bool:
        if time.monotonic() - began >= self._settings.seconds:
            return True
        limit = self._settings.processor_seconds
        return bool(limit) and time.process_time() - worked >= limit

    async def _try(self, run: Run, data: bytes) -> None:
        self._number += 1
        self._box.put(self._number, data)
        signal.setitimer(signal.ITIMER_PROF, self._target.processor_seconds)
        outcome = await run(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._mutation.learn(data, outcome)
        self._check_memory()

    def _check_memory(self) -> None:
        if self._number <= WARM_UP:
            self._first_peak = _peak_bytes()
            return
        growth = _peak_bytes() - self._first_peak
        if growth > self._target.growth_bytes:
            raise Grown(f"memory grew by {growth >> 20} MiB")


async def reproduce(target: Target, data: bytes) -> dict[str, int]:
    """Try one input, with the same limit of processor time."""
    with target.open() as run:
        signal.setitimer(signal.ITIMER_PROF, target.processor_seconds)
        await run(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {"inputs": 1, "outcomes": 1, "growth": 0}


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def find(name: str) -> Target:
    """The target of a name, `module:attribute`."""
    module, _, attribute = name.partition(":")
    target = getattr(importlib.import_module(module), attribute)
    assert isinstance(target, Target)
    return target


def main() -> int:
    settings = Settings(*json.loads(sys.argv[1]))
    target = find(settings.target)
    signal.signal(HANG, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    gc.freeze()
    try:
        if settings.is_reproduced:
            data = Path(settings.box).read_bytes()
            counted = asyncio.run(reproduce(target, data))
        else:
            counted = asyncio.run(Fuzzing(target, settings).run())
    except Exception:
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stderr.write(traceback.format_exc())
        return 1
    sys.stdout.write(json.dumps(counted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
