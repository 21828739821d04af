"""What a directory needs of the store that all workers share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class StoreUnavailable(Exception):
    """The store did not answer, or not in time; what was asked for may have happened."""


class Store(Protocol):
    async def run(
        self, script: str, common: Mapping[str, object], arguments: Mapping[str, object]
    ) -> bytes:
        """Run a script of `scripts` as one step. StoreUnavailable, within a bounded time."""
        ...

    async def aclose(self) -> None: ...
