"""SHA-256 of what passes by, reckoned beside the event loop."""

from __future__ import annotations

import asyncio
import hashlib

from sandboxd.files.requests import Chunk

INLINE_BYTES = 32 << 10
"""So little is hashed before a thread would have begun."""


class Checksum:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._pending: asyncio.Future[None] | None = None
        self.count = 0

    async def add(self, data: Chunk) -> None:
        """Returns while the last piece is still being hashed; then the next one waits."""
        self.count += len(data)
        await self._settled()
        if len(data) <= INLINE_BYTES:
            self._hash.update(data)
        else:
            loop = asyncio.get_running_loop()
            self._pending = loop.run_in_executor(None, self._hash.update, data)

    async def digest(self) -> bytes:
        await self._settled()
        return self._hash.digest()

    async def _settled(self) -> None:
        if self._pending is not None:
            await asyncio.shield(self._pending)
            self._pending = None
