"""How many more files this process may open: it needs some even to end what runs."""

from __future__ import annotations

import asyncio
import os
import resource

from sandboxd.errors import OpenFilesExhausted

LEAST_IN_RESERVE, MOST_IN_RESERVE = 16, 256


async def check_room() -> None:
    """OpenFilesExhausted if the files that can still be opened are needed for what runs already."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserve = min(MOST_IN_RESERVE, max(LEAST_IN_RESERVE, limit // 4))
    used = await asyncio.to_thread(_count)
    if used + reserve > limit:
        raise OpenFilesExhausted(used, limit)


def _count() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # no descriptor is left to count with
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
