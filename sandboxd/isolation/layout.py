"""What every workspace has in it from the start."""

from __future__ import annotations

from enum import StrEnum

PROJECT_FILES = "project_files"
"""A mount of its own, which commands only read."""
AGENT_WORKSPACE = "agent_workspace"
OUTPUTS = "outputs"


class Layout(StrEnum):
    """What `agent_workspace` is."""

    SHARED = "shared"
    """The workspace itself, by another name."""
    SEPARATE = "separate"
    """A directory of its own, where commands and relative paths start."""
