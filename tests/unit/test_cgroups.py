"""Where commands live on the host: both versions of cgroups, on trees of ordinary files.

Version 1 is also tried on the real kernel, in tests/docker/test_command_limits.py. Version 2 is
tried here only, and the status says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from sandboxd.isolation import cgroups
from sandboxd.isolation.cgroups import (
    CgroupLost,
    CgroupsV1,
    CgroupsV2,
    CodeLimits,
    CommandLimits,
    Counters,
    ReadOnlyCgroups,
)

CONTAINER = "docker/" + "ab" * 32
LIMITS = CommandLimits(memory_bytes=1000, processes=20, cpu_quota_us=25_000)
PID = 4242


class Tree:
    """A cgroup filesystem of ordinary files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.proc = root / "proc"

    def put(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def read(self, name: str) -> str:
        return (self.root / name).read_text()


@pytest.fixture
def v2(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.put(
        {
            f"proc/{PID}/cgroup": f"0::/{CONTAINER}\n",
            f"{CONTAINER}/cgroup.procs": f"{PID}\n",
            f"{CONTAINER}/cgroup.subtree_control": "",
        }
    )
    return tree


def _open_v2(tree: Tree) -> cgroups.CommandGroup:
    return CgroupsV2(tree.root, tree.proc).open(PID, LIMITS)


def test_v2_gives_commands_a_leaf_with_the_limits_and_the_guest_another(v2: Tree) -> None:
    """Only leaves may hold processes, so the guest moves to one before limits are handed down."""
    group = _open_v2(v2)

    assert v2.read(f"{CONTAINER}/guest/cgroup.procs") == str(PID)
    assert v2.read(f"{CONTAINER}/cgroup.subtree_control") == "+memory +pids +cpu"
    assert v2.read(f"{CONTAINER}/cmd/memory.max") == "1000"
    assert v2.read(f"{CONTAINER}/cmd/memory.swap.max") == "0"
    assert v2.read(f"{CONTAINER}/cmd/pids.max") == "20"
    assert v2.read(f"{CONTAINER}/cmd/cpu.max") == "25000 100000"
    assert group.asks


def test_v2_without_a_quota_leaves_the_processor_open(v2: Tree) -> None:
    """A quota of 0 is none."""
    limits = CommandLimits(memory_bytes=1, processes=1, cpu_quota_us=0)
    CgroupsV2(v2.root, v2.proc).open(PID, limits)

    assert v2.read(f"{CONTAINER}/cmd/cpu.max") == "max 100000"


def test_v2_admits_all_but_the_first_process(v2: Tree) -> None:
    """Who is moved is decided by the kernel's list, not by the guest."""
    group = _open_v2(v2)
    v2.put(
        {
            f"{CONTAINER}/cgroup.procs": "",
            f"{CONTAINER}/guest/cgroup.procs": f"{PID}\n77\n",
            f"{CONTAINER}/cmd/cgroup.procs": "",
        }
    )
    group.admit()

    assert v2.read(f"{CONTAINER}/cmd/cgroup.procs") == "77"


def test_v2_workers_come_under_the_quota(v2: Tree) -> None:
    """A worker of the guest is in its leaf until it lasts; then the commands' quota is its own."""
    group = _open_v2(v2)
    v2.put(
        {
            f"{CONTAINER}/guest/cgroup.procs": f"{PID}\n77\n",
            f"{CONTAINER}/cmd/cgroup.procs": "",
        }
    )

    assert group.throttle() == 1
    assert v2.read(f"{CONTAINER}/cmd/cgroup.procs") == "77"


def test_v2_counters_are_read_from_the_leaf_of_commands(v2: Tree) -> None:
    """What is told about a command comes from the kernel."""
    group = _open_v2(v2)
    v2.put(
        {
            f"{CONTAINER}/cmd/cpu.stat": "usage_usec 5\nuser_usec 3\n",
            f"{CONTAINER}/cmd/memory.events": "low 0\noom 9\noom_kill 2\noom_group_kill 0\n",
            f"{CONTAINER}/cmd/pids.events": "max 3\n",
            f"{CONTAINER}/cmd/pids.current": "4\n",
            f"{CONTAINER}/cmd/pids.peak": "6\n",
            f"{CONTAINER}/cmd/memory.peak": "700\n",
        }
    )
    expected = Counters(cpu_ns=5000, oom_kills=2, refused_forks=3, most_processes=6)

    assert group.counters() == expected
    assert (group.cpu_ns(), group.processes()) == (5000, 4)
    assert group.peak_memory() == 700
    group.reset_peak_memory()
    assert v2.read(f"{CONTAINER}/cmd/memory.peak").startswith("reset")
    group.close()


def test_v2_container_is_found_although_its_guest_has_moved(v2: Tree) -> None:
    """A second look, after the guest went to its leaf, finds the same place."""
    v2.put({f"proc/{PID}/cgroup": f"0::/{CONTAINER}/guest\n"})

    assert CgroupsV2(v2.root, v2.proc).container(PID) == v2.root / CONTAINER


@pytest.mark.parametrize("path", ["/", "/user.slice", "/../../" + "ab" * 32])
def test_cgroup_that_is_not_a_containers_is_refused(v2: Tree, path: str) -> None:
    """Limits are never set on the host's own cgroups."""
    v2.put({f"proc/{PID}/cgroup": f"0::{path}\n"})

    with pytest.raises(FileNotFoundError):
        _open_v2(v2)


def test_kernel_without_peaks_counts_none(v2: Tree) -> None:
    """An older kernel has fewer files; the rest is still told."""
    group = _open_v2(v2)
    v2.put(
        {
            f"{CONTAINER}/cmd/cpu.stat": "usage_usec 1\n",
            f"{CONTAINER}/cmd/memory.events": "oom_kill 0\n",
            f"{CONTAINER}/cmd/pids.events": "max 0\n",
            f"{CONTAINER}/cmd/pids.current": "1\n",
        }
    )

    assert group.counters().most_processes == 0
    assert group.peak_memory() == 0
    group.close()


def test_closed_group_is_lost(v2: Tree) -> None:
    """After the end of a sandbox its numbers are not those of another."""
    group = _open_v2(v2)
    group.close()

    with pytest.raises(CgroupLost):
        group.counters()


@pytest.fixture
def v1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Tree, CgroupsV1]:
    tree = Tree(tmp_path)
    mounts = {name: tmp_path / name for name in CgroupsV1.CONTROLLERS}
    for name in CgroupsV1.CONTROLLERS:
        tree.put({f"{name}/{CONTAINER}/cgroup.procs": f"{os.getpid()}\n"})
    found = CgroupsV1(mounts)
    places = {name: path / CONTAINER for name, path in mounts.items()}
    monkeypatch.setattr(CgroupsV1, "containers", lambda self, pid: places)
    return tree, found


def test_v1_sets_the_limits_in_each_hierarchy(v1: tuple[Tree, CgroupsV1]) -> None:
    """Memory, processes and processor each have a tree of their own."""
    tree, found = v1
    group = found.open(os.getpid(), LIMITS)

    assert tree.read(f"memory/{CONTAINER}/cmd/memory.limit_in_bytes") == "1000"
    assert tree.read(f"pids/{CONTAINER}/cmd/pids.max") == "20"
    assert tree.read(f"cpu/{CONTAINER}/cmd/cpu.cfs_quota_us") == "25000"
    assert not group.asks


def test_v1_limits_writes_to_a_device(
    v1: tuple[Tree, CgroupsV1], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the whole container, in a hierarchy of their own; a host without it says so."""
    tree, found = v1
    with pytest.raises(FileNotFoundError, match="limit writes"):
        found.open(os.getpid(), LIMITS).limit_writes(os.makedev(7, 300), 1000)
    tree.put({f"blkio/{CONTAINER}/cgroup.procs": ""})
    monkeypatch.setattr(
        CgroupsV1, "_paths", lambda self, pid: {"blkio": tree.root / "blkio" / CONTAINER}
    )
    found.open(os.getpid(), LIMITS).limit_writes(os.makedev(7, 300), 1000)

    assert tree.read(f"blkio/{CONTAINER}/blkio.throttle.write_bps_device") == "7:300 1000"


def test_v1_never_limits_the_writes_of_the_host(
    v1: tuple[Tree, CgroupsV1], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a container has no cgroup of its own for them, nothing is written."""
    tree, found = v1
    monkeypatch.setattr(CgroupsV1, "_paths", lambda self, pid: {"blkio": tree.root / "blkio"})

    with pytest.raises(FileNotFoundError, match="limit writes"):
        found.open(os.getpid(), LIMITS).limit_writes(os.makedev(7, 300), 1000)
    assert not (tree.root / "blkio").exists()


def test_v2_limits_writes_to_a_device(v2: Tree) -> None:
    """Of the whole container, above the leaf of its commands."""
    _open_v2(v2).limit_writes(os.makedev(7, 300), 1000)

    assert v2.read(f"{CONTAINER}/io.max") == "7:300 wbps=1000"


def test_v1_limits_socket_buffers_of_the_whole_container(v1: tuple[Tree, CgroupsV1]) -> None:
    """Sockets count where they were created, which may be beside the place of commands."""
    tree, found = v1
    file = "memory.kmem.tcp.limit_in_bytes"
    tree.put({f"memory/{CONTAINER}/{file}": "", f"memory/{CONTAINER}/cmd/{file}": ""})
    found.open(os.getpid(), LIMITS)

    for place in (CONTAINER, f"{CONTAINER}/cmd"):
        assert tree.read(f"memory/{place}/{file}") == str(cgroups.SOCKET_BUFFER_BYTES)


def test_v1_without_a_limit_on_socket_buffers_has_the_others(v1: tuple[Tree, CgroupsV1]) -> None:
    """A kernel that cannot limit them is found by the examination, and still used."""
    tree, found = v1
    found.open(os.getpid(), LIMITS)

    assert not list(tree.root.rglob("memory.kmem*"))
    assert tree.read(f"memory/{CONTAINER}/cmd/memory.limit_in_bytes") == "1000"


def test_looking_only_changes_nothing(v1: tuple[Tree, CgroupsV1]) -> None:
    """A daemon that is not root reads the container's counters and touches nothing."""
    tree, found = v1
    before = sorted(tree.root.rglob("*"))
    tree.put(
        {
            f"memory/{CONTAINER}/memory.oom_control": "oom_kill_disable 0\noom_kill 4\n",
            f"cpuacct/{CONTAINER}/cpuacct.usage": "12\n",
            f"pids/{CONTAINER}/pids.events": "max 0\n",
            f"pids/{CONTAINER}/pids.current": "3\n",
        }
    )
    looking = ReadOnlyCgroups(found, "it is not root")
    group = looking.open(os.getpid(), LIMITS)
    group.admit()
    group.reset_peak_memory()

    assert group.counters().oom_kills == 4
    assert group.peak_memory() == 0
    assert not looking.separates
    assert len(sorted(tree.root.rglob("*"))) == len(before) + 4
    group.close()


@pytest.mark.parametrize(
    ("lines", "version"),
    [
        (["0 0 0:1 / /cg rw - cgroup2 cgroup2 rw"], 2),
        (
            [
                "0 0 0:1 / /cg/memory rw - cgroup cgroup rw,memory",
                "0 0 0:2 / /cg/pids rw - cgroup cgroup rw,pids",
                "0 0 0:3 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct",
            ],
            1,
        ),
        (["0 0 0:1 / /cg/memory rw - cgroup cgroup rw,memory"], 2),
    ],
)
def test_version_is_detected_from_the_mounts(
    tmp_path: Path, lines: list[str], version: int
) -> None:
    """All controllers on version 1 means version 1, also where two share a mount."""
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text("\n".join(lines) + "\n")

    assert cgroups.detect(is_root=True, mountinfo=mountinfo).version == version
    assert cgroups.detect(is_root=True, mountinfo=mountinfo).separates
    assert not cgroups.detect(is_root=False, mountinfo=mountinfo).separates


CODE_LIMITS = CodeLimits(memory_bytes=500, processes=13, cpu_quota_us=50_000)


def test_contexts_have_limits_and_counters_of_their_own_in_version_2(v2: Tree) -> None:
    """Beside the commands; what the kernel counts there is part of what commands used."""
    group = _open_v2(v2)
    place = f"{CONTAINER}/code"
    assert not group.has_code
    group.limit_code(CODE_LIMITS)
    limits = {name: v2.read(f"{place}/{name}") for name in ("memory.max", "pids.max", "cpu.max")}
    assert limits == {"memory.max": "500", "pids.max": "13", "cpu.max": "50000 100000"}
    for child, count in (("cmd", 1), ("code", 2)):
        v2.put(
            {
                f"{CONTAINER}/{child}/cpu.stat": f"usage_usec {count}\n",
                f"{CONTAINER}/{child}/memory.events": f"oom_kill {count}\n",
                f"{CONTAINER}/{child}/pids.events": f"max {count}\n",
                f"{CONTAINER}/{child}/pids.peak": "7\n",
                f"{CONTAINER}/{child}/pids.current": f"{count}\n",
                f"{CONTAINER}/{child}/memory.current": f"{count}\n",
            }
        )
    assert group.counters() == Counters(cpu_ns=3000, oom_kills=3, refused_forks=3, most_processes=7)
    assert (group.processes(), group.memory()) == (3, 3)
    group.set_quota(0)
    assert v2.read(f"{place}/cpu.max") == "max 100000"
    group.set_quota(25_000)
    assert v2.read(f"{place}/cpu.max") == "50000 100000"


def test_only_a_process_of_the_commands_becomes_the_parent_of_contexts(v2: Tree) -> None:
    """The guest names it by its own number; one that is not among the commands is not moved."""
    group = _open_v2(v2)
    group.limit_code(CODE_LIMITS)
    v2.put({f"{CONTAINER}/cmd/cgroup.procs": f"{os.getpid()}\n"})
    status = Path("/proc/self/status").read_text()
    inner = int(status.partition("NSpid:")[2].split("\n")[0].split()[-1])
    group.place_code_parent(inner + 1)
    assert not (v2.root / CONTAINER / "code" / "cgroup.procs").exists()
    group.place_code_parent(inner)
    assert v2.read(f"{CONTAINER}/code/cgroup.procs") == str(os.getpid())


def test_v2_stops_commands_and_lets_them_go_on(v2: Tree) -> None:
    """Those of contexts, too, but never the guest."""
    group = _open_v2(v2)
    group.limit_code(CodeLimits(memory_bytes=1, processes=1, cpu_quota_us=0))
    group.freeze()
    assert [v2.read(f"{CONTAINER}/{name}/cgroup.freeze") for name in ("cmd", "code")] == ["1", "1"]
    assert not (v2.root / CONTAINER / "guest" / "cgroup.freeze").exists()
    group.thaw()
    assert [v2.read(f"{CONTAINER}/{name}/cgroup.freeze") for name in ("cmd", "code")] == ["0", "0"]


def test_v2_what_an_earlier_daemon_stopped_goes_on(v2: Tree) -> None:
    """It is found by the id of its container."""
    found = CgroupsV2(v2.root, v2.proc)
    assert not found.thaw("ab" * 32)
    found.open(PID, LIMITS).freeze()
    assert not found.thaw("cd" * 32)
    v2.put({f"{CONTAINER}/cmd/cgroup.procs": f"{os.getpid()}\n"})
    assert found.frozen() == {"ab" * 32: {os.getuid()}}
    assert found.thaw("ab" * 32)
    assert v2.read(f"{CONTAINER}/cmd/cgroup.freeze") == "0"
    assert found.frozen() == {}


def test_v1_without_a_freezer_says_so(v1: tuple[Tree, CgroupsV1]) -> None:
    """And nothing is to be thawed there."""
    _, found = v1
    group = found.open(os.getpid(), LIMITS)
    with pytest.raises(OSError, match="does not stop"):
        group.freeze()
    group.thaw()
    assert not found.thaw("ab" * 32)
    group.close()
