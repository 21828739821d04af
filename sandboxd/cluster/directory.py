"""The directory of a cluster, over a store that all workers share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from sandboxd.cluster import membership as members
from sandboxd.cluster.answers import Found, Refused, Waits
from sandboxd.cluster.contract import (
    ClaimWaits,
    Elsewhere,
    Fenced,
    Holding,
    Load,
    Mine,
    Origin,
    OwnershipUnknown,
    Place,
    PlaceState,
    ReleaseState,
    ThreadKey,
    Worker,
    WorkerIdTaken,
    WorkerState,
)
from sandboxd.cluster.holdings import Holdings
from sandboxd.cluster.membership import Membership, Standing
from sandboxd.cluster.session_ids import SLOT_DIGITS, session_id_for, slot_of, thread_digest
from sandboxd.cluster.settings import ClusterSettings
from sandboxd.cluster.steps import Steps
from sandboxd.cluster.store import Store, StoreUnavailable


class SharedDirectory:
    def __init__(
        self,
        store: Store,
        settings: ClusterSettings,
        clock: Callable[[], float] = members.clock,
    ) -> None:
        self._store = store
        self._settings = settings
        self._steps = Steps(store, settings)
        self._holdings = Holdings()
        self.membership = Membership(self._steps, settings.leases, self._holdings, clock)
        self._locks: dict[ThreadKey, asyncio.Lock] = {}
        self._lock_users: Counter[ThreadKey] = Counter()

    @property
    def worker_id(self) -> str:
        return self._settings.worker_id

    @property
    def is_serving(self) -> bool:
        return self.membership.is_serving

    @property
    def state(self) -> WorkerState:
        return self.membership.state

    def holds(self, session_id: str) -> bool:
        return session_id in self._holdings and self.is_serving

    def when_fenced(self, call: Callable[[], None]) -> None:
        self.membership.on_fenced.append(call)

    def when_serving(self, call: Callable[[], None]) -> None:
        self.membership.on_serving.append(call)

    def when_lost(self, call: Callable[[Sequence[str]], None]) -> None:
        self.membership.on_lost.append(call)

    async def start(self, holdings: Sequence[Holding] = ()) -> None:
        for holding in holdings:
            self._holdings.add(holding)
        await self.membership.start()

    async def stop(self, *, leaves: bool = False) -> None:
        await self.membership.stop()
        try:
            generation = self.membership.generation
            if leaves and generation and not len(self._holdings):
                await self._steps.leave(generation)
        except StoreUnavailable:
            pass  # then its lease runs out
        finally:
            await self._store.aclose()

    async def claim(
        self,
        thread: ThreadKey,
        *,
        wanted_session_id: str | None = None,
        takes_from_lost: bool = True,
    ) -> Mine | Elsewhere | ClaimWaits:
        key = self._settings.cluster_key
        digest = thread_digest(key, thread)
        session_id = wanted_session_id or session_id_for(key, thread)
        if slot_of(session_id) not in (None, digest[:SLOT_DIGITS]):
            raise ValueError(f"{session_id} is not an id of a session of this thread")
        async with self._one_at_a_time(thread):
            standing = self.membership.standing
            if standing is None:
                if self.membership.is_joining:
                    return ClaimWaits(self._settings.leases.renew_seconds)
                raise self._unknown("this worker cannot reach the cluster's directory")
            held = self._holdings.of_thread(thread)
            with self._unanswered():
                answer = await self._steps.claim(
                    standing.generation,
                    digest,
                    session_id,
                    held.epoch if held is not None else 0,
                    takes=takes_from_lost,
                )
            if isinstance(answer, Refused):
                raise self._refusal(answer, standing)
            self._require(standing, answer.era)
            if isinstance(answer.answer, Waits):
                return ClaimWaits(answer.answer.seconds)
            if isinstance(answer.answer, Elsewhere):
                return answer.answer
            return self._own(thread, answer.answer)

    async def find(self, session_id: str, *, is_certain: bool = True) -> Place | None:
        if (held := self._holdings.get(session_id)) is not None and self.is_serving:
            return self._place_of(held)
        slot = slot_of(session_id)
        if slot is None:
            return None
        with self._unanswered():
            found: Found | Waits | None
            found = seen = await self._steps.find(slot)
            is_held = seen is not None and self._is_held_elsewhere(seen.place, session_id)
            if is_certain and not is_held:
                # Calls fail for good by this answer, and a store that has lost its last writes
                # does not know of sessions that exist.
                found = await self._steps.confirm(slot)
        if isinstance(found, Waits):
            raise OwnershipUnknown("a worker that may have it has still to report", found.seconds)
        if found is None or found.place.session_id != session_id:
            return None
        return found.place

    async def find_thread(self, thread: ThreadKey) -> Place | None:
        if (held := self._holdings.of_thread(thread)) is not None and self.is_serving:
            return self._place_of(held)
        digest = thread_digest(self._settings.cluster_key, thread)
        with self._unanswered():
            found: Found | None = await self._steps.find(digest[:SLOT_DIGITS])
        return found.place if found is not None and found.digest == digest else None

    async def commit(self, session_id: str, epoch: int, head: str, seq: int) -> None:
        held, standing = self._held(session_id, epoch)
        with self._unanswered():
            answer = await self._steps.commit(standing.generation, held, head, seq)
        if isinstance(answer, Refused):
            raise self._refusal(answer, standing, held)
        # A commit that a failover forgot is asserted again, but only if it is known by then.
        self._require(standing, standing.era)
        self._holdings.note_commit(session_id, epoch, head, seq)

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
        held, standing = self._held(session_id, epoch)
        last = held
        if head is not None and seq is not None and seq >= held.seq:
            last = replace(held, head=head, seq=seq)
        with self._unanswered():
            answer = await self._steps.release(standing.generation, last, state, keep_seconds)
        if isinstance(answer, Refused):
            raise self._refusal(answer, standing, held)
        self._holdings.discard(session_id, epoch)

    async def workers(self) -> Sequence[Worker]:
        with self._unanswered():
            return await self._steps.workers()

    def announce(self, load: Load) -> None:
        self.membership.load = load

    async def set_state(self, state: WorkerState) -> None:
        if state is WorkerState.LOST:
            raise ValueError("a worker does not declare itself lost")
        self.membership.state = state
        with self._unanswered():
            await self.membership.beat()

    async def fence(self, worker_id: str) -> None:
        with self._unanswered():
            answer = await self._steps.fence(self.membership.generation, worker_id)
        if isinstance(answer, Refused):
            raise self._unknown(f"the lease of worker {worker_id} may still run")

    def _is_held_elsewhere(self, place: Place, session_id: str) -> bool:
        is_held = place.session_id == session_id and place.state is PlaceState.HELD
        return is_held and place.worker != self._settings.worker_id

    def _own(self, thread: ThreadKey, mine: Mine) -> Mine:
        if mine.origin is not Origin.KNOWN:
            self._holdings.add(
                Holding(
                    session_id=mine.session_id,
                    thread=thread,
                    epoch=mine.epoch,
                    head=mine.head,
                    seq=mine.seq,
                )
            )
        return mine

    def _place_of(self, held: Holding) -> Place:
        return Place(
            session_id=held.session_id,
            worker=self._settings.worker_id,
            address=self._settings.address,
            epoch=held.epoch,
            state=PlaceState.HELD,
            head=held.head,
            seq=held.seq,
        )

    def _held(self, session_id: str, epoch: int) -> tuple[Holding, Standing]:
        held = self._holdings.get(session_id)
        if held is None or held.epoch != epoch:
            raise Fenced(session_id)
        standing = self.membership.standing
        if standing is None:
            raise self._unknown("this worker may not write at the moment")
        return held, standing

    def _require(self, standing: Standing, era: str) -> None:
        """The answer is void if ownership was asserted anew while it was under way."""
        if self.membership.standing != standing or era != standing.era:
            self.membership.beat_soon()
            raise self._unknown("ownership was established anew meanwhile")

    def _refusal(
        self, refused: Refused, standing: Standing, held: Holding | None = None
    ) -> Exception:
        if refused.why == "collision":
            return self._unknown("another thread has the place of this one")
        if refused.why == "fenced" and self.membership.generation == standing.generation:
            self.membership.fence()
        if refused.why == "stolen" and held is not None:
            self.membership.lose([held])
        self.membership.beat_soon()
        if held is not None and refused.why in ("stolen", "fenced"):
            return Fenced(held.session_id)
        return self._unknown("this worker has to assert its sessions first")

    def _unknown(self, why: str) -> OwnershipUnknown:
        return OwnershipUnknown(why, self._settings.leases.renew_seconds)

    def _unanswered(self) -> _Unanswered:
        return _Unanswered(self._settings.leases.renew_seconds)

    @asynccontextmanager
    async def _one_at_a_time(self, thread: ThreadKey) -> AsyncIterator[None]:
        """Two claims of one thread by one worker would each void the epoch of the other."""
        lock = self._locks.setdefault(thread, asyncio.Lock())
        self._lock_users[thread] += 1
        try:
            async with lock:
                yield
        finally:
            self._lock_users[thread] -= 1
            if not self._lock_users[thread]:
                del self._lock_users[thread], self._locks[thread]


class _Unanswered:
    """Tells callers of the directory that the store did not answer."""

    def __init__(self, retry_after_seconds: float) -> None:
        self._retry_after_seconds = retry_after_seconds

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, (StoreUnavailable, WorkerIdTaken)):
            raise OwnershipUnknown(
                str(error) or "another has this id", self._retry_after_seconds
            ) from error
