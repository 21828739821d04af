"""What one user may have at once, and how often a token may call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd.daemon.composition import Daemon
from sandboxd_proto.v1 import (
    exec_service_pb2,
    exec_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
)
from tests.fakes.waiting import eventually
from tests.service.client import Api, refused

StartDaemon = Callable[..., Awaitable[Daemon]]
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_user_has_as_many_sessions_as_a_user_may(start_daemon: StartDaemon) -> None:
    """One more is refused with a hint, for this user only, until one of them is closed."""
    daemon = await start_daemon(max_user_sessions=2)
    async with Api(daemon.config.api_socket) as api:
        first, _ = [await api.open_id("ada", thread) for thread in ("1", "2")]
        with refused(EXHAUSTED, "SESSION_LIMIT_REACHED") as refusal:
            await api.open("ada", "3")
        assert refusal.info.metadata["limit"] == "2"
        assert refusal.detail(error_details_pb2.RetryInfo) is not None
        assert await api.open_id("ada", "1") == first
        await api.open("bob", "1")

        await api.close(first)
        await api.open("ada", "3")


async def test_racing_opens_do_not_pass_the_limit(start_daemon: StartDaemon) -> None:
    """However many are asked for at once, there are never more than may be."""
    daemon = await start_daemon(max_user_sessions=2)
    async with Api(daemon.config.api_socket) as api:
        asked = (api.open("ada", str(number)) for number in range(12))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        listed = await api.list(user_id="ada")

    assert sum(not isinstance(answer, aio.AioRpcError) for answer in answers) <= 2
    assert len(listed.sessions) <= 2


async def test_user_runs_as_many_commands_as_a_user_may(start_daemon: StartDaemon) -> None:
    """Counted over all sessions of the user; one that ends makes room."""
    daemon = await start_daemon(max_user_running_execs=2)
    async with Api(daemon.config.api_socket) as api:
        one, two = [await api.open_id("ada", thread) for thread in ("1", "2")]
        other = await api.open_id("bob", "1")
        running = [await api.start(session_id, "sleep") for session_id in (one, two)]
        with refused(EXHAUSTED, "EXEC_LIMIT_REACHED") as refusal:
            await api.run(one, "true")
        assert "This user already runs 2" in refusal.message
        assert refusal.detail(error_details_pb2.RetryInfo) is not None
        await api.run(other, "true")

        await api.signal(one, running[0].exec.exec_id, 9)
        await api.wait(one, running[0].exec.exec_id)
        await api.run(two, "true")


async def test_commands_of_a_closed_session_do_not_count(start_daemon: StartDaemon) -> None:
    """A user who closes a session gets the room of what ran in it."""
    daemon = await start_daemon(max_user_running_execs=1)
    async with Api(daemon.config.api_socket) as api:
        one, two = [await api.open_id("ada", thread) for thread in ("1", "2")]
        await api.start(one, "sleep")
        await api.close(one)
        await eventually(lambda: daemon.sessions.running_exec_count == 0)
        await api.run(two, "true")


async def test_kept_output_of_a_user_is_bounded_over_all_sessions(
    start_daemon: StartDaemon,
) -> None:
    """What one session has kept is not there for the next of this user, nor missed by others."""
    most = 256 << 10
    daemon = await start_daemon(max_user_spool_bytes=most)
    async with Api(daemon.config.api_socket) as api:
        kept = {}
        for user, thread in (("ada", "1"), ("ada", "2"), ("bob", "1")):
            session_id = await api.open_id(user, thread)
            started = await api.start(session_id, f"flood {most}")
            ended = await api.wait(session_id, started.exec.exec_id)
            kept[user, thread] = most - ended.exit.stdout_dropped_bytes

    assert kept["bob", "1"] == kept["ada", "1"]
    assert kept["ada", "2"] < kept["ada", "1"] <= most


@pytest.mark.parametrize("scope", [Scope.USER, Scope.READ_ONLY])
async def test_hasty_token_is_told_when_to_try_again(
    scope: Scope, start_daemon: StartDaemon, short_dir: Path
) -> None:
    """After its burst a call is refused with the delay after which one is served."""
    file = short_dir / "tokens"
    token, admin = new_token(), new_token()
    user_id = "ada" if scope is Scope.USER else None
    hasty = Caller(name="hasty", scope=scope, user_id=user_id)
    calm = Caller(name="calm", scope=Scope.ADMIN)
    file.write_text(f"{line(hasty, hash_of(token))}\n{line(calm, hash_of(admin))}")
    file.chmod(0o600)
    daemon = await start_daemon(
        tokens_file=file, socket_auth="token", user_calls_per_second=0.01, user_calls_burst=3
    )
    async with Api(daemon.config.api_socket) as api:

        async def list_as(token: str) -> None:
            stub = session_service_pb2_grpc.SessionServiceStub(api.channel)
            await stub.ListSessions(
                session_service_pb2.ListSessionsRequest(),
                metadata=(("authorization", f"Bearer {token}"),),
            )

        for _ in range(3):
            await list_as(token)
        with refused(EXHAUSTED, "TOO_MANY_REQUESTS") as refusal:
            await list_as(token)
        retry = refusal.detail(error_details_pb2.RetryInfo)
        assert retry is not None
        assert 90 <= retry.retry_delay.seconds <= 100
        for _ in range(10):
            await list_as(admin)


async def test_one_user_cannot_take_all_calls(start_daemon: StartDaemon, short_dir: Path) -> None:
    """Open streams of one user leave room for other users, for admins and for the socket."""
    tokens = {name: new_token() for name in ("ada", "bob", "ops")}
    callers = [
        Caller(name="ada", scope=Scope.USER, user_id="ada"),
        Caller(name="bob", scope=Scope.USER, user_id="bob"),
        Caller(name="ops", scope=Scope.ADMIN),
    ]
    file = short_dir / "tokens"
    file.write_text("\n".join(line(caller, hash_of(tokens[caller.name])) for caller in callers))
    file.chmod(0o600)
    daemon = await start_daemon(host="127.0.0.1", port=0, tokens_file=file, max_calls=16)

    def of(name: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {tokens[name]}"),)

    async with (
        Api(daemon.config.api_socket) as host,
        aio.insecure_channel(f"127.0.0.1:{daemon.server.port}") as channel,
    ):
        session_id = await host.open_id("ada")
        exec_id = (await host.start(session_id, "sleep")).exec.exec_id
        attach = exec_service_pb2.AttachExecRequest(session_id=session_id, exec_id=exec_id)
        execs = exec_service_pb2_grpc.ExecServiceStub(channel)
        streams = [execs.AttachExec(attach, metadata=of("ada")) for _ in range(4)]
        for stream in streams:
            await stream.read()
        for _ in range(12):
            with refused(EXHAUSTED, "TOO_MANY_REQUESTS") as refusal:
                await execs.AttachExec(attach, metadata=of("ada")).read()
        assert "This user is already making 4 calls" in refusal.message
        sessions = session_service_pb2_grpc.SessionServiceStub(channel)
        for name in ("bob", "ops"):
            await sessions.ListSessions(
                session_service_pb2.ListSessionsRequest(), metadata=of(name)
            )
        assert (await host.status()).version
        for stream in streams:
            stream.cancel()
