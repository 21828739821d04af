"""Settings of all sandboxes of a daemon."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sandboxd.workspaces.layout import AGENT_WORKSPACE, Layout


@dataclass(frozen=True, kw_only=True)
class SandboxSettings:
    """What all sandboxes of this daemon have in common, whatever their environment."""

    instance: str
    runtime: str | None
    """Name of an OCI runtime; None means the engine's default."""
    network_mode: str
    runtime_dir: Path
    guest_dir: Path
    links_dir: Path
    projects_dir: Path
    user: str
    """Name under which commands see themselves."""
    workspace_dir: str
    seccomp: str
    """Filter of system calls, as JSON."""
    layout: Layout = Layout.SHARED
    grace_seconds: float = 0.0
    """How long a guest goes on without its daemon."""
    unknown_seconds: float = 0.0
    """How long files without a known session are kept."""
    start_seconds: float = 30.0
    """Seconds from the engine's start to a guest that takes commands."""

    @property
    def start_dir(self) -> str:
        """Directory in which commands start."""
        if self.layout == Layout.SEPARATE:
            return f"{self.workspace_dir}/{AGENT_WORKSPACE}"
        return self.workspace_dir
