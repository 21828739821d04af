"""Which sessions this daemon owns, where several daemons share them."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import structlog

from sandboxd.cluster.alone import Alone
from sandboxd.cluster.contract import (
    Directory,
    Elsewhere,
    Fenced,
    Holding,
    Mine,
    Origin,
    OwnershipUnknown,
    ReleaseState,
    ThreadKey,
)
from sandboxd.errors import OwnedElsewhere, OwnershipNotKnown
from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.tasks import Tasks

log = structlog.get_logger()

KEEP_SECONDS = 3600.0
"""How long the directory remembers a session that was closed."""
RETRY_SECONDS = 1.0
"""Pause before something that the directory did not take is tried again."""
TOLD_SECONDS = 5.0
"""How long a call waits until the directory has learned what the call has done."""
CLAIM_SECONDS = 10.0
"""How long an open waits until a session can be claimed, as after the start of Redis."""
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 1.0
MAX_HEAD = 1 << 20
_LOCAL = (
    "disk_id",
    "disk_uid",
    "uid",
    "sandbox_id",
    "project_id",
    "unmoved_project_id",
    "package_set",
)
"""Fields of a record that mean something only where its sandbox is."""
_INCARNATION_BITS = 32


class Ownership:
    """Claims sessions, tells others what becomes of them, and knows which may be served here.

    What the directory does not take at once is tried again until it does, or until the session is
    no longer ours.
    """

    def __init__(self, directory: Directory | None = None, *, parked_seconds: float = 0.0) -> None:
        """Without a directory, or with that of a daemon alone, every session is ours."""
        self.directory: Directory = directory or Alone()
        self.is_shared = type(self.directory) is not Alone
        self._parked_seconds = parked_seconds
        self._untold: dict[str, SessionRecord] = {}
        """Records whose state the directory has still to learn, by session id."""
        self._expected: set[str] = set()
        """Sessions whose end will be told once it is saved."""
        self._being_told: SessionRecord | None = None
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        """Calls that wait until the directory knows of a session, by session id."""
        self._committed: dict[str, tuple[int, int]] = {}
        """Incarnation and number of the last snapshot of each session."""
        self.claims: Counter[str] = Counter()
        """Sessions that became ours, by how; and claims that others were ahead of."""
        self.workers: Mapping[str, int] = {}
        """How many workers there are in each state, as it was seen last."""
        self._is_telling = False
        self._has_stopped = False
        self._tasks = Tasks()
        self.on_lost: Callable[[Sequence[str]], None] = lambda session_ids: None
        """Called with sessions that other workers own now."""
        self.directory.when_lost(lambda session_ids: self.on_lost(session_ids))

    async def start(self, records: Sequence[SessionRecord]) -> None:
        """Join with the sessions of the daemon before."""
        if self.is_shared:
            await self.directory.start([_holding(one) for one in records if _is_held(one)])

    async def stop(self) -> None:
        """From now on nothing is told: sessions may end later, and would connect to the directory
        again."""
        self._has_stopped = True
        await self._tasks.end()
        await self.directory.stop()

    # --- claiming ---

    async def claim(self, user_id: str, thread_id: str, known: SessionRecord | None) -> Mine:
        """Own the session of a thread. OwnedElsewhere, OwnershipNotKnown."""
        thread = ThreadKey(user_id, thread_id)
        await self._tell_end_of(thread)
        wanted = known.session_id if known is not None and not _is_over(known) else None
        give_up_at = time.monotonic() + CLAIM_SECONDS
        while True:
            try:
                found = await self.directory.claim(thread, wanted_session_id=wanted)
            except OwnershipUnknown as error:
                raise OwnershipNotKnown(str(error), error.retry_after_seconds) from error
            if isinstance(found, Elsewhere):
                self.claims["elsewhere"] += 1
                raise OwnedElsewhere(found.worker, found.address, found.epoch)
            if isinstance(found, Mine):
                self.claims[found.origin] += 1
                return found
            pause = min(max(found.retry_after_seconds, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
            if time.monotonic() + pause > give_up_at:
                raise OwnershipNotKnown(
                    "a worker that may have it has still to report", found.retry_after_seconds
                )
            await asyncio.sleep(pause)

    def check(self, session_id: str) -> None:
        """OwnershipNotKnown if this worker may not serve a session that it has at the moment."""
        if self.is_shared and not self.directory.holds(session_id):
            raise OwnershipNotKnown(
                "this worker has lost touch with the others", retry_after_seconds=2.0
            )

    def check_record(self, record: SessionRecord) -> None:
        """The same for one of which a record is at hand: nothing may be written for it then."""
        if record.epoch:
            self.check(record.session_id)

    async def give_back(self, mine: Mine) -> None:
        """Undo a claim whose session could not be opened."""
        if not self.is_shared or mine.origin is Origin.KNOWN:
            return
        state = ReleaseState.PARKED if mine.head else ReleaseState.CLOSED
        try:
            await self.directory.release(
                mine.session_id, mine.epoch, state, keep_seconds=self._parked_seconds
            )
        except (Fenced, OwnershipUnknown) as error:
            # It stays ours without a sandbox: the next open of the thread continues here.
            log.warning("claim.not_given_back", session_id=mine.session_id, error=str(error))

    # --- telling ---

    def tell(self, record: SessionRecord) -> None:
        """A session of ours has another state now."""
        if self.is_shared and record.epoch:
            self._expected.discard(record.session_id)
            self._untold[record.session_id] = record
            self._tell_soon()

    def expect_end(self, record: SessionRecord) -> None:
        """A session of ours is about to end; from now on `told` waits until that is known."""
        if self.is_shared and record.epoch:
            self._expected.add(record.session_id)

    def on_snapshot(self, record: SessionRecord, number: int) -> None:
        """A snapshot of a session is in the store: whoever takes it over continues from there."""
        # The session may have ended, or be on another incarnation, since it was begun.
        later = [one for one in self._unknown_records if _is_after(one, record)]
        if self.is_shared and record.epoch and record.state == SessionState.ACTIVE and not later:
            self._committed[record.session_id] = (record.incarnation, number)
            self.tell(record)

    async def told(self, session_id: str) -> None:
        """Return when the directory knows what was told of a session.

        OwnershipNotKnown if it does not answer in time, or if the session is not ours any more.
        """
        is_known = all(one.session_id != session_id for one in self._unknown_records)
        if is_known and session_id not in self._expected:
            return
        waiter = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(session_id, [])
        waiters.append(waiter)
        try:
            async with asyncio.timeout(TOLD_SECONDS):
                await waiter
        except TimeoutError:
            raise OwnershipNotKnown("the other workers were not told yet", RETRY_SECONDS) from None
        except Fenced:
            raise OwnershipNotKnown("another worker has it now", RETRY_SECONDS) from None
        finally:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[session_id]

    async def _tell_end_of(self, thread: ThreadKey) -> None:
        """Before a thread gets another session, the directory has to know that the last one is
        over: it would give us that one again."""
        for record in self._unknown_records:
            if _is_over(record) and ThreadKey(record.user_id, record.thread_id) == thread:
                await self.told(record.session_id)

    @property
    def _unknown_records(self) -> Sequence[SessionRecord]:
        """What the directory does not know yet."""
        under_way = () if self._being_told is None else (self._being_told,)
        return (*self._untold.values(), *under_way)

    def _tell_soon(self) -> None:
        if not self._is_telling and not self._has_stopped:
            self._is_telling = True
            self._tasks.spawn(self._keep_telling(), "tell-directory")

    async def _keep_telling(self) -> None:
        try:
            while self._untold:
                failed = False
                for session_id, record in tuple(self._untold.items()):
                    del self._untold[session_id]
                    if not await self._tell(record):
                        self._untold.setdefault(session_id, record)
                        failed = True
                if failed:
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._is_telling = False

    async def _tell(self, record: SessionRecord) -> bool:
        """False if it must be tried again."""
        self._being_told = record
        try:
            await self._publish(record, self._number(record))
        except Fenced as error:
            self._committed.pop(record.session_id, None)
            self._wake(record.session_id, error)
        except OwnershipUnknown as error:
            log.warning("directory.not_told", session_id=record.session_id, error=str(error))
            return False
        finally:
            self._being_told = None
        if record.session_id not in self._untold:
            self._wake(record.session_id)
        return True

    def _number(self, record: SessionRecord) -> int:
        """The snapshot from which others would continue."""
        incarnation, number = self._committed.get(record.session_id, (0, 0))
        return number if incarnation == record.incarnation else record.restored_number

    def _wake(self, session_id: str, error: Fenced | None = None) -> None:
        for waiter in self._waiters.get(session_id, ()):
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    async def _publish(self, record: SessionRecord, number: int) -> None:
        directory, session_id, epoch = self.directory, record.session_id, record.epoch
        match record.state:
            case SessionState.ACTIVE | SessionState.LOST:
                await directory.commit(
                    session_id, epoch, head_of(record, number), _seq(record, number)
                )
            case SessionState.PARKED:
                number = record.parked_number
                await directory.release(
                    session_id,
                    epoch,
                    ReleaseState.PARKED,
                    keep_seconds=self._parked_seconds,
                    head=head_of(record, number),
                    seq=_seq(record, number),
                )
            case SessionState.CLOSED | SessionState.EXPIRED:
                self._committed.pop(session_id, None)
                await directory.release(
                    session_id, epoch, ReleaseState.CLOSED, keep_seconds=KEEP_SECONDS
                )


def head_of(record: SessionRecord, number: int) -> str:
    """What another worker has to know to continue a session from one of its snapshots."""
    fields = asdict(record)
    for name in _LOCAL:
        del fields[name]
    return json.dumps({**fields, "parked_number": number})


def record_of(head: str, *, epoch: int) -> SessionRecord:
    """The record of a session that another worker had; its files are in a snapshot, if any.

    ValueError if this is not what `head_of` wrote.
    """
    if len(head) > MAX_HEAD:
        raise ValueError("it is too long")
    fields: dict[str, Any] = json.loads(head)
    known = {name: value for name, value in fields.items() if name in _FIELDS}
    for name in ("packages", "data_sources"):
        known[name] = tuple(known.get(name, ()))
    if known.get("egress") is not None:
        known["egress"] = tuple(known["egress"])
    state = SessionState.PARKED if known.get("parked_number") else SessionState.LOST
    try:
        return SessionRecord(**{**known, "state": state, "epoch": epoch})
    except TypeError as error:
        raise ValueError(str(error)) from error


_FIELDS = frozenset(SessionRecord.__dataclass_fields__) - frozenset(_LOCAL)


def is_same_owner(known: SessionRecord, mine: Mine) -> bool:
    """Whether nobody else has opened a session since this worker last had it: every open begins
    another incarnation."""
    if known.session_id != mine.session_id:
        return False
    if mine.origin is Origin.KNOWN or not mine.head:
        return True
    try:
        return record_of(mine.head, epoch=mine.epoch).incarnation <= known.incarnation
    except ValueError:
        return False


def claimed(record: SessionRecord, mine: Mine) -> SessionRecord:
    return replace(record, session_id=mine.session_id, epoch=mine.epoch)


def _holding(record: SessionRecord) -> Holding:
    number = record.restored_number
    return Holding(
        session_id=record.session_id,
        thread=ThreadKey(record.user_id, record.thread_id),
        epoch=record.epoch,
        head=head_of(record, number),
        seq=_seq(record, number),
    )


def _is_held(record: SessionRecord) -> bool:
    return bool(record.epoch) and record.state in (SessionState.ACTIVE, SessionState.LOST)


def _is_over(record: SessionRecord) -> bool:
    return record.state in (SessionState.CLOSED, SessionState.EXPIRED)


def _is_after(one: SessionRecord, record: SessionRecord) -> bool:
    """Whether it is a later state of the same session."""
    is_later = one.incarnation > record.incarnation or one.state != SessionState.ACTIVE
    return one.session_id == record.session_id and is_later


def _seq(record: SessionRecord, number: int) -> int:
    """Grows with every incarnation, and with every snapshot of one."""
    return (record.incarnation << _INCARNATION_BITS) | number


def committed_snapshot(seq: int) -> int:
    """The snapshot that a commit with this number names; 0 if none."""
    return seq & ((1 << _INCARNATION_BITS) - 1)
