"""What must be there before a session is created: its environment."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxd.environments.catalogue import Environments
from sandboxd.errors import InvalidRequest
from sandboxd.sessions.attachments import SessionAttachments
from sandboxd.sessions.preparation import Preparation


class EnvironmentPreparation(Preparation):
    """Waits for the build of a session's environment."""

    def __init__(self, environments: Environments, attachments: SessionAttachments) -> None:
        super().__init__(attachments)
        self._environments = environments

    async def prepare(
        self, environment: str, packages: Sequence[str], *, wait_seconds: float
    ) -> None:
        if packages:
            raise InvalidRequest("packages", "this daemon cannot add packages to a session")
        await self._environments.wait_until_ready(environment, wait_seconds=wait_seconds)
