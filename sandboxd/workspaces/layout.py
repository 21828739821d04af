"""The directories that every workspace has from the start."""

from __future__ import annotations

from enum import StrEnum

PROJECT_FILES = "project_files"
"""A separate mount, which commands can only read."""
AGENT_WORKSPACE = "agent_workspace"
OUTPUTS = "outputs"
NAMES = (PROJECT_FILES, AGENT_WORKSPACE, OUTPUTS)
"""Names in a workspace that can neither be removed nor moved nor replaced."""


class Layout(StrEnum):
    """The meaning of `agent_workspace`."""

    SHARED = "shared"
    """Another name of the workspace itself."""
    SEPARATE = "separate"
    """A directory, in which commands and relative paths start."""
