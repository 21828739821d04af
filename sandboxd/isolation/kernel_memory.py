"""Ends sandboxes whose commands make the kernel hold memory that no limit counts.

Kernels count neither record locks nor what nobody reads from netlink and ICMP sockets and from
connections that were not accepted yet. The only remedy is to look, and to end a sandbox that has
too much.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

import structlog

from sandboxd.isolation.cgroups import CgroupLost, CommandGroup
from sandboxd.tasks import Tasks

log = structlog.get_logger()

LOOK_SECONDS = 0.5
MAX_LOCKS = 10_000
"""Record locks of one sandbox; each takes about 200 bytes."""
MAX_LOCK_LINES = 20_000
"""Lines of the kernel's list that are read at most: the time for it grows with their square."""
CROWDED_LOCKS = 1_000
"""Record locks of one sandbox while the list is longer than what is read of it."""
MAX_UNREAD_BYTES = 16 << 20
"""Bytes that wait in sockets of one sandbox and are counted in no limit."""
FEW_SOCKETS = 4
"""Sockets of a sandbox that cannot hold much; with more, each is looked at."""
FEW_CONNECTIONS = 8
"""Likewise, of connections alone: their list takes the kernel milliseconds."""
_PROC = Path("/proc")
_ESTABLISHED, _CLOSE_WAIT = "01", "08"


class Watched(Protocol):
    """A sandbox."""

    @property
    def is_lost(self) -> bool: ...

    def cut_off(self, why: str) -> bool: ...


class _Entry:
    """A sandbox, and the processor time of its commands at the last look."""

    def __init__(self, sandbox: Watched, group: CommandGroup) -> None:
        self.sandbox = sandbox
        self._group = group
        self._cpu_ns = -1

    def has_run(self) -> bool:
        """Whether its commands ran since the last call: others hold what they held then."""
        with suppress(CgroupLost):
            before, self._cpu_ns = self._cpu_ns, self._group.cpu_ns()
            return self._cpu_ns != before
        return False

    def look_again(self) -> None:
        """Look at it in the next round too, whether it has run or not."""
        self._cpu_ns = -1


class KernelMemoryWatch:
    """Looks at all sandboxes over and over, in a thread."""

    def __init__(self, proc: Path = _PROC, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._proc = proc
        self._look_seconds = look_seconds
        self._watched: dict[int, _Entry] = {}
        """Sandboxes by the pid of their first process."""
        self._tasks = Tasks()
        self._round_is_over = asyncio.Event()
        """Set at the end of this round; the next one has another."""

    async def __aenter__(self) -> KernelMemoryWatch:
        self._tasks.spawn(self._keep_looking(), "kernel memory")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._tasks.cancel("kernel memory")
        await self._tasks.finish()

    def add(self, pid: int, sandbox: Watched, group: CommandGroup) -> None:
        """Watch a sandbox until it is lost."""
        self._watched[pid] = _Entry(sandbox, group)

    async def verdict(self) -> None:
        """Return once all that sandboxes hold now was looked at, and those with too much ended.

        While others hold so many locks that the list of them is not read to its end, that takes
        until they are ended.
        """
        for _ in range(2):  # this round may have begun before
            await self._round_is_over.wait()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            for pid in [pid for pid, entry in self._watched.items() if entry.sandbox.is_lost]:
                del self._watched[pid]
            active = {pid: entry for pid, entry in self._watched.items() if entry.has_run()}
            if active and not await self._look(active):
                for entry in active.values():
                    entry.look_again()
                continue
            over, self._round_is_over = self._round_is_over, asyncio.Event()
            over.set()

    async def _look(self, active: Mapping[int, _Entry]) -> bool:
        """End those that hold too much; False if not all that they hold was seen."""
        try:
            excess = await asyncio.to_thread(find_excess, tuple(active), self._proc)
        except Exception:
            # A line that is not understood must not end the watch.
            log.exception("kernel_memory.not_seen")
            return True
        for pid, why in excess.found.items():
            log.warning("kernel_memory.excess", pid=pid, why=why)
            active[pid].sandbox.cut_off(why)
        return excess.is_all


class Excess(NamedTuple):
    found: Mapping[int, str]
    """What is too much, by the first process of its sandbox."""
    is_all: bool
    """Whether everything was looked at."""


def find_excess(pids: Sequence[int], proc: Path = _PROC) -> Excess:
    """Which sandboxes, given by first process, hold too much."""
    with (proc / "locks").open() as lines:
        locks = read_locks(lines)
    found = dict(_too_many_locks(locks, pids, proc))
    for pid in pids:
        unread = unread_bytes(pid, proc)
        if unread > MAX_UNREAD_BYTES:
            found[pid] = (
                f"its commands left {unread >> 20} MB unread in sockets, beyond the "
                f"{MAX_UNREAD_BYTES >> 20} MB that the host lends for that"
            )
    return Excess(found, locks.is_whole)


# --- record locks ---


class Locks(NamedTuple):
    """Record locks of the host."""

    by_pid: Mapping[int, int]
    is_whole: bool


def read_locks(lines: Iterable[str]) -> Locks:
    """Count the lines of /proc/locks by process.

    Only record locks: of others there are no more than open files. The filter of system calls lets
    nobody else own one than the process that made it, so the pid is that of a living process.
    """
    first = list(islice(lines, MAX_LOCK_LINES))
    counts = Counter(owner for owner in map(_owner, first) if owner)
    return Locks(counts, is_whole=len(first) < MAX_LOCK_LINES)


def _owner(line: str) -> int:
    """The process of a record lock, or 0 for another kind."""
    fields = line.split()
    # A process that waits for a lock has a line with an arrow.
    kind, owner = (fields[2], fields[5]) if fields[1] == "->" else (fields[1], fields[4])
    return int(owner) if kind == "POSIX" else 0


def _too_many_locks(locks: Locks, pids: Sequence[int], proc: Path) -> Iterator[tuple[int, str]]:
    most = MAX_LOCKS if locks.is_whole else CROWDED_LOCKS
    if sum(locks.by_pid.values()) <= most:
        return
    for pid, count in _by_sandbox(locks.by_pid, pids, proc).items():
        if count > most:
            yield pid, f"its commands held {count} record locks, more than {most}"


def _by_sandbox(by_pid: Mapping[int, int], pids: Sequence[int], proc: Path) -> Mapping[int, int]:
    sandboxes = {_pid_namespace(pid, proc): pid for pid in pids}
    counts: Counter[int] = Counter()
    for pid, count in by_pid.items():
        namespace = _pid_namespace(pid, proc)
        if namespace and namespace in sandboxes:
            counts[sandboxes[namespace]] += count
    return counts


def _pid_namespace(pid: int, proc: Path) -> str:
    """Empty for a process that has ended."""
    with suppress(OSError):
        return os.readlink(proc / str(pid) / "ns" / "pid")
    return ""


# --- sockets ---


def unread_bytes(pid: int, proc: Path = _PROC) -> int:
    """Bytes that wait in sockets of a sandbox and that its memory limit does not count; 0 for one
    with few sockets, and for one that has ended."""
    with suppress(OSError):
        return sum(_unread_by_kind(proc / str(pid) / "net"))
    return 0


def _unread_by_kind(network: Path) -> Iterator[int]:
    if _count("sockets: used", network / "sockstat") <= FEW_SOCKETS:
        return
    yield sum(int(fields[4]) for fields in _fields(network / "netlink"))
    for kind in ("icmp", "icmp6"):
        yield sum(_unread(fields) for fields in _fields(network / kind))
    for kind, name in (("tcp", "TCP: inuse"), ("tcp6", "TCP6: inuse")):
        summary = network / kind.replace("tcp", "sockstat")
        if _count(name, summary) > FEW_CONNECTIONS:
            yield sum(_unaccepted(fields) for fields in _fields(network / kind))


def _count(name: str, summary: Path) -> int:
    found = re.search(rf"^{name} (\d+)", summary.read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _unread(fields: Sequence[str]) -> int:
    return int(fields[4].partition(":")[2], 16)


def _unaccepted(fields: Sequence[str]) -> int:
    """Bytes in a connection that belongs to no file yet; once it is accepted, they are counted."""
    is_open = fields[3] in (_ESTABLISHED, _CLOSE_WAIT)
    return _unread(fields) if is_open and fields[9] == "0" else 0


def _fields(file: Path) -> Iterator[Sequence[str]]:
    """The fields of each line but the first."""
    with file.open() as lines:
        next(lines, None)
        for line in lines:
            yield line.split()
