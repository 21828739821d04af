"""Sessions: open, attach, use, close and find again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sandboxd.errors import (
    Draining,
    ExecConflict,
    ExecLimitReached,
    SessionClosed,
    SessionNotFound,
    SessionRecreated,
)
from sandboxd.execs.ending import Reason
from sandboxd.execs.spec import ExecSpec
from sandboxd.registry.contract import SessionRegistry, SessionState
from sandboxd.sessions.opening import OpenRequest
from sandboxd.sessions.session import Outcome, Session, SessionFilter
from sandboxd.sessions.sessions import Sessions
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests

StartSessions = Callable[..., Awaitable[Sessions]]
EVERYTHING = SessionFilter(metadata={})


async def opened(
    sessions: Sessions, thread: str = "t1", user: str = "ada", **options: Any
) -> tuple[Session, Outcome]:
    return await sessions.open(user, thread, OpenRequest(**options))


def a_command(shell: str = "sleep", *, exec_id: str = "e1", seconds: float = 30.0) -> ExecSpec:
    return ExecSpec(exec_id=exec_id, shell=shell, argv=(), cwd="", env={}, timeout_seconds=seconds)


async def test_open_creates_and_then_attaches(
    start_sessions: StartSessions, engine: FakeEngine
) -> None:
    """The second open of a thread finds the session of the first."""
    sessions = await start_sessions()
    first, created = await opened(sessions)
    second, attached = await opened(sessions)

    assert (created, attached) == (Outcome.CREATED, Outcome.ATTACHED)
    assert second is first
    assert first.id.startswith("ses_")
    assert first.record.incarnation == 1
    assert len(engine.live) == 1


async def test_racing_opens_make_exactly_one_container(
    start_sessions: StartSessions, engine: FakeEngine
) -> None:
    """A hundred callers of one thread share one session, and one of them created it."""
    sessions = await start_sessions()
    results = await asyncio.gather(*(opened(sessions) for _ in range(100)))

    assert len({session.id for session, _ in results}) == 1
    outcomes = Counter(outcome for _, outcome in results)
    assert outcomes == {Outcome.CREATED: 1, Outcome.ATTACHED: 99}
    assert engine.calls["create"] == 1


async def test_threads_and_users_do_not_share(start_sessions: StartSessions) -> None:
    """The same thread name of another user is another session."""
    sessions = await start_sessions()
    pairs = [("ada", "t1"), ("ada", "t2"), ("bob", "t1"), ("bob", "t2")]
    found = [(await opened(sessions, thread, user))[0] for user, thread in pairs]

    assert len({session.id for session in found}) == 4
    assert len({session.sandbox for session in found}) == 4


async def test_attach_merges_labels_and_replaces_the_idle_time(
    start_sessions: StartSessions, registry: SessionRegistry
) -> None:
    """The values of an attaching caller are kept, also for the next process."""
    sessions = await start_sessions()
    await opened(sessions, metadata={"a": "1", "b": "1"})
    session, _ = await opened(sessions, metadata={"b": "2"}, idle_seconds=77.0)

    assert session.record.metadata == {"a": "1", "b": "2"}
    assert session.record.idle_seconds == 77.0
    assert await registry.load() == [session.record]


async def test_closed_session_is_gone_for_good(
    start_sessions: StartSessions, engine: FakeEngine
) -> None:
    """Its container is removed, its id refused, and the thread's next session is a new one."""
    sessions = await start_sessions()
    session, _ = await opened(sessions)
    sessions.close(session.id)
    sessions.close(session.id)

    assert sessions.get(session.id).record.state == SessionState.CLOSED
    for use in (sessions.touch, lambda one: sessions.start_exec(one, a_command())):
        with pytest.raises(SessionClosed, match="open a new one"):
            use(session.id)
    await engine.wait_until(lambda: not engine.live)
    another, outcome = await opened(sessions)
    assert (outcome, another.record.incarnation) == (Outcome.CREATED, 1)
    assert another.id != session.id


async def test_close_ends_running_commands(start_sessions: StartSessions) -> None:
    """A command does not outlive its session, and its exit says what ended it."""
    sessions = await start_sessions()
    session, _ = await opened(sessions)
    execution, _ = sessions.start_exec(session.id, a_command())
    sessions.close(session.id)

    assert (await execution.wait()).reason == Reason.SESSION_CLOSED
    assert sessions.running_exec_count == 0


@pytest.mark.parametrize("use", ["get", "touch", "close", "start_exec"])
async def test_unknown_session_is_refused(use: str, start_sessions: StartSessions) -> None:
    """Every use of an unknown id says that it is unknown and how to get one."""
    sessions = await start_sessions()
    arguments = [a_command()] if use == "start_exec" else []
    with pytest.raises(SessionNotFound, match="open the session"):
        getattr(sessions, use)("ses_nobody", *arguments)


async def test_exec_id_runs_one_command(start_sessions: StartSessions, guests: FakeGuests) -> None:
    """A repeat finds the first exec, also after its end; other content is refused."""
    sessions = await start_sessions()
    session, _ = await opened(sessions)
    first, is_new = sessions.start_exec(session.id, a_command("true"))
    await first.wait()

    assert is_new
    assert sessions.start_exec(session.id, a_command("true")) == (first, False)
    with pytest.raises(ExecConflict, match="new id"):
        sessions.start_exec(session.id, a_command("exit 1"))
    assert [command.line for command in guests.commands] == ["true"]


async def test_running_commands_are_limited(
    start_sessions: StartSessions, guests: FakeGuests
) -> None:
    """One more than the limit is refused with a time to try again; an end makes room."""
    sessions = await start_sessions(max_running=2)
    session, _ = await opened(sessions)
    first, _ = [sessions.start_exec(session.id, a_command(exec_id=f"e{n}"))[0] for n in range(2)]
    with pytest.raises(ExecLimitReached, match="2 commands") as caught:
        sessions.start_exec(session.id, a_command(exec_id="e2"))
    assert caught.value.retry_after_seconds

    first.end(Reason.CANCELLED)
    await first.wait()
    sessions.start_exec(session.id, a_command(exec_id="e2"))


async def test_other_incarnation_is_refused(start_sessions: StartSessions) -> None:
    """A caller that counts on files of an earlier sandbox is refused."""
    sessions = await start_sessions()
    session, _ = await opened(sessions)

    with pytest.raises(SessionRecreated, match="incarnation 1, not 2"):
        sessions.start_exec(session.id, a_command(), incarnation=2)
    sessions.start_exec(session.id, a_command(), incarnation=1)


async def test_draining_takes_nothing_new(start_sessions: StartSessions) -> None:
    """While the daemon shuts down, running commands may end but none begins."""
    sessions = await start_sessions()
    session, _ = await opened(sessions)
    sessions.drain()

    with pytest.raises(Draining):
        await opened(sessions)
    with pytest.raises(Draining):
        sessions.start_exec(session.id, a_command())
    assert sessions.touch(session.id) is session


async def test_list_pages_through_everything_once(start_sessions: StartSessions) -> None:
    """Pages follow each other without gap or repeat, also while sessions come and go."""
    sessions = await start_sessions()
    made = [(await opened(sessions, f"t{n}"))[0].id for n in range(7)]
    seen, after = [], None
    while True:
        page, after = sessions.list(EVERYTHING, page_size=3, after=after)
        seen += [session.id for session in page]
        if after is None:
            break
        await opened(sessions, f"late{len(seen)}")
        sessions.close(seen[-1])

    assert seen[:7] == made
    assert len(seen) == len(set(seen)) == 9


async def test_list_filters(start_sessions: StartSessions) -> None:
    """User, thread, state and labels narrow a listing, together and alone."""
    sessions = await start_sessions()
    one, _ = await opened(sessions, "t1", "ada", metadata={"team": "x", "kind": "a"})
    two, _ = await opened(sessions, "t2", "ada", metadata={"team": "x"})
    three, _ = await opened(sessions, "t1", "bob")
    sessions.close(two.id)

    def found(**wanted: Any) -> set[str]:
        asked = SessionFilter(**{"metadata": {}, **wanted})
        page, _ = sessions.list(asked, page_size=10)
        return {session.id for session in page}

    assert found(user_id="ada") == {one.id, two.id}
    assert found(thread_id="t1") == {one.id, three.id}
    assert found(state=SessionState.CLOSED) == {two.id}
    assert found(metadata={"team": "x"}) == {one.id, two.id}
    assert found(metadata={"team": "x", "kind": "a"}, user_id="ada") == {one.id}
    assert found(user_id="eve") == set()
