"""What must be there before a session is created: its environment and its packages."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sandboxd.environments.catalogue import Environments
from sandboxd.environments.environment import Environment
from sandboxd.packages.packages import Packages
from sandboxd.sessions.attachments import SessionAttachments
from sandboxd.sessions.doors import SessionDoors
from sandboxd.sessions.lines import SessionLines
from sandboxd.sessions.ownership import Ownership
from sandboxd.sessions.preparation import Preparation


class BuiltPreparation(Preparation):
    """Waits for what has to be built first."""

    packages: Packages

    def __init__(
        self,
        environments: Environments,
        packages: Packages,
        attachments: SessionAttachments,
        doors: SessionDoors,
        lines: SessionLines,
        ownership: Ownership,
    ) -> None:
        super().__init__(attachments, doors)
        self.lines = lines
        self.ownership = ownership
        self._environments = environments
        self.packages = packages

    async def prepare(
        self,
        environment: Environment,
        packages: Sequence[str],
        *,
        user_id: str,
        wait_seconds: float,
    ) -> None:
        wait_until = time.monotonic() + wait_seconds
        self.packages.check(environment, packages)
        await self._environments.wait_until_ready(environment.name, wait_seconds=wait_seconds)
        if packages:
            await self.packages.ensure(
                self._environments.get(environment.name).environment,
                packages,
                user_id=user_id,
                wait_seconds=max(0.0, wait_until - time.monotonic()),
            )
