"""A worker's lease: renewed in the background, and given up by the worker's own clock.

The lease counts from the moment at which a renewal was sent, so a worker stops serving before
others may take its sessions, whatever happens to the answers. To serve again it registers anew,
asserts what it held, and is told what others own now.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import structlog

from sandboxd.cluster.answers import Refused, Registered
from sandboxd.cluster.contract import Holding, Load, WorkerIdTaken, WorkerState
from sandboxd.cluster.holdings import Holdings
from sandboxd.cluster.settings import LeaseSettings
from sandboxd.cluster.steps import Steps
from sandboxd.cluster.store import StoreUnavailable
from sandboxd.tasks import end_tasks

log = structlog.get_logger()

ASSERT_BATCH = 200
ROUNDS = 4
"""To register, to assert, to learn that all others have, and to learn what was lost."""
REFRESH_SECONDS = 3600.0
"""How often what is held is asserted without need, so that its records do not expire."""


def clock() -> float:
    """Seconds that no change of the time of day affects, and that go on in a suspended machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Standing(NamedTuple):
    """Under what this worker writes. An answer that comes under another one is void."""

    generation: int
    era: str


class Membership:
    def __init__(
        self,
        steps: Steps,
        leases: LeaseSettings,
        holdings: Holdings,
        clock: Callable[[], float] = clock,
    ) -> None:
        self._steps = steps
        self._leases = leases
        self._holdings = holdings
        self._clock = clock
        self.load = Load()
        self.state = WorkerState.READY
        self._generation = 0
        """0 while it is not registered."""
        self._last_generation = 0
        self._era = ""
        """In which all that it holds is asserted; empty if that is to be done."""
        self._asserted_at = 0.0
        self._is_up = False
        self._valid_until = 0.0
        self._answers = False
        self._beating = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.on_fenced: list[Callable[[], None]] = []
        self.on_serving: list[Callable[[], None]] = []
        self.on_lost: list[Callable[[Sequence[str]], None]] = []

    @property
    def is_serving(self) -> bool:
        return self._is_up and self._clock() < self._valid_until

    @property
    def standing(self) -> Standing | None:
        """None if it may write nothing."""
        if not self.is_serving or not self._era:
            return None
        return Standing(self._generation, self._era)

    @property
    def is_joining(self) -> bool:
        """Whether the store answers, and this worker will write as soon as it may."""
        return self._answers

    @property
    def generation(self) -> int:
        return self._generation

    async def start(self) -> None:
        """Join, or go on trying in the background. WorkerIdTaken."""
        try:
            await self.beat()
        except StoreUnavailable as error:
            log.warning("cluster.unreachable", error=str(error))
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._renew_for_ever(), name="cluster-renewal"),
            loop.create_task(self._watch_for_ever(), name="cluster-watch"),
        ]

    async def stop(self) -> None:
        await end_tasks(self._tasks)
        self._tasks = []
        # Nobody is told: what it holds is left for the daemon that follows on this host.
        self._is_up = False
        self._era = ""

    def beat_soon(self) -> None:
        self._wanted.set()

    async def beat(self) -> None:
        """Renew, and do what else it takes to serve. StoreUnavailable, WorkerIdTaken."""
        async with self._beating:
            try:
                for _ in range(ROUNDS):
                    if await self._round():
                        break
            except (StoreUnavailable, WorkerIdTaken):
                self._answers = False
                raise
            self._answers = True

    def check(self) -> None:
        """Stop serving if the lease is over."""
        if self._is_up and self._clock() >= self._valid_until:
            log.error("cluster.self_fenced", after_seconds=self._leases.self_fence_seconds)
            self.fence()

    def fence(self) -> None:
        """Stop serving until it has registered again."""
        self._generation = 0
        self._era = ""
        if self._is_up:
            self._is_up = False
            _tell(self.on_fenced)

    async def _round(self) -> bool:
        """One renewal with what must precede it; whether it achieved all that is possible now."""
        self.check()
        if not self._generation:
            await self._register()
        generation = self._generation
        is_final: bool | None = True
        if self._has_to_assert():
            is_final = await self._assert()
        if is_final is None:
            return False
        sent_at = self._clock()
        answer = await self._steps.renew(generation, self._era, self.state, self.load)
        if generation != self._generation:
            return False
        if isinstance(answer, Refused):
            log.error("cluster.fenced", why=answer.why)
            self.fence()
            return False
        if not answer.is_told or answer.era != self._era:
            self._era = ""
            return False
        self._valid_until = sent_at + self._leases.self_fence_seconds
        if not self._is_up and (is_final or not len(self._holdings)):
            self._serve()
        return self._is_up or not answer.is_settled

    async def _register(self) -> None:
        answer = await self._steps.register(self._last_generation, self.state, self.load)
        if not isinstance(answer, Registered):
            raise WorkerIdTaken
        self._generation = self._last_generation = answer.generation

    def _has_to_assert(self) -> bool:
        if not self._era or not self._is_up:
            return True
        return self._clock() - self._asserted_at > REFRESH_SECONDS

    async def _assert(self) -> bool | None:
        """Assert all that is held; whether what it got is final. None if that must be repeated.

        A worker that served all the time has everything under its latest epoch. One that did not
        may have lost sessions by claims that the store has forgotten: only when all workers have
        asserted theirs is it known.
        """
        generation = self._generation
        # Without an era, claims that are answered meanwhile are void: the batches lack them.
        era = self._era = self._era if self._is_up else ""
        is_final = True
        began_at = self._clock()
        for batch in list(self._holdings.batches(ASSERT_BATCH)) or [[]]:
            answer = await self._steps.assert_held(generation, batch)
            if generation != self._generation:
                return None
            if isinstance(answer, Refused):
                log.error("cluster.fenced", why=answer.why)
                self.fence()
                return None
            if era and answer.era != era:
                self._era = ""
                return None
            era = answer.era
            is_final = is_final and answer.is_settled
            self.lose([held for held in batch if held.session_id in answer.lost])
        self._era = era
        self._asserted_at = began_at
        return is_final

    def lose(self, holdings: Sequence[Holding]) -> None:
        """Others own these, unless they were claimed again meanwhile."""
        lost = [
            held.session_id
            for held in holdings
            if self._holdings.discard(held.session_id, held.epoch)
        ]
        if lost:
            log.warning("cluster.sessions_lost", sessions=len(lost))
            _tell([partial(call, lost) for call in self.on_lost])

    def _serve(self) -> None:
        if self._clock() >= self._valid_until:
            return
        self._is_up = True
        _tell(self.on_serving)

    async def _renew_for_ever(self) -> None:
        pause = self._leases.renew_seconds
        is_logged = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.9, 1.0)):
                    await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.beat()
            except StoreUnavailable as error:
                if not is_logged:
                    log.warning("cluster.unreachable", error=str(error))
                is_logged = True
                pause = self._leases.renew_seconds / 4
            except WorkerIdTaken:
                log.error("cluster.worker_id_taken")
                pause = self._leases.renew_seconds
            except Exception:
                log.exception("cluster.renewal_failed")
                pause = self._leases.renew_seconds
            else:
                if is_logged:
                    log.info("cluster.reachable")
                is_logged = False
                pause = self._leases.renew_seconds

    async def _watch_for_ever(self) -> None:
        while True:
            left = self._valid_until - self._clock() if self._is_up else self._leases.renew_seconds
            await asyncio.sleep(min(max(left, 0.001), self._leases.renew_seconds))
            self.check()


def _tell(calls: Sequence[Callable[[], None]]) -> None:
    """One that fails must keep neither the others from being told nor the lease from its end."""
    for call in calls:
        try:
            call()
        except Exception:
            log.exception("cluster.callback_failed")
