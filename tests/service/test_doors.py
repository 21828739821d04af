"""Doors of sessions: nothing of them is left in the daemon when their sessions have ended."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandboxd.config import DataSourceTable
from sandboxd.daemon.composition import Daemon
from sandboxd.daemon.data import _Sources
from sandboxd.data.door import NAME as DATA_DOOR
from sandboxd.data.frames import Kind, Request, frame
from sandboxd.doors.door import OpenDoor
from sandboxd.doors.egress import Egress
from sandboxd.sessions.egress import PROXY_PORT
from sandboxd_proto.v1 import session_service_pb2 as pb
from sandboxd_proto.v1.egress_pb2 import EgressRules
from tests.data.rig import sqlite_file
from tests.fakes.guest import FakeProcess
from tests.fakes.network import Other, other_network
from tests.fakes.waiting import eventually
from tests.service.client import Api

SESSIONS = 500
KEPT = (Egress, OpenDoor, _Sources)
WAIT_SECONDS = 60
REQUEST = b"GET http://elsewhere.test/ HTTP/1.1\r\n\r\n"


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Other]:
    """The network of every fake sandbox, one after the other."""
    with other_network() as made:
        monkeypatch.setattr(
            FakeProcess, "in_network", lambda self, make: made.pinned.in_network(make)
        )
        yield made


def open_files() -> Counter[str]:
    """Descriptors of this process, by what they are."""
    found = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            found[os.readlink(f"/proc/self/fd/{name}").partition(":")[0]] += 1
        except OSError:
            continue
    return found


def connected(family: socket.AddressFamily, address: str | tuple[str, int]) -> socket.socket:
    made = socket.socket(family)
    made.settimeout(WAIT_SECONDS)
    made.connect(address)
    return made


def used(network: Other) -> None:
    """Ask both doors for something, as a process inside does."""
    with network.pinned.in_network(
        lambda: connected(socket.AF_INET, ("127.0.0.1", PROXY_PORT))
    ) as peer:
        peer.sendall(REQUEST)
        assert peer.recv(12) == b"HTTP/1.1 403"
    with network.pinned.in_network(lambda: connected(socket.AF_UNIX, f"\0{DATA_DOOR}")) as peer:
        request = Request(operation="sources").encode()
        peer.sendall(frame(Kind.REQUEST, request))
        assert peer.recv(1)[0] == Kind.COLUMNS


@pytest.mark.timeout(300)
async def test_many_sessions_with_doors_leave_nothing_open(
    start_daemon: Callable[..., Awaitable[Daemon]], network: Other, tmp_path: Path
) -> None:
    """After five hundred sessions with an egress and a data door, which were used and of which one
    connection was left open, the daemon has the descriptors that it had before, and no door."""
    source = DataSourceTable(engine="sqlite", path=sqlite_file(tmp_path))
    daemon = await start_daemon(data_sources={"lite": source}, egress_allow=["example.com"])

    async def once(api: Api, number: int) -> None:
        request = pb.OpenSessionRequest(
            user_id="ada",
            thread_id=str(number),
            egress=EgressRules(rules=["example.com"]),
            data_sources=["lite"],
        )
        session_id = (
            await api.sessions.OpenSession(request, timeout=WAIT_SECONDS)
        ).session.session_id
        session = daemon.sessions.get(session_id)
        assert session.sandbox is not None
        assert not session.sandbox.doors.problems
        await asyncio.to_thread(used, network)
        async with session.sandbox.doors.connection(PROXY_PORT) as left:
            close = pb.CloseSessionRequest(session_id=session_id)
            await api.sessions.CloseSession(close, timeout=WAIT_SECONDS)
            with suppress(ConnectionResetError):
                async with asyncio.timeout(WAIT_SECONDS):
                    await left.reader.read()

    def is_idle() -> bool:
        return not any(pool.in_use for pool in daemon.pools.figures)

    async with Api(daemon.config.api_socket) as api:
        for number in range(5):
            await once(api, number)
        await eventually(is_idle, timeout_seconds=WAIT_SECONDS)
        before = open_files()
        for number in range(5, 5 + SESSIONS):
            await once(api, number)
        await eventually(
            lambda: open_files().total() <= before.total() + 8, timeout_seconds=WAIT_SECONDS
        )
    gc.collect()
    left = Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, KEPT))
    assert left.total() < 20, left
