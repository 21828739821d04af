"""Sessions of an earlier daemon whose sandboxes are not adopted yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

WAIT_SECONDS = 10.0
"""How long a call waits for the session that it is about."""


class ReturningSessions:
    """The ids of these sessions, and the calls that wait for them."""

    def __init__(self, session_ids: Iterable[str]) -> None:
        self._waits = {session_id: asyncio.Event() for session_id in session_ids}

    def __bool__(self) -> bool:
        return bool(self._waits)

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._waits

    async def wait(self, session_id: str) -> None:
        """Return when the session is back or lost, or after a while."""
        if (back := self._waits.get(session_id)) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    await back.wait()

    def remove(self, session_id: str) -> None:
        self._waits.pop(session_id).set()
