"""Connections that were lost before a write, on uvloop, where the write itself raises."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from structlog.testing import capture_logs

from sandboxd.data.frames import Kind
from sandboxd.data.worker_process import WorkerLost, WorkerProcess
from sandboxd.doors.door import Door, Loopback, OpenDoor
from sandboxd.engine.docker_errors import translated
from sandboxd.errors import EngineUnreachable
from sandboxd.lost_connections import ConnectionClosed, closed_as_lost
from sandboxd.side_process import SideProcess, SideProcessFailed

SECONDS = 30.0


def on_uvloop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        uvloop.run(asyncio.wait_for(test(), SECONDS))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def lost() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that the other side has reset."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs = server.accept()[0]
    reader, writer = await asyncio.open_connection(sock=ours)
    reset(theirs)
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    await asyncio.sleep(0)
    return reader, writer


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@on_uvloop
async def test_write_says_that_the_connection_is_lost() -> None:
    """As asyncio's own transports let one know; other errors stay as they are."""
    _, writer = await lost()
    with pytest.raises(RuntimeError, match="unable to perform operation"):
        writer.write(b"x")
    with pytest.raises(ConnectionClosed), closed_as_lost():
        writer.write(b"x")
    with pytest.raises(RuntimeError, match="another"), closed_as_lost():
        raise RuntimeError("another")


@on_uvloop
async def test_client_of_a_door_that_reset_its_connection_is_no_bug() -> None:
    """A handler that writes to it ends, and nothing is logged."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            await asyncio.sleep(0)
            writer.write(b"x")
        finally:
            ended.set()

    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    opened = OpenDoor(Door(name="a", address=Loopback(1), serve=serve))
    await opened.start(listener)
    with capture_logs() as lines:
        reset(socket.create_connection(listener.getsockname()))
        await ended.wait()
        while opened._connections:
            await asyncio.sleep(0)
    opened.discard()
    assert lines == []


@on_uvloop
async def test_side_process_that_is_lost_fails_as_one_that_ended() -> None:
    """And the next question starts another."""
    process = SideProcess("this", seconds=SECONDS)
    try:
        started = await process._start()
        process._process = started._replace(requests=(await lost())[1])
        with capture_logs(), pytest.raises(SideProcessFailed):
            await process.ask(b"x\n")
        assert process._process is None
    finally:
        started.requests.close()
        await process.aclose()


@on_uvloop
async def test_worker_of_a_data_source_that_is_lost_is_reported_by_what_is_read() -> None:
    """A request to it is no failure of its own."""
    worker = WorkerProcess(None, *await lost())  # type: ignore[arg-type]
    worker.send(Kind.CANCEL)
    with pytest.raises(WorkerLost):
        await worker.receive(SECONDS)


@on_uvloop
async def test_engine_whose_connection_is_lost_is_unreachable() -> None:
    """And not one that gave an unexpected answer."""
    _, writer = await lost()
    with pytest.raises(EngineUnreachable), translated("list"):
        writer.write(b"x")
