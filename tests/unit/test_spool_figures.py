"""What a spool costs: memory that stays flat, and figures for the report (run with -s)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sandboxd.spool import SearchQuery, Spool, SpoolBudget
from tests.unit.spool_rig import ERR, KEY, OUT, settings_in

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def numbered(first: int, count: int) -> bytes:
    return b"".join(b"%015d\n" % number for number in range(first, first + count))


def test_a_gigabyte_of_output_leaves_memory_flat(tmp_path: Path) -> None:
    """A megabyte on disk holds both ends of it, exactly; the daemon's memory does not grow."""
    settings = settings_in(tmp_path, memory_bytes=64 * 1024, max_bytes=1 << 20)
    spool = Spool(settings, KEY, SpoolBudget(1 << 30))
    filler = (b"x" * 63 + b"\n") * 1024
    spool.append(OUT, numbered(0, 4096))
    for _ in range(64):
        spool.append(OUT, filler)
    before = resident_bytes()
    appended = 0
    while appended < 1 << 30:
        spool.append(OUT, filler)
        appended += len(filler)
    grown = resident_bytes() - before
    end = numbered(10**9, 16_384)
    for start in range(0, len(end), 65_536):
        spool.append(OUT, end[start : start + 65_536])

    assert grown < 4 << 20
    assert spool.length(OUT) == 65_536 * 65 + appended + len(end)
    gap = spool.dropped(OUT)
    assert gap.at == 512 * 1024
    head = numbered(0, 4096) + filler * 7
    assert b"".join(spool.read(OUT, at, 65_536).data for at in range(0, gap.at, 65_536)) == head
    tail = spool.read(OUT, gap.at, 1 << 20)
    assert len(tail.data) > 400 * 1024
    assert (filler * 8 + end).endswith(tail.data)
    lines = 4096 + (64 + (appended >> 16)) * 1024 + 16_384
    assert tail.newlines_before == lines - tail.data.count(b"\n")
    assert (tmp_path / f"{KEY}.stdout").stat().st_size == 4096 + (1 << 20)
    print(f"\nresident memory grew by {grown >> 10} KiB over {appended >> 20} MiB of output")
    spool.delete()


def test_figures(tmp_path: Path) -> None:
    """Not a promise: how long things take here."""
    settings = settings_in(tmp_path, memory_bytes=64 * 1024, max_bytes=64 << 20)
    budget = SpoolBudget(1 << 30, SpoolBudget(1 << 40))
    line = b"x" * 99 + b"\n"

    def short_command() -> None:
        spool = Spool(settings, KEY, budget)
        spool.append(OUT, line)
        spool.append(ERR, line)
        spool.delete()

    began = time.perf_counter()
    for _ in range(5000):
        short_command()
    took = (time.perf_counter() - began) / 5000
    print(f"\ncreate, 2 appends of 100 bytes, delete: {took * 1e6:.1f} us")

    spool = Spool(settings, KEY, budget)
    spool.append(OUT, line)
    began = time.perf_counter()
    spool.persist()
    print(f"first persist: {(time.perf_counter() - began) * 1e6:.0f} us")
    began = time.perf_counter()
    for _ in range(5000):
        spool.append(OUT, line)
    print(f"append of 100 bytes on disk: {(time.perf_counter() - began) / 5000 * 1e6:.1f} us")

    chunk = (line * 656)[:65_536]
    for name in ("growing", "in the ring"):
        began = time.perf_counter()
        for _ in range(1100):
            spool.append(OUT, chunk)
        rate = 1100 * len(chunk) / (time.perf_counter() - began) / 1e6
        print(f"append of 64 KiB, {name}: {rate:.0f} MB/s")
    for pattern in ("needle", "(?i)error|fail(ed|ure)"):
        began = time.perf_counter()
        scanned = spool.search(SearchQuery(pattern=pattern, timeout_seconds=60)).scanned_bytes
        rate = scanned / (time.perf_counter() - began) / 1e6
        print(f"search for {pattern}: {rate:.0f} MB/s")
    began = time.perf_counter()
    spool.preview(OUT, max_bytes=16_384, collapse=True)
    print(f"preview of 16 KiB: {(time.perf_counter() - began) * 1e6:.0f} us")
    spool.close()
    began = time.perf_counter()
    found = Spool.reopen(settings, KEY, budget)
    print(f"reopen of 64 MiB: {(time.perf_counter() - began) * 1e6:.0f} us")
    assert found is not None
    began = time.perf_counter()
    found.delete()
    print(f"delete of 64 MiB: {(time.perf_counter() - began) * 1e3:.1f} ms")
