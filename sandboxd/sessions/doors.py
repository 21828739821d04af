"""Doors of sessions: opened before the first command, and again when a session is adopted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sandboxd.doors.door import Door
from sandboxd.registry.contract import SessionRecord
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sessions.egress import SessionEgress


class DoorProvider(Protocol):
    """A part of the daemon that gives doors to sessions."""

    def doors_of(self, record: SessionRecord) -> Sequence[Door]:
        """The doors of a session; none for most. Called for every new sandbox of a session, and
        when it is adopted after a restart, so it must be cheap."""
        ...


class SessionDoors:
    """Opens what its providers give. A session without doors costs nothing."""

    def __init__(
        self, providers: Sequence[DoorProvider] = (), egress: SessionEgress | None = None
    ) -> None:
        self.egress = egress or SessionEgress()
        self._providers = [self.egress, *providers]

    async def open(self, record: SessionRecord, sandbox: Sandbox) -> None:
        """Open the doors of a session. One that fails is reported in `sandbox.doors.problems`."""
        for provider in self._providers:
            for door in provider.doors_of(record):
                await sandbox.doors.open(door)
