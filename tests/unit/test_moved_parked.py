"""Parked sessions that other workers have had since are forgotten by the one that parked them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandboxd.cluster.contract import OwnershipUnknown, Place, PlaceState
from sandboxd.registry.contract import SessionState
from sandboxd.sessions.expiry import SessionExpiry


class Directory:
    worker_id = "a"

    def __init__(self) -> None:
        self.seen: dict[str, Place | None] = {}
        self.certain: dict[str, Place | None] = {}
        self.is_silent = False
        self.asked: list[tuple[str, bool]] = []
        self.on_find = lambda: None

    async def find(self, session_id: str, *, is_certain: bool = True) -> Place | None:
        self.asked.append((session_id, is_certain))
        if self.is_silent:
            raise OwnershipUnknown("Redis did not answer in time", 1.0)
        self.on_find()
        return (self.certain if is_certain else self.seen).get(session_id)

    def put(self, session_id: str, worker: str, state: PlaceState = PlaceState.PARKED) -> None:
        self.seen[session_id] = self.certain[session_id] = Place(
            session_id=session_id, worker=worker, address="", epoch=2, state=state
        )


class Book:
    def __init__(self, *ids: str) -> None:
        self.sessions = {one: _session(one) for one in ids}

    @property
    def present(self) -> list[Any]:
        return list(self.sessions.values())

    def get(self, session_id: str) -> Any:
        return self.sessions.get(session_id)

    def remove(self, session: Any) -> None:
        del self.sessions[session.id]


def _session(session_id: str) -> Any:
    return SimpleNamespace(
        id=session_id,
        thread=("ada", session_id),
        record=SimpleNamespace(state=SessionState.PARKED),
        execs=SimpleNamespace(delete=lambda: None),
    )


class Registry:
    def __init__(self) -> None:
        self.deleted: list[str] = []

    async def delete(self, session_ids: list[str]) -> None:
        self.deleted += session_ids


class World:
    """A worker `a` with parked sessions."""

    def __init__(self, *ids: str) -> None:
        self.book, self.directory, self.registry = Book(*ids), Directory(), Registry()
        self.opening: set[object] = set()
        shared = SimpleNamespace(
            registry=self.registry,
            settings=None,
            sessions=self.book,
            transitions=SimpleNamespace(is_under_way=lambda thread: thread in self.opening),
            tasks=None,
            lines=None,
            ownership=SimpleNamespace(directory=self.directory),
        )
        self.expiry = SessionExpiry(cast("Any", shared), cast("Any", None))


async def test_sessions_that_others_have_had_are_forgotten() -> None:
    """Whether they have them open, have parked or have closed them; the worker's own stay, and so
    do those of which the directory knows nothing."""
    world = World("own", "open", "parked", "closed", "unknown")
    world.directory.put("own", "a")
    world.directory.put("open", "b", PlaceState.HELD)
    world.directory.put("parked", "b")
    world.directory.put("closed", "b", PlaceState.CLOSED)
    await world.expiry.forget_moved()
    assert set(world.book.sessions) == {"own", "unknown"}
    assert sorted(world.registry.deleted) == ["closed", "open", "parked"]
    assert ("own", True) not in world.directory.asked, "as a rule nothing is written"


async def test_what_is_not_certain_forgets_nothing() -> None:
    """A store that has lost its last writes names an earlier owner."""
    world = World("one")
    world.directory.put("one", "b")
    world.directory.certain["one"] = None
    await world.expiry.forget_moved()
    assert set(world.book.sessions) == {"one"}


async def test_a_session_that_is_being_opened_is_kept() -> None:
    """Also if that begins while the directory is asked."""
    world = World("one")
    world.directory.put("one", "b")
    world.directory.on_find = lambda: world.opening.add(("ada", "one"))
    await world.expiry.forget_moved()
    assert set(world.book.sessions) == {"one"}


async def test_a_silent_directory_is_asked_again() -> None:
    """The look goes on by itself when the directory answers again."""
    world = World("one")
    world.directory.put("one", "b")
    world.directory.is_silent = True
    with pytest.raises(OwnershipUnknown):
        await world.expiry.forget_moved()
    looking = asyncio.ensure_future(world.expiry.keep_forgetting(0.001))
    async with asyncio.timeout(30):
        while len(world.directory.asked) < 3:
            await asyncio.sleep(0.001)
        world.directory.is_silent = False
        while world.book.sessions:
            await asyncio.sleep(0.001)
    looking.cancel()
