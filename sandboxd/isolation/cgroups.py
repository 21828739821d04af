"""A cgroup for the commands of a sandbox, separate from their guest.

It is a child of the container's cgroup and has the limits that users set; those of the container
are slightly higher. So a memory bomb, a fork bomb or a busy loop kills or slows down commands,
never the guest that has to kill them. The daemon takes the use of memory, CPU and processes from
the kernel's counters of this cgroup only.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

CHILD = "cmd"
CODE = "code"
"""Of the contexts of code, among the commands."""
GUEST = "guest"
CPU_PERIOD_US = 100_000
CGROUP_ROOT = Path("/sys/fs/cgroup")
SOCKET_BUFFER_BYTES = 16 << 20
"""Bytes in the buffers of a sandbox's TCP and UDP sockets, where they have a limit of their own."""
FREEZE_ROUNDS = 100
SEPARATE = "commands have memory, process and CPU limits below those of the guest"


@dataclass(frozen=True, kw_only=True)
class CommandLimits:
    """Limits on all commands of a sandbox together."""

    memory_bytes: int
    processes: int
    cpu_quota_us: int
    """CPU microseconds per 100 ms; 0 means no limit."""


@dataclass(frozen=True, kw_only=True)
class CodeLimits:
    """Limits on all contexts of a sandbox together."""

    memory_bytes: int
    processes: int
    cpu_quota_us: int
    """CPU microseconds per 100 ms; 0 means no limit."""


class Counters(NamedTuple):
    """Totals counted by the kernel."""

    cpu_ns: int
    oom_kills: int
    refused_forks: int
    most_processes: int
    """Most processes at once; 0 where the kernel does not count it."""


class CgroupLost(Exception):
    """The cgroup is gone together with its container."""


class CommandGroup(Protocol):
    """The cgroup of one sandbox's commands. Methods that change something may take milliseconds;
    those that only read take a few microseconds."""

    asks: bool
    """Whether the guest has to request admission for each new shell."""

    def admit(self) -> None:
        """Move every process of the container into the cgroup, except the guest."""
        ...

    def throttle(self) -> int:
        """Move processes under the CPU quota; return how many were not yet under it."""
        ...

    def set_quota(self, cpu_quota_us: int) -> None:
        """Change the CPU quota; 0 means none."""
        ...

    def freeze(self) -> None:
        """Stop every command where it is, until `thaw`; OSError if that is not possible."""
        ...

    def thaw(self) -> None:
        """Let commands that were stopped go on."""
        ...

    def kill_frozen(self) -> None:
        """Let commands that were stopped die, without going on before."""
        ...

    @property
    def has_code(self) -> bool:
        """Whether contexts have had limits set."""
        ...

    def limit_code(self, limits: CodeLimits) -> None:
        """Set the limits of contexts; OSError if that fails."""
        ...

    def place_code_parent(self, inner_pid: int) -> None:
        """Move the process that has this pid in the sandbox to where the contexts belong that it
        will fork; a process that is not a command's is left where it is."""
        ...

    def counters(self) -> Counters:
        """Read all counters; CgroupLost if they can no longer be read."""
        ...

    def cpu_ns(self) -> int:
        """Read the CPU time only."""
        ...

    def processes(self) -> int:
        """Current number of processes and threads."""
        ...

    def reset_peak_memory(self) -> None: ...

    def peak_memory(self) -> int:
        """Most bytes in use since the last reset; 0 where the kernel does not report it."""
        ...

    def memory(self) -> int:
        """Bytes in use now."""
        ...

    def limit_writes(self, device: int, bytes_per_second: int) -> None:
        """Limit what the container writes to a device; OSError if that fails."""
        ...

    def close(self) -> None: ...


class Cgroups(Protocol):
    """The cgroups of this host."""

    version: int
    separates: bool
    """Whether commands have separate limits, below the container's."""
    detail: str
    """Sentence for the status."""

    def thaw(self, container_id: str, *, kills: bool = False) -> bool:
        """Let the commands of a container go on, or die, that an earlier daemon had stopped;
        whether it had.

        By id: a first process that is ending has no cgroup any more.
        """
        ...

    def frozen(self) -> Mapping[str, set[int]]:
        """Ids of containers whose commands are stopped, of any daemon and engine, with the uids
        of those commands."""
        ...

    def open(self, pid: int, limits: CommandLimits) -> CommandGroup:
        """Open the cgroup for commands in the container with this first process; OSError if not."""
        ...


class _Files:
    """Kernel files that are read repeatedly, opened on first use."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = paths
        self._descriptors: dict[str, int] = {}

    def read(self, name: str) -> bytes:
        """Content of a file; empty where the kernel does not have it."""
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
    """Open with the first mode that is permitted; -1 if the file does not exist."""
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
    """The number on the line that starts with a name, as in `oom_kill 3`."""
    # Called before and after every command, so without a regular expression.
    for line in data.split(b"\n"):
        if line.startswith(name + b" "):
            return int(line[len(name) :])
    return 0


class _Counted:
    """Counters that both versions have, in files of different names."""

    def __init__(
        self,
        files: Mapping[str, Path],
        cpu_ns: Callable[[bytes], int],
        *,
        is_read_only: bool,
    ) -> None:
        self._files = _Files(files)
        self._cpu_ns = cpu_ns
        self._is_read_only = is_read_only
        self._code_limits: CodeLimits | None = None
        self._of_code: _Files | None = None
        """Files of the contexts' group, whose events are not counted here as well."""

    def counters(self) -> Counters:
        read = self._files.read
        oom_kills, refused_forks = self._events(self._files)
        if self._of_code is not None:
            more = self._events(self._of_code)
            oom_kills, refused_forks = oom_kills + more[0], refused_forks + more[1]
        return Counters(self._cpu_ns(read("cpu")), oom_kills, refused_forks, _number(read("most")))

    @property
    def has_code(self) -> bool:
        return self._of_code is not None

    def _is_only_processes(self, limits: CodeLimits) -> bool:
        """Whether nothing else differs from the last limits: with each new context that one grows,
        and a change of the others may take the kernel milliseconds."""
        before, self._code_limits = self._code_limits, limits
        return before is not None and replace(before, processes=limits.processes) == limits

    @staticmethod
    def _events(files: _Files) -> tuple[int, int]:
        return _field(files.read("oom"), b"oom_kill"), _field(files.read("forks"), b"max")

    def cpu_ns(self) -> int:
        return self._cpu_ns(self._files.read("cpu"))

    def processes(self) -> int:
        return _number(self._files.read("processes"))

    def peak_memory(self) -> int:
        return 0 if self._is_read_only else _number(self._files.read("peak"))

    def memory(self) -> int:
        return _number(self._files.read("memory"))

    def close(self) -> None:
        self._files.close()
        if self._of_code is not None:
            self._of_code.close()


# --- version 1 ---


class _V1Group(_Counted):
    def __init__(
        self,
        places: Mapping[str, Path],
        pid: int,
        *,
        asks: bool,
        writes: Path | None = None,
        freezer: Path | None = None,
        is_read_only: bool = False,
    ) -> None:
        """`writes`, `freezer`: the container's directories where writes to devices are limited,
        and where processes can be stopped."""
        self.asks = asks
        self._at_birth = [
            place for name, place in places.items() if place != places["cpu"] and name != "cpu"
        ]
        """Directories for new processes, without the quota: the thread that creates them, and the
        guest that waits for it, must not wait for CPU time that commands have used up."""
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
            is_read_only=is_read_only,
        )
        self._writes = writes
        self._freezer = freezer
        self._code_places = {name: place / CODE for name, place in places.items()}
        self._code_quota_us = 0
        if not is_read_only and self._code_places["memory"].is_dir():
            self._count_code()  # an earlier daemon made it

    def _count_code(self) -> None:
        self._of_code = _Files(
            {
                "oom": self._code_places["memory"] / "memory.oom_control",
                "forks": self._code_places["pids"] / "pids.events",
            }
        )

    def limit_code(self, limits: CodeLimits) -> None:
        if self._is_read_only:
            return
        if self._is_only_processes(limits):
            (self._code_places["pids"] / "pids.max").write_text(str(limits.processes))
            return
        for place in self._code_places.values():
            place.mkdir(exist_ok=True)
        _limit_v1(self._code_places, limits)
        self._code_quota_us = limits.cpu_quota_us
        if self._of_code is None:
            self._count_code()

    def freeze(self) -> None:
        if self._freezer is None or self._is_read_only:
            raise FileNotFoundError("this host does not stop processes of cgroups")
        place = self._freezer / CHILD
        place.mkdir(exist_ok=True)
        (place / _STATE_V1).write_text("FROZEN")
        # Nothing is born there before. What is moved there stops, and can have no more children.
        for _ in range(FREEZE_ROUNDS):
            frozen = set(_pids(place / "cgroup.procs"))
            going_on = [pid for pid in self._commands() if pid not in frozen]
            if not going_on:
                return
            for process in going_on:
                with suppress(ProcessLookupError):  # it has ended
                    (place / "cgroup.procs").write_text(str(process))
        raise TimeoutError("its commands multiply faster than they can be stopped")

    def _commands(self) -> list[int]:
        places = [self._memory, self._code_places["memory"]]
        found = [_pids(one / "cgroup.procs") for one in places if one.is_dir()]
        return [pid for pids in found for pid in pids if pid != self._pid]

    def thaw(self) -> None:
        if self._freezer is not None and not self._is_read_only:
            _thaw_v1(self._freezer / CHILD)

    def kill_frozen(self) -> None:
        if self._freezer is not None and not self._is_read_only:
            _kill_all([self._freezer / CHILD])
            _thaw_v1(self._freezer / CHILD)

    def limit_writes(self, device: int, bytes_per_second: int) -> None:
        if self._writes is None:
            raise FileNotFoundError("this host does not limit writes to devices")
        line = f"{_device_name(device)} {bytes_per_second}"
        (self._writes / "blkio.throttle.write_bps_device").write_text(line)

    def place_code_parent(self, inner_pid: int) -> None:
        if self._is_read_only:
            return
        process = _find_inner(_pids(self._memory / "cgroup.procs"), inner_pid)
        for place in self._code_places.values():
            with suppress(ProcessLookupError):  # it has ended
                if process is not None:
                    (place / "cgroup.procs").write_text(str(process))

    def admit(self) -> None:
        if self._is_read_only:
            return
        if not self.asks:
            # The threads of the guest, except its first, start commands.
            for thread in _threads(self._pid):
                self._move(thread, "tasks")
        # Everything but the guest is moved, so that nothing depends on what the guest reports.
        for process in _pids(self._memory.parent / "cgroup.procs"):
            if process != self._pid:
                self._move(process, "cgroup.procs")

    def _move(self, number: int, file: str) -> None:
        for place in self._at_birth:
            with suppress(ProcessLookupError):  # it has ended
                (place / file).write_text(str(number))

    def throttle(self) -> int:
        if self._is_read_only:
            return 0
        found = [pid for pid in _pids(self._cpu.parent / "cgroup.procs") if pid != self._pid]
        for process in found:
            with suppress(ProcessLookupError):
                (self._cpu / "cgroup.procs").write_text(str(process))
        return len(found)

    def set_quota(self, cpu_quota_us: int) -> None:
        if self._is_read_only:
            return
        (self._cpu / "cpu.cfs_quota_us").write_text(str(cpu_quota_us or -1))
        if self._of_code is not None:  # killed with the others, or limited with them
            code_quota_us = self._code_quota_us if cpu_quota_us else 0
            (self._code_places["cpu"] / "cpu.cfs_quota_us").write_text(str(code_quota_us or -1))

    def reset_peak_memory(self) -> None:
        if not self._is_read_only:
            self._files.write("peak", "0")


def _accounted(places: Mapping[str, Path]) -> Path:
    """Directory in which CPU time is counted: the container's, if the quota is in the same
    hierarchy, because processes are moved under the quota later."""
    place = places["cpuacct"]
    return place.parent if place == places["cpu"] and place.name == CHILD else place


class CgroupsV1:
    """A hierarchy for each of memory, processes and CPU."""

    version = 1
    separates = True
    detail = SEPARATE
    CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
    WRITES = "blkio"
    FREEZER = "freezer"

    def __init__(self, mounts: Mapping[str, Path], *, asks: bool = False) -> None:
        self._mounts = mounts
        self._asks = asks

    def open(self, pid: int, limits: CommandLimits) -> CommandGroup:
        places = {name: path / CHILD for name, path in self.containers(pid).items()}
        for place in places.values():
            place.mkdir(exist_ok=True)
        _limit_v1(places, limits)
        return _V1Group(
            places,
            pid,
            asks=self._asks,
            writes=self._optional(pid, self.WRITES),
            freezer=self._optional(pid, self.FREEZER),
        )

    def thaw(self, container_id: str, *, kills: bool = False) -> bool:
        root = self._mounts.get(self.FREEZER)
        places = [one / CHILD for one in _groups_of(container_id, root)] if root else []
        if kills:
            _kill_all([one for one in places if _is_frozen_v1(one)])
        thawed = [_thaw_v1(one) for one in places]
        return any(thawed)

    def frozen(self) -> Mapping[str, set[int]]:
        root = self._mounts.get(self.FREEZER)
        found = _groups_of("", root) if root else []
        return {
            _container_id(one): _uids([one / CHILD]) for one in found if _is_frozen_v1(one / CHILD)
        }

    def open_for_reading(self, pid: int) -> CommandGroup:
        """Open the container's own cgroup for reading."""
        return _V1Group(self.containers(pid), pid, asks=False, is_read_only=True)

    def containers(self, pid: int) -> Mapping[str, Path]:
        """The container's directory in each hierarchy."""
        paths = self._paths(pid)
        return {name: _own_directory(paths.get(name)) for name in self.CONTROLLERS}

    def _optional(self, pid: int, controller: str) -> Path | None:
        """Nothing else depends on it, so a host may do without."""
        try:
            return _own_directory(self._paths(pid).get(controller))
        except FileNotFoundError:
            return None

    def _paths(self, pid: int) -> Mapping[str, Path]:
        paths = {}
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(","):
                if controller in self._mounts:
                    paths[controller] = self._mounts[controller] / path.lstrip("/")
        return paths


def _own_directory(path: Path | None) -> Path:
    """Check that this is the cgroup of a container: limits in the host's would affect everyone."""
    if path is None or ".." in path.parts or not re.search("[0-9a-f]{64}", str(path)):
        raise FileNotFoundError("the daemon cannot see a cgroup of this container")
    return path


def _limit_v1(places: Mapping[str, Path], limits: CommandLimits | CodeLimits) -> None:
    memory = places["memory"]
    (memory / "memory.limit_in_bytes").write_text(str(limits.memory_bytes))
    with_swap = memory / "memory.memsw.limit_in_bytes"
    if with_swap.exists():
        with_swap.write_text(str(limits.memory_bytes))
    # The memory limit counts them only in version 2. Both places, because a socket belongs to the
    # cgroup that it was created in, and is not counted at all in one without a limit.
    for place in (memory, memory.parent):
        socket_buffers = place / "memory.kmem.tcp.limit_in_bytes"
        if socket_buffers.exists():
            socket_buffers.write_text(str(SOCKET_BUFFER_BYTES))
    (places["pids"] / "pids.max").write_text(str(limits.processes))
    (places["cpu"] / "cpu.cfs_quota_us").write_text(str(limits.cpu_quota_us or -1))


_STATE_V1 = "freezer.state"


def _thaw_v1(place: Path) -> bool:
    """Whether it was frozen."""
    is_frozen = _is_frozen_v1(place)
    with suppress(OSError):  # it is gone, or never was
        (place / _STATE_V1).write_text("THAWED")
    return is_frozen


def _is_frozen_v1(place: Path) -> bool:
    try:
        return (place / _STATE_V1).read_text().strip() != "THAWED"
    except OSError:
        return False


# --- version 2 ---


class _V2Group(_Counted):
    def __init__(
        self, container: Path, place: Path, pid: int, *, is_read_only: bool = False
    ) -> None:
        self._container = container
        self._place = place
        self._pid = pid
        self.asks = not is_read_only
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
            is_read_only=is_read_only,
        )
        # Beside the commands: a group that has processes cannot have groups.
        self._code = container / CODE
        self._code_quota_us = 0
        if not is_read_only and self._code.is_dir():
            self._count_code()  # an earlier daemon made it

    def _count_code(self) -> None:
        self._of_code = _Files(
            {
                "cpu": self._code / "cpu.stat",
                "oom": self._code / "memory.events",
                "forks": self._code / "pids.events",
                "memory": self._code / "memory.current",
                "processes": self._code / "pids.current",
            }
        )

    def limit_code(self, limits: CodeLimits) -> None:
        if self._is_read_only:
            return
        if self._is_only_processes(limits):
            (self._code / "pids.max").write_text(str(limits.processes))
            return
        self._code.mkdir(exist_ok=True)
        _limit_v2(self._code, limits)
        self._code_quota_us = limits.cpu_quota_us
        if self._of_code is None:
            self._count_code()

    def freeze(self) -> None:
        if self._is_read_only:
            raise PermissionError("the daemon may not stop processes of cgroups")
        for place in self._frozen_places:
            (place / _FREEZE_V2).write_text("1")

    def thaw(self) -> None:
        if not self._is_read_only:
            for place in self._frozen_places:
                _thaw_v2(place)

    def kill_frozen(self) -> None:
        if not self._is_read_only:
            _kill_all(self._frozen_places)
            self.thaw()

    @property
    def _frozen_places(self) -> list[Path]:
        return [self._place, *([self._code] if self._code.is_dir() else [])]

    def limit_writes(self, device: int, bytes_per_second: int) -> None:
        line = f"{_device_name(device)} wbps={bytes_per_second}"
        (self._container / "io.max").write_text(line)

    def place_code_parent(self, inner_pid: int) -> None:
        if not self._is_read_only:
            process = _find_inner(_pids(self._place / "cgroup.procs"), inner_pid)
            _move_v2([process] if process is not None else [], self._code)

    def cpu_ns(self) -> int:
        beside = self._cpu_ns(self._of_code.read("cpu")) if self._of_code is not None else 0
        return super().cpu_ns() + beside

    def counters(self) -> Counters:
        return super().counters()._replace(cpu_ns=self.cpu_ns())

    def processes(self) -> int:
        beside = _number(self._of_code.read("processes")) if self._of_code is not None else 0
        return super().processes() + beside

    def memory(self) -> int:
        beside = _number(self._of_code.read("memory")) if self._of_code is not None else 0
        return super().memory() + beside

    def admit(self) -> None:
        if self._is_read_only:
            return
        sources = (self._container, self._container / GUEST)
        strangers = (p for s in sources for p in _pids(s / "cgroup.procs") if p != self._pid)
        _move_v2(strangers, self._place)

    def throttle(self) -> int:
        """Admission includes the quota, so only the guest's workers are not yet under it."""
        if self._is_read_only:
            return 0
        found = [p for p in _pids(self._container / GUEST / "cgroup.procs") if p != self._pid]
        _move_v2(found, self._place)
        return len(found)

    def set_quota(self, cpu_quota_us: int) -> None:
        if self._is_read_only:
            return
        _set_quota_v2(self._place, cpu_quota_us)
        if self._of_code is not None:  # killed with the others, or limited with them
            _set_quota_v2(self._code, self._code_quota_us if cpu_quota_us else 0)

    def reset_peak_memory(self) -> None:
        # Since Linux 6.12 a write resets the peak for this descriptor; on older kernels the file is
        # read-only and the peak is that of the sandbox's whole life.
        if not self._is_read_only:
            with suppress(CgroupLost):
                self._files.write("peak", "reset")


class CgroupsV2:
    """A single hierarchy. Only its leaves may have processes, so the guest gets a leaf as well."""

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
        _limit_v2(place, limits)
        return _V2Group(container, place, pid)

    def open_for_reading(self, pid: int) -> CommandGroup:
        """Open the container's own cgroup for reading."""
        container = self.container(pid)
        return _V2Group(container, container, pid, is_read_only=True)

    def thaw(self, container_id: str, *, kills: bool = False) -> bool:
        found = _groups_of(container_id, self._root)
        places = [one / name for one in found for name in (CHILD, CODE)]
        if kills:
            _kill_all([one for one in places if _is_frozen_v2(one)])
        thawed = [_thaw_v2(one) for one in places]
        return any(thawed)

    def frozen(self) -> Mapping[str, set[int]]:
        return {
            _container_id(one): _uids([one / CHILD, one / CODE])
            for one in _groups_of("", self._root)
            if any(_is_frozen_v2(one / name) for name in (CHILD, CODE))
        }

    def container(self, pid: int) -> Path:
        for line in (self._proc / str(pid) / "cgroup").read_text().splitlines():
            if line.startswith("0::"):
                relative = line[3:].strip().lstrip("/").removesuffix(f"/{GUEST}")
                return _own_directory(self._root / relative)
        raise FileNotFoundError("the container is not in a cgroup of version 2")


def _limit_v2(place: Path, limits: CommandLimits | CodeLimits) -> None:
    (place / "memory.max").write_text(str(limits.memory_bytes))
    with suppress(FileNotFoundError):  # a kernel without swap
        (place / "memory.swap.max").write_text("0")
    (place / "pids.max").write_text(str(limits.processes))
    _set_quota_v2(place, limits.cpu_quota_us)


def _set_quota_v2(place: Path, cpu_quota_us: int) -> None:
    (place / "cpu.max").write_text(f"{cpu_quota_us or 'max'} {CPU_PERIOD_US}")


_FREEZE_V2 = "cgroup.freeze"


def _thaw_v2(place: Path) -> bool:
    """Whether it was frozen."""
    is_frozen = _is_frozen_v2(place)
    with suppress(OSError):  # it is gone, or never was
        (place / _FREEZE_V2).write_text("0")
    return is_frozen


def _is_frozen_v2(place: Path) -> bool:
    try:
        return (place / _FREEZE_V2).read_text().strip() == "1"
    except OSError:
        return False


def _move_v2(pids: Iterable[int], place: Path) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it has ended
            (place / "cgroup.procs").write_text(str(pid))


# --- which one ---


class ReadOnlyCgroups:
    """For a daemon that is in the docker group, but not root: it can read cgroups only."""

    separates = False

    def __init__(self, inner: CgroupsV1 | CgroupsV2, why: str) -> None:
        self._inner = inner
        self.version = inner.version
        self.detail = why

    def open(self, pid: int, limits: CommandLimits) -> CommandGroup:
        return self._inner.open_for_reading(pid)

    def thaw(self, container_id: str, *, kills: bool = False) -> bool:
        return False

    def frozen(self) -> Mapping[str, set[int]]:
        return {}


def detect(*, is_root: bool, mountinfo: Path = Path("/proc/self/mountinfo")) -> Cgroups:
    """The cgroups of this host; read-only if the daemon is not root."""
    mounts = _v1_mounts(mountinfo)
    is_first = all(name in mounts for name in CgroupsV1.CONTROLLERS)
    found = CgroupsV1(mounts) if is_first else CgroupsV2(CGROUP_ROOT)
    if is_root:
        return found
    return ReadOnlyCgroups(
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


def _device_name(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"


def _threads(pid: int) -> list[int]:
    """Threads of a process beyond its first."""
    return [int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != pid]


def _pids(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()]


def _groups_of(container_id: str, root: Path) -> list[Path]:
    """The directories of a container, or of all, below a hierarchy; engines put them at different
    depths."""
    found = []
    for path, names, _ in os.walk(root):
        for name in [name for name in names if _ID.search(name)]:
            names.remove(name)
            if container_id in name:
                found.append(Path(path) / name)
    return found


_ID = re.compile("[0-9a-f]{64}")


def _container_id(group: Path) -> str:
    found = _ID.search(group.name)
    assert found is not None
    return found[0]


def _uids(places: Iterable[Path]) -> set[int]:
    """The owners of the processes of cgroups."""
    found = set()
    for place in places:
        with suppress(OSError):
            for pid in _pids(place / "cgroup.procs"):
                with suppress(OSError):  # it has ended
                    found.add(os.stat(f"/proc/{pid}").st_uid)
    return found


def _kill_all(places: Iterable[Path]) -> None:
    """What is frozen cannot end, so each number is still that of the same process."""
    for place in places:
        with suppress(OSError):
            for pid in _pids(place / "cgroup.procs"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _find_inner(pids: Iterable[int], inner_pid: int) -> int | None:
    """The process among these that has this pid in the innermost namespace it is in."""
    for pid in pids:
        with suppress(OSError):  # it has ended
            if _inner_pid(Path(f"/proc/{pid}/status").read_text()) == inner_pid:
                return pid
    return None


def _inner_pid(status: str) -> int:
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return 0
