"""An engine that goes away, hangs or loses its image: what callers are told, and how soon all is
well again. Each on an engine of its own."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import grpc
import pytest

from sandboxd_proto.v1 import exec_pb2, session_pb2, session_service_pb2
from tests.docker.commands import close_session, run, start, wait
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.docker.private_engine import IMAGE, PrivateEngine, private_engine
from tests.docker.test_lifecycle import eventually, get_session, open_session, reason

SHELL = ["/bin/busybox", "sh", "-c"]
UNTIL_TOLD = "until busybox test -e go; do busybox sleep 0.05; done; echo done"
POOL = 2

pytestmark = pytest.mark.timeout(300)


@asynccontextmanager
async def daemon_on(
    engine: PrivateEngine, **settings: str
) -> AsyncIterator[tuple[DaemonProcess, Api]]:
    """A daemon with a full pool on this engine, and a channel to it."""
    wanted = {"POOL_SIZE": str(POOL), "SANDBOXD_POOL_HEALTH_SECONDS": "1", **settings}
    async with (
        running_daemon(CONTAINER_IMAGE=IMAGE, DOCKER_HOST=engine.url, **wanted) as daemon,
        daemon.api() as api,
    ):
        await daemon.wait_until_warm()
        yield daemon, api


async def refused(call: Awaitable[object]) -> tuple[str, float]:
    """The reason of a refusal, and how long it took."""
    began = time.monotonic()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return reason(caught.value), time.monotonic() - began


async def opened_soon(
    api: Api, thread: str, *, seconds: float = 60
) -> session_service_pb2.OpenSessionResponse:
    """Try until it works, as a client does that follows the retry hint, only faster."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                return await open_session(api, thread)
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.1)


@pytest.mark.calm
async def test_engine_without_live_restore_takes_sessions_with_it_and_says_so() -> None:
    """Its sessions are lost and told so at once; opens are refused meanwhile; afterwards the pool
    fills up by itself, sessions open again with their files, and no container is left over."""
    async with private_engine(live_restore=False) as engine, daemon_on(engine) as (daemon, api):
        session_id = (await open_session(api, "mine")).session.session_id
        await run(api, session_id, [*SHELL, "echo kept > file; busybox sync"])
        await start(api, session_id, [*SHELL, "busybox sleep 100"], exec_id="long", timeout=110)

        began = time.monotonic()
        await engine.end(signal.SIGTERM)
        ended = await wait(api, session_id, "long")
        told = time.monotonic() - began
        assert ended.exit.reason == exec_pb2.EXIT_REASON_SANDBOX_LOST, ended.exit
        session = await get_session(api, session_id)
        assert session.state == session_pb2.SESSION_STATE_STOPPED
        why, seconds = await refused(run(api, session_id, ["true"]))
        assert why == "SANDBOX_LOST"
        why, seconds = await refused(open_session(api, "other"))
        assert why == "ENGINE_UNREACHABLE"

        await engine.start()
        began = time.monotonic()
        again = await opened_soon(api, "mine")
        first = time.monotonic() - began
        await daemon.wait_until_warm()
        refilled = time.monotonic() - began
        assert again.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
        assert again.session.incarnation == 2
        said = await run(api, session_id, ["/bin/busybox", "cat", "file"])
        assert said.stdout.data == b"kept\n"
        await eventually(lambda: has_containers(engine, POOL + 1))
        print(
            f"fault engine stopped: 1 session lost, told {told:.1f} s after the stop began, opens "
            f"refused with ENGINE_UNREACHABLE in {seconds * 1000:.0f} ms; engine back: first "
            f"session after {first:.1f} s, pool full after {refilled:.1f} s, files kept, orphans 0"
        )


async def has_containers(engine: PrivateEngine, count: int) -> bool:
    return len(await engine.containers()) == count


async def test_hung_engine_is_told_in_time_and_commands_go_on() -> None:
    """While the engine does not answer, warm sandboxes are served, the next open is refused within
    its deadline, commands run, the status says so; then everything is well by itself."""
    wait_seconds = 3.0
    settings = {"SANDBOXD_OPEN_WAIT_SECONDS": str(wait_seconds)}
    async with private_engine() as engine, daemon_on(engine, **settings) as (daemon, api):
        session_id = (await open_session(api, "before")).session.session_id
        await start(api, session_id, [*SHELL, UNTIL_TOLD], exec_id="through", timeout=120)
        await daemon.wait_until_warm()
        engine.send(signal.SIGSTOP)

        warm = [(await open_session(api, f"warm {n}")).session.session_id for n in range(POOL)]
        tries = [await refused(open_session(api, f"cold {number}")) for number in range(3)]
        assert {why for why, _ in tries} <= {"ENGINE_FAILED", "ENGINE_UNREACHABLE"}
        slowest = max(seconds for _, seconds in tries)
        assert slowest < wait_seconds + 2
        done = [await run(api, one, [*SHELL, "echo ok"]) for one in (session_id, *warm)]
        assert [one.stdout.data for one in done] == [b"ok\n"] * len(done)
        assert not (await api.status()).engine.reachable
        await close_session(api, warm[0])

        engine.send(signal.SIGCONT)
        began = time.monotonic()
        await opened_soon(api, "after")
        first = time.monotonic() - began
        await daemon.wait_until_warm()
        refilled = time.monotonic() - began
        assert (await api.status()).engine.reachable
        await run(api, session_id, [*SHELL, "echo > go"])
        assert (await wait(api, session_id, "through")).exit.code == 0
        await eventually(lambda: has_containers(engine, POOL + 3), seconds=60)
        print(
            f"fault engine hung: {POOL} opens served warm, 3 refused within {slowest:.1f} s "
            f"(deadline {wait_seconds:.0f} s) with {tries[0][0]}, {len(done)}/{len(done)} commands "
            f"ran, 0 sessions lost; after SIGCONT first open {first:.1f} s, pool full "
            f"{refilled:.1f} s, orphans 0"
        )


async def test_daemon_that_starts_before_its_engine_waits_for_it() -> None:
    """A daemon killed while the engine is away finds its sessions and commands again, once both
    are back."""
    async with private_engine() as engine, daemon_on(engine) as (daemon, api):
        session_id = (await open_session(api)).session.session_id
        await start(api, session_id, [*SHELL, UNTIL_TOLD], exec_id="through", timeout=120)
        await daemon.signal(signal.SIGKILL)
        await engine.end(signal.SIGKILL)
        starting = asyncio.ensure_future(daemon.start())
        await eventually(lambda: waits_for_its_engine(daemon))
        await engine.start()
        began = time.monotonic()
        await starting
        back = time.monotonic() - began

        await run(api, session_id, [*SHELL, "echo > go"])
        assert (await wait(api, session_id, "through")).exit.code == 0
        assert (await get_session(api, session_id)).incarnation == 1
        print(
            f"fault engine and daemon gone: daemon serves {back:.1f} s after the engine is back, "
            "1/1 sessions and 1/1 commands went on"
        )


async def waits_for_its_engine(daemon: DaemonProcess) -> bool:
    return "engine.waiting" in daemon.log.read_text()


async def test_removed_image_is_told_and_another_one_taken() -> None:
    """Untagged, it goes on serving, as it is pinned; gone, opens say which image is missing, and
    what has the name later is used without a restart."""
    async with private_engine() as engine, daemon_on(engine, POOL_SIZE="0") as (_, api):
        session_id = (await open_session(api, "pinned")).session.session_id
        await engine.docker("rmi", "--force", IMAGE)
        other = (await open_session(api, "untagged")).session.session_id
        assert (await run(api, other, [*SHELL, "echo ok"])).stdout.data == b"ok\n"
        image_id = (await engine.docker("images", "--quiet", "--no-trunc")).strip()
        for one in (session_id, other):
            await close_session(api, one)
        await eventually(lambda: has_containers(engine, 0))
        await engine.docker("rmi", "--force", image_id)

        why, seconds = await refused(open_session(api, "gone"))
        assert why == "IMAGE_NOT_FOUND"
        why, seconds = await refused(open_session(api, "gone"))
        assert why == "IMAGE_NOT_FOUND"
        await engine.load_image()
        # Another image of the same name, as after a rebuild.
        await engine.docker("create", "--name", "source", IMAGE, "/bin/busybox")
        await engine.docker("commit", "--change", "LABEL rebuilt=yes", "source", IMAGE)
        await engine.docker("rm", "source")
        began = time.monotonic()
        async with asyncio.timeout(30):
            while (found := await tried(api, "again")) is None:
                await asyncio.sleep(0.1)
        back = time.monotonic() - began
        assert (await run(api, found, [*SHELL, "echo ok"])).stdout.data == b"ok\n"
        print(
            f"fault image removed: untagged 1/1 opens served, gone IMAGE_NOT_FOUND in "
            f"{seconds * 1000:.0f} ms; rebuilt under its name: first session after {back:.1f} s"
        )


async def tried(api: Api, thread: str) -> str | None:
    try:
        return (await open_session(api, thread)).session.session_id
    except grpc.aio.AioRpcError as error:
        if reason(error) != "IMAGE_NOT_FOUND":
            raise
        return None
