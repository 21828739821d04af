"""What is known of projects and their files, and the limits on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple


class ProjectKey(NamedTuple):
    user_id: str
    project_id: str


@dataclass(frozen=True, kw_only=True)
class Project:
    """A project of a user."""

    key: ProjectKey
    directory: str
    """Name of its directory. At random: a sandbox can read it."""
    created_at: float
    """Seconds since the epoch."""
    files: int = 0
    size: int = 0
    """Bytes of all its files."""


class ProjectFile(NamedTuple):
    """A file of a project."""

    name: str
    digest: str
    """SHA-256 of its content in hexadecimal digits."""
    size: int
    mime_type: str
    created_at: float
    """Seconds since the epoch."""


class OnConflict(Enum):
    """What to do if a project has a file of that name with other content."""

    RENAME = auto()
    REPLACE = auto()
    FAIL = auto()


class Outcome(Enum):
    """What became of an upload."""

    CREATED = auto()
    REPLACED = auto()
    UNCHANGED = auto()
    """The project had the file already."""


class Added(NamedTuple):
    file: ProjectFile
    outcome: Outcome


class Usage(NamedTuple):
    """What the projects of a user hold."""

    projects: int
    files: int
    size: int
    stored: int
    """Bytes on the disk: content that several files have is stored once."""


@dataclass(frozen=True, kw_only=True)
class ProjectLimits:
    max_file_bytes: int
    project_files: int
    project_bytes: int
    user_projects: int
    user_bytes: int
