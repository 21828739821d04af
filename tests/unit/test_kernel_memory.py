"""Which sandboxes hold kernel memory that no limit counts, on a tree of ordinary files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from sandboxd.isolation import kernel_memory
from sandboxd.isolation.cgroups import CgroupLost
from sandboxd.isolation.kernel_memory import (
    FEW_CONNECTIONS,
    FEW_SOCKETS,
    MAX_LOCKS,
    MAX_UNREAD_BYTES,
    KernelMemoryWatch,
    find_excess,
    read_locks,
    unread_bytes,
)
from tests.unit.test_meter import Group

FIRST, OTHER = 100, 200
"""First processes of two sandboxes."""
LOCK = "{number}: POSIX  ADVISORY  WRITE {pid} fe:00:77 {number} {number}\n"


class Host:
    """The part of /proc that is read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.locked: list[int] = []
        for pid in (FIRST, OTHER):
            self.process(pid, sandbox=pid)
            self.sockets(pid)
        self.lock(FIRST, 0)

    def process(self, pid: int, *, sandbox: int) -> None:
        namespace = self.root / str(pid) / "ns" / "pid"
        namespace.parent.mkdir(parents=True)
        namespace.symlink_to(f"pid:[{sandbox}]")

    def lock(self, pid: int, count: int) -> None:
        self.locked += [pid] * count
        lines = [LOCK.format(number=n, pid=owner) for n, owner in enumerate(self.locked, 1)]
        (self.root / "locks").write_text("".join(lines))

    def sockets(
        self, pid: int, *, used: int = 0, connections: int = 0, **lines: Mapping[str, str] | str
    ) -> None:
        network = self.root / str(pid) / "net"
        network.mkdir(exist_ok=True)
        (network / "sockstat").write_text(
            f"sockets: used {used}\nTCP: inuse {connections} orphan 0 tw 0 alloc 9 mem 0\n"
        )
        (network / "sockstat6").write_text(f"TCP6: inuse {connections}\n")
        for kind in ("netlink", "icmp", "icmp6", "tcp", "tcp6"):
            (network / kind).write_text(f"the names of the fields\n{lines.get(kind, '')}")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def excess(host: Host) -> Mapping[int, str]:
    return find_excess((FIRST, OTHER), host.root).found


def test_locks_are_counted_by_process_and_kind() -> None:
    """Only record locks can be many; one that is waited for counts as one that is held."""
    locks = read_locks(
        [
            "1: POSIX  ADVISORY  WRITE 7 fe:00:1 0 0\n",
            "1: -> POSIX  ADVISORY  WRITE 8 fe:00:1 0 0\n",
            "2: FLOCK  ADVISORY  WRITE 7 fe:00:2 0 EOF\n",
            "3: OFDLCK ADVISORY  READ -1 00:06:3 0 EOF\n",
            "4: POSIX  ADVISORY  READ 7 fe:00:2 128 EOF\n",
        ]
    )

    assert locks.by_pid == {7: 2, 8: 1}
    assert locks.is_whole


def test_locks_of_all_processes_of_a_sandbox_count_together(host: Host) -> None:
    """Neither many processes nor those of the host hide who holds them."""
    host.process(101, sandbox=FIRST)
    host.process(999, sandbox=1)
    host.lock(FIRST, MAX_LOCKS // 2)
    host.lock(999, MAX_LOCKS // 3)
    host.lock(OTHER, MAX_LOCKS // 3)
    assert excess(host) == {}

    host.lock(101, MAX_LOCKS // 2 + 1)

    assert excess(host) == {
        FIRST: f"its commands held {MAX_LOCKS + 1} record locks, more than 10000"
    }


def test_locks_of_a_process_that_ended_are_nobodys(host: Host) -> None:
    """A process may end while the list is read."""
    host.lock(31337, MAX_LOCKS + 1)

    assert excess(host) == {}


def test_list_without_end_is_not_read_to_its_end(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many sandboxes could make reading it take long; then each may have only a few."""
    monkeypatch.setattr(kernel_memory, "MAX_LOCK_LINES", 5_000)
    host.lock(OTHER, kernel_memory.CROWDED_LOCKS)
    host.lock(FIRST, 5_000)

    assert set(excess(host)) == {FIRST}


NETLINK = "0000 0 2879 00000000 {bytes} 0 0 2 0 14304\n"
PING = "  1: 0100007F:0001 0100007F:0001 01 00000000:{bytes:08X} 00:0 0 0 0 77 2 0 0\n"
STREAM = "  1: 0100007F:0001 0100007F:0001 {state} 00000000:{bytes:08X} 00:0 0 0 0 {inode} 1 0\n"


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("netlink", NETLINK.format(bytes=MAX_UNREAD_BYTES + 1)),
        ("icmp", PING.format(bytes=MAX_UNREAD_BYTES + 1)),
        ("icmp6", PING.format(bytes=MAX_UNREAD_BYTES + 1)),
        ("tcp", STREAM.format(state="08", bytes=MAX_UNREAD_BYTES + 1, inode=0)),
        ("tcp6", STREAM.format(state="01", bytes=MAX_UNREAD_BYTES + 1, inode=0)),
    ],
)
def test_what_nobody_reads_is_found(host: Host, kind: str, line: str) -> None:
    """Each kind of socket whose queue the memory limit does not count."""
    host.sockets(FIRST, used=FEW_SOCKETS + 1, connections=FEW_CONNECTIONS + 1, **{kind: line})

    (found,) = excess(host).items()

    assert found == (
        FIRST,
        "its commands left 16 MB unread in sockets, beyond the 16 MB that the host lends for that",
    )


@pytest.mark.parametrize(
    "line",
    [
        STREAM.format(state="01", bytes=MAX_UNREAD_BYTES + 1, inode=4711),
        STREAM.format(state="0A", bytes=4096, inode=0),
    ],
    ids=["accepted", "listening"],
)
def test_connections_that_are_counted_are_left_alone(host: Host, line: str) -> None:
    """Once accepted they are in a limit; a listener has connections in its queue, not bytes."""
    host.sockets(FIRST, used=FEW_SOCKETS + 1, connections=FEW_CONNECTIONS + 1, tcp=line)

    assert unread_bytes(FIRST, host.root) == 0


def test_sandbox_that_ended_holds_nothing(host: Host) -> None:
    """Its files in /proc went with it."""
    assert unread_bytes(31337, host.root) == 0


class Sandbox:
    """A sandbox that notes why it was ended."""

    def __init__(self) -> None:
        self.why = ""

    @property
    def is_lost(self) -> bool:
        return bool(self.why)

    def cut_off(self, why: str) -> bool:
        self.why = why
        return True


async def test_watch_ends_the_one_that_holds_too_much(host: Host) -> None:
    """And nobody else; what has not run since the last look is not looked at again."""
    first, other, resting = Sandbox(), Sandbox(), Sandbox()
    async with KernelMemoryWatch(host.root, look_seconds=0.01) as watch, asyncio.timeout(5):
        groups = {FIRST: Group(), OTHER: Group(), 300: LostGroup()}
        for pid, sandbox in ((FIRST, first), (OTHER, other), (300, resting)):
            watch.add(pid, sandbox, groups[pid])
        host.lock(FIRST, MAX_LOCKS + 1)
        while not first.is_lost:
            groups[FIRST].now = groups[FIRST].now._replace(cpu_ns=groups[FIRST].now.cpu_ns + 1)
            await asyncio.sleep(0.005)

    assert "record locks" in first.why
    assert not other.is_lost
    assert not resting.is_lost


async def test_verdict_is_about_what_is_held_when_it_is_asked_for(host: Host) -> None:
    """Also if a round that did not see it is under way."""
    sandbox, group = Sandbox(), Group()
    async with KernelMemoryWatch(host.root, look_seconds=0.01) as watch, asyncio.timeout(5):
        watch.add(FIRST, sandbox, group)
        for _ in range(3):
            await watch.verdict()
        assert not sandbox.is_lost
        host.lock(FIRST, MAX_LOCKS + 1)
        group.now = group.now._replace(cpu_ns=group.now.cpu_ns + 1)
        await watch.verdict()

        assert sandbox.is_lost


async def test_who_hides_behind_the_locks_of_others_is_looked_at_again(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list may be too long to be read to its end; who sleeps meanwhile is not forgotten."""
    monkeypatch.setattr(kernel_memory, "MAX_LOCK_LINES", MAX_LOCKS + 10)
    crowding, hidden = Sandbox(), Sandbox()
    host.lock(FIRST, MAX_LOCKS + 10)
    host.lock(OTHER, MAX_LOCKS + 1)
    async with KernelMemoryWatch(host.root, look_seconds=0.01) as watch, asyncio.timeout(5):
        watch.add(FIRST, crowding, Group())
        watch.add(OTHER, hidden, Group())
        deciding = asyncio.create_task(watch.verdict())
        while not crowding.is_lost:
            await asyncio.sleep(0.005)
        assert not hidden.is_lost
        assert not deciding.done()
        host.locked = [pid for pid in host.locked if pid != FIRST]
        host.lock(OTHER, 0)
        await deciding

        assert hidden.is_lost


class LostGroup(Group):
    """Counters of a sandbox that is being removed."""

    def cpu_ns(self) -> int:
        raise CgroupLost("gone")
