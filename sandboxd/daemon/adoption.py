"""After the start of a daemon: reconnects to the sandboxes that an earlier daemon left running."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import structlog

from sandboxd.engine.contract import ContainerId
from sandboxd.environments.environment import Environment
from sandboxd.errors import SandboxdError
from sandboxd.link import LinkClosed
from sandboxd.pool.pools import Pools
from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.sandboxes.kept_files import Claim
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sessions.session import kept_files_of
from sandboxd.sessions.sessions import Sessions
from sandboxd.tasks import Tasks

log = structlog.get_logger()

LOOK_SECONDS = 5.0
"""Pause between two looks at which of the awaited containers still run."""
RETRY_SECONDS = 0.5
"""Pause after the engine did not answer, or the host had no socket for a guest."""
LOST = "the daemon was restarted"
_TASK = "adoption"


class _Expected(NamedTuple):
    """A sandbox of an earlier daemon."""

    environment: Environment
    claim: Claim


class Adoption:
    """Adopts the sandboxes of sessions while the daemon serves. Their uids, files and containers
    are reserved from the start: neither a new sandbox nor a sweep takes them."""

    def __init__(
        self,
        records: Sequence[SessionRecord],
        environments: Iterable[Environment],
        sandboxes: SandboxMaker,
        *,
        grace_seconds: float,
    ) -> None:
        """With the seconds that a guest waits for a daemon."""
        self._sandboxes = sandboxes
        self._grace_seconds = grace_seconds
        known = {environment.name: environment for environment in environments}
        self._claims = {
            record.session_id: _Expected(
                known[record.environment],
                Claim(record.sandbox_id, record.uid, kept_files_of(record)),
            )
            for record in records
            if record.state == SessionState.ACTIVE and record.environment in known
        }
        """The sandboxes that are not adopted yet, by session id."""
        for expected in self._claims.values():
            sandboxes.expect(expected.claim)
        self._tasks = Tasks()

    @property
    def session_ids(self) -> Collection[str]:
        """Sessions whose sandboxes are not adopted yet."""
        return self._claims.keys()

    @property
    def expected(self) -> Mapping[str, int]:
        """Number of sandboxes that are not adopted yet, by environment."""
        return Counter(expected.environment.name for expected in self._claims.values())

    @asynccontextmanager
    async def running(
        self, sessions: Sessions, pools: Pools, *, is_rest_left: bool
    ) -> AsyncIterator[None]:
        """Adopt while the block lasts. The rest is left to the next daemon then, or destroyed."""
        if self._claims:
            attempt = _Attempt(self._claims, self._sandboxes, sessions, pools)
            self._tasks.spawn(attempt.run(self._grace_seconds), _TASK)
        try:
            yield
        finally:
            self._tasks.cancel(_TASK)
            await self._tasks.finish()
            if not is_rest_left:
                self._sandboxes.stop_expecting()


class _Attempt:
    """The adoption of all sandboxes that are expected, each in its task."""

    def __init__(
        self,
        claims: dict[str, _Expected],
        sandboxes: SandboxMaker,
        sessions: Sessions,
        pools: Pools,
    ) -> None:
        self._claims = claims
        self._sandboxes = sandboxes
        self._sessions = sessions
        self._pools = pools
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._containers: Mapping[str, ContainerId] = {}
        self._removals = Tasks()

    async def run(self, grace_seconds: float) -> None:
        """Adopt all that can be adopted before the last guest gives up; the others are lost."""
        began, count = time.monotonic(), len(self._claims)
        try:
            # A guest may have begun to wait just now.
            async with asyncio.timeout(grace_seconds + LOOK_SECONDS):
                await self._adopt_all()
        except TimeoutError:
            lost = len(self._claims)
            log.error("sessions.adoption_timed_out", lost=lost, grace_seconds=grace_seconds)
            for session_id in tuple(self._claims):
                self._give_up(session_id)
        finally:
            await self._stop()
        seconds = round(time.monotonic() - began, 3)
        log.info("sessions.adoption_finished", sessions=count, seconds=seconds)

    async def _adopt_all(self) -> None:
        while self._claims:
            self._containers = await self._find_running()
            for session_id, expected in tuple(self._claims.items()):
                if expected.claim.sandbox_id not in self._containers:
                    self._give_up(session_id)
                elif session_id not in self._under_way:
                    task = asyncio.ensure_future(self._adopt(session_id, *expected))
                    self._under_way[session_id] = task
            if self._under_way:
                await asyncio.wait(self._under_way.values(), timeout=LOOK_SECONDS)

    async def _find_running(self) -> Mapping[str, ContainerId]:
        """The running containers, as soon as the engine answers: it may be starting too."""
        while True:
            try:
                return await self._sandboxes.find_running()
            except SandboxdError as error:
                log.warning("engine.waiting", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _adopt(self, session_id: str, environment: Environment, claim: Claim) -> None:
        container_id = self._containers[claim.sandbox_id]
        while True:
            try:
                adopted = await self._sandboxes.adopt(environment, claim, container_id)
                break
            except LinkClosed as error:
                log.warning("session.not_adopted", session_id=session_id, error=str(error))
                self._give_up(session_id)
                return
            except OSError as error:
                log.warning("session.not_adopted_yet", session_id=session_id, error=str(error))
            await asyncio.sleep(RETRY_SECONDS)
        del self._claims[session_id]
        self._pools.add_expected(adopted.sandbox)
        if not await self._sessions.adopt(session_id, adopted):
            self._pools.destroy(adopted.sandbox, keep=True)  # unless its files are discarded

    def _give_up(self, session_id: str) -> None:
        environment, claim = self._claims.pop(session_id)
        if (task := self._under_way.get(session_id)) is not None:
            task.cancel()
        self._pools.give_up_expected(environment.name)
        self._sessions.give_up(session_id, LOST)
        container_id = self._containers.get(claim.sandbox_id)
        removal = self._sandboxes.give_up(environment, claim, container_id)
        self._removals.spawn(removal, "give-up")

    async def _stop(self) -> None:
        """Leave no task behind; what is not adopted goes on without a daemon."""
        for task in self._under_way.values():
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way.values())
        await self._removals.finish()
