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
from sandboxd.files.paths import FilePath
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
    Failure.HIDDEN: partial(
        ProtectedPath,
        problem="belongs to sandboxd itself",
        advice="of /proc, name the process of a command by its number",
    ),
    Failure.UNSUPPORTED: partial(
        FileNotPermitted,
        problem="The kernel refuses this at {path}, whatever its permissions are",
        advice="use another path",
    ),
}
_OF_A_REQUEST = {
    Failure.BAD_PATTERN: ("pattern", "it is not a valid regular expression"),
    Failure.NAME_TOO_LONG: ("path", "it is longer than a path can be"),
    Failure.BELOW_ITSELF: ("new_path", "it is below the directory to be moved"),
}
WRITABLE_OUTSIDE = ("/tmp", "/var/tmp")
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
    Why.PROTECTED: "it is part of the layout of the workspace, or its directory is read-only",
    Why.NO_NAME: "it has no name",
    Why.SPARSE: "sparse members are not supported",
    Why.TOO_DEEP: "its path is too long",
    Why.TOO_MANY_LINKS: "a file cannot have as many hard links",
}


def why_text(why: Why) -> str:
    return _WHY[why]


def error_of(failed: Failed, where: FilePath, settings: FileSettings) -> SandboxdError:
    """The error for a failure at the path that the caller named."""
    failure, path = failed.failure, str(where)
    if failure in _OF_A_PATH:
        return _OF_A_PATH[failure](path)
    if failure == Failure.READ_ONLY:
        return read_only(where, settings)
    if failure == Failure.OTHER_FILESYSTEM:
        return between_filesystems(path)
    if failure in _OF_A_REQUEST:
        return InvalidRequest(*_OF_A_REQUEST[failure])
    if failure == Failure.TOO_LARGE:
        limit = failed.first or settings.max_file_bytes
        return FileTooLarge(path, limit_bytes=limit, size_bytes=failed.second or None)
    if failure == Failure.FULL:
        return workspace_full(where, settings, free_bytes=failed.first, free_files=failed.second)
    if failure == Failure.BAD_LINE:
        return InvalidRequest("first_line", f"the file has {failed.first} lines")
    if failure == Failure.BAD_ARCHIVE:
        return InvalidArchive("it is not a tar archive, or it is damaged or truncated")
    return FileWorkInterrupted()


def read_only(where: FilePath, settings: FileSettings) -> ProtectedPath:
    if not where.is_outside:
        return ProtectedPath(str(where))
    writable = f"{settings.workspace_dir}, {' and '.join(WRITABLE_OUTSIDE)}"
    return ProtectedPath(str(where), "is read-only", f"only {writable} can be written to")


def between_filesystems(path: str) -> ProtectedPath:
    return ProtectedPath(
        path,
        "cannot be moved to another filesystem in one step",
        "copy it with a command, then remove it",
    )


def workspace_full(
    where: FilePath, settings: FileSettings, *, free_bytes: int, free_files: int
) -> WorkspaceFull:
    if where.is_outside:
        return WorkspaceFull(str(where), place="The filesystem")
    limits = settings.workspace_bytes, settings.workspace_files
    if where.parts[:1] == (PROJECT_FILES.encode(),):
        limits = settings.project_limits
    return WorkspaceFull(
        str(where),
        limitBytes=limits[0],
        freeBytes=free_bytes,
        limitFiles=limits[1],
        freeFiles=free_files,
    )
