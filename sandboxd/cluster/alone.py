"""The directory of a daemon that shares its sessions with no other: everything is its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from sandboxd.cluster.contract import (
    ClaimWaits,
    Elsewhere,
    Holding,
    Load,
    Mine,
    Origin,
    Place,
    ReleaseState,
    ThreadKey,
    Worker,
    WorkerState,
)


class Alone:
    """Remembers nothing: the registry of the daemon knows its sessions."""

    def __init__(self, worker_id: str = "", address: str = "", version: str = "") -> None:
        self._worker_id = worker_id
        self._address = address
        self._version = version
        self._state = WorkerState.READY
        self._load = Load()

    @property
    def worker_id(self) -> str:
        return self._worker_id

    @property
    def is_serving(self) -> bool:
        return True

    @property
    def state(self) -> WorkerState:
        return self._state

    def holds(self, session_id: str) -> bool:
        return True

    def when_fenced(self, call: Callable[[], None]) -> None:
        """Never called."""

    def when_serving(self, call: Callable[[], None]) -> None:
        """Never called: it always is."""

    def when_lost(self, call: Callable[[Sequence[str]], None]) -> None:
        """Never called."""

    async def start(self, holdings: Sequence[Holding] = ()) -> None:
        pass

    async def stop(self, *, leaves: bool = False) -> None:
        pass

    async def claim(
        self,
        thread: ThreadKey,
        *,
        wanted_session_id: str | None = None,
        takes_from_lost: bool = True,
    ) -> Mine | Elsewhere | ClaimWaits:
        session_id = wanted_session_id or "ses_" + secrets.token_hex(12)
        origin = Origin.KNOWN if wanted_session_id else Origin.NEW
        return Mine(session_id=session_id, epoch=0, origin=origin)

    async def find(self, session_id: str, *, is_certain: bool = True) -> Place | None:
        return None

    async def find_thread(self, thread: ThreadKey) -> Place | None:
        return None

    async def commit(self, session_id: str, epoch: int, head: str, seq: int) -> None:
        pass

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
        pass

    async def workers(self) -> Sequence[Worker]:
        return [
            Worker(
                id=self._worker_id,
                address=self._address,
                generation=0,
                state=self._state,
                lease_seconds=float("inf"),
                version=self._version,
                load=self._load,
            )
        ]

    def announce(self, load: Load) -> None:
        self._load = load

    async def set_state(self, state: WorkerState) -> None:
        self._state = state

    async def fence(self, worker_id: str) -> None:
        pass
