"""Changes of files, as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sandboxd.files.entries import Change, ChangeKind, Changes
from sandboxd.files.worker import Worker, believed
from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import Kind

MIN_GATHER_SECONDS = 0.005
"""However much a worker tells, it is not heard more often than that."""


async def changes_told(worker: Worker) -> AsyncIterator[Changes]:
    """Signs of life are not passed on."""
    while True:
        payload = await worker.expect(Kind.CHANGES)
        with believed():
            overflow, told = codec.decode_changes(payload)
        if told or overflow:
            changes = [
                Change(
                    kind=ChangeKind(one.kind),
                    path=one.path,
                    old_path=one.old_path,
                    is_directory=one.is_directory,
                )
                for one in told
            ]
            yield Changes(changes=changes, overflow=overflow)
        await asyncio.sleep(MIN_GATHER_SECONDS)
