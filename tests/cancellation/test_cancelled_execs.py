"""Callers that leave their commands at any point."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sandboxd.daemon.composition import Daemon
from sandboxd_proto.v1 import exec_service_pb2, session_pb2
from tests.cancellation.invariants import POINTS, cancelled_after, nothing_is_leaked
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.service.client import Api

MIB = 1 << 20


async def run(api: Api, session_id: str, line: str) -> None:
    await api.run(session_id, line)


async def follow(api: Api, session_id: str, line: str) -> None:
    call = api.exec(session_id, line)
    try:
        async for _ in call:
            pass
    finally:
        call.cancel()


ways = pytest.mark.parametrize("way", [run, follow])


@ways
@pytest.mark.parametrize("line", ["sleep", "echo x; sleep", f"flood {4 * MIB}; sleep"])
async def test_cancelled_command_ends_wherever_it_was(
    line: str,
    way: Callable[..., Awaitable[None]],
    api: Api,
    guests: FakeGuests,
    engine: FakeEngine,
    daemon: Daemon,
) -> None:
    """A caller may leave at any turn: no command stays behind, and the session works on."""
    session_id = await api.open_id()
    for turns in range(0, POINTS, 4):
        await cancelled_after(turns, way(api, session_id, line))
        await eventually(lambda: daemon.sessions.running_exec_count == 0)
    await eventually(lambda: not any(command.is_running for command in guests.commands))

    assert (await api.get(session_id)).state == session_pb2.SESSION_STATE_ACTIVE
    assert (await api.run(session_id, "echo on")).stdout.data == b"on\n"
    uid_count = daemon.config.sandbox_uid_count
    await nothing_is_leaked(daemon.pools.default, engine, guests, uid_count=uid_count)


async def test_reader_that_leaves_while_it_is_behind_ends_the_command(
    api: Api, guests: FakeGuests, daemon: Daemon
) -> None:
    """A call cancelled while the daemon waits to send ends its command as any other."""
    line = f"flood {64 * MIB}"
    call = api.exec(await api.open_id(), line)
    await call.read()
    command = await guests.wait_for(line)
    await eventually(lambda: command.is_held_back)
    call.cancel()

    await eventually(lambda: command.kills == 1)
    await eventually(lambda: daemon.sessions.running_exec_count == 0)


async def test_deadline_of_a_call_ends_its_command(
    api: Api, guests: FakeGuests, daemon: Daemon
) -> None:
    """A call that runs into its own deadline is a caller that went away."""
    request = exec_service_pb2.ExecRequest(session_id=await api.open_id(), shell="sleep")
    with pytest.raises(Exception, match="DEADLINE_EXCEEDED"):
        await api.execs.Run(request, timeout=0.05)

    command = await guests.wait_for("sleep")
    await eventually(lambda: command.kills == 1)
    await eventually(lambda: daemon.sessions.running_exec_count == 0)


async def test_cancelled_command_that_does_not_die_costs_the_sandbox(
    api: Api, guests: FakeGuests, engine: FakeEngine, daemon: Daemon
) -> None:
    """Also without a caller the host makes sure that a command ends."""
    session_id = await api.open_id()
    call = asyncio.ensure_future(run(api, session_id, "stubborn"))
    command = await guests.wait_for("stubborn")
    call.cancel()

    await eventually(lambda: not command.guest.is_connected)
    assert (await api.get(session_id)).state == session_pb2.SESSION_STATE_LOST
    uid_count = daemon.config.sandbox_uid_count
    await nothing_is_leaked(daemon.pools.default, engine, guests, uid_count=uid_count)
    await asyncio.wait([call])
