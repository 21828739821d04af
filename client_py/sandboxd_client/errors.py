"""The exceptions of the SDK.

::

    SandboxError
    ├── InvalidRequestError             also a ValueError: the request can never succeed
    │   ├── RequestTooLargeError
    │   ├── InvalidArchiveError
    │   ├── ArgumentTypeError           also a TypeError: an argument of the wrong type
    │   ├── NoSessionError              no session was opened with this client
    │   ├── ClientClosedError           the sandbox or client was closed
    │   └── PolicyError                 the command policy refuses the command
    ├── SessionError                    the session cannot be used
    │   ├── SessionNotFoundError
    │   ├── SessionExpiredError
    │   ├── SessionClosedError
    │   ├── SessionRecreatedError       the session is on another sandbox than expected
    │   ├── SessionParkedError          it has its files again when it is opened
    │   ├── SessionExistsError          a fork needs a thread without one
    │   └── SandboxLostError
    ├── SandboxEnvironmentError
    │   ├── EnvironmentNotFoundError
    │   ├── EnvironmentUnavailableError this host cannot build it
    │   ├── EnvironmentMismatchError    the session is open with another one
    │   ├── EnvironmentBuildFailedError
    │   ├── EnvironmentInUseError
    │   ├── PackagesNotResolvedError    no versions of them fit together
    │   ├── PackagesUnsafeError
    │   ├── PackagesTooLargeError
    │   └── PackagesBuildFailedError
    ├── CommandError
    │   ├── CommandNotStartableError
    │   ├── ExecNotFoundError
    │   ├── ExecConflictError
    │   ├── ExecEndedError
    │   └── CommandFailedError          only with `check=True`
    ├── CodeError
    │   ├── ContextNotFoundError
    │   ├── ContextConflictError        the context exists with other settings
    │   ├── ContextLostError            its process ended, with its variables
    │   ├── ContextBusyError            a run is under way
    │   ├── CodeNotAllowedError         also a PermissionError: the code policy refuses the code
    │   ├── CodeUnavailableError        the sandbox cannot run this language
    │   ├── DebuggerError               the debugger cannot do this now
    │   └── CodeFailedError             only with `check=True`
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
    ├── SnapshotError
    │   ├── SnapshotNotFoundError
    │   ├── SnapshotDamagedError
    │   ├── SnapshotsOffError           this daemon takes none
    │   ├── SnapshotInUseError
    │   └── WorkspaceUnreadableError
    ├── DoorError
    │   ├── DoorsOffError               this daemon cannot open doors in sandboxes
    │   ├── EgressNotAllowedError       also a PermissionError
    │   ├── PortNotListeningError       no program accepts connections there
    │   └── PreviewsUnavailableError
    ├── ProjectError
    │   ├── ProjectNotFoundError
    │   ├── ProjectFullError
    │   ├── ProjectMismatchError        the session is on another project, or on none
    │   └── FileTypeNotAllowedError     also a PermissionError
    ├── DataError
    │   ├── DataSourceNotFoundError
    │   ├── StatementNotAllowedError    the data source does not run it
    │   ├── QueryFailedError            the database refused it
    │   ├── QueryTimedOutError
    │   ├── QueryLimitReachedError      it would change too many rows
    │   └── QueryOutcomeUnknownError    a change may have been made or not
    ├── ExhaustedError                  a limit is reached; try again after `retry_after_seconds`
    │   ├── PoolExhaustedError
    │   ├── ExecLimitReachedError
    │   ├── ContextLimitReachedError
    │   ├── TooManyRequestsError
    │   ├── DiskSpaceLowError
    │   ├── SessionLimitReachedError
    │   ├── SnapshotLimitReachedError
    │   ├── OpenFilesExhaustedError
    │   ├── FileBusyError
    │   ├── PortLimitReachedError
    │   ├── EnvironmentBuildsBusyError
    │   ├── PackageCacheFullError
    │   └── QueriesBusyError
    ├── UnavailableError                nothing is wrong with the request
    │   ├── EngineUnreachableError
    │   ├── EngineFailedError
    │   ├── DataSourceUnavailableError
    │   ├── DrainingError
    │   ├── ImageNotFoundError
    │   ├── StateNotSavedError
    │   ├── OwnedElsewhereError
    │   ├── OwnershipUnknownError
    │   ├── SessionReturningError
    │   ├── SnapshotStoreFailedError
    │   ├── WorkspaceBusyError          commands changed it all the time
    │   ├── EnvironmentNotReadyError    it is being built
    │   ├── PackagesNotReadyError       they are being built
    │   ├── PackageIndexUnreachableError
    │   └── LocalModeError              no daemon can run in this process
    ├── ForkedError                     the process was forked while gRPC was in use
    ├── ConnectionLostError             also a ConnectionError: the daemon does not answer
    ├── CallTimeoutError                also a TimeoutError: no answer in time
    ├── NotAuthorizedError              also a PermissionError
    │   ├── UnauthenticatedError
    │   ├── NotPermittedError
    │   └── PackagesNotAllowedError
    ├── NotSupportedError               this daemon does not support the call
    ├── ConsoleOffError                 this daemon serves no web console
    └── InternalError                   a bug in sandboxd

A class with a `reason` stands for one value of ErrorReason in error_reason.proto. A command that
exits non-zero, is ended by a signal or times out is a result, not an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

if TYPE_CHECKING:
    from sandboxd_client.code_results import CodeRun
    from sandboxd_client.results import CommandResult


__all__ = [
    "ArgumentTypeError",
    "CallTimeoutError",
    "ChecksumMismatchError",
    "ClientClosedError",
    "CodeError",
    "CodeFailedError",
    "CodeNotAllowedError",
    "CodeUnavailableError",
    "CommandError",
    "CommandFailedError",
    "CommandNotStartableError",
    "ConnectionLostError",
    "ConsoleOffError",
    "ContextBusyError",
    "ContextConflictError",
    "ContextLimitReachedError",
    "ContextLostError",
    "ContextNotFoundError",
    "DataError",
    "DataSourceNotFoundError",
    "DataSourceUnavailableError",
    "DebuggerError",
    "DirectoryNotEmptyError",
    "DiskSpaceLowError",
    "DoorError",
    "DoorsOffError",
    "DrainingError",
    "EgressNotAllowedError",
    "EngineFailedError",
    "EngineUnreachableError",
    "EnvironmentBuildFailedError",
    "EnvironmentBuildsBusyError",
    "EnvironmentInUseError",
    "EnvironmentMismatchError",
    "EnvironmentNotFoundError",
    "EnvironmentNotReadyError",
    "EnvironmentUnavailableError",
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
    "FileTypeNotAllowedError",
    "FileWorkInterruptedError",
    "ForkedError",
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
    "OwnedElsewhereError",
    "OwnershipUnknownError",
    "PackageCacheFullError",
    "PackageIndexUnreachableError",
    "PackagesBuildFailedError",
    "PackagesNotAllowedError",
    "PackagesNotReadyError",
    "PackagesNotResolvedError",
    "PackagesTooLargeError",
    "PackagesUnsafeError",
    "PolicyError",
    "PoolExhaustedError",
    "PortLimitReachedError",
    "PortNotListeningError",
    "PreviewsUnavailableError",
    "ProjectError",
    "ProjectFullError",
    "ProjectMismatchError",
    "ProjectNotFoundError",
    "ProtectedPathError",
    "QueriesBusyError",
    "QueryFailedError",
    "QueryLimitReachedError",
    "QueryOutcomeUnknownError",
    "QueryTimedOutError",
    "RequestTooLargeError",
    "SandboxEnvironmentError",
    "SandboxError",
    "SandboxLostError",
    "SessionClosedError",
    "SessionError",
    "SessionExistsError",
    "SessionExpiredError",
    "SessionLimitReachedError",
    "SessionNotFoundError",
    "SessionParkedError",
    "SessionRecreatedError",
    "SessionReturningError",
    "SnapshotDamagedError",
    "SnapshotError",
    "SnapshotInUseError",
    "SnapshotLimitReachedError",
    "SnapshotNotFoundError",
    "SnapshotStoreFailedError",
    "SnapshotsOffError",
    "StateNotSavedError",
    "StatementNotAllowedError",
    "TextNotFoundError",
    "TooManyRequestsError",
    "UnauthenticatedError",
    "UnavailableError",
    "UploadStalledError",
    "WorkspaceBusyError",
    "WorkspaceFullError",
    "WorkspaceUnreadableError",
]


StartFailure: TypeAlias = Literal[
    "no_program",
    "not_executable",
    "no_directory",
    "no_shell",
    "too_many_shells",
    "too_large",
    "no_process",
    "other",
]
"""Why a command could not be started."""


class SandboxError(Exception):
    """Base class of every error of this package.

    Example:
        try:
            sandbox.files.read("missing.txt")
        except SandboxError as error:
            print(error.reason, error)
    """

    reason: str = ""
    """Name of the value of ErrorReason; empty if the daemon gave none."""
    retry_after_seconds: float | None = None
    """Time after which another attempt may succeed; None if none would."""
    metadata: Mapping[str, str]
    """Details for programs."""
    may_have_begun: bool = False
    """True if an earlier attempt of this call was cut off, so it may have taken effect."""

    def __init__(self, message: str, *, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})

    def __str__(self) -> str:
        return self.message  # an OSError among the base classes would format it differently


class InvalidRequestError(SandboxError, ValueError):
    """The request can never succeed in this form."""

    reason = "INVALID_REQUEST"


class RequestTooLargeError(InvalidRequestError):
    """Command, arguments or environment exceed the limit."""

    reason = "REQUEST_TOO_LARGE"


class InvalidArchiveError(InvalidRequestError):
    """The bytes are not a valid archive."""

    reason = "INVALID_ARCHIVE"


class ArgumentTypeError(InvalidRequestError, TypeError):
    """An argument has the wrong type; nothing was sent."""

    reason = ""


class NoSessionError(InvalidRequestError):
    """This client has not opened a session."""

    reason = ""


class ClientClosedError(InvalidRequestError):
    """The sandbox or client was closed, or its `with` block has ended."""

    reason = ""

    def __init__(
        self,
        message: str = "This sandbox or client was closed; open it again, or make the call before "
        "its `with` block ends.",
    ) -> None:
        super().__init__(message)


class PolicyError(InvalidRequestError):
    """The command policy of the daemon, or `policy` of the client, refuses the command; the message
    names the rule."""

    reason = "COMMAND_NOT_ALLOWED"
    kind: Literal["policy"] = "policy"
    """Why the command was not started, as in CommandNotStartableError."""

    def __str__(self) -> str:
        if "policy" not in self.metadata:
            return self.message  # of the caller's own check
        return f'{self.message} A session opened with command_policy="open" allows every command.'


class SessionError(SandboxError):
    """Category: the session cannot be used."""


class SessionNotFoundError(SessionError):
    """There is no session with this id, or it ended too long ago."""

    reason = "SESSION_NOT_FOUND"


class SessionExpiredError(SessionError):
    """The session was idle for too long; open it again."""

    reason = "SESSION_EXPIRED"


class SessionClosedError(SessionError):
    """The session was closed; open a new one."""

    reason = "SESSION_CLOSED"


class SessionRecreatedError(SessionError):
    """The session is on another sandbox than expected; open it again to get its state."""

    reason = "SESSION_RECREATED"


class SessionParkedError(SessionError):
    """The session is parked; open it again, and it has its files."""

    reason = "SESSION_PARKED"


class SessionExistsError(SessionError):
    """The thread has an open or parked session, so nothing can be forked into it."""

    reason = "SESSION_EXISTS"


class SandboxLostError(SessionError):
    """The sandbox died or misbehaved and was destroyed; open the session again."""

    reason = "SANDBOX_LOST"


class SandboxEnvironmentError(SandboxError):
    """Category: errors about an environment."""


class EnvironmentNotFoundError(SandboxEnvironmentError):
    """The daemon has no environment of this name; the message lists those that it has."""

    reason = "ENVIRONMENT_NOT_FOUND"


class EnvironmentUnavailableError(SandboxEnvironmentError):
    """The daemon's host cannot build the environment; the message says why and what would help."""

    reason = "ENVIRONMENT_UNAVAILABLE"


class EnvironmentMismatchError(SandboxEnvironmentError):
    """The session is open with another environment, other packages or another command policy."""

    reason = "ENVIRONMENT_MISMATCH"


class EnvironmentBuildFailedError(SandboxEnvironmentError):
    """The build of the environment or of its packages failed; the message says why."""

    reason = "ENVIRONMENT_BUILD_FAILED"


class EnvironmentInUseError(SandboxEnvironmentError):
    """The environment cannot be deleted: it is the default, or has open sessions."""

    reason = "ENVIRONMENT_IN_USE"


class PackagesNotResolvedError(SandboxEnvironmentError):
    """No versions of the packages fit together, or one has none for the environment."""

    reason = "PACKAGES_NOT_RESOLVED"


class PackagesUnsafeError(SandboxEnvironmentError):
    """A package contains what no package needs, such as a path that leads out of it."""

    reason = "PACKAGES_UNSAFE"


class PackagesTooLargeError(SandboxEnvironmentError):
    """The packages, with what they depend on, are larger than a set may be."""

    reason = "PACKAGES_TOO_LARGE"


class PackagesBuildFailedError(SandboxEnvironmentError):
    """The packages could not be installed; the message says why."""

    reason = "PACKAGES_BUILD_FAILED"


class CommandError(SandboxError):
    """Category: errors about a command."""


class CommandNotStartableError(CommandError):
    """The command could not be started; `kind` says why.

    With `retry_after_seconds`, no process was available for it, after several attempts.

    Example:
        try:
            sandbox.commands.run(["no-such-program"])
        except CommandNotStartableError as error:
            print(error.kind)
    """

    reason = "COMMAND_NOT_STARTABLE"

    @property
    def kind(self) -> StartFailure:
        """Why, for programs: `no_program`, `not_executable`, `no_directory`, `no_shell` (the image
        has none for command lines, or for named shells), `too_many_shells`, `too_large` (more
        arguments than the kernel takes), `no_process` or `other`."""
        kind = self.metadata.get("kind", "")
        return cast(StartFailure, kind) if kind in get_args(StartFailure) else "other"


class ExecNotFoundError(CommandError):
    """The session has no command with this id, or it ended too long ago."""

    reason = "EXEC_NOT_FOUND"


class ExecConflictError(CommandError):
    """The session already has another command with this id."""

    reason = "EXEC_CONFLICT"


class ExecEndedError(CommandError):
    """The command has ended, or still waits for its shell, so the call cannot act on it."""

    reason = "EXEC_ENDED"


class CommandFailedError(CommandError):
    """A command run with `check=True` did not exit with 0; see `result`."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message)
        self.result = result


class CodeError(SandboxError):
    """Category: errors about code, contexts and the debugger."""


class ContextNotFoundError(CodeError):
    """The session has no context of this name."""

    reason = "CONTEXT_NOT_FOUND"


class ContextConflictError(CodeError):
    """The session has a context of this name with other settings; delete it first."""

    reason = "CONTEXT_CONFLICT"


class ContextLostError(CodeError):
    """The context is on another generation than expected: its variables are lost."""

    reason = "CONTEXT_LOST"


class ContextBusyError(CodeError):
    """A run is under way in the context; wait for its end, or interrupt it."""

    reason = "CONTEXT_BUSY"


class CodeNotAllowedError(CodeError, PermissionError):
    """The code policy refuses the code; the message names line and rule. Nothing has run."""

    reason = "CODE_NOT_ALLOWED"


class CodeUnavailableError(CodeError):
    """The sandbox cannot run code in this language; the message says why."""

    reason = "CODE_UNAVAILABLE"


class DebuggerError(CodeError):
    """The debugger cannot carry out a command; the message says why."""


class CodeFailedError(CodeError):
    """A run with `check=True` did not end as `ok`; see `run`."""

    def __init__(self, message: str, run: CodeRun) -> None:
        super().__init__(message)
        self.run = run


class FileError(SandboxError):
    """Category: errors about files of the workspace."""


class MissingFileError(FileError, FileNotFoundError):
    """There is nothing at this path."""

    reason = "FILE_NOT_FOUND"


class FileExistsInSandboxError(FileError, FileExistsError):
    """Something already exists at this path."""

    reason = "FILE_EXISTS"


class NotAFileError(FileError, IsADirectoryError):
    """The entry is not a regular file."""

    reason = "NOT_A_FILE"


class NotADirectoryInSandboxError(FileError, NotADirectoryError):
    """The entry is not a directory."""

    reason = "NOT_A_DIRECTORY"


class DirectoryNotEmptyError(FileError):
    """The directory is not empty; remove it recursively."""

    reason = "DIRECTORY_NOT_EMPTY"


class OutsideWorkspaceError(FileError):
    """The path leaves the workspace through a link."""

    reason = "OUTSIDE_WORKSPACE"


class ProtectedPathError(FileError, PermissionError):
    """The workspace itself, its layout and project_files/ cannot be removed or moved; outside of
    the workspace only /tmp and /var/tmp can be written.
    """

    reason = "PROTECTED_PATH"


class FileNotPermittedError(FileError, PermissionError):
    """Permissions forbid the operation."""

    reason = "FILE_NOT_PERMITTED"


class FileTooLargeError(FileError):
    """The file is larger than a file may be, or larger than the operation supports."""

    reason = "FILE_TOO_LARGE"


class WorkspaceFullError(FileError):
    """The workspace has no space left, in bytes or in files."""

    reason = "WORKSPACE_FULL"


class ChecksumMismatchError(FileError):
    """The received bytes differ from the sent ones; send them again."""

    reason = "CHECKSUM_MISMATCH"


class FileChangedError(FileError):
    """The file changed while it was read; read it again."""

    reason = "FILE_CHANGED"


class TextNotFoundError(FileError):
    """The text to replace does not occur as often as expected."""

    reason = "TEXT_NOT_FOUND"


class FileWorkInterruptedError(FileError):
    """A command killed or stopped the worker of the file operation; try again."""

    reason = "FILE_WORK_INTERRUPTED"


class UploadStalledError(FileError):
    """The upload paused for too long; nothing was written, send it again."""

    reason = "UPLOAD_STALLED"


class SnapshotError(SandboxError):
    """Category: errors about snapshots."""


class SnapshotNotFoundError(SnapshotError):
    """The session has no such snapshot, or it was deleted."""

    reason = "SNAPSHOT_NOT_FOUND"


class SnapshotDamagedError(SnapshotError):
    """Something that the snapshot needs is missing or damaged."""

    reason = "SNAPSHOT_DAMAGED"


class SnapshotsOffError(SnapshotError):
    """This daemon takes no snapshots."""

    reason = "SNAPSHOTS_OFF"


class SnapshotInUseError(SnapshotError):
    """A parked session has its files in this snapshot."""

    reason = "SNAPSHOT_IN_USE"


class WorkspaceUnreadableError(SnapshotError):
    """The filesystem of the workspace is damaged or is not one that the daemon makes."""

    reason = "WORKSPACE_UNREADABLE"


class DoorError(SandboxError):
    """Category: what a sandbox reaches, or how it is reached."""


class DoorsOffError(DoorError):
    """This daemon cannot open doors in sandboxes; the message says why."""

    reason = "DOORS_OFF"


class EgressNotAllowedError(DoorError, PermissionError):
    """The token does not allow to let a sandbox reach this host."""

    reason = "EGRESS_NOT_ALLOWED"


class PortNotListeningError(DoorError):
    """No program in the sandbox accepts connections on this port."""

    reason = "PORT_NOT_LISTENING"


class PreviewsUnavailableError(DoorError):
    """The listener of previews cannot be opened."""

    reason = "PREVIEWS_UNAVAILABLE"


class ProjectError(SandboxError):
    """Category: errors about projects and their files."""


class ProjectNotFoundError(ProjectError):
    """The user has no project with this id; create it."""

    reason = "PROJECT_NOT_FOUND"


class ProjectFullError(ProjectError):
    """A limit on the projects of the user, or on the files of one of them, is reached."""

    reason = "PROJECT_FULL"


class ProjectMismatchError(ProjectError):
    """The session is on another project, or on none, and keeps that until it is closed."""

    reason = "PROJECT_MISMATCH"


class FileTypeNotAllowedError(ProjectError, PermissionError):
    """The operator does not allow files of this type, or the content is not what the name says."""

    reason = "FILE_TYPE_NOT_ALLOWED"


class DataError(SandboxError):
    """A query of a data source did not end well."""


class DataSourceNotFoundError(DataError):
    """There is no data source of this name that the user, or the session, may use."""

    reason = "DATA_SOURCE_NOT_FOUND"


class StatementNotAllowedError(DataError):
    """The data source does not run this statement; the message says which rule it breaks."""

    reason = "STATEMENT_NOT_ALLOWED"


class QueryFailedError(DataError):
    """The database refused the statement; `metadata["sqlstate"]` has its code."""

    reason = "QUERY_FAILED"


class QueryTimedOutError(DataError):
    """The query took too long and was ended, in the database too."""

    reason = "QUERY_TIMED_OUT"


class QueryLimitReachedError(DataError):
    """The statement would change more rows than the data source allows, or needs more memory than
    queries may have; nothing was changed."""

    reason = "QUERY_LIMIT_REACHED"


class QueryOutcomeUnknownError(DataError):
    """The connection broke while a change was made: it may have been made or not."""

    reason = "QUERY_OUTCOME_UNKNOWN"


class ExhaustedError(SandboxError):
    """Category: a limit is reached; try again later."""


class PoolExhaustedError(ExhaustedError):
    """All sandboxes are in use."""

    reason = "POOL_EXHAUSTED"


class PortLimitReachedError(ExhaustedError):
    """The session has too many connections to its ports, or too many previews."""

    reason = "PORT_LIMIT_REACHED"


class SnapshotLimitReachedError(ExhaustedError):
    """The session or its user has as many snapshots, bytes of them or parked sessions as are
    allowed; the message says which limit it is. Delete some."""

    reason = "SNAPSHOT_LIMIT_REACHED"


class ExecLimitReachedError(ExhaustedError):
    """Too many commands run at the same time."""

    reason = "EXEC_LIMIT_REACHED"


class ContextLimitReachedError(ExhaustedError):
    """The session has the maximum number of contexts; delete one."""

    reason = "CONTEXT_LIMIT_REACHED"


class TooManyRequestsError(ExhaustedError):
    """Too many calls are being served at the same time, or come from this token."""

    reason = "TOO_MANY_REQUESTS"


class DiskSpaceLowError(ExhaustedError):
    """The host has too little disk space for another workspace."""

    reason = "DISK_SPACE_LOW"


class SessionLimitReachedError(ExhaustedError):
    """The user already has the maximum number of sessions."""

    reason = "SESSION_LIMIT_REACHED"


class OpenFilesExhaustedError(ExhaustedError):
    """The daemon has too few file descriptors left."""

    reason = "OPEN_FILES_EXHAUSTED"


class FileBusyError(ExhaustedError):
    """Too many file operations of this session run at the same time."""

    reason = "FILE_BUSY"


class EnvironmentBuildsBusyError(ExhaustedError):
    """Too many builds of environments run or wait."""

    reason = "ENVIRONMENT_BUILDS_BUSY"


class PackageCacheFullError(ExhaustedError):
    """Packages of open sessions fill the space that is there for packages."""

    reason = "PACKAGE_CACHE_FULL"


class QueriesBusyError(ExhaustedError):
    """Too many queries wait for a connection to the data source."""

    reason = "QUERIES_BUSY"


class UnavailableError(SandboxError):
    """Category: the daemon cannot serve this now, for any caller."""


class EngineUnreachableError(UnavailableError):
    """The container engine does not answer."""

    reason = "ENGINE_UNREACHABLE"


class EngineFailedError(UnavailableError):
    """The container engine failed or did not answer in time."""

    reason = "ENGINE_FAILED"


class DataSourceUnavailableError(UnavailableError):
    """The database of a data source cannot be reached, or its login must not be used."""

    reason = "DATA_SOURCE_UNAVAILABLE"


class DrainingError(UnavailableError):
    """The daemon is shutting down."""

    reason = "DRAINING"


class ImageNotFoundError(UnavailableError):
    """The sandbox image is not on the host."""

    reason = "IMAGE_NOT_FOUND"


class StateNotSavedError(UnavailableError):
    """The daemon cannot save its state; nothing was changed."""

    reason = "STATE_NOT_SAVED"


class OwnedElsewhereError(UnavailableError):
    """Another worker of the cluster has the session; nothing was done."""

    reason = "OWNED_ELSEWHERE"


class OwnershipUnknownError(UnavailableError):
    """The cluster cannot say at the moment which worker has the session; nothing was done."""

    reason = "OWNERSHIP_UNKNOWN"


class SessionReturningError(UnavailableError):
    """The daemon was restarted and has not reconnected to the session's sandbox yet."""

    reason = "SESSION_RETURNING"


class SnapshotStoreFailedError(UnavailableError):
    """The store of snapshots does not answer, or failed."""

    reason = "SNAPSHOT_STORE_FAILED"


class WorkspaceBusyError(UnavailableError):
    """Commands changed files all the time, so that no snapshot of one moment could be taken."""

    reason = "WORKSPACE_BUSY"


class EnvironmentNotReadyError(UnavailableError):
    """The environment or its packages are still being built."""

    reason = "ENVIRONMENT_NOT_READY"


class PackagesNotReadyError(UnavailableError):
    """The packages are still being built; `build_wait` waits for them."""

    reason = "PACKAGES_NOT_READY"


class PackageIndexUnreachableError(UnavailableError):
    """The package index does not answer."""

    reason = "PACKAGE_INDEX_UNREACHABLE"


class LocalModeError(UnavailableError):
    """No daemon can run in this process; the message says why and what to do."""


class ForkedError(SandboxError):
    """This process was forked from one that was using gRPC, or from the one with the daemon of
    local mode, so it can make no calls."""

    def __init__(
        self,
        message: str = "This process was forked while gRPC was in use, so gRPC does not work in "
        'it. Start it with spawn, as multiprocessing.get_context("spawn") does; or fork while no '
        "call is under way; or, if other code of the parent uses gRPC, begin to use it in a hook "
        "that runs after the fork (worker_process_init of Celery, post_fork of gunicorn).",
    ) -> None:
        super().__init__(message)


class ConnectionLostError(SandboxError, ConnectionError):
    """The daemon does not answer, or stopped answering during the call."""


class CallTimeoutError(SandboxError, TimeoutError):
    """The daemon did not answer in time. A command that times out is a result, not this."""


class NotAuthorizedError(SandboxError, PermissionError):
    """The token is missing, unknown, or does not allow the call."""


class UnauthenticatedError(NotAuthorizedError):
    """The token is missing or unknown. Set SANDBOXD_TOKEN."""

    reason = "UNAUTHENTICATED"


class NotPermittedError(NotAuthorizedError):
    """The token does not allow this call, or not for this user's sessions."""

    reason = "NOT_PERMITTED"


class PackagesNotAllowedError(NotAuthorizedError):
    """The operator does not allow a package to sessions; the message names it."""

    reason = "PACKAGES_NOT_ALLOWED"


class NotSupportedError(SandboxError):
    """This daemon does not support the call; it may be older than the client."""


class ConsoleOffError(SandboxError):
    """This daemon serves no web console."""

    reason = "CONSOLE_OFF"


class InternalError(SandboxError):
    """A bug in sandboxd; its log has the details under the error id in the message."""

    reason = "INTERNAL"


def _with_reason(kind: type[SandboxError]) -> dict[str, type[SandboxError]]:
    found = {kind.reason: kind} if "reason" in vars(kind) and kind.reason else {}
    for child in kind.__subclasses__():
        found.update(_with_reason(child))
    return found


BY_REASON: Mapping[str, type[SandboxError]] = _with_reason(SandboxError)
"""The class of every reason."""
