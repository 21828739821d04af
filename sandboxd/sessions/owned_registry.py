"""A registry whose saves the other workers of a cluster learn of."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sandboxd.registry.contract import SOLE_OWNER, Fence, SessionRecord, SessionRegistry
from sandboxd.sessions.ownership import Ownership


class OwnedRegistry:
    """See SessionRegistry. What is saved here is told to the directory, in the background."""

    def __init__(self, own: SessionRegistry, ownership: Ownership) -> None:
        self._own = own
        self._ownership = ownership

    async def load(self) -> Sequence[SessionRecord]:
        return await self._own.load()

    async def save(self, record: SessionRecord, *, fence: Fence = SOLE_OWNER) -> None:
        await self._own.save(record, fence=fence)
        self._ownership.tell(record)

    async def delete(self, session_ids: Collection[str]) -> None:
        await self._own.delete(session_ids)

    async def ping(self) -> None:
        await self._own.ping()

    async def aclose(self) -> None:
        await self._own.aclose()
