"""Parsers with every fault that fuzzing has to find."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable

from tests.fuzz.target import Target, stateless

_held: list[bytes] = []


async def _crash(data: bytes) -> Hashable:
    if b"B" in data:
        ctypes.string_at(0)
    return None


async def _spin(data: bytes) -> Hashable:
    while b"B" in data:
        pass
    return None


async def _spin_in_c(data: bytes) -> Hashable:
    if b"B" in data:
        pow(3, (1 << 4_000_000) - 1, (1 << 4_000_000) + 1)
    return None


async def _raise(data: bytes) -> Hashable:
    if b"B" in data:
        raise KeyError("B")
    return None


async def _grow(data: bytes) -> Hashable:
    _held.append(bytes(1 << 16))
    return None


SEEDS = (b"AAAA",)
CRASH = Target(name="crash", open=stateless(_crash), seeds=SEEDS, max_bytes=64)
SPIN = Target(name="spin", open=stateless(_spin), seeds=SEEDS, max_bytes=64, processor_seconds=0.1)
SPIN_IN_C = Target(
    name="spin-in-c", open=stateless(_spin_in_c), seeds=SEEDS, max_bytes=64, processor_seconds=0.1
)
RAISE = Target(name="raise", open=stateless(_raise), seeds=SEEDS, max_bytes=64)
GROW = Target(name="grow", open=stateless(_grow), seeds=SEEDS, max_bytes=64)
SOUND = Target(name="sound", open=stateless(lambda data: _raise(b"")), seeds=SEEDS, max_bytes=64)
