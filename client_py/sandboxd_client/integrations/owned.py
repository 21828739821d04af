"""A sandbox that an adapter opens at its first use, and that its creator may keep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sandboxd_client.errors import SessionNotFoundError
from sandboxd_client.sandbox import AsyncSandbox

Opener = Callable[[], Awaitable[AsyncSandbox]]


class OwnedSandbox:
    """The sandbox of one conversation, opened once, however many calls are first.

    A sandbox that is given is used as it is and left open; one that was opened here for nobody
    else is ended by `aclose`.
    """

    def __init__(
        self, sandbox: AsyncSandbox | None, opener: Opener, *, is_kept: bool = True
    ) -> None:
        """`is_kept`: others may come back to it, so it is not ended here."""
        self._sandbox = sandbox
        self._opener = opener
        self._is_ours = sandbox is None
        self._is_kept = is_kept
        self._opening: asyncio.Task[AsyncSandbox] | None = None

    @property
    def opened(self) -> AsyncSandbox | None:
        return self._sandbox

    async def get(self) -> AsyncSandbox:
        if self._sandbox is None:
            if self._opening is None:
                self._opening = asyncio.ensure_future(self._open())
            # A cancelled caller must not end the opening for the others.
            self._sandbox = await asyncio.shield(self._opening)
        return self._sandbox

    async def _open(self) -> AsyncSandbox:
        try:
            return await self._opener()
        finally:
            self._opening = None

    async def aclose(self) -> None:
        """End it if nobody else can reach it, and free the connection."""
        if self._sandbox is None or not self._is_ours:
            return
        sandbox, self._sandbox = self._sandbox, None
        try:
            if not self._is_kept:
                await sandbox.kill()
        except SessionNotFoundError:
            pass  # it ended long ago
        finally:
            await sandbox.aclose()


def opened_for(
    sandbox: AsyncSandbox | None, user_id: str | None, thread_id: str | None, **options: Any
) -> OwnedSandbox:
    """That sandbox, or that of a user's thread, which is kept, or a new one. `options` are those of
    `AsyncSandbox.create`."""
    if user_id is None and thread_id is None:
        return OwnedSandbox(sandbox, lambda: AsyncSandbox.create(**options), is_kept=False)
    return OwnedSandbox(
        sandbox, lambda: AsyncSandbox.open(user_id or "", thread_id or "", **options)
    )
