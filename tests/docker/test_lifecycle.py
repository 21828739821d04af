"""What becomes of sessions, containers and commands when something goes away."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable

import aiodocker
import grpc
import pytest
from grpc_status import rpc_status

from sandboxd_proto.v1 import exec_pb2, session_pb2, session_service_pb2
from tests.docker.commands import Streamed, exec_request, run
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon


async def open_session(
    api: Api, thread: str = "t", **fields: object
) -> session_service_pb2.OpenSessionResponse:
    return await api.sessions.OpenSession(
        session_service_pb2.OpenSessionRequest(user_id="u", thread_id=thread, **fields),  # type: ignore[arg-type]
        timeout=60,
    )


async def get_session(api: Api, session_id: str) -> session_pb2.Session:
    request = session_service_pb2.GetSessionRequest(session_id=session_id)
    return (await api.sessions.GetSession(request)).session


async def containers(docker: aiodocker.Docker, daemon: DaemonProcess) -> list[str]:
    found = await docker.containers.list(
        all=True, filters={"label": [f"sandboxd.instance={daemon.instance}"]}
    )
    return [container.id for container in found]


async def eventually(condition: Callable[[], Awaitable[bool]], *, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


def reason(error: grpc.aio.AioRpcError) -> str:
    from google.rpc import error_details_pb2

    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    info = error_details_pb2.ErrorInfo()
    assert status is not None
    status.details[0].Unpack(info)
    return str(info.reason)


async def test_racing_opens_share_one_container(docker: aiodocker.Docker) -> None:
    """A hundred racing opens of one thread make one session on one container."""
    async with running_daemon(POOL_SIZE="0") as daemon, daemon.api() as api:
        answers = await asyncio.gather(*(open_session(api) for _ in range(100)))

        assert len({answer.session.session_id for answer in answers}) == 1
        created = [a for a in answers if a.outcome == session_service_pb2.OPEN_OUTCOME_CREATED]
        assert len(created) == 1
        assert len(await containers(docker, daemon)) == 1


async def test_closed_session_leaves_no_container(docker: aiodocker.Docker) -> None:
    """Close destroys the sandbox, ends its commands truthfully, and the next open starts anew."""
    async with running_daemon(POOL_SIZE="0") as daemon, daemon.api() as api:
        first = (await open_session(api)).session
        running = asyncio.create_task(run(api, first.session_id, "sleep 1000", timeout=100))
        await eventually(lambda: _runs(api, first.session_id))
        await api.sessions.CloseSession(
            session_service_pb2.CloseSessionRequest(session_id=first.session_id)
        )

        assert (await running).exit.reason == exec_pb2.EXIT_REASON_SESSION_CLOSED
        await eventually(lambda: _none(docker, daemon))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await run(api, first.session_id, "true")
        assert reason(caught.value) == "SESSION_CLOSED"
        again = await open_session(api)
        assert again.outcome == session_service_pb2.OPEN_OUTCOME_CREATED
        assert again.session.session_id != first.session_id


async def _runs(api: Api, session_id: str) -> bool:
    return (await get_session(api, session_id)).running_execs > 0


async def _none(docker: aiodocker.Docker, daemon: DaemonProcess) -> bool:
    return not await containers(docker, daemon)


async def test_idle_session_expires_and_says_so(docker: aiodocker.Docker) -> None:
    """An idle session ends with its container, callers are told, reopening is `recreated`."""
    async with running_daemon(POOL_SIZE="0") as daemon, daemon.api() as api:
        opened = await open_session(api, idle_timeout={"seconds": 1})
        session_id = opened.session.session_id
        await run(api, session_id, "sleep 1.5", timeout=10)  # a running command is use
        assert (await get_session(api, session_id)).state == session_pb2.SESSION_STATE_ACTIVE
        await eventually(lambda: _is(api, session_id, session_pb2.SESSION_STATE_EXPIRED))

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await run(api, session_id, "true")
        assert reason(caught.value) == "SESSION_EXPIRED"
        await eventually(lambda: _none(docker, daemon))
        again = await open_session(api)
        assert again.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
        assert again.session.session_id == session_id
        assert again.session.incarnation == 2


async def _is(api: Api, session_id: str, state: session_pb2.SessionState.ValueType) -> bool:
    return (await get_session(api, session_id)).state == state


@pytest.mark.parametrize("how", ["docker kill", "docker rm -f", "kill -9 of the guest"])
async def test_lost_container_is_told_mid_command(how: str, docker: aiodocker.Docker) -> None:
    """Whoever takes the container: the command ends as lost, the reopened session has its files."""
    async with running_daemon(POOL_SIZE="0") as daemon, daemon.api() as api:
        session_id = (await open_session(api)).session.session_id
        line = "echo kept >outputs/a; echo mine >b; echo hello; sleep 1000"
        call = api.execs.Exec(exec_request(session_id, line, timeout=100))
        streamed = Streamed()
        while not streamed.stdout:
            streamed.add(await call.read())
        (container_id,) = await containers(docker, daemon)
        container = docker.containers.container(container_id)
        if how == "docker kill":
            await container.kill()
        elif how == "docker rm -f":
            await container.delete(force=True)
        else:
            os.kill((await container.show())["State"]["Pid"], signal.SIGKILL)
        async with asyncio.timeout(10):
            while message := await call.read():
                streamed.add(message)

        assert streamed.stdout == b"hello\n"
        assert streamed.exit.reason == exec_pb2.EXIT_REASON_SANDBOX_LOST
        assert streamed.exit.WhichOneof("outcome") is None
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await run(api, session_id, "true")
        assert reason(caught.value) == "SANDBOX_LOST"
        again = await open_session(api)
        assert again.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
        assert again.workspace_kept
        assert (await run(api, session_id, "cat outputs/a b")).stdout.data == b"kept\nmine\n"
        assert (await run(api, session_id, "echo more >>b; rm outputs/a")).exit.code == 0
        await eventually(lambda: _count(docker, daemon, 1))


async def _count(docker: aiodocker.Docker, daemon: DaemonProcess, count: int) -> bool:
    return len(await containers(docker, daemon)) == count


async def test_lost_warm_sandbox_is_replaced(docker: aiodocker.Docker) -> None:
    """A warm sandbox that dies is never handed out; another takes its place."""
    async with running_daemon(POOL_SIZE="2") as daemon, daemon.api() as api:
        await daemon.wait_until_warm()
        before = set(await containers(docker, daemon))
        for container_id in before:
            await docker.containers.container(container_id).kill()
        opened = await open_session(api)

        assert (await run(api, opened.session.session_id, "echo ok")).stdout.data == b"ok\n"
        await daemon.wait_until_warm()
        await eventually(lambda: _count(docker, daemon, 3))
        assert not before & set(await containers(docker, daemon))


async def test_sigterm_mid_command_leaves_nothing(docker: aiodocker.Docker) -> None:
    """SIGTERM ends the daemon with its commands, containers and socket gone."""
    async with running_daemon(SANDBOXD_DRAIN_SECONDS="0.5") as daemon, daemon.api() as api:
        session_id = (await open_session(api)).session.session_id
        call = api.execs.Exec(exec_request(session_id, "echo hi; sleep 1000", timeout=100))
        streamed = Streamed()
        streamed.add(await call.read())
        code = await daemon.stop()

        assert code == 0
        assert await containers(docker, daemon) == []
        assert not daemon.socket.exists()
        while message := await call.read():
            streamed.add(message)
        assert streamed.exit.reason == exec_pb2.EXIT_REASON_SESSION_CLOSED
        assert "daemon was stopped" in streamed.exit.hint


async def test_daemon_starts_again_after_kill_9(docker: aiodocker.Docker) -> None:
    """After kill -9 the next start finds no lock, goes on with the session, sweeps what nobody
    holds, and warms the pool."""
    async with running_daemon(POOL_SIZE="2") as daemon:
        async with daemon.api() as api:
            await daemon.wait_until_warm()
            session_id = (await open_session(api)).session.session_id
            await daemon.wait_until_warm()
        before = set(await containers(docker, daemon))
        await daemon.signal(signal.SIGKILL)
        await daemon.start()
        await daemon.wait_until_warm()

        await eventually(lambda: _count(docker, daemon, 3))
        assert len(before & set(await containers(docker, daemon))) == 1
        async with daemon.api() as api:
            session = await get_session(api, session_id)
            assert session.state == session_pb2.SESSION_STATE_ACTIVE
            again = await open_session(api)
            assert again.outcome == session_service_pb2.OPEN_OUTCOME_ATTACHED
            assert again.session.incarnation == 1


async def test_session_whose_sandbox_went_with_the_daemon_is_stopped(
    docker: aiodocker.Docker,
) -> None:
    """After a crash of the whole host no command goes on: the session is told to be stopped, and
    has its files when it is opened again."""
    async with running_daemon(POOL_SIZE="0") as daemon:
        async with daemon.api() as api:
            session_id = (await open_session(api)).session.session_id
            await run(api, session_id, "echo still here >f")
        await daemon.signal(signal.SIGKILL)
        for container_id in await containers(docker, daemon):
            await docker.containers.container(container_id).kill()
        await daemon.start()
        async with daemon.api() as api:
            session = await get_session(api, session_id)
            assert session.state == session_pb2.SESSION_STATE_STOPPED
            again = await open_session(api)
            assert again.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
            assert (again.session.incarnation, again.workspace_kept) == (2, True)
            assert (await run(api, session_id, "cat f")).stdout.data == b"still here\n"


async def test_second_daemon_is_refused(shared_daemon: DaemonProcess) -> None:
    """A second daemon on the same state says so in one sentence and leaves the first alone."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sandboxd",
        "serve",
        env=shared_daemon.environment,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()

    assert process.returncode == 1
    assert b"another sandboxd already runs" in stderr
    assert b"Traceback" not in stderr
    async with shared_daemon.api() as api:
        assert (await api.status()).engine.reachable


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"DOCKER_HOST": "unix:///nonexistent/docker.sock"}, "ENGINE_UNREACHABLE"),
        ({"CONTAINER_IMAGE": "no-such-image:latest"}, "IMAGE_NOT_FOUND"),
    ],
)
async def test_daemon_without_its_means_answers_why(
    settings: dict[str, str], expected: str
) -> None:
    """Without an engine or an image the daemon serves, and an open says what is missing."""
    async with running_daemon(**settings) as daemon, daemon.api() as api:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await open_session(api)

        assert reason(caught.value) == expected
        status = await api.status()
        assert status.pool.last_error


async def test_pool_at_its_maximum_refuses_with_a_retry_hint() -> None:
    """Beyond MAX_POOL_SIZE and without a queue an open fails at once, typed; room that frees up is
    used."""
    full = {"POOL_SIZE": "1", "MAX_POOL_SIZE": "1", "SANDBOXD_OPEN_QUEUE": "0"}
    async with running_daemon(**full) as daemon, daemon.api() as api:
        first = await open_session(api, "one")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await open_session(api, "two")
        assert reason(caught.value) == "POOL_EXHAUSTED"
        await api.sessions.CloseSession(
            session_service_pb2.CloseSessionRequest(session_id=first.session.session_id)
        )

        second = await open_session(api, "two")
        assert (await run(api, second.session.session_id, "echo ok")).stdout.data == b"ok\n"


async def test_stop_while_sandboxes_start_leaves_nothing(docker: aiodocker.Docker) -> None:
    """SIGTERM in the middle of filling the pool leaves no container, not even a created one."""
    for _ in range(5):
        async with running_daemon(POOL_SIZE="6") as daemon:
            await daemon.stop()
            assert await containers(docker, daemon) == []
