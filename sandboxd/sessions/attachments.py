"""Directories of the host that the sandboxes of a session show."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from sandboxd.errors import ProjectNotFound
from sandboxd.isolation.attachment import Attachment
from sandboxd.projects.projects import Projects
from sandboxd.projects.records import ProjectKey
from sandboxd.workspaces.layout import PROJECT_FILES

log = structlog.get_logger()


class SessionAttachments:
    """Finds them for the next sandbox of a session."""

    def __init__(self, projects: Projects | None = None, *, workspace_dir: str = "") -> None:
        """Without projects, no session is on one."""
        self._projects = projects
        self._workspace_dir = workspace_dir

    def asked_for(self, user_id: str, project: str) -> Sequence[Attachment]:
        """The files of a project that a caller names; ProjectNotFound."""
        view = self._projects.view(ProjectKey(user_id, project)) if self._projects else None
        if view is None:
            raise ProjectNotFound(project)
        return (Attachment(view, f"{self._workspace_dir}/{PROJECT_FILES}"),)

    def of(self, user_id: str, project: str) -> Sequence[Attachment]:
        """The files of the project of a session. None if it has no project, or the project was
        deleted: the session goes on without it."""
        if not project:
            return ()
        try:
            return self.asked_for(user_id, project)
        except ProjectNotFound:
            log.warning("session.project_is_gone")
            return ()
