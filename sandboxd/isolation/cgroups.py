"""The cgroup in which the commands of a sandbox live, apart from their guest.

Below the container's own cgroup lies one for commands, with the limits that users know; the
container's are a little higher. So a memory bomb, a fork bomb or a processor hog ends or slows
commands, never the guest that has to end them. The kernel's counters of that cgroup are what the
daemon believes about the use of memory, processor and processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

CHILD = "cmd"
GUEST = "guest"
CPU_PERIOD_US = 100_000
CGROUP_ROOT = Path("/sys/fs/cgroup")
SEPARATE = "commands have memory, process and processor limits below those of the guest"


@dataclass(frozen=True, kw_only=True)
class CommandLimits:
    """What all commands of a sandbox may use together."""

    memory_bytes: int
    processes: int
    cpu_quota_us: int
    """Processor time per 100 ms; 0 means no limit."""


class Counters(NamedTuple):
    """Running totals of the kernel."""

    cpu_ns: int
    oom_kills: int
    refused_forks: int
    most_processes: int
    """Ever; 0 where the kernel does not keep it."""


class CgroupLost(Exception):
    """The cgroup is gone, with its container."""


class CommandGroup(Protocol):
    """Where the commands of one sandbox live. Its calls touch kernel files and may take some ms,
    except the reading ones, which take a few microseconds."""

    asks: bool
    """Whether the guest has to ask for each new shell to be admitted."""

    def admit(self) -> None:
        """Move in what is in the container and does not belong to its guest."""
        ...

    def throttle(self) -> int:
        """Put under the processor quota what is not yet; returns how many processes that were."""
        ...

    def set_quota(self, cpu_quota_us: int) -> None:
        """Change the processor quota; 0 means none."""
        ...

    def counters(self) -> Counters:
        """CgroupLost if there is nothing to read any more."""
        ...

    def cpu_ns(self) -> int:
        """The first of them alone."""
        ...

    def processes(self) -> int:
        """At this moment, threads included."""
        ...

    def reset_peak_memory(self) -> None: ...

    def peak_memory(self) -> int:
        """Most bytes in use since the last reset; 0 where the kernel does not tell."""
        ...

    def memory(self) -> int:
        """Bytes in use now."""
        ...

    def close(self) -> None: ...


class Cgroups(Protocol):
    """What this host offers."""

    version: int
    separates: bool
    """Whether commands have limits of their own, below the container's."""
    detail: str
    """In words, for the status."""

    def open(self, pid: int, limits: CommandLimits) -> CommandGroup:
        """The group for commands of the container with this first process; OSError if not."""
        ...


class _Files:
    """Kernel files that are read over and over, opened when they are first needed."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = paths
        self._descriptors: dict[str, int] = {}

    def read(self, name: str) -> bytes:
        """Empty where the kernel has no such file."""
        try:
            descriptor = self._descriptor(name)
            return os.pread(descriptor, 4096, 0) if descriptor >= 0 else b""
        except OSError as error:
            raise CgroupLost(name) from error

    def write(self, name: str, text: str) -> None:
        try:
            descriptor = self._descriptor(name)
            if descriptor >= 0:
                os.pwrite(descriptor, text.encode(), 0)
        except OSError as error:
            raise CgroupLost(name) from error

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptors.clear()
        self._paths = {}

    def _descriptor(self, name: str) -> int:
        descriptor = self._descriptors.get(name)
        if descriptor is None:
            if name not in self._paths:
                raise CgroupLost(name)
            modes = (os.O_RDWR, os.O_RDONLY) if name == "peak" else (os.O_RDONLY,)
            descriptor = self._descriptors[name] = _open_first(self._paths[name], modes)
        return descriptor


def _open_first(path: Path, modes: Sequence[int]) -> int:
    """Open in the first way that is allowed; -1 where there is no such file."""
    for mode in modes:
        with suppress(PermissionError):
            try:
                return os.open(path, mode | os.O_CLOEXEC)
            except FileNotFoundError:
                if path.parent.exists():
                    return -1
                raise
    raise PermissionError(f"{path} cannot be read")


def _number(data: bytes) -> int:
    return int(data) if data.strip().isdigit() else 0


def _field(data: bytes, name: bytes) -> int:
    """The number after a word at the beginning of a line, as in `oom_kill 3`."""
    # Read around every command, so without a regular expression.
    for line in data.split(b"\n"):
        if line.startswith(name + b" "):
            return int(line[len(name) :])
    return 0


class _Counted:
    """What is read alike in both versions, from files of other names."""

    def __init__(
        self,
        files: Mapping[str, Path],
        cpu_ns: Callable[[bytes], int],
        *,
        is_readable_only: bool,
    ) -> None:
        self._files = _Files(files)
        self._cpu_ns = cpu_ns
        self._is_readable_only = is_readable_only

    def counters(self) -> Counters:
        read = self._files.read
        return Counters(
            self._cpu_ns(read("cpu")),
            _field(read("oom"), b"oom_kill"),
            _field(read("forks"), b"max"),
            _number(read("most")),
        )

    def cpu_ns(self) -> int:
        return self._cpu_ns(self._files.read("cpu"))

    def processes(self) -> int:
        return _number(self._files.read("processes"))

    def peak_memory(self) -> int:
        return 0 if self._is_readable_only else _number(self._files.read("peak"))

    def memory(self) -> int:
        return _number(self._files.read("memory"))

    def close(self) -> None:
        self._files.close()


# --- version 1 ---


class _V1Group(_Counted):
    def __init__(
        self, places: Mapping[str, Path], pid: int, *, asks: bool, is_readable_only: bool = False
    ) -> None:
        self.asks = asks
        self._at_birth = [
            place for name, place in places.items() if place != places["cpu"] and name != "cpu"
        ]
        """Where processes begin. Not under the quota: the thread that makes them must not wait for
        processor time that commands have used up, for the guest then waits for it."""
        self._cpu = places["cpu"]
        self._pid = pid
        self._memory = places["memory"]
        super().__init__(
            {
                "cpu": _accounted(places) / "cpuacct.usage",
                "oom": places["memory"] / "memory.oom_control",
                "peak": places["memory"] / "memory.max_usage_in_bytes",
                "memory": places["memory"] / "memory.usage_in_bytes",
                "forks": places["pids"] / "pids.events",
                "processes": places["pids"] / "pids.current",
                "most": places["pids"] / "pids.peak",
            },
            _number,
            is_readable_only=is_readable_only,
        )

    def admit(self) -> None:
        if self._is_readable_only:
            return
        if not self.asks:
            # Threads of the guest beyond its first are there to start commands.
            for thread in _threads(self._pid):
                self._move(thread, "tasks")
        # Whatever else is in the container is no business of the guest's, so nothing that it says
        # decides who is moved.
        for process in _pids(self._memory.parent / "cgroup.procs"):
            if process != self._pid:
                self._move(process, "cgroup.procs")

    def _move(self, number: int, file: str) -> None:
        for place in self._at_birth:
            with suppress(ProcessLookupError):  # it ended meanwhile
                (place / file).write_text(str(number))

    def throttle(self) -> int:
        if self._is_readable_only:
            return 0
        found = [one for one in _pids(self._cpu.parent / "cgroup.procs") if one != self._pid]
        for process in found:
            with suppress(ProcessLookupError):
                (self._cpu / "cgroup.procs").write_text(str(process))
        return len(found)

    def set_quota(self, cpu_quota_us: int) -> None:
        if not self._is_readable_only:
            (self._cpu / "cpu.cfs_quota_us").write_text(str(cpu_quota_us or -1))

    def reset_peak_memory(self) -> None:
        if not self._is_readable_only:
            self._files.write("peak", "0")


def _accounted(places: Mapping[str, Path]) -> Path:
    """Where processor time is counted: with the whole container, if it has one tree with the
    quota, where processes come later."""
    place = places["cpuacct"]
    return place.parent if place == places["cpu"] and place.name == CHILD else place


class CgroupsV1:
    """Hierarchies of their own for memory, processes and processor."""

    version = 1
    separates = True
    detail = SEPARATE
    CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")

    def __init__(self, mounts: Mapping[str, Path], *, asks: bool = False) -> None:
        self._mounts = mounts
        self._asks = asks

    def open(self, pid: int, limits: CommandLimits) -> CommandGroup:
        places = {name: path / CHILD for name, path in self.containers(pid).items()}
        for place in places.values():
            place.mkdir(exist_ok=True)
        _limit_v1(places, limits)
        return _V1Group(places, pid, asks=self._asks)

    def look(self, pid: int) -> CommandGroup:
        """The container's own cgroup, to be read only."""
        return _V1Group(self.containers(pid), pid, asks=False, is_readable_only=True)

    def containers(self, pid: int) -> Mapping[str, Path]:
        """The container's own directory in each hierarchy."""
        paths = {}
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(","):
                if controller in self.CONTROLLERS:
                    paths[controller] = self._mounts[controller] / path.lstrip("/")
        return {name: _own_directory(paths.get(name)) for name in self.CONTROLLERS}


def _own_directory(path: Path | None) -> Path:
    """A container's cgroup, never the host's: limits there would be everyone's."""
    if path is None or ".." in path.parts or not re.search("[0-9a-f]{64}", str(path)):
        raise FileNotFoundError("the container has no cgroup of its own that the daemon can see")
    return path


def _limit_v1(places: Mapping[str, Path], limits: CommandLimits) -> None:
    memory = places["memory"]
    (memory / "memory.limit_in_bytes").write_text(str(limits.memory_bytes))
    with_swap = memory / "memory.memsw.limit_in_bytes"
    if with_swap.exists():
        with_swap.write_text(str(limits.memory_bytes))
    (places["pids"] / "pids.max").write_text(str(limits.processes))
    (places["cpu"] / "cpu.cfs_quota_us").write_text(str(limits.cpu_quota_us or -1))


# --- version 2 ---


class _V2Group(_Counted):
    def __init__(
        self, container: Path, place: Path, pid: int, *, is_readable_only: bool = False
    ) -> None:
        self._container = container
        self._place = place
        self._pid = pid
        self.asks = not is_readable_only
        super().__init__(
            {
                "cpu": place / "cpu.stat",
                "oom": place / "memory.events",
                "peak": place / "memory.peak",
                "memory": place / "memory.current",
                "forks": place / "pids.events",
                "processes": place / "pids.current",
                "most": place / "pids.peak",
            },
            lambda data: _field(data, b"usage_usec") * 1000,
            is_readable_only=is_readable_only,
        )

    def admit(self) -> None:
        if self._is_readable_only:
            return
        sources = (self._container, self._container / GUEST)
        strangers = (p for s in sources for p in _pids(s / "cgroup.procs") if p != self._pid)
        _move_v2(strangers, self._place)

    def throttle(self) -> int:
        return 0  # they were admitted to everything at once

    def set_quota(self, cpu_quota_us: int) -> None:
        if not self._is_readable_only:
            _set_quota_v2(self._place, cpu_quota_us)

    def reset_peak_memory(self) -> None:
        # From Linux 6.12 on a write starts the peak anew for this descriptor; before, the file can
        # only be read and the peak is that of the sandbox's life.
        if not self._is_readable_only:
            with suppress(CgroupLost):
                self._files.write("peak", "reset")


class CgroupsV2:
    """One hierarchy. Processes may only be in its leaves, so the guest gets a leaf as well."""

    version = 2
    separates = True
    detail = SEPARATE
    CONTROLLERS = "+memory +pids +cpu"

    def __init__(self, root: Path, proc: Path = Path("/proc")) -> None:
        self._root = root
        self._proc = proc

    def open(self, pid: int, limits: CommandLimits) -> CommandGroup:
        container = self.container(pid)
        place, guest = container / CHILD, container / GUEST
        for leaf in (place, guest):
            leaf.mkdir(exist_ok=True)
        _move_v2(_pids(container / "cgroup.procs"), guest)
        (container / "cgroup.subtree_control").write_text(self.CONTROLLERS)
        (place / "memory.max").write_text(str(limits.memory_bytes))
        with suppress(FileNotFoundError):  # a kernel without swap
            (place / "memory.swap.max").write_text("0")
        (place / "pids.max").write_text(str(limits.processes))
        _set_quota_v2(place, limits.cpu_quota_us)
        return _V2Group(container, place, pid)

    def look(self, pid: int) -> CommandGroup:
        """The container's own cgroup, to be read only."""
        container = self.container(pid)
        return _V2Group(container, container, pid, is_readable_only=True)

    def container(self, pid: int) -> Path:
        for line in (self._proc / str(pid) / "cgroup").read_text().splitlines():
            if line.startswith("0::"):
                relative = line[3:].strip().lstrip("/").removesuffix(f"/{GUEST}")
                return _own_directory(self._root / relative)
        raise FileNotFoundError("the container has no cgroup of version 2")


def _set_quota_v2(place: Path, cpu_quota_us: int) -> None:
    (place / "cpu.max").write_text(f"{cpu_quota_us or 'max'} {CPU_PERIOD_US}")


def _move_v2(pids: Iterable[int], place: Path) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it ended meanwhile
            (place / "cgroup.procs").write_text(str(pid))


# --- which one ---


class LookingOnly:
    """For a daemon that may look but not touch: it is in the docker group, but not root."""

    separates = False

    def __init__(self, inner: CgroupsV1 | CgroupsV2, why: str) -> None:
        self._inner = inner
        self.version = inner.version
        self.detail = why

    def open(self, pid: int, limits: CommandLimits) -> CommandGroup:
        return self._inner.look(pid)


def detect(*, is_root: bool, mountinfo: Path = Path("/proc/self/mountinfo")) -> Cgroups:
    """What this host has; for looking only where the daemon is not root."""
    mounts = _v1_mounts(mountinfo)
    is_first = all(name in mounts for name in CgroupsV1.CONTROLLERS)
    found = CgroupsV1(mounts) if is_first else CgroupsV2(CGROUP_ROOT)
    if is_root:
        return found
    return LookingOnly(
        found, "the daemon is not root: commands share the container's limits with the guest"
    )


def _v1_mounts(mountinfo: Path) -> Mapping[str, Path]:
    """Where each controller of version 1 is mounted."""
    found: dict[str, Path] = {}
    for line in mountinfo.read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup":
            for option in options.split(","):
                found.setdefault(option, Path(before.split(" ")[4]))
    return found


def _threads(pid: int) -> list[int]:
    """Threads of a process beyond its first."""
    return [int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != pid]


def _pids(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()]
