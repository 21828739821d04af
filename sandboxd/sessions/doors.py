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

    def check_usable(self, data_sources: Sequence[str], user_id: str) -> None:
        """Refuse data sources that this user may not use."""
        ...

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
        self._providers = providers
        self._all = [self.egress.doors_of, *(provider.doors_of for provider in providers)]

    def check_usable(self, data_sources: Sequence[str], user_id: str) -> None:
        """Refuse data sources that this user may not use, before there is a session with them."""
        for provider in self._providers:
            provider.check_usable(data_sources, user_id)

    async def open(self, record: SessionRecord, sandbox: Sandbox) -> None:
        """Open the doors of a session. One that fails is reported in `sandbox.doors.problems`."""
        for doors_of in self._all:
            for door in doors_of(record):
                await sandbox.doors.open(door)
