"""Failures that workers report, as the errors that callers know."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sandboxd.errors import (
    DirectoryNotEmpty,
    FileChanged,
    FileExists,
    FileNotFound,
    FileNotPermitted,
    FileTooLarge,
    FileWorkInterrupted,
    InvalidArchive,
    InvalidRequest,
    NotADirectory,
    NotAFile,
    OutsideWorkspace,
    ProtectedPath,
    SandboxdError,
    WorkspaceFull,
)
from sandboxd.files.requests import FileSettings
from sandboxd.guest.files.codec import Failed, Failure, Why
from sandboxd.workspaces.layout import PROJECT_FILES

_OF_A_PATH: dict[Failure, Callable[[str], SandboxdError]] = {
    Failure.NOT_FOUND: FileNotFound,
    Failure.EXISTS: FileExists,
    Failure.NOT_A_FILE: NotAFile,
    Failure.NOT_A_DIRECTORY: NotADirectory,
    Failure.NOT_EMPTY: DirectoryNotEmpty,
    Failure.OUTSIDE: OutsideWorkspace,
    Failure.PROTECTED: ProtectedPath,
    Failure.IN_PROJECT: partial(
        ProtectedPath,
        problem=f"leads through a link into {PROJECT_FILES}, which commands cannot change",
        advice=f"to write there, give a path that begins with {PROJECT_FILES}",
    ),
    Failure.NOT_PERMITTED: FileNotPermitted,
    Failure.CHANGED: FileChanged,
}
_OF_A_REQUEST = {
    Failure.BAD_PATTERN: ("pattern", "it is not a valid regular expression"),
    Failure.NAME_TOO_LONG: ("path", "it is longer than a path can be in the workspace"),
    Failure.BELOW_ITSELF: ("new_path", "it is below the directory to be moved"),
}
_WHY = {
    Why.OUTSIDE: "it leads out of the directory",
    Why.SPECIAL: "devices, pipes and sockets are not supported",
    Why.EXISTS: "something of that name exists",
    Why.NO_SUCH_TARGET: "the target of the hard link is not in the directory",
    Why.UNKNOWN_KIND: "its kind is unknown",
    Why.NAME_TOO_LONG: "its name is too long",
    Why.NOT_A_DIRECTORY: "something above it in the path is not a directory",
    Why.NOT_PERMITTED: "permissions in the workspace forbid it",
    Why.TOO_LARGE: "it is larger than a file may be",
    Why.CHANGED: "it changed while it was read",
    Why.PROTECTED: "it is part of the layout of the workspace",
    Why.NO_NAME: "it has no name",
    Why.SPARSE: "sparse members are not supported",
    Why.TOO_DEEP: "its path is too long",
    Why.TOO_MANY_LINKS: "a file cannot have as many hard links",
}


def why_text(why: Why) -> str:
    return _WHY[why]


def error_of(failed: Failed, path: str, settings: FileSettings) -> SandboxdError:
    """The error for a failure; `path` is the one that the caller named, as text."""
    failure = failed.failure
    if failure in _OF_A_PATH:
        return _OF_A_PATH[failure](path)
    if failure in _OF_A_REQUEST:
        return InvalidRequest(*_OF_A_REQUEST[failure])
    if failure == Failure.TOO_LARGE:
        limit = failed.first or settings.max_file_bytes
        return FileTooLarge(path, limit_bytes=limit, size_bytes=failed.second or None)
    if failure == Failure.FULL:
        return workspace_full(path, settings, free_bytes=failed.first, free_files=failed.second)
    if failure == Failure.BAD_LINE:
        return InvalidRequest("first_line", f"the file has {failed.first} lines")
    if failure == Failure.BAD_ARCHIVE:
        return InvalidArchive("it is not a tar archive, or it is damaged or truncated")
    return FileWorkInterrupted()


def workspace_full(
    path: str, settings: FileSettings, *, free_bytes: int, free_files: int
) -> WorkspaceFull:
    limits = settings.workspace_bytes, settings.workspace_files
    if path.partition("/")[0] == PROJECT_FILES:
        limits = settings.project_limits
    return WorkspaceFull(
        path,
        limitBytes=limits[0],
        freeBytes=free_bytes,
        limitFiles=limits[1],
        freeFiles=free_files,
    )
