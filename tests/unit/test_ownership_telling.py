"""What a worker tells the directory of its sessions, and in which order others learn it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from sandboxd.cluster.alone import Alone
from sandboxd.cluster.contract import Fenced, OwnershipUnknown, ReleaseState
from sandboxd.errors import OwnershipNotKnown
from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.sessions import ownership as module
from sandboxd.sessions.ownership import Ownership
from tests.fakes.waiting import eventually

RECORD = SessionRecord(
    session_id="ses_1",
    user_id="ada",
    thread_id="t",
    state=SessionState.ACTIVE,
    incarnation=1,
    created_at=0.0,
    changed_at=0.0,
    idle_seconds=60.0,
    epoch=7,
)
CLOSED = replace(RECORD, state=SessionState.CLOSED)


class Directory(Alone):
    """Notes what it is told, once it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.calls = 0
        self.told: list[str] = []
        self.error: Exception | None = None

    async def _take(self, what: str) -> None:
        self.calls += 1
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        self.told.append(what)

    async def commit(self, session_id: str, epoch: int, head: str, seq: int) -> None:
        fields = json.loads(head)
        await self._take(f"{fields['incarnation']}:{fields['parked_number']}")

    async def release(
        self,
        session_id: str,
        epoch: int,
        state: ReleaseState,
        *,
        keep_seconds: float,
        head: str | None = None,
        seq: int | None = None,
    ) -> None:
        await self._take(state.value)


@pytest.fixture
def directory() -> Directory:
    return Directory()


@pytest.fixture
async def ownership(directory: Directory) -> AsyncIterator[Ownership]:
    ownership = Ownership(directory)
    yield ownership
    directory.answers.set()
    await ownership.stop()


async def test_snapshot_does_not_hide_the_end(directory: Directory, ownership: Ownership) -> None:
    """A snapshot that was begun before a close, and stored after it, does not make the session an
    active one again."""
    ownership.tell(CLOSED)
    ownership.on_snapshot(RECORD, 5)
    directory.answers.set()
    await ownership.told(RECORD.session_id)
    assert directory.told == ["closed"]


async def test_snapshot_before_a_rewind_is_not_the_state_after_it(
    directory: Directory, ownership: Ownership
) -> None:
    """Others continue a session that was rewound from the snapshot it was rewound to."""
    directory.answers.set()
    ownership.on_snapshot(RECORD, 5)
    await ownership.told(RECORD.session_id)
    ownership.tell(replace(RECORD, incarnation=2, restored_number=3))
    await ownership.told(RECORD.session_id)
    assert directory.told == ["1:5", "2:3"]


async def test_told_waits_for_the_last_word(directory: Directory, ownership: Ownership) -> None:
    """Also if something else of the session is under way."""
    ownership.tell(RECORD)
    await eventually(lambda: directory.calls == 1)
    ownership.tell(CLOSED)
    waiting = asyncio.ensure_future(ownership.told(RECORD.session_id))
    directory.answers.set()
    await waiting
    assert directory.told == ["1:0", "closed"]


async def test_thread_gets_no_session_before_its_last_one_is_gone(
    directory: Directory, ownership: Ownership, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory would give the closed one again."""
    monkeypatch.setattr(module, "TOLD_SECONDS", 0.05)
    ownership.tell(CLOSED)
    with pytest.raises(OwnershipNotKnown):
        await ownership.claim("ada", "t", None)
    directory.answers.set()
    monkeypatch.undo()
    await ownership.claim("ada", "t", None)
    assert directory.told == ["closed"]


@pytest.mark.parametrize("error", [Fenced("ses_1"), OwnershipUnknown("down", 1.0)])
async def test_told_fails_if_it_is_not_ours(
    directory: Directory,
    ownership: Ownership,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    """Or if nobody can say; it can be tried again."""
    monkeypatch.setattr(module, "TOLD_SECONDS", 0.05)
    directory.error = error
    directory.answers.set()
    ownership.tell(RECORD)
    with pytest.raises(OwnershipNotKnown):
        await ownership.told(RECORD.session_id)


async def test_nothing_is_told_after_the_end(directory: Directory, ownership: Ownership) -> None:
    """Sessions that end while the daemon stops connect to nothing again."""
    directory.answers.set()
    await ownership.stop()
    ownership.tell(CLOSED)
    await asyncio.sleep(0)
    assert directory.calls == 0
