"""Measures what the commands of a sandbox use, and which limits they reached."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import NamedTuple

from sandboxd.isolation.cgroups import CgroupLost, CommandGroup, Counters
from sandboxd.isolation.quota import Quota

FIRST_LOOK_SECONDS = 0.03
"""Seconds after the start of a command; the next shell, which counts as well, exists by then."""
LOOK_SECONDS = 1.0
FULL_BYTES = 64 * 1024
"""Free space below which a disk counts as full: a write of ordinary size fails."""


class Usage(NamedTuple):
    """Resources used between two moments, as counted by the kernel."""

    peak_memory_bytes: int
    cpu_seconds: float
    peak_processes: int
    oom_kills: int
    refused_forks: int
    is_shared: bool = False
    """Whether processes of other commands were there, which the figures include."""


@dataclass(frozen=True, kw_only=True)
class LiveUsage:
    """Resources in use at one moment."""

    memory_bytes: int
    cpu_seconds: float
    """CPU time since the sandbox was started."""
    processes: int
    workspace_bytes: int
    workspace_files: int
    tmp_bytes: int
    """Of /tmp and /var/tmp together, like `tmp_files`."""
    tmp_files: int


class Start(NamedTuple):
    """Figures at the start of a command."""

    counters: Counters
    processes: int


@dataclass(eq=False)
class Reading:
    """Counters at the start of a command, and the most processes since."""

    before: Counters
    most_seen: int
    is_shared: bool


class Meter:
    """Reads the counters of one sandbox around each of its commands."""

    def __init__(
        self,
        group: CommandGroup,
        disks: DiskGauges | None,
        quota: Quota | None = None,
    ) -> None:
        self._group = group
        self._disks = disks
        self._quota = quota
        self._open: set[Reading] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._at_rest: Start | None = None
        """Figures for the next command, valid if nothing runs before it."""
        self._processes_alone = 0
        """Processes at the start of the first command, all of them the guest's."""

    def begin(self) -> Reading | None:
        """A command starts; None if the counters cannot be read."""
        try:
            start = self._found_at_rest() or self._look_now()
        except CgroupLost:
            return None
        self._processes_alone = self._processes_alone or start.processes
        reading = Reading(start.counters, start.processes, self._is_shared(start.processes))
        self._open.add(reading)
        if self._quota is not None:
            self._quota.begin()
        if self._timer is None:
            self._look_in(FIRST_LOOK_SECONDS)
        return reading

    def _is_shared(self, processes: int) -> bool:
        """Whether a command that starts now has others beside it, which then have it as well."""
        for reading in self._open:
            reading.is_shared = True
        return bool(self._open) or processes > self._processes_alone

    def _found_at_rest(self) -> Start | None:
        """The earlier figures, if no CPU time was used since: then nothing has changed."""
        start, self._at_rest = self._at_rest, None
        if start is not None and self._group.cpu_ns() == start.counters.cpu_ns:
            return start
        return None

    def _look_now(self) -> Start:
        if not self._open:
            self._group.reset_peak_memory()
        return Start(self._group.counters(), self._group.processes())

    def end(self, reading: Reading | None) -> Usage | None:
        """Resources used since the start; None if they can no longer be read."""
        if reading is None or reading not in self._open:
            return None
        self._open.remove(reading)
        if self._quota is not None:
            self._quota.end()
        try:
            after = self._group.counters()
            peak_memory = self._group.peak_memory()
        except CgroupLost:
            return None
        before = reading.before
        is_record = after.most_processes > before.most_processes
        return Usage(
            peak_memory_bytes=peak_memory,
            cpu_seconds=max(0, after.cpu_ns - before.cpu_ns) / 1e9,
            peak_processes=after.most_processes if is_record else reading.most_seen,
            oom_kills=max(0, after.oom_kills - before.oom_kills),
            refused_forks=max(0, after.refused_forks - before.refused_forks),
            is_shared=reading.is_shared,
        )

    def now(self) -> LiveUsage | None:
        """Resources in use now; None if they can no longer be read."""
        try:
            cpu_ns, memory = self._group.cpu_ns(), self._group.memory()
            processes = self._group.processes()
        except CgroupLost:
            return None
        used = temporary = 0, 0
        if self._disks is not None:
            used, temporary = self._disks.workspace.used, self._disks.temporary_used
        return LiveUsage(
            memory_bytes=memory,
            cpu_seconds=cpu_ns / 1e9,
            processes=processes,
            workspace_bytes=used[0],
            workspace_files=used[1],
            tmp_bytes=temporary[0],
            tmp_files=temporary[1],
        )

    def over_work(self) -> AbstractContextManager[None]:
        """Put the guest's workers under the quota of commands for as long as the block lasts."""
        return nullcontext() if self._quota is None else self._quota.over_work()

    def moves(self) -> int:
        """How often the guest's workers were put under the quota."""
        return 0 if self._quota is None else self._quota.moves

    def lift_quota(self) -> None:
        """Commands are being killed: let them have the processor time that this takes."""
        if self._quota is not None:
            self._quota.lift()

    @property
    def full(self) -> str:
        """What has no room left, by name; empty if there is room everywhere."""
        return self._disks.full if self._disks is not None else ""

    def look_at(self, disks: DiskGauges | None) -> None:
        """Measure these from now on: the sandbox has another disk."""
        if self._disks is not None:
            self._disks.close()
        self._disks = disks

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._open.clear()
        if self._quota is not None:
            self._quota.close()
        self._group.close()
        if self._disks is not None:
            self._disks.close()

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Update running commands; if none runs, read the figures for the next one ahead of it."""
        self._timer = None
        with suppress(CgroupLost):
            if not self._open:
                self._at_rest = self._look_now()
                return
            processes = self._group.processes()
            for reading in self._open:
                reading.most_seen = max(reading.most_seen, processes)
            self._look_in(LOOK_SECONDS)


class DiskGauge:
    """How full a filesystem of a sandbox is. Opens nothing that a command could put there."""

    def __init__(
        self, *, pid: int, path: str, size_bytes: int, max_files: int, slack_bytes: int = 0
    ) -> None:
        """With what fits into it, and how much more is free while it is empty: what it needs itself
        does not count as used."""
        # The path is a mount point on a read-only root, so no command can change it. The open
        # descriptor keeps the filesystem for as long as the sandbox is used.
        self._descriptor = os.open(
            f"/proc/{pid}/root{path}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        )
        self.path = path
        self._size_bytes = size_bytes
        self._slack_bytes = slack_bytes
        self._max_files = max_files

    @property
    def is_full(self) -> bool:
        if self._descriptor < 0:
            return False
        state = os.fstatvfs(self._descriptor)
        return state.f_bavail * state.f_frsize < FULL_BYTES or state.f_favail == 0

    @property
    def used(self) -> tuple[int, int]:
        """Bytes and files in use."""
        if self._descriptor < 0:
            return 0, 0
        state = os.fstatvfs(self._descriptor)
        # One that was made with other settings may be smaller.
        at_first = min(self._size_bytes + self._slack_bytes, state.f_blocks * state.f_frsize)
        used_bytes = at_first - state.f_bavail * state.f_frsize
        used_files = min(self._max_files, state.f_files) - state.f_favail
        return max(0, min(used_bytes, self._size_bytes)), max(0, used_files)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class DiskGauges(NamedTuple):
    """The filesystems that commands write to."""

    workspace: DiskGauge
    temporary: Sequence[DiskGauge]
    """Of /tmp and /var/tmp; one if they share a disk."""

    @property
    def full(self) -> str:
        """What has no room left, by name; empty if there is room everywhere."""
        if self.workspace.is_full:
            return "the workspace"
        return next((gauge.path for gauge in self.temporary if gauge.is_full), "")

    @property
    def temporary_used(self) -> tuple[int, int]:
        """Bytes and files in use."""
        used = [gauge.used for gauge in self.temporary]
        return sum(size for size, _ in used), sum(files for _, files in used)

    def close(self) -> None:
        for gauge in (self.workspace, *self.temporary):
            gauge.close()
