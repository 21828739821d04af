"""Throughput of large output, next to a bare gRPC stream of the same chunks."""

from __future__ import annotations

import time
from collections.abc import Awaitable

from benchmarks.daemon import Daemon
from benchmarks.peer import Peer
from benchmarks.race import median
from benchmarks.table import Group

MEGABYTE = 1_000_000
EXEC = "Exec, unix socket"
BARE = "bare grpc.aio stream"


async def throughput(daemon: Daemon, peer: Peer, *, size: int, rounds: int) -> tuple[Group, float]:
    """The table, and the median of the ratios of neighbouring measurements."""
    command = f"head -c {size} /dev/zero"
    ours, bare = [], []
    for number in range(rounds):
        # A session for each: one has disk space for the output of a few commands only.
        session = await daemon.client.open(f"throughput {number}")
        await daemon.wait_until_warm()
        ours.append(await _speed(daemon.client.output_bytes(session, command), size))
        await daemon.client.end(session)
        await daemon.wait_until_warm()
        bare.append(await _speed(peer.flow_bytes(size), size))
    ratio = median([one / other for one, other in zip(ours, bare, strict=True)])
    rows = {
        BARE: {"MB_per_second": median(bare), "samples": rounds},
        EXEC: {"MB_per_second": median(ours), "samples": rounds, "of_bare": ratio},
    }
    return Group(f"stdout of {size >> 20} MiB", rows), ratio


async def _speed(transfer: Awaitable[int], size: int) -> float:
    began = time.perf_counter()
    received = await transfer
    seconds = time.perf_counter() - began
    if received != size:
        raise ValueError(f"{received} of {size} bytes arrived")
    return size / seconds / MEGABYTE
