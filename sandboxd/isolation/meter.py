"""What the commands of a sandbox use, and which of its limits they reached."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from sandboxd.isolation.cgroups import CgroupLost, CommandGroup, Counters
from sandboxd.isolation.quota import Quota

FIRST_LOOK_SECONDS = 0.03
"""After a command has begun; the next shell, which counts as well, is there by then."""
LOOK_SECONDS = 1.0
FULL_BYTES = 64 * 1024
"""A workspace with less than this left counts as full: a write of an ordinary size fails."""


class Usage(NamedTuple):
    """What was used between two moments, as the kernel counted it."""

    peak_memory_bytes: int
    cpu_seconds: float
    peak_processes: int
    oom_kills: int
    refused_forks: int


@dataclass(frozen=True, kw_only=True)
class LiveUsage:
    """What is used at one moment."""

    memory_bytes: int
    cpu_seconds: float
    """Since the sandbox was started."""
    processes: int
    workspace_bytes: int
    workspace_files: int


class Start(NamedTuple):
    """What a command finds."""

    counters: Counters
    processes: int


@dataclass(eq=False)
class Reading:
    """What a command found when it began, and the most processes since."""

    before: Counters
    most_seen: int


class Meter:
    """Reads the counters of one sandbox around each of its commands."""

    def __init__(
        self,
        group: CommandGroup,
        workspace: WorkspaceGauge | None,
        quota: Quota | None = None,
    ) -> None:
        self._group = group
        self._workspace = workspace
        self._quota = quota
        self._open: set[Reading] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._at_rest: Start | None = None
        """What the next command finds, if nothing runs before it."""

    def begin(self) -> Reading | None:
        """A command begins; None if there is nothing to read."""
        try:
            start = self._found_at_rest() or self._look_now()
        except CgroupLost:
            return None
        reading = Reading(start.counters, start.processes)
        self._open.add(reading)
        if self._quota is not None:
            self._quota.begin()
        if self._timer is None:
            self._look_in(FIRST_LOOK_SECONDS)
        return reading

    def _found_at_rest(self) -> Start | None:
        """Nothing can have changed without using the processor, and that takes one look."""
        start, self._at_rest = self._at_rest, None
        if start is not None and self._group.cpu_ns() == start.counters.cpu_ns:
            return start
        return None

    def _look_now(self) -> Start:
        if not self._open:
            self._group.reset_peak_memory()
        return Start(self._group.counters(), self._group.processes())

    def end(self, reading: Reading | None) -> Usage | None:
        """What was used since; None if that can no longer be read."""
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
        )

    def now(self) -> LiveUsage | None:
        """What is used now; None if that can no longer be read."""
        try:
            cpu_ns, memory = self._group.cpu_ns(), self._group.memory()
            processes = self._group.processes()
        except CgroupLost:
            return None
        used = self._workspace.used if self._workspace is not None else (0, 0)
        return LiveUsage(
            memory_bytes=memory,
            cpu_seconds=cpu_ns / 1e9,
            processes=processes,
            workspace_bytes=used[0],
            workspace_files=used[1],
        )

    def hurry(self) -> None:
        """Commands are being killed: let them have the processor time that this takes."""
        if self._quota is not None:
            self._quota.lift()

    @property
    def is_workspace_full(self) -> bool:
        return self._workspace is not None and self._workspace.is_full

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._open.clear()
        if self._quota is not None:
            self._quota.close()
        self._group.close()
        if self._workspace is not None:
            self._workspace.close()

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """At the commands that run; else at what the next one will find, so that it need not."""
        self._timer = None
        with suppress(CgroupLost):
            if not self._open:
                self._at_rest = self._look_now()
                return
            processes = self._group.processes()
            for reading in self._open:
                reading.most_seen = max(reading.most_seen, processes)
            self._look_in(LOOK_SECONDS)


class WorkspaceGauge:
    """How full a workspace is, asked of its filesystem. Opens nothing a command could put there."""

    def __init__(self, *, pid: int, workspace_dir: str) -> None:
        # The way there is a mount point on a read-only root: no command can bend it. The open
        # descriptor holds the filesystem for as long as the sandbox is used.
        self._descriptor = os.open(
            f"/proc/{pid}/root{workspace_dir}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        )

    @property
    def is_full(self) -> bool:
        if self._descriptor < 0:
            return False
        state = os.fstatvfs(self._descriptor)
        return state.f_bavail * state.f_frsize < FULL_BYTES or state.f_favail == 0

    @property
    def used(self) -> tuple[int, int]:
        """Bytes and files."""
        if self._descriptor < 0:
            return 0, 0
        state = os.fstatvfs(self._descriptor)
        return (state.f_blocks - state.f_bfree) * state.f_frsize, state.f_files - state.f_ffree

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
