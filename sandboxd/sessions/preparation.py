"""The contract of what must be there before a session is created."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxd.sessions.attachments import SessionAttachments


class Preparation:
    """Is asked before a session is created. This one finds everything ready."""

    def __init__(self, attachments: SessionAttachments | None = None) -> None:
        self.attachments = attachments or SessionAttachments()
        """What sandboxes of sessions show."""

    async def prepare(
        self, environment: str, packages: Sequence[str], *, wait_seconds: float
    ) -> None:
        """Return once the environment and these packages can be used.

        EnvironmentNotReady if that takes longer than `wait_seconds`; it goes on meanwhile.
        EnvironmentNotFound, EnvironmentUnavailable or EnvironmentBuildFailed if they cannot.
        """
