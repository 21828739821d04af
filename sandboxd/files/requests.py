"""What can be asked of files, already checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sandboxd.files.paths import FilePath

Chunk: TypeAlias = "bytes | memoryview"
MAX_TEXT = 4 << 20
MAX_PATTERN = 1000


@dataclass(frozen=True, kw_only=True)
class FileSettings:
    """What holds for the files of every session."""

    workspace_dir: str
    max_file_bytes: int
    workspace_bytes: int
    workspace_files: int
    layout: tuple[bytes, ...] = (b"project_files", b"agent_workspace", b"outputs")
    """Names in the workspace that can neither be removed nor moved nor replaced."""
    project_area: bytes = b"project_files"
    """The one of them that only the API can write to."""
    project_bytes: int | None = None
    """What fits into it; absent means as much as into the workspace."""
    project_files: int | None = None
    max_workers: int = 8
    """Operations at work on the files of one session at once."""
    max_watches: int = 4
    """Of those, watches, which last."""
    wait_seconds: float = 5.0
    """For one of them to end, before FileBusy."""
    idle_seconds: float = 20.0
    """A worker that is silent for so long, while it is waited for, is given up."""
    search_seconds: float = 10.0
    """For grep and glob, and for what a listing looks at."""

    @property
    def project_limits(self) -> tuple[int, int]:
        """Bytes and files that fit into the project area."""
        return (
            self.workspace_bytes if self.project_bytes is None else self.project_bytes,
            self.workspace_files if self.project_files is None else self.project_files,
        )


@dataclass(frozen=True, kw_only=True)
class UploadSpec:
    path: FilePath
    mode: int = 0o644
    size: int | None = None
    sha256: bytes | None = None
    replace: bool = True
    make_parents: bool = False


@dataclass(frozen=True, kw_only=True)
class TextSpec:
    """Text to write; with `first_line` in place of `line_count` lines from there on."""

    path: FilePath
    text: str
    first_line: int | None = None
    line_count: int = 0
    make_parents: bool = False
    replace: bool = True


@dataclass(frozen=True, kw_only=True)
class EditSpec:
    path: FilePath
    old_text: str
    new_text: str
    expected_count: int | None = 1
    """Absent: however often it is there, at least once."""


@dataclass(frozen=True, kw_only=True)
class GrepSpec:
    path: FilePath
    pattern: str
    regex: bool = False
    ignore_case: bool = False
    glob: str = ""
    max_matches: int = 1000
