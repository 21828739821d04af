"""Everything that can go wrong with a call.

::

    SandboxError
    ├── InvalidRequestError             also a ValueError: it can never succeed as it is
    │   ├── RequestTooLargeError
    │   ├── InvalidArchiveError
    │   ├── NoSessionError              no session was opened with this client
    │   └── PolicyError                 the command policy does not allow it
    ├── SessionError                    the session cannot be used
    │   ├── SessionNotFoundError
    │   ├── SessionExpiredError
    │   ├── SessionClosedError
    │   ├── SessionRecreatedError       it is on another sandbox than the caller believes
    │   └── SandboxLostError
    ├── CommandError
    │   ├── CommandNotStartableError
    │   ├── ExecNotFoundError
    │   ├── ExecConflictError
    │   ├── ExecEndedError
    │   └── CommandFailedError          only with `check=True`
    ├── FileError
    │   ├── MissingFileError            also a FileNotFoundError
    │   ├── FileExistsInSandboxError    also a FileExistsError
    │   ├── NotAFileError               also an IsADirectoryError
    │   ├── NotADirectoryInSandboxError also a NotADirectoryError
    │   ├── DirectoryNotEmptyError
    │   ├── OutsideWorkspaceError
    │   ├── ProtectedPathError          also a PermissionError
    │   ├── FileNotPermittedError       also a PermissionError
    │   ├── FileTooLargeError
    │   ├── WorkspaceFullError
    │   ├── ChecksumMismatchError
    │   ├── FileChangedError
    │   ├── TextNotFoundError
    │   ├── FileWorkInterruptedError
    │   └── UploadStalledError
    ├── ExhaustedError                  a limit is reached; try again after `retry_after_seconds`
    │   ├── PoolExhaustedError
    │   ├── ExecLimitReachedError
    │   ├── TooManyRequestsError
    │   ├── DiskSpaceLowError
    │   ├── SessionLimitReachedError
    │   ├── OpenFilesExhaustedError
    │   └── FileBusyError
    ├── UnavailableError                nothing is wrong with the request
    │   ├── EngineUnreachableError
    │   ├── EngineFailedError
    │   ├── DrainingError
    │   ├── ImageNotFoundError
    │   ├── StateNotSavedError
    │   └── LocalModeError              no daemon can run in this process
    ├── ConnectionLostError             also a ConnectionError: the daemon does not answer
    ├── CallTimeoutError                also a TimeoutError: it did not answer in time
    ├── NotAuthorizedError              also a PermissionError
    │   ├── UnauthenticatedError
    │   └── NotPermittedError
    ├── NotSupportedError               this daemon does not have it
    └── InternalError                   a fault of sandboxd

A class with a `reason` is what one value of ErrorReason in error_reason.proto becomes. A command
that exits non-zero, is ended by a signal or times out is a result, not an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxd_client.results import CommandResult


__all__ = [
    "CallTimeoutError",
    "ChecksumMismatchError",
    "CommandError",
    "CommandFailedError",
    "CommandNotStartableError",
    "ConnectionLostError",
    "DirectoryNotEmptyError",
    "DiskSpaceLowError",
    "DrainingError",
    "EngineFailedError",
    "EngineUnreachableError",
    "ExecConflictError",
    "ExecEndedError",
    "ExecLimitReachedError",
    "ExecNotFoundError",
    "ExhaustedError",
    "FileBusyError",
    "FileChangedError",
    "FileError",
    "FileExistsInSandboxError",
    "FileNotPermittedError",
    "FileTooLargeError",
    "FileWorkInterruptedError",
    "ImageNotFoundError",
    "InternalError",
    "InvalidArchiveError",
    "InvalidRequestError",
    "LocalModeError",
    "MissingFileError",
    "NoSessionError",
    "NotADirectoryInSandboxError",
    "NotAFileError",
    "NotAuthorizedError",
    "NotPermittedError",
    "NotSupportedError",
    "OpenFilesExhaustedError",
    "OutsideWorkspaceError",
    "PolicyError",
    "PoolExhaustedError",
    "ProtectedPathError",
    "RequestTooLargeError",
    "SandboxError",
    "SandboxLostError",
    "SessionClosedError",
    "SessionError",
    "SessionExpiredError",
    "SessionLimitReachedError",
    "SessionNotFoundError",
    "SessionRecreatedError",
    "StateNotSavedError",
    "TextNotFoundError",
    "TooManyRequestsError",
    "UnauthenticatedError",
    "UnavailableError",
    "UploadStalledError",
    "WorkspaceFullError",
]


class SandboxError(Exception):
    """Base of every error of this package.

    Example:
        try:
            sandbox.files.read("missing.txt")
        except SandboxError as error:
            print(error.reason, error)
    """

    reason: str = ""
    """Name of the value of ErrorReason; empty where the daemon gave none."""
    retry_after_seconds: float | None = None
    """When another try may help; None where none would."""
    metadata: Mapping[str, str]
    """What it is about, for programs."""
    may_have_begun: bool = False
    """True if an earlier try of the same call was cut off, so that it may have been carried out."""

    def __init__(self, message: str, *, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})

    def __str__(self) -> str:
        return self.message  # an OSError among the bases would say it otherwise


class InvalidRequestError(SandboxError, ValueError):
    """The request can never succeed as it is."""

    reason = "INVALID_REQUEST"


class RequestTooLargeError(InvalidRequestError):
    """Command, arguments or environment exceed the limit."""

    reason = "REQUEST_TOO_LARGE"


class InvalidArchiveError(InvalidRequestError):
    """It is no archive that can be read."""

    reason = "INVALID_ARCHIVE"


class NoSessionError(InvalidRequestError):
    """No session was opened with this client."""

    reason = ""


class PolicyError(InvalidRequestError):
    """The command policy of the daemon does not allow it, or `policy` of the client; the message
    names the rule."""

    reason = "COMMAND_NOT_ALLOWED"


class SessionError(SandboxError):
    """Category: the session cannot be used."""


class SessionNotFoundError(SessionError):
    """No session has this id, or it ended too long ago to be remembered."""

    reason = "SESSION_NOT_FOUND"


class SessionExpiredError(SessionError):
    """The session was idle for too long; open it again."""

    reason = "SESSION_EXPIRED"


class SessionClosedError(SessionError):
    """The session was closed; open a new one."""

    reason = "SESSION_CLOSED"


class SessionRecreatedError(SessionError):
    """The session is on another sandbox than the caller believes; open it again to learn more."""

    reason = "SESSION_RECREATED"


class SandboxLostError(SessionError):
    """The sandbox died or misbehaved and was destroyed; open the session again."""

    reason = "SANDBOX_LOST"


class CommandError(SandboxError):
    """Category: it is about a command."""


class CommandNotStartableError(CommandError):
    """Directory, program or shell of the command does not exist.

    Or, with `retry_after_seconds`, there was no process for it just then, after some tries.
    """

    reason = "COMMAND_NOT_STARTABLE"


class ExecNotFoundError(CommandError):
    """The session has no command with this id, or it ended too long ago."""

    reason = "EXEC_NOT_FOUND"


class ExecConflictError(CommandError):
    """The session already has another command with this id."""

    reason = "EXEC_CONFLICT"


class ExecEndedError(CommandError):
    """The command has ended, or still waits for its shell, and cannot be acted on."""

    reason = "EXEC_ENDED"


class CommandFailedError(CommandError):
    """A command that was run with `check=True` did not end with 0; `result` has all of it."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message)
        self.result = result


class FileError(SandboxError):
    """Category: it is about files of the workspace."""


class MissingFileError(FileError, FileNotFoundError):
    """There is nothing at this path."""

    reason = "FILE_NOT_FOUND"


class FileExistsInSandboxError(FileError, FileExistsError):
    """There is something at this path already."""

    reason = "FILE_EXISTS"


class NotAFileError(FileError, IsADirectoryError):
    """It is not a regular file."""

    reason = "NOT_A_FILE"


class NotADirectoryInSandboxError(FileError, NotADirectoryError):
    """It is not a directory."""

    reason = "NOT_A_DIRECTORY"


class DirectoryNotEmptyError(FileError):
    """The directory is not empty; remove it recursively."""

    reason = "DIRECTORY_NOT_EMPTY"


class OutsideWorkspaceError(FileError):
    """The path leads out of the workspace, through a link."""

    reason = "OUTSIDE_WORKSPACE"


class ProtectedPathError(FileError, PermissionError):
    """The workspace itself, its layout and project_files/ cannot be removed or moved."""

    reason = "PROTECTED_PATH"


class FileNotPermittedError(FileError, PermissionError):
    """Permissions that a command has set forbid it."""

    reason = "FILE_NOT_PERMITTED"


class FileTooLargeError(FileError):
    """The file is larger than a file may be, or than the operation takes."""

    reason = "FILE_TOO_LARGE"


class WorkspaceFullError(FileError):
    """The workspace has no room for it, in bytes or in files."""

    reason = "WORKSPACE_FULL"


class ChecksumMismatchError(FileError):
    """What arrived is not what was sent; send it again."""

    reason = "CHECKSUM_MISMATCH"


class FileChangedError(FileError):
    """The file became shorter while it was read; read it again."""

    reason = "FILE_CHANGED"


class TextNotFoundError(FileError):
    """The text to replace is not there as often as expected."""

    reason = "TEXT_NOT_FOUND"


class FileWorkInterruptedError(FileError):
    """A command ended or stopped what was at work on the files; try again."""

    reason = "FILE_WORK_INTERRUPTED"


class UploadStalledError(FileError):
    """Nothing arrived of an upload for too long; nothing was written, send it again."""

    reason = "UPLOAD_STALLED"


class ExhaustedError(SandboxError):
    """Category: a limit is reached; it frees up by itself."""


class PoolExhaustedError(ExhaustedError):
    """All sandboxes are in use."""

    reason = "POOL_EXHAUSTED"


class ExecLimitReachedError(ExhaustedError):
    """Too many commands run at once."""

    reason = "EXEC_LIMIT_REACHED"


class TooManyRequestsError(ExhaustedError):
    """Too many calls are being served at once."""

    reason = "TOO_MANY_REQUESTS"


class DiskSpaceLowError(ExhaustedError):
    """The host has too little disk space for another workspace."""

    reason = "DISK_SPACE_LOW"


class SessionLimitReachedError(ExhaustedError):
    """The user has as many sessions as one user may have."""

    reason = "SESSION_LIMIT_REACHED"


class OpenFilesExhaustedError(ExhaustedError):
    """The daemon has as many files and connections open as it may."""

    reason = "OPEN_FILES_EXHAUSTED"


class FileBusyError(ExhaustedError):
    """Too many calls are at work on the files of this session."""

    reason = "FILE_BUSY"


class UnavailableError(SandboxError):
    """Category: the daemon cannot serve this now, whoever asks."""


class EngineUnreachableError(UnavailableError):
    """No container engine answers."""

    reason = "ENGINE_UNREACHABLE"


class EngineFailedError(UnavailableError):
    """The container engine failed or did not answer in time."""

    reason = "ENGINE_FAILED"


class DrainingError(UnavailableError):
    """The daemon is shutting down."""

    reason = "DRAINING"


class ImageNotFoundError(UnavailableError):
    """The sandbox image is not on the host."""

    reason = "IMAGE_NOT_FOUND"


class StateNotSavedError(UnavailableError):
    """The daemon could not write down what it was asked to do, so it did not do it."""

    reason = "STATE_NOT_SAVED"


class LocalModeError(UnavailableError):
    """No daemon can run in this process; the message says why and what to do."""


class ConnectionLostError(SandboxError, ConnectionError):
    """The daemon does not answer, or went away during the call."""


class CallTimeoutError(SandboxError, TimeoutError):
    """The daemon did not answer in time. A command that times out is a result, not this."""


class NotAuthorizedError(SandboxError, PermissionError):
    """The token is missing, wrong, or not for this."""


class UnauthenticatedError(NotAuthorizedError):
    """Nobody knows who calls: the token is missing or wrong. Set SANDBOXD_TOKEN."""

    reason = "UNAUTHENTICATED"


class NotPermittedError(NotAuthorizedError):
    """The token is not for this call, or not for this user's sessions."""

    reason = "NOT_PERMITTED"


class NotSupportedError(SandboxError):
    """This daemon does not have it; it may be older than the client."""


class InternalError(SandboxError):
    """A fault of sandboxd; its log has the details under the error id in the message."""

    reason = "INTERNAL"


def _with_reason(kind: type[SandboxError]) -> dict[str, type[SandboxError]]:
    found = {kind.reason: kind} if "reason" in vars(kind) and kind.reason else {}
    for child in kind.__subclasses__():
        found.update(_with_reason(child))
    return found


BY_REASON: Mapping[str, type[SandboxError]] = _with_reason(SandboxError)
"""The class of every reason."""
