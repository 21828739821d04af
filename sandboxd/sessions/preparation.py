"""The contract of what must be there before a session is created."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxd.environments.environment import Environment
from sandboxd.packages.packages import Packages
from sandboxd.sessions.attachments import SessionAttachments
from sandboxd.sessions.doors import SessionDoors
from sandboxd.sessions.lines import SessionLines
from sandboxd.sessions.ownership import Ownership


class Preparation:
    """Is asked before a session is created. This one finds everything ready."""

    lines: SessionLines | None = None
    """The snapshots of sessions; None where there are none."""
    packages: Packages | None = None
    """What sessions get packages from; None where they cannot have any."""
    ownership: Ownership | None = None
    """What is shared with other workers; None for a daemon alone."""

    def __init__(
        self, attachments: SessionAttachments | None = None, doors: SessionDoors | None = None
    ) -> None:
        self.attachments = attachments or SessionAttachments()
        """What sandboxes of sessions show."""
        self.doors = doors or SessionDoors()
        """What sandboxes of sessions reach."""

    async def prepare(
        self,
        environment: Environment,
        packages: Sequence[str],
        *,
        user_id: str,
        wait_seconds: float,
    ) -> None:
        """Return once the environment and these packages can be used.

        EnvironmentNotReady or PackagesNotReady if that takes longer than `wait_seconds`; it goes on
        meanwhile.
        EnvironmentNotFound, EnvironmentUnavailable or EnvironmentBuildFailed if they cannot.
        """
