"""Every error that is reported to callers.

::

    SandboxdError
    ├── Unauthenticated             the caller is unknown
    ├── InvalidRequest              the request can never succeed unchanged
    │   ├── RequestTooLarge
    │   └── InvalidArchive
    ├── NotFound
    │   ├── SessionNotFound
    │   ├── ExecNotFound
    │   ├── ContextNotFound
    │   ├── ImageNotFound
    │   ├── EnvironmentNotFound
    │   ├── FileNotFound
    │   ├── SnapshotNotFound
    │   ├── ProjectNotFound
    │   └── DataSourceNotFound
    ├── AlreadyExists
    │   ├── ExecConflict
    │   ├── SessionExists
    │   ├── ContextConflict
    │   └── FileExists
    ├── WrongState                  something else has to happen first
    │   ├── SessionExpired
    │   ├── SessionClosed
    │   ├── SessionRecreated
    │   ├── SessionParked
    │   ├── SnapshotsOff
    │   ├── ConsoleOff
    │   ├── SnapshotDamaged
    │   ├── SnapshotInUse
    │   ├── WorkspaceUnreadable
    │   ├── ExecEnded
    │   ├── CommandNotStartable
    │   ├── CodeUnavailable
    │   ├── NotAFile
    │   ├── NotADirectory
    │   ├── DirectoryNotEmpty
    │   ├── OutsideWorkspace
    │   ├── ProtectedPath
    │   ├── FileNotPermitted
    │   ├── FileTooLarge
    │   ├── WorkspaceFull
    │   ├── TextNotFound
    │   ├── ProjectFull
    │   ├── ProjectMismatch
    │   ├── EnvironmentUnavailable
    │   ├── EnvironmentMismatch
    │   ├── EnvironmentBuildFailed
    │   ├── PackagesNotResolved
    │   ├── PackagesUnsafe
    │   ├── PackagesTooLarge
    │   ├── PackagesBuildFailed
    │   ├── EnvironmentInUse
    │   ├── QueryFailed
    │   ├── QueryTimedOut
    │   ├── QueryLimitReached
    │   ├── DoorsOff
    │   ├── PortNotListening
    │   └── PreviewsUnavailable
    ├── NotPermitted                a rule of the operator forbids it
    │   ├── CallNotPermitted
    │   ├── CommandNotAllowed
    │   ├── CodeNotAllowed
    │   ├── FileTypeNotAllowed
    │   ├── PackagesNotAllowed
    │   ├── StatementNotAllowed
    │   └── EgressNotAllowed
    ├── Exhausted                   try again after `retry_after_seconds`
    │   ├── PoolExhausted
    │   ├── ExecLimitReached
    │   ├── ContextLimitReached
    │   ├── SessionLimitReached
    │   ├── SnapshotLimitReached
    │   ├── DiskSpaceLow
    │   ├── OpenFilesExhausted
    │   ├── TooManyRequests
    │   ├── FileBusy
    │   ├── PortLimitReached
    │   ├── EnvironmentBuildsBusy
    │   ├── PackageCacheFull
    │   └── QueriesBusy
    ├── Unavailable                 nothing is wrong with the request
    │   ├── EngineUnreachable
    │   ├── EngineFailed
    │   ├── StateNotSaved
    │   ├── SessionReturning
    │   ├── SnapshotStoreFailed
    │   ├── WorkspaceBusy
    │   ├── ContextBusy
    │   ├── EnvironmentNotReady
    │   ├── PackagesNotReady
    │   ├── PackageIndexUnreachable
    │   ├── DataSourceUnavailable
    │   ├── OwnedElsewhere
    │   ├── OwnershipNotKnown
    │   └── Draining
    └── Lost                        what was in progress is gone
        ├── SandboxLost             the sandbox died or misbehaved and was destroyed
        ├── ChecksumMismatch
        ├── ContextLost             the process of a context ended, with its variables
        ├── FileChanged
        ├── FileWorkInterrupted
        ├── QueryOutcomeUnknown     a change of a database may have been made or not
        └── UploadStalled

Categories decide the gRPC status (service/transport/status.py), leaves carry the reason, which is
the name of a value of ErrorReason in error_reason.proto. A message is a sentence that says what to
do next; it names no host path and no container.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

MAX_MESSAGE = 1000
MAX_METADATA = 256
MAX_QUOTED = 80


def quoted(text: str) -> str:
    """Text of a caller, shortened and escaped for a message."""
    return repr(text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "...")


class SandboxdError(Exception):
    """Base of every error that callers get."""

    reason: ClassVar[str]

    def __init__(
        self,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        **metadata: str,
    ) -> None:
        # It may repeat text of the caller, and a status has to fit into a header.
        self.message = message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "..."
        super().__init__(self.message)
        self.retry_after_seconds = retry_after_seconds
        self.metadata = {key: value[:MAX_METADATA] for key, value in metadata.items()}

    def add(self, sentence: str) -> None:
        """Say more to the caller."""
        self.message = f"{self.message} {sentence}"
        self.args = (self.message,)


class Unauthenticated(SandboxdError):
    """The call has no token, or an unknown one."""

    reason = "UNAUTHENTICATED"


class InvalidRequest(SandboxdError):
    """The request can never succeed unchanged; `field` names the offending field."""

    reason = "INVALID_REQUEST"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}", field=field)
        self.field = field
        self.problem = problem[:MAX_MESSAGE]


class RequestTooLarge(InvalidRequest):
    """Command, arguments or environment exceed what the kernel or sandboxd accepts."""

    reason = "REQUEST_TOO_LARGE"


class InvalidArchive(InvalidRequest):
    """The archive cannot be read."""

    reason = "INVALID_ARCHIVE"

    def __init__(self, problem: str) -> None:
        super().__init__("chunk", problem)


class NotFound(SandboxdError):
    """Category: the thing named does not exist."""


class SessionNotFound(NotFound):
    reason = "SESSION_NOT_FOUND"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"Session {quoted(session_id)} does not exist; open the session of the user's thread.",
            sessionId=session_id,
        )


class ExecNotFound(NotFound):
    reason = "EXEC_NOT_FOUND"

    def __init__(self, exec_id: str) -> None:
        super().__init__(
            f"The session has no command {quoted(exec_id)}: it was never started, ended too long "
            "ago, or was run without an id. List the commands of the session to see what it has.",
            execId=exec_id,
        )


class ContextNotFound(NotFound):
    reason = "CONTEXT_NOT_FOUND"

    def __init__(self, context: str) -> None:
        super().__init__(
            f"The session has no context {quoted(context)}. List its contexts, or run code in this "
            "one to create it.",
            context=context,
        )


class ImageNotFound(NotFound):
    reason = "IMAGE_NOT_FOUND"

    def __init__(self, image: str) -> None:
        super().__init__(
            f"The sandbox image {image!r} is not on this host; build it with "
            "`./scripts/build_images` or set CONTAINER_IMAGE.",
            image=image,
        )


class EnvironmentNotFound(NotFound):
    reason = "ENVIRONMENT_NOT_FOUND"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        listed = ", ".join(known)
        super().__init__(
            f"This daemon has no environment {quoted(name)}; it has {listed}. An operator adds one "
            "in the configuration.",
            environment=name,
            environments=listed,
        )


class FileNotFound(NotFound):
    reason = "FILE_NOT_FOUND"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{quoted(path)} does not exist; list the directory to see what does.",
            path=path,
        )


class ProjectNotFound(NotFound):
    reason = "PROJECT_NOT_FOUND"

    def __init__(self, project_id: str) -> None:
        super().__init__(
            f"This user has no project {quoted(project_id)}; create it first.",
            projectId=project_id,
        )


class DataSourceNotFound(NotFound):
    """There is no data source of this name that the caller may use."""

    reason = "DATA_SOURCE_NOT_FOUND"


class SnapshotNotFound(NotFound):
    """The session has no such snapshot, or it was deleted."""

    reason = "SNAPSHOT_NOT_FOUND"

    def __init__(self, snapshot: str) -> None:
        super().__init__(
            f"There is no snapshot {snapshot}; list the snapshots that the session has."
        )


class AlreadyExists(SandboxdError):
    """Category: the name is taken."""


class ExecConflict(AlreadyExists):
    reason = "EXEC_CONFLICT"

    def __init__(self, exec_id: str) -> None:
        super().__init__(
            f"Command {quoted(exec_id)} already exists with another text or other settings; use a "
            "new id for a new command.",
            execId=exec_id,
        )


class SessionExists(AlreadyExists):
    """The thread has a session that is open or parked."""

    reason = "SESSION_EXISTS"

    def __init__(self, thread_id: str) -> None:
        super().__init__(
            f"Thread {quoted(thread_id)} has a session; fork into another thread, or close it."
        )


class ContextConflict(AlreadyExists):
    reason = "CONTEXT_CONFLICT"

    def __init__(self, context: str, differs: str) -> None:
        super().__init__(
            f"Context {quoted(context)} already exists with another {differs}; delete it first, or "
            "use another name.",
            context=context,
        )


class FileExists(AlreadyExists):
    reason = "FILE_EXISTS"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{quoted(path)} already exists; remove it, or request that it be replaced.",
            path=path,
        )


class WrongState(SandboxdError):
    """Category: the request is valid, but not in this state."""


class SessionExpired(WrongState):
    reason = "SESSION_EXPIRED"

    def __init__(self, session_id: str, why: str) -> None:
        super().__init__(
            f"Session {session_id} {why}; its sandbox and files are gone. "
            "Open it again for a new one.",
            sessionId=session_id,
        )


class SessionClosed(WrongState):
    reason = "SESSION_CLOSED"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"Session {session_id} was closed; open a new one.",
            sessionId=session_id,
        )


class SessionRecreated(WrongState):
    reason = "SESSION_RECREATED"

    def __init__(self, session_id: str, *, asked: int, current: int) -> None:
        super().__init__(
            f"Session {session_id} is on incarnation {current}, not {asked}: its sandbox was "
            "replaced. Open the session again, read `incarnation` and `workspace_kept`, and "
            "restore what is gone.",
            sessionId=session_id,
            incarnation=str(current),
        )


class SessionParked(WrongState):
    """The session gave up its sandbox, and its files are in a snapshot."""

    reason = "SESSION_PARKED"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"Session {session_id} is parked; open it again, and it has its files.",
            session=session_id,
        )


class SnapshotsOff(WrongState):
    """This daemon takes no snapshots."""

    reason = "SNAPSHOTS_OFF"

    def __init__(self, why: str) -> None:
        super().__init__(f"This daemon takes no snapshots: {why}.")


class ConsoleOff(WrongState):
    """This daemon serves no web console."""

    reason = "CONSOLE_OFF"

    def __init__(self) -> None:
        super().__init__(
            "This daemon serves no web console: SANDBOXD_CONSOLE_PORT is 0, or another program has "
            "its port; set it to a free port and restart the daemon."
        )


class SnapshotDamaged(WrongState):
    """Something that a snapshot needs is missing or damaged."""

    reason = "SNAPSHOT_DAMAGED"

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The snapshot cannot be used: {problem}. Use another one; `sandboxd snapshot verify` "
            "names everything that is damaged."
        )
        self.problem = problem


class SnapshotInUse(WrongState):
    """A parked session has its files in this snapshot."""

    reason = "SNAPSHOT_IN_USE"

    def __init__(self, number: int) -> None:
        super().__init__(
            f"Snapshot {number} holds the files of the parked session; open the session first."
        )


class WorkspaceUnreadable(WrongState):
    """The filesystem of a workspace is damaged or is not one that we make."""

    reason = "WORKSPACE_UNREADABLE"

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"No snapshot of the workspace can be taken: {problem}. Download its files instead."
        )


class ExecEnded(WrongState):
    """The exec cannot be acted on: it has ended, or has not begun."""

    reason = "EXEC_ENDED"

    def __init__(self, exec_id: str, problem: str) -> None:
        super().__init__(f"Command {quoted(exec_id)} {problem}.", execId=exec_id)


class CommandNotStartable(WrongState):
    """The guest could not start the command: no such directory, program or shell; or no free
    process at that moment, in which case a retry may help. `kind` says which, for programs."""

    reason = "COMMAND_NOT_STARTABLE"

    def __init__(
        self, problem: str, *, kind: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(
            f"The command was not started: {problem}.",
            retry_after_seconds=retry_after_seconds,
            kind=kind,
        )


class CodeUnavailable(WrongState):
    """The sandbox cannot run code in this language."""

    reason = "CODE_UNAVAILABLE"

    def __init__(self, language: str, why: str) -> None:
        super().__init__(f"This sandbox cannot run {language} code: {why}", language=language)


class NotAFile(WrongState):
    reason = "NOT_A_FILE"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{quoted(path)} is not a regular file; list its directory to see what it is.",
            path=path,
        )


class NotADirectory(WrongState):
    reason = "NOT_A_DIRECTORY"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{quoted(path)}, or something above it, is not a directory; list what is above it to "
            "see its type.",
            path=path,
        )


class DirectoryNotEmpty(WrongState):
    reason = "DIRECTORY_NOT_EMPTY"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"The directory {quoted(path)} is not empty; remove it recursively, and stop commands "
            "that write to it.",
            path=path,
        )


class OutsideWorkspace(WrongState):
    reason = "OUTSIDE_WORKSPACE"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"A symbolic link in {quoted(path)} leads out of the workspace or is part of a loop; "
            "to follow it, give the absolute path of its target.",
            path=path,
        )


class ProtectedPath(WrongState):
    reason = "PROTECTED_PATH"

    def __init__(
        self,
        path: str,
        problem: str = "is part of the layout of the workspace",
        advice: str = "you can only remove or move what is below it, within the same area",
    ) -> None:
        super().__init__(f"{quoted(path)} {problem}; {advice}.", path=path)


class FileNotPermitted(WrongState):
    reason = "FILE_NOT_PERMITTED"

    def __init__(
        self,
        path: str,
        problem: str = "The permissions of {path}, or of a directory above it, forbid this",
        advice: str = "change them with a command, or use another path",
    ) -> None:
        super().__init__(f"{problem.format(path=quoted(path))}; {advice}.", path=path)


class FileTooLarge(WrongState):
    reason = "FILE_TOO_LARGE"

    def __init__(self, path: str, *, limit_bytes: int, size_bytes: int | None = None) -> None:
        has = "would be larger" if size_bytes is None else f"has {size_bytes} bytes, more"
        super().__init__(
            f"{quoted(path)} {has} than the {limit_bytes} bytes that are allowed here; split it.",
            path=path,
            limitBytes=str(limit_bytes),
        )
        if size_bytes is not None:
            self.metadata["sizeBytes"] = str(size_bytes)


class WorkspaceFull(WrongState):
    """The limit on bytes or on files is reached; the figures are those of the target area."""

    reason = "WORKSPACE_FULL"

    def __init__(self, path: str, *, place: str = "The workspace", **figures: int) -> None:
        super().__init__(
            f"{place} has no room for {quoted(path)}; remove files that are no longer needed.",
            path=path,
        )
        self.metadata |= {name: str(value) for name, value in figures.items()}


class TextNotFound(WrongState):
    reason = "TEXT_NOT_FOUND"

    def __init__(self, path: str, *, count: int, expected: int | None) -> None:
        wanted = "at least once" if expected is None else f"{expected} times"
        super().__init__(
            f"{quoted(path)} contains the text {count} times, not {wanted}; read the file and send "
            "the exact text with enough of its surroundings.",
            path=path,
            count=str(count),
        )


class EnvironmentUnavailable(WrongState):
    """This host cannot build the environment."""

    reason = "ENVIRONMENT_UNAVAILABLE"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"This host cannot build the environment {name}: {why}", environment=name)


class EnvironmentMismatch(WrongState):
    """The session is open with another environment, other packages or another policy."""

    reason = "ENVIRONMENT_MISMATCH"

    def __init__(self, field: str, *, asked: str, current: str) -> None:
        super().__init__(
            f"The session is open with {field} {quoted(current)}, not {quoted(asked)}; close it "
            f"first, or omit {field} to attach to it as it is.",
            field=field,
            asked=asked,
            current=current,
        )


class EnvironmentBuildFailed(WrongState):
    """A build ended without a result."""

    reason = "ENVIRONMENT_BUILD_FAILED"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"The build of {name} failed: {why}", environment=name)


class EnvironmentInUse(WrongState):
    reason = "ENVIRONMENT_IN_USE"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"The environment {name} cannot be deleted: {why}.", environment=name)


class ProjectFull(WrongState):
    """A limit on the projects of a user, or on the files of one of them, is reached."""

    reason = "PROJECT_FULL"

    def __init__(self, problem: str, limit: int) -> None:
        super().__init__(
            f"{problem}, which is the limit; delete files or projects that are no longer needed.",
            limit=str(limit),
        )


class ProjectMismatch(WrongState):
    reason = "PROJECT_MISMATCH"

    def __init__(self, session_id: str, *, asked: str, current: str) -> None:
        has = f"is on project {quoted(current)}" if current else "is on no project"
        super().__init__(
            f"Session {session_id} {has}, not on {quoted(asked)}, and keeps that until it is "
            "closed; close it first, or use another thread_id.",
            sessionId=session_id,
            projectId=current,
        )


class PackagesNotResolved(WrongState):
    """No versions of the packages fit together, or one has none for the environment."""

    reason = "PACKAGES_NOT_RESOLVED"

    def __init__(self, why: str) -> None:
        super().__init__(f"The packages cannot be had together for this environment: {why}")


class PackagesUnsafe(WrongState):
    """A package contains what no package needs, such as a path that leads out of it."""

    reason = "PACKAGES_UNSAFE"

    def __init__(self, package: str, problem: str) -> None:
        super().__init__(
            f"The package {package} was refused: {problem}. Use another version, or another "
            "package.",
            package=package,
        )


class PackagesTooLarge(WrongState):
    """The packages, with what they depend on, are larger than a set may be."""

    reason = "PACKAGES_TOO_LARGE"

    def __init__(self, what: str, limit: str) -> None:
        super().__init__(
            f"The packages with what they depend on have more than the {limit} that a set may "
            f"have ({what}); ask for fewer packages, or ask the operator to raise "
            "SANDBOXD_PACKAGES_SET_MB.",
            limit=limit,
        )


class PackagesBuildFailed(WrongState):
    """A set of packages could not be built, for another reason."""

    reason = "PACKAGES_BUILD_FAILED"

    def __init__(self, why: str) -> None:
        super().__init__(f"The packages could not be installed: {why}")


class QueryFailed(WrongState):
    """The database refused the statement; the metadata has its SQLSTATE."""

    reason = "QUERY_FAILED"


class QueryTimedOut(WrongState):
    """The query took too long and was ended, in the database too."""

    reason = "QUERY_TIMED_OUT"


class QueryLimitReached(WrongState):
    """The statement would change too many rows, or needs too much memory; nothing was changed."""

    reason = "QUERY_LIMIT_REACHED"


class DoorsOff(WrongState):
    """The daemon cannot make sockets in sandboxes."""

    reason = "DOORS_OFF"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"This daemon cannot open doors in sandboxes ({why}); `sandboxd doctor` reports what "
            "it lacks.",
            why=why,
        )


class PortNotListening(WrongState):
    """No program in the sandbox accepts connections there."""

    reason = "PORT_NOT_LISTENING"

    def __init__(self, port: int) -> None:
        super().__init__(
            f"No program in the sandbox accepts connections on port {port} of its loopback; start "
            "one there.",
            port=str(port),
        )


class PreviewsUnavailable(WrongState):
    """The listener of previews cannot be opened."""

    reason = "PREVIEWS_UNAVAILABLE"

    def __init__(self, why: str) -> None:
        super().__init__(f"Previews are not available: {why}.")


class NotPermitted(SandboxdError):
    """Category: a rule of the operator forbids it."""


class CallNotPermitted(NotPermitted):
    """The caller is known, but may not do this."""

    reason = "NOT_PERMITTED"


class CommandNotAllowed(NotPermitted):
    """The command policy refused the command; nothing was started."""

    reason = "COMMAND_NOT_ALLOWED"

    def __init__(self, policy: str, *, rule: str, command: str, why: str) -> None:
        super().__init__(
            f"The policy `{policy}` refuses this command (rule {rule}): {why}",
            kind="policy",
            policy=policy,
            rule=rule,
            command=command,
        )


class CodeNotAllowed(NotPermitted):
    """The code policy refused the code; nothing has run."""

    reason = "CODE_NOT_ALLOWED"

    def __init__(self, policy: str, *, rule: str, line: int, name: str, why: str) -> None:
        super().__init__(
            f"The policy `{policy}` refuses line {line} (rule {rule}): {why}",
            policy=policy,
            rule=rule,
            line=str(line),
            name=name,
        )


class FileTypeNotAllowed(NotPermitted):
    """The operator does not allow files of this type in projects; nothing was stored."""

    reason = "FILE_TYPE_NOT_ALLOWED"

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(
            f"{quoted(name)} was not stored: {problem}. An operator can allow more with "
            "SANDBOXD_PROJECT_FILE_TYPES.",
            name=name,
        )


class EgressNotAllowed(NotPermitted):
    """The caller may not give a session this way out."""

    reason = "EGRESS_NOT_ALLOWED"

    def __init__(self, rule: str, *, allowed: Iterable[str]) -> None:
        may = ", ".join(allowed) or "nothing"
        super().__init__(
            f"The rule {quoted(rule)} is beyond what this token may ask for ({may}); ask the "
            "operator to add it to SANDBOXD_EGRESS_ALLOW, or to `egress=` of the token.",
            rule=rule,
        )


class PackagesNotAllowed(NotPermitted):
    """The operator does not allow a package to sessions."""

    reason = "PACKAGES_NOT_ALLOWED"


class StatementNotAllowed(NotPermitted):
    """The data source does not run this statement; the metadata has the rule."""

    reason = "STATEMENT_NOT_ALLOWED"


class Exhausted(SandboxdError):
    """Category: a limit is reached; a retry may succeed later."""


class PoolExhausted(Exhausted):
    reason = "POOL_EXHAUSTED"


class ExecLimitReached(Exhausted):
    reason = "EXEC_LIMIT_REACHED"


class PortLimitReached(Exhausted):
    """A session has too many connections to its ports, or too many previews."""

    reason = "PORT_LIMIT_REACHED"

    def __init__(self) -> None:
        super().__init__(
            "This session has as many connections to its ports, or as many previews, as it may "
            "have; close some, and try again.",
            retry_after_seconds=1.0,
        )


class ContextLimitReached(Exhausted):
    """The session has as many contexts as allowed."""

    reason = "CONTEXT_LIMIT_REACHED"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The session has {limit} contexts, the most that are allowed; delete one that is no "
            "longer needed.",
            retry_after_seconds=10.0,
            limit=str(limit),
        )


class SessionLimitReached(Exhausted):
    """The user has as many sessions as allowed."""

    reason = "SESSION_LIMIT_REACHED"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"This user has {limit} sessions, the most that are allowed; close one that is no "
            "longer needed, or try again when one has expired.",
            retry_after_seconds=10.0,
            limit=str(limit),
        )


class SnapshotLimitReached(Exhausted):
    """A session or a user has as many snapshots, or bytes of them, as are allowed."""

    reason = "SNAPSHOT_LIMIT_REACHED"

    def __init__(self, problem: str, what_to_do: str, *, limit: int, setting: str) -> None:
        super().__init__(
            f"{problem}, the most that is allowed; {what_to_do}. An operator can raise {setting}.",
            limit=str(limit),
            setting=setting,
        )


class DiskSpaceLow(Exhausted):
    """Something new would leave less free space on the host than is kept in reserve.

    Without figures: a file could not be written because a disk of the host is full.
    """

    reason = "DISK_SPACE_LOW"

    def __init__(
        self,
        free_bytes: int | None = None,
        reserve_bytes: int = 0,
        *,
        thing: str = "workspace",
        what_to_do: str = "close sessions that are done, or try again later.",
    ) -> None:
        if free_bytes is None:
            super().__init__(f"A disk of the host is full; {what_to_do}", retry_after_seconds=10.0)
            return
        super().__init__(
            f"The host has {free_bytes >> 20} MiB of disk space left, too little for another "
            f"{thing} with {reserve_bytes >> 20} MiB in reserve; {what_to_do}",
            retry_after_seconds=10.0,
            freeBytes=str(free_bytes),
            reserveBytes=str(reserve_bytes),
        )


class OpenFilesExhausted(Exhausted):
    """Another sandbox would take file descriptors that the daemon needs for existing ones."""

    reason = "OPEN_FILES_EXHAUSTED"

    def __init__(self, used: int, limit: int) -> None:
        super().__init__(
            f"The daemon has {used} of {limit} files open, too many for another sandbox; close "
            "sessions that are no longer needed, or try again later. An operator can raise the "
            "limit (LimitNOFILE= of the service, ulimit -n).",
            retry_after_seconds=5.0,
            openFiles=str(used),
            limit=str(limit),
        )


class TooManyRequests(Exhausted):
    reason = "TOO_MANY_REQUESTS"


class QueriesBusy(Exhausted):
    """Too many queries wait for a connection to the data source."""

    reason = "QUERIES_BUSY"


class FileBusy(Exhausted):
    reason = "FILE_BUSY"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} calls are already working on the files of this session; wait for one to end.",
            retry_after_seconds=1.0,
            limit=str(limit),
        )


class EnvironmentBuildsBusy(Exhausted):
    """Too many builds run or wait."""

    reason = "ENVIRONMENT_BUILDS_BUSY"

    def __init__(self, limit: int, *, whose: str = "") -> None:
        super().__init__(
            f"{limit} builds{whose} run or wait already; try again when one of them has ended.",
            retry_after_seconds=15.0,
            limit=str(limit),
        )


class PackageCacheFull(Exhausted):
    """Open sessions use all the space that is there for packages."""

    reason = "PACKAGE_CACHE_FULL"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"Packages of open sessions fill the {limit_bytes >> 20} MiB that are there for all "
            "packages; try again when sessions have ended. An operator can raise "
            "SANDBOXD_PACKAGES_TOTAL_MB.",
            retry_after_seconds=30.0,
            limitBytes=str(limit_bytes),
        )


class Unavailable(SandboxdError):
    """Category: the daemon cannot serve this now, regardless of the caller."""


class EngineUnreachable(Unavailable):
    """No Docker Engine answers."""

    reason = "ENGINE_UNREACHABLE"


class EngineFailed(Unavailable):
    """The engine answered with a failure, or not in time."""

    reason = "ENGINE_FAILED"


class StateNotSaved(Unavailable):
    """The registry cannot be written: the disk is full, or the file is locked."""

    reason = "STATE_NOT_SAVED"


class SessionReturning(Unavailable):
    """The daemon was restarted and has not reconnected to the session's sandbox yet."""

    reason = "SESSION_RETURNING"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"The daemon was restarted and is still reconnecting to session {quoted(session_id)}; "
            "try again in a few seconds.",
            retry_after_seconds=2.0,
            sessionId=session_id,
        )


class SnapshotStoreFailed(Unavailable):
    """The store of snapshots does not answer, or failed."""

    reason = "SNAPSHOT_STORE_FAILED"

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The store of snapshots failed: {problem}. Try again in a few seconds.",
            retry_after_seconds=5.0,
        )


class WorkspaceBusy(Unavailable):
    """Commands changed the workspace all the time."""

    reason = "WORKSPACE_BUSY"

    def __init__(self) -> None:
        super().__init__(
            "Commands changed files all the time, so there is no moment to take; try again when "
            "they pause.",
            retry_after_seconds=1.0,
        )


class ContextBusy(Unavailable):
    """A run is under way in the context."""

    reason = "CONTEXT_BUSY"

    def __init__(self, context: str, exec_id: str) -> None:
        super().__init__(
            f"Context {quoted(context)} is busy with the run {quoted(exec_id)}; wait for its end, "
            "or interrupt the context.",
            retry_after_seconds=1.0,
            context=context,
            execId=exec_id,
        )


class EnvironmentNotReady(Unavailable):
    """The environment or its packages are still being built."""

    reason = "ENVIRONMENT_NOT_READY"

    def __init__(
        self, name: str, *, step: str, fraction: float, retry_after_seconds: float = 5.0
    ) -> None:
        super().__init__(
            f"The environment {name} is being built: {step}, {fraction:.0%} done. Try again in a "
            "few seconds, or set `build_wait` to wait for it.",
            retry_after_seconds=retry_after_seconds,
            environment=name,
            step=step,
            fraction=f"{fraction:.3f}",
        )


class PackagesNotReady(Unavailable):
    """A set of packages is still being built."""

    reason = "PACKAGES_NOT_READY"

    def __init__(
        self, packages: str, *, step: str, fraction: float, retry_after_seconds: float
    ) -> None:
        super().__init__(
            f"The packages {quoted(packages)} are being prepared: {step}, {fraction:.0%} done. Try "
            "again in a few seconds, or set `build_wait` to wait for them.",
            retry_after_seconds=retry_after_seconds,
            packages=packages,
            step=step,
            fraction=f"{fraction:.3f}",
        )


class PackageIndexUnreachable(Unavailable):
    """The package index does not answer."""

    reason = "PACKAGE_INDEX_UNREACHABLE"

    def __init__(self, why: str, *, setting: str) -> None:
        super().__init__(
            f"The package index cannot be reached ({why}); try again later. An operator sets it "
            f"with {setting}.",
            retry_after_seconds=10.0,
        )


class DataSourceUnavailable(Unavailable):
    """The database of a data source cannot be reached, or its login must not be used."""

    reason = "DATA_SOURCE_UNAVAILABLE"


class OwnedElsewhere(Unavailable):
    """Another worker of the cluster has the session. Nothing was done."""

    reason = "OWNED_ELSEWHERE"

    def __init__(self, worker: str, address: str, epoch: int) -> None:
        super().__init__(
            f"Worker {quoted(worker)} has this session; send the call to {address}, or to any "
            "worker without the `sandboxd-accept-redirect` metadata.",
            retry_after_seconds=0.0,
            worker=worker,
            address=address,
            epoch=str(epoch),
        )


class OwnershipNotKnown(Unavailable):
    """The cluster cannot say at the moment which worker has a session. Nothing was done."""

    reason = "OWNERSHIP_UNKNOWN"

    def __init__(self, why: str, retry_after_seconds: float) -> None:
        super().__init__(
            f"It is not known at the moment which worker has this session ({why}); try again in a "
            "few seconds.",
            retry_after_seconds=retry_after_seconds,
        )


class Draining(Unavailable):
    """The daemon is shutting down."""

    reason = "DRAINING"

    def __init__(self) -> None:
        super().__init__(
            "The daemon is shutting down; try again when it is back, or use another one.",
            retry_after_seconds=5.0,
        )


class Lost(SandboxdError):
    """Category: what the caller was using, or what was in progress, is gone."""


class SandboxLost(Lost):
    reason = "SANDBOX_LOST"

    def __init__(self, why: str, *, is_kept: bool = False) -> None:
        """`is_kept`: whether its files are known to be there."""
        super().__init__(
            f"This session was stopped ({why}) and its files are kept; open it again to go on."
            if is_kept
            else f"The sandbox of this session was lost ({why}); open the session again for a new "
            "one. `workspace_kept` then says whether the files were kept.",
            why=why,
        )
        self.why = why


class ContextLost(Lost):
    """The context is on another generation than the caller expects."""

    reason = "CONTEXT_LOST"

    def __init__(self, context: str, *, expected: int, current: int) -> None:
        super().__init__(
            f"Context {quoted(context)} is on generation {current}, not {expected}: its process "
            "ended, and its variables are lost. Run the code that they need again.",
            context=context,
            generation=str(current),
        )


class ChecksumMismatch(Lost):
    """The data does not match what was announced; nothing was written."""

    reason = "CHECKSUM_MISMATCH"

    def __init__(self, path: str, *, what: str, announced: str, arrived: str) -> None:
        super().__init__(
            f"The data received for {quoted(path)} has a different {what} than announced and was "
            "not written; send it again.",
            path=path,
            announced=announced,
            arrived=arrived,
        )


class FileChanged(Lost):
    reason = "FILE_CHANGED"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{quoted(path)} was shortened while it was read; read it again.", path=path
        )


class FileWorkInterrupted(Lost):
    """The worker in the sandbox was killed or stopped, or sent an impossible answer."""

    reason = "FILE_WORK_INTERRUPTED"

    def __init__(self) -> None:
        super().__init__(
            "A command of this session killed or stopped the worker that served this call; try "
            "again."
        )


class QueryOutcomeUnknown(Lost):
    """The connection broke while a change was made."""

    reason = "QUERY_OUTCOME_UNKNOWN"


class UploadStalled(Lost):
    """The caller is connected, but sends nothing."""

    reason = "UPLOAD_STALLED"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"No data of this upload arrived for {seconds:g} s, so it was aborted; send it again."
        )
