"""Doors: sockets in another network namespace, served here, and closed with their sandbox."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from errno import ESRCH

import pytest

from sandboxd.doors import relay
from sandboxd.doors.door import Abstract, Door, Loopback
from sandboxd.doors.sandbox_doors import DoorFailed, SandboxDoors
from sandboxd.isolation.namespaces import find_network_problem
from tests.fakes.network import DEADLINE_SECONDS, Other, other_network
from tests.fakes.waiting import eventually


@pytest.fixture(scope="module")
def other() -> Iterator[Other]:
    with other_network() as made:
        yield made


@pytest.fixture
async def doors(other: Other) -> AsyncIterator[SandboxDoors]:
    made = SandboxDoors(other.inside)
    yield made
    made.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line)
        await writer.drain()


async def has_ended(peer: socket.socket) -> bool:
    """Whether the other side closes the connection without a byte; waits for either."""
    try:
        return not await asyncio.get_running_loop().sock_recv(peer, 1)
    except ConnectionResetError:
        return True


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_process_inside_reaches_the_handler(doors: SandboxDoors, other: Other) -> None:
    """Through an abstract name and through a port; the daemon's own network has neither."""
    assert await doors.open(Door(name="a", address=Abstract("sandboxd.a"), serve=echo))
    assert await doors.open(Door(name="b", address=Loopback(3128), serve=echo))
    assert await other.talk("unix", "sandboxd.a") == b"hello\n"
    assert await other.talk("tcp", "3128") == b"hello\n"
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as outside:
        outside.connect("\0sandboxd.a")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", 3128))


async def test_a_taken_name_is_reported_and_hurts_no_other_door(
    doors: SandboxDoors, other: Other
) -> None:
    taken = other.pinned.in_network(Loopback(3128).listen)
    try:
        assert not await doors.open(Door(name="a", address=Loopback(3128), serve=echo))
        assert await doors.open(Door(name="b", address=Abstract("sandboxd.b"), serve=echo))
    finally:
        taken.close()
    assert "has taken 127.0.0.1:3128" in doors.problems["a"]
    assert await doors.open(Door(name="a", address=Loopback(3128), serve=echo))
    assert not doors.problems


async def test_connections_beyond_the_limit_are_closed(doors: SandboxDoors, other: Other) -> None:
    """One handler runs; the second connection ends at once, and is counted."""
    await doors.open(Door(name="a", address=Loopback(3128), serve=echo, max_connections=1))
    first, second = await doors.dial(3128), await doors.dial(3128)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await has_ended(second)
        await loop.sock_sendall(first, b"still here\n")
        assert await loop.sock_recv(first, 100) == b"still here\n"
    assert doors.open_doors["a"].refused == 1
    first.close()
    second.close()


async def test_a_closed_door_ends_its_connections_and_frees_its_name(
    doors: SandboxDoors, other: Other
) -> None:
    await doors.open(Door(name="a", address=Loopback(3128), serve=echo))
    peer = await doors.dial(3128)
    await eventually(lambda: doors.open_doors["a"].connections == 1)
    doors.shut("a")
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await has_ended(peer)
    peer.close()
    assert await doors.open(Door(name="a", address=Loopback(3128), serve=echo))


async def test_a_client_that_does_not_read_the_end_does_not_keep_its_connection(
    doors: SandboxDoors, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a handler leaves unread counts as a connection until it is read, and is dropped when
    that takes too long: a sandbox cannot pile up descriptors of the daemon."""
    monkeypatch.setattr(relay, "FINISH_SECONDS", 1.0)

    async def big(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(32 << 20))

    await doors.open(Door(name="a", address=Loopback(3128), serve=big, max_connections=2))
    door = doors.open_doors["a"]
    before = open_files()
    peers = [await doors.dial(3128) for _ in range(2)]
    await eventually(lambda: door.connections == 2)
    third = await doors.dial(3128)
    assert await has_ended(third)
    assert door.refused == 1
    await eventually(lambda: door.connections == 0, timeout_seconds=DEADLINE_SECONDS)
    for peer in (*peers, third):
        peer.close()
    await eventually(lambda: open_files() <= before, timeout_seconds=DEADLINE_SECONDS)


async def test_a_failing_handler_ends_its_connection_only(
    doors: SandboxDoors, other: Other
) -> None:
    async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline() == b"fail\n":
            raise ValueError("a bug")
        writer.write(b"fine\n")

    await doors.open(Door(name="a", address=Loopback(3128), serve=fail))
    loop = asyncio.get_running_loop()
    bad = await doors.dial(3128)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await loop.sock_sendall(bad, b"fail\n")
        assert await has_ended(bad)
    bad.close()
    assert await other.talk("tcp", "3128") == b"fine\n"


async def test_a_port_inside_can_be_dialled(doors: SandboxDoors, other: Other) -> None:
    """On the IPv4 and on the IPv6 loopback; a port without a listener refuses."""
    listener = other.pinned.in_network(
        lambda: socket.create_server(("::1", 8080), family=socket.AF_INET6)
    )
    with listener:
        peer = await doors.dial(8080)
        assert peer.getpeername()[:2] == ("::1", 8080)
        peer.close()
    with pytest.raises(ConnectionRefusedError):
        await doors.dial(8081)


async def test_nothing_is_left_open(other: Other) -> None:
    """Descriptors of the daemon are as many after five hundred sandboxes with doors as before."""

    async def once() -> None:
        made = SandboxDoors(other.inside)
        await made.open(Door(name="a", address=Loopback(3128), serve=echo))
        await made.open(Door(name="b", address=Abstract("sandboxd.b"), serve=echo))
        peer = await made.dial(3128)
        await eventually(lambda: made.open_doors["a"].connections == 1)
        made.close()
        assert await has_ended(peer)
        peer.close()

    await once()
    await asyncio.sleep(0)
    before = open_files()
    for _ in range(500):
        await once()
    await eventually(lambda: open_files() <= before)


async def test_a_sandbox_that_is_gone_has_no_doors() -> None:
    with other_network() as gone:
        pass
    with pytest.raises(ProcessLookupError) as raised:
        gone.pinned.in_network(Loopback(3128).listen)
    assert raised.value.errno == ESRCH


async def test_without_the_rights_a_session_goes_on_without_doors() -> None:
    async def forbidden(make: Callable[[], socket.socket]) -> socket.socket:
        raise DoorFailed("cannot enter a network namespace: Operation not permitted")

    doors = SandboxDoors(forbidden)
    assert not await doors.open(Door(name="a", address=Loopback(3128), serve=echo))
    assert "not permitted" in doors.problems["a"]


def test_the_host_of_the_tests_can_have_doors() -> None:
    assert find_network_problem() == ""


def test_the_daemon_learns_that_it_lacks_the_rights() -> None:
    """In a process without capabilities."""
    program = "from sandboxd.isolation.namespaces import find_network_problem as f; print(f())"
    command = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--reuid", "65534"]
    found = subprocess.run(
        [*command, "--clear-groups", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        env={"PYTHONPATH": os.getcwd()},
    )
    assert "Operation not permitted" in found.stdout, found.stderr
