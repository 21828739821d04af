"""Checked requests about files, and the settings that they are served with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sandboxd.files.paths import FilePath
from sandboxd.workspaces.layout import Layout

Chunk: TypeAlias = "bytes | memoryview"
MAX_TEXT = 4 << 20


@dataclass(frozen=True, kw_only=True)
class FileSettings:
    """Settings for the files of every session."""

    workspace_dir: str
    layout: Layout = Layout.SHARED
    max_file_bytes: int
    workspace_bytes: int
    workspace_files: int
    project_bytes: int | None = None
    """Size limit of the project area; absent, it is that of the workspace."""
    project_files: int | None = None
    project: str = ""
    """Project that the project area belongs to; empty if that is the session's."""
    max_workers: int = 8
    """Operations on the files of a session at once."""
    max_watches: int = 4
    """Watches among them, which last."""
    wait_seconds: float = 5.0
    """Seconds that another operation waits for a place, before FileBusy."""
    idle_seconds: float = 20.0
    """Seconds of silence after which a worker is given up."""
    search_seconds: float = 10.0
    """Time limit of a search or a listing."""

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
    mode: int | None = None
    """Permission bits; absent, those of the file that is replaced, or 0644."""
    size: int | None = None
    sha256: bytes | None = None
    replace: bool = True
    make_parents: bool = False


@dataclass(frozen=True, kw_only=True)
class TextSpec:
    """Text to write; with `first_line`, it replaces `line_count` lines from there on."""

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
    """Number of occurrences; absent, there has to be at least one."""


@dataclass(frozen=True, kw_only=True)
class GrepSpec:
    path: FilePath
    pattern: str
    regex: bool = False
    ignore_case: bool = False
    glob: str = ""
    exclude_dirs: Sequence[str] = ()
    max_matches: int = 1000
