"""SessionService: opening, attaching, finding and closing."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable

import grpc
import pytest

from sandboxd.config import Config
from sandboxd.daemon.composition import Daemon, running
from sandboxd_proto.v1 import session_pb2
from sandboxd_proto.v1.session_service_pb2 import (
    OPEN_OUTCOME_ATTACHED,
    OPEN_OUTCOME_CREATED,
    OPEN_OUTCOME_RECREATED,
)
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.service.client import Api, refused

StartDaemon = Callable[..., Awaitable[Daemon]]


async def test_open_describes_the_session(api: Api, daemon: Daemon) -> None:
    """Whoever opens learns the id, the limits and the time of expiry."""
    opened = await api.open("ada", "t1", idle_timeout=90.0, metadata={"team": "x"})
    session = opened.session

    assert opened.outcome == OPEN_OUTCOME_CREATED
    assert (session.user_id, session.thread_id, session.incarnation) == ("ada", "t1", 1)
    assert session.state == session_pb2.SESSION_STATE_ACTIVE
    assert session.workspace_dir == "/workspace"
    assert session.metadata == {"team": "x"}
    assert session.idle_timeout.seconds == 90
    assert abs(session.expire_time.ToSeconds() - time.time() - 90) < 10
    assert session.limits.memory_bytes == daemon.config.memory_limit_bytes
    assert session.limits.default_exec_timeout.seconds == 30
    assert (session.end_reason, session.running_execs) == ("", 0)


async def test_racing_opens_share_one_container(api: Api, engine: FakeEngine) -> None:
    """A hundred callers of one thread get the same session, and one of them made it."""
    answers = await asyncio.gather(*(api.open() for _ in range(100)))

    assert len({answer.session.session_id for answer in answers}) == 1
    assert Counter(answer.outcome for answer in answers) == {
        OPEN_OUTCOME_CREATED: 1,
        OPEN_OUTCOME_ATTACHED: 99,
    }
    await engine.wait_until(lambda: len(engine.live) == 2)  # one in use, one warm


async def test_idle_session_expires_and_is_told(start_daemon: StartDaemon) -> None:
    """After its idle time every use says so, and the next open says `recreated`."""
    daemon = await start_daemon(session_timeout_minutes=0.05 / 60)
    async with Api(daemon.config.api_socket) as api:
        session_id = await api.open_id()
        while (await api.get(session_id)).state == session_pb2.SESSION_STATE_ACTIVE:
            await asyncio.sleep(0.01)
        session = await api.get(session_id)
        for use in (api.touch(session_id), api.run(session_id, "true")):
            with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_EXPIRED") as refusal:
                await use
            assert "Open it again" in refusal.message
        again = await api.open(idle_timeout=60.0)

    assert session.state == session_pb2.SESSION_STATE_EXPIRED
    assert "not used for" in session.end_reason
    assert again.outcome == OPEN_OUTCOME_RECREATED
    assert (again.session.session_id, again.session.incarnation) == (session_id, 2)


async def test_touch_moves_the_expiry(api: Api) -> None:
    """The time of expiry moves on with a touch, and not with a look."""
    session_id = await api.open_id()
    opened = (await api.get(session_id)).expire_time.ToNanoseconds()
    looked = (await api.get(session_id)).expire_time.ToNanoseconds()
    touched = (await api.touch(session_id)).expire_time.ToNanoseconds()

    assert abs(looked - opened) < 5_000_000
    assert touched > opened


async def test_closed_session_is_refused(api: Api) -> None:
    """A closed session stays closed, closing it again is fine, and a new open is a new one."""
    session_id = await api.open_id()
    for _ in range(2):
        closed = await api.close(session_id)
        assert closed.state == session_pb2.SESSION_STATE_CLOSED
        assert closed.end_reason
    for use in (api.touch(session_id), api.run(session_id, "true")):
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_CLOSED") as refusal:
            await use
        assert "open a new one" in refusal.message

    again = await api.open()
    assert again.outcome == OPEN_OUTCOME_CREATED
    assert again.session.session_id != session_id


async def test_list_pages_and_filters(start_daemon: StartDaemon) -> None:
    """Pages cover everything once, and filters narrow them."""
    daemon = await start_daemon(max_pool_size=12)
    async with Api(daemon.config.api_socket) as api:
        ids = [await api.open_id("ada" if n % 2 else "bob", f"t{n}") for n in range(7)]
        await api.close(ids[0])
        seen, token, pages = [], "", 0
        while True:
            page = await api.list(page_size=3, page_token=token)
            seen += [session.session_id for session in page.sessions]
            token, pages = page.next_page_token, pages + 1
            if not token:
                break
        ada = await api.list(user_id="ada")
        closed = await api.list(state=session_pb2.SESSION_STATE_CLOSED)

    assert (seen, pages) == (ids, 3)
    assert [session.session_id for session in ada.sessions] == ids[1::2]
    assert [session.session_id for session in closed.sessions] == [ids[0]]


async def test_sessions_outlive_the_daemon_as_lost(config: Config, guests: FakeGuests) -> None:
    """After a restart an old id is answered truthfully and its thread is recreated."""
    first = running(config, engine=guests.engine, maker=guests.maker)
    async with first, Api(config.api_socket) as api:
        session_id = await api.open_id()
    later = FakeGuests(FakeEngine())
    second = running(config, engine=later.engine, maker=later.maker)
    async with second, Api(config.api_socket) as api:
        with refused(grpc.StatusCode.ABORTED, "SANDBOX_LOST") as refusal:
            await api.run(session_id, "true")
        again = await api.open()
    await later.aclose()

    assert "stopped" in refusal.message
    assert again.outcome == OPEN_OUTCOME_RECREATED
    assert (again.session.session_id, again.session.incarnation) == (session_id, 2)


async def test_status_counts_what_there_is(api: Api, guests: FakeGuests, daemon: Daemon) -> None:
    """The status has the pool, the engine, the sessions and the protections in force."""
    await daemon.pools.default.wait_until_warm()
    session_id = await api.open_id()
    running = asyncio.ensure_future(api.run(session_id, "sleep"))
    await guests.wait_for("sleep")
    await daemon.pools.default.wait_until_warm()
    status = await api.status()

    assert (status.active_sessions, status.running_execs) == (1, 1)
    assert (status.pool.warm, status.pool.in_use, status.pool.hits) == (1, 1, 1)
    assert (status.pool.target, status.pool.max) == (1, 4)
    assert (status.engine.reachable, status.engine.name) == (True, "Fake Engine")
    assert status.engine.image_id.startswith("sha256:")
    assert {"network", "capabilities", "single use"} <= {one.name for one in status.protections}
    assert all(one.detail for one in status.protections)
    assert (status.version, status.draining) == ("0.1.0", False)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("user", ["\u00e9\u4e2d", "a b", "x" * 256, "'; DROP TABLE"])
async def test_names_may_be_anything_printable(user: str, api: Api) -> None:
    """Ids of users and threads are the caller's own words."""
    session = (await api.open(user, user)).session

    assert (session.user_id, session.thread_id) == (user, user)


async def test_ended_session_keeps_nothing_of_its_sandbox(api: Api, daemon: Daemon) -> None:
    """Ended sessions are remembered by the thousand, so what they held has to go."""
    ids = [await api.open_id(thread=f"t{number}") for number in range(3)]
    held = [weakref.ref(daemon.sessions.get(session_id).sandbox) for session_id in ids]
    for session_id in ids:
        await api.run(session_id, "true")
        await api.close(session_id)

    def are_gone() -> bool:
        gc.collect()
        return all(sandbox() is None for sandbox in held)

    await eventually(are_gone, timeout_seconds=30)
    assert [daemon.sessions.get(session_id).is_active for session_id in ids] == [False] * 3
