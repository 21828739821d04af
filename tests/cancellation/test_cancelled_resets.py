"""Callers of a reset that give up at any point."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandboxd.pool.pool import WarmPool
from sandboxd.pool.pools import Pools
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sessions.sessions import Sessions
from tests.cancellation.invariants import POINTS, cancelled_after, nothing_is_leaked
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.unit.test_session_reset import project_dir

StartPool = Callable[..., Awaitable[WarmPool]]
StartSessions = Callable[..., Awaitable[Sessions]]
UIDS = 64


async def test_cancelled_reset_leaves_a_session_with_its_project_files(
    start_pool: StartPool,
    start_sessions: StartSessions,
    maker: SandboxMaker,
    engine: FakeEngine,
    guests: FakeGuests,
) -> None:
    """Wherever a caller gives up, the session is there, reset or not, and nothing is left over."""
    pool = await start_pool(target=1, maximum=3)
    sessions = await start_sessions(pool=pool)
    session, _ = await sessions.open("u", "t")
    (project_dir(session, maker) / "kept").touch()
    for turns in range(POINTS):
        await cancelled_after(turns, sessions.reset(session.id))
        found, _ = await sessions.open("u", "t")
        kept = project_dir(found, maker) / "kept"
        assert (found.id, found.is_active, kept.exists()) == (session.id, True, True)
        assert pool.figures.in_use == 1
        await nothing_is_leaked(pool, engine, guests, uid_count=UIDS)
    directories = kept.parent.parent

    def are_those_of_sandboxes() -> bool:
        held = pool.figures.warm + pool.figures.in_use
        return len(list(directories.iterdir())) == held

    await eventually(are_those_of_sandboxes)


async def test_stop_in_the_middle_of_a_reset_leaves_the_files_to_the_next_daemon(
    start_pool: StartPool,
    pools_of: dict[WarmPool, Pools],
    start_sessions: StartSessions,
    maker: SandboxMaker,
) -> None:
    """Wherever the daemon is stopped, its successor finds the session with its project files."""
    for turns in range(0, POINTS, 3):
        pool = await start_pool(target=1, maximum=3)
        sessions = await start_sessions(pool=pool)
        session, _ = await sessions.open("u", f"t{turns}")
        (project_dir(session, maker) / "kept").touch()
        await cancelled_after(turns, sessions.reset(session.id))
        await sessions.__aexit__(None, None, None)
        await pools_of[pool].__aexit__(None, None, None)
        next_pool = await start_pool(target=0, maximum=3)
        following = await start_sessions(pool=next_pool)
        found, _ = await following.open("u", f"t{turns}")

        assert found.id == session.id
        assert (project_dir(found, maker) / "kept").exists()
        following.close(found.id)
