"""What commands are told to have used."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sandboxd.isolation import meter as metering
from sandboxd.isolation.cgroups import CgroupLost, Counters
from sandboxd.isolation.meter import DiskGauge, DiskGauges, Meter

MIB = 1 << 20


class Group:
    """Counters that a test turns."""

    asks = False

    def __init__(self) -> None:
        self.now = Counters(cpu_ns=1_000, oom_kills=1, refused_forks=1, most_processes=10)
        self.alive = 1
        self.peak = 0
        self.resets = 0
        self.looks = 0
        self.is_lost = False

    def admit(self) -> None: ...

    def throttle(self) -> int:
        return 0

    def set_quota(self, cpu_quota_us: int) -> None: ...

    def counters(self) -> Counters:
        if self.is_lost:
            raise CgroupLost("gone")
        self.looks += 1
        return self.now

    def cpu_ns(self) -> int:
        return self.now.cpu_ns

    def processes(self) -> int:
        return self.alive

    def reset_peak_memory(self) -> None:
        self.resets += 1

    def peak_memory(self) -> int:
        return self.peak

    def close(self) -> None:
        self.is_lost = True


@pytest.fixture
def group() -> Group:
    return Group()


async def test_use_is_the_difference_between_two_readings(group: Group) -> None:
    """What an earlier command used is not counted again."""
    meter = Meter(group, None)
    reading = meter.begin()
    group.now = Counters(cpu_ns=2_500_001_000, oom_kills=3, refused_forks=1, most_processes=12)
    group.peak = 77
    usage = meter.end(reading)

    assert usage is not None
    assert (usage.cpu_seconds, usage.oom_kills, usage.refused_forks) == (2.5, 2, 0)
    assert (usage.peak_memory_bytes, usage.peak_processes) == (77, 12)
    meter.close()


async def test_without_a_new_record_the_most_seen_is_told(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel keeps only the record of the sandbox's life, so looks in between fill in."""
    monkeypatch.setattr(metering, "FIRST_LOOK_SECONDS", 0.01)
    meter = Meter(group, None)
    reading = meter.begin()
    assert reading is not None
    group.alive = 7
    async with asyncio.timeout(5):
        while reading.most_seen != 7:
            await asyncio.sleep(0.005)
    group.alive = 1
    usage = meter.end(reading)

    assert usage is not None
    assert usage.peak_processes == 7
    meter.close()


async def test_use_beside_other_processes_is_marked(group: Group) -> None:
    """Counters are those of a session, so a reader has to know whose they may be."""
    meter = Meter(group, None)
    alone = meter.end(meter.begin())
    first, second = meter.begin(), meter.begin()
    together = [meter.end(first), meter.end(second)]
    group.alive = 2
    group.now = group.now._replace(cpu_ns=2_000)
    beside_a_left_process = meter.end(meter.begin())

    assert alone is not None
    assert not alone.is_shared
    for usage in (*together, beside_a_left_process):
        assert usage is not None
        assert usage.is_shared
    meter.close()


async def test_peak_is_reset_only_when_nothing_else_runs(group: Group) -> None:
    """A command that starts beside another does not wipe out what that one has used."""
    meter = Meter(group, None)
    first = meter.begin()
    second = meter.begin()
    assert group.resets == 1
    meter.end(first)
    meter.end(second)
    meter.end(meter.begin())

    assert group.resets == 2
    meter.close()


async def _rested(group: Group, monkeypatch: pytest.MonkeyPatch) -> Meter:
    """A meter that has seen a command and then what the next one will find."""
    monkeypatch.setattr(metering, "FIRST_LOOK_SECONDS", 0.01)
    meter = Meter(group, None)
    meter.end(meter.begin())
    looks = group.looks
    async with asyncio.timeout(5):
        while group.looks == looks:
            await asyncio.sleep(0.005)
    return meter


async def test_what_a_command_finds_is_read_while_nothing_runs(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the way of a command one look at the processor time has to do."""
    meter = await _rested(group, monkeypatch)
    looks, resets = group.looks, group.resets
    reading = meter.begin()

    assert reading is not None
    assert (reading.before, reading.most_seen) == (group.now, 1)
    assert (group.looks, group.resets) == (looks, resets)
    meter.close()


async def test_what_happened_between_two_commands_is_put_down_to_neither(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was left behind reaches a limit; the next command is not told that it did."""
    meter = await _rested(group, monkeypatch)
    group.now = group.now._replace(cpu_ns=1_001, oom_kills=5, refused_forks=4)
    resets = group.resets
    usage = meter.end(meter.begin())

    assert usage is not None
    assert (usage.oom_kills, usage.refused_forks, usage.cpu_seconds) == (0, 0, 0)
    assert group.resets == resets + 1
    meter.close()


async def test_what_was_found_at_rest_serves_one_command(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a command its own use is in the counters, whatever the processor time says."""
    meter = await _rested(group, monkeypatch)
    monkeypatch.setattr(metering, "FIRST_LOOK_SECONDS", 60.0)
    reading = meter.begin()
    group.now = group.now._replace(oom_kills=9)
    meter.end(reading)
    usage = meter.end(meter.begin())

    assert usage is not None
    assert usage.oom_kills == 0
    meter.close()


async def test_lost_group_tells_nothing(group: Group) -> None:
    """No figures rather than wrong ones."""
    meter = Meter(group, None)
    reading = meter.begin()
    group.is_lost = True

    assert meter.end(reading) is None
    assert meter.begin() is None
    assert meter.end(None) is None
    meter.close()


async def test_reading_counts_once(group: Group) -> None:
    """An exec that is both refused and lost is measured only once."""
    meter = Meter(group, None)
    reading = meter.begin()

    assert meter.end(reading) is not None
    assert meter.end(reading) is None
    meter.close()


def a_gauge(path: Path, *, slack_bytes: int = 0) -> DiskGauge:
    return DiskGauge(
        pid=os.getpid(), path=str(path), size_bytes=MIB, max_files=100, slack_bytes=slack_bytes
    )


class Filesystem:
    """Says of every filesystem what a test wants it to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real = os.statvfs("/")
        monkeypatch.setattr(os, "fstatvfs", lambda _: self._state)

    def has(self, *, free_bytes: int, free_files: int, size_bytes: int = 8 * MIB) -> None:
        size, free = size_bytes // 4096, free_bytes // 4096
        fields = (4096, 4096, size, free + 50, free, 200, free_files, free_files)
        self._state = os.statvfs_result((*fields, *self._real[8:]))


def test_gauge_asks_the_filesystem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full means no room for bytes or none for files."""
    gauge = a_gauge(tmp_path)
    assert not gauge.is_full
    disk = Filesystem(monkeypatch)
    for free_bytes, free_files, is_full in ((0, 10, True), (MIB, 0, True), (MIB, 10, False)):
        disk.has(free_bytes=free_bytes, free_files=free_files)
        assert gauge.is_full == is_full
    disk.has(free_bytes=0, free_files=0)
    gauge.close()
    assert not gauge.is_full


def test_empty_disk_has_nothing_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a filesystem needs itself, and free space beyond the limit, do not count; what is
    reported as used is never more than the limit."""
    gauge, disk = a_gauge(tmp_path, slack_bytes=32768), Filesystem(monkeypatch)
    disk.has(free_bytes=MIB + 32768, free_files=100)
    assert gauge.used == (0, 0)
    disk.has(free_bytes=MIB + 32768 - 8192, free_files=97)
    assert gauge.used == (8192, 3)
    disk.has(free_bytes=0, free_files=0)
    assert gauge.used == (MIB, 100)
    disk.has(free_bytes=2 * MIB, free_files=150)  # made when there was more for each
    assert gauge.used == (0, 0)
    disk.has(free_bytes=MIB // 2, free_files=0, size_bytes=MIB // 2)  # made when there was less
    assert gauge.used == (0, 100)
    gauge.close()
    assert gauge.used == (0, 0)


def test_what_is_full_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workspace comes first; what is used in both places for temporary files is one figure."""
    disks = DiskGauges(a_gauge(tmp_path), [a_gauge(tmp_path), a_gauge(tmp_path)])
    disk = Filesystem(monkeypatch)
    disk.has(free_bytes=MIB, free_files=90)
    assert (disks.full, disks.temporary_used) == ("", (0, 20))
    disk.has(free_bytes=0, free_files=90)
    assert (disks.full, disks.temporary_used) == ("the workspace", (2 * MIB, 20))
    disks.workspace.close()
    assert disks.full == str(tmp_path)
    disks.close()
    assert disks.full == ""
