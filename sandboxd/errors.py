"""Everything that can go wrong and that a caller is told about.

::

    SandboxdError
    ├── Unauthenticated             nobody knows who calls
    ├── InvalidRequest              the request can never succeed as it is
    │   ├── RequestTooLarge
    │   └── InvalidArchive
    ├── NotFound
    │   ├── SessionNotFound
    │   ├── ExecNotFound
    │   ├── ImageNotFound
    │   └── FileNotFound
    ├── AlreadyExists
    │   ├── ExecConflict
    │   └── FileExists
    ├── WrongState                  something else has to happen first
    │   ├── SessionExpired
    │   ├── SessionClosed
    │   ├── SessionRecreated
    │   ├── ExecEnded
    │   ├── CommandNotStartable
    │   ├── NotAFile
    │   ├── NotADirectory
    │   ├── DirectoryNotEmpty
    │   ├── OutsideWorkspace
    │   ├── ProtectedPath
    │   ├── FileNotPermitted
    │   ├── FileTooLarge
    │   ├── WorkspaceFull
    │   └── TextNotFound
    ├── NotPermitted                a rule of the operator's forbids it
    │   ├── CallNotPermitted
    │   └── CommandNotAllowed
    ├── Exhausted                   try again after `retry_after_seconds`
    │   ├── PoolExhausted
    │   ├── ExecLimitReached
    │   ├── SessionLimitReached
    │   ├── DiskSpaceLow
    │   ├── OpenFilesExhausted
    │   ├── TooManyRequests
    │   └── FileBusy
    ├── Unavailable                 nothing is wrong with the request
    │   ├── EngineUnreachable
    │   ├── EngineFailed
    │   ├── StateNotSaved
    │   └── Draining
    └── Lost                        what was under way is gone
        ├── SandboxLost             the sandbox died or misbehaved and was destroyed
        ├── ChecksumMismatch
        ├── FileChanged
        ├── FileWorkInterrupted
        └── UploadStalled

Categories decide the gRPC status (service/status.py), leaves carry the reason, which names
a value of ErrorReason in error_reason.proto. A message is a sentence that says what to do next; it
names no host path and no container.
"""

from __future__ import annotations

from typing import ClassVar

MAX_MESSAGE = 1000
MAX_METADATA = 256
MAX_QUOTED = 80


def quoted(text: str) -> str:
    """A caller's own words, fit to be repeated in a message."""
    return repr(text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "...")


class SandboxdError(Exception):
    """Base of every error that is meant for a caller."""

    reason: ClassVar[str]

    def __init__(
        self,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        **metadata: str,
    ) -> None:
        # Callers' own words are repeated in it, and a status has to fit into a header.
        self.message = message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "..."
        super().__init__(self.message)
        self.retry_after_seconds = retry_after_seconds
        self.metadata = {key: value[:MAX_METADATA] for key, value in metadata.items()}


class Unauthenticated(SandboxdError):
    """The call has no token, or none that is known."""

    reason = "UNAUTHENTICATED"


class InvalidRequest(SandboxdError):
    """The request can never succeed as it is; `field` names the offending field."""

    reason = "INVALID_REQUEST"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}", field=field)
        self.field = field
        self.problem = problem[:MAX_MESSAGE]


class RequestTooLarge(InvalidRequest):
    """Command, arguments or environment exceed what the kernel or sandboxd accepts."""

    reason = "REQUEST_TOO_LARGE"


class InvalidArchive(InvalidRequest):
    """It is no archive that can be read."""

    reason = "INVALID_ARCHIVE"

    def __init__(self, problem: str) -> None:
        super().__init__("chunk", problem)


class NotFound(SandboxdError):
    """Category: the thing named does not exist."""


class SessionNotFound(NotFound):
    reason = "SESSION_NOT_FOUND"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"There is no session {quoted(session_id)}; open one with OpenSession.",
            sessionId=session_id,
        )


class ExecNotFound(NotFound):
    reason = "EXEC_NOT_FOUND"

    def __init__(self, exec_id: str) -> None:
        super().__init__(
            f"The session has no exec {quoted(exec_id)}; it was never started, or it ended too "
            "long ago. ListExecs tells which there are.",
            execId=exec_id,
        )


class ImageNotFound(NotFound):
    reason = "IMAGE_NOT_FOUND"

    def __init__(self, image: str) -> None:
        super().__init__(
            f"The sandbox image {image!r} is not on this host; build it with "
            "`./scripts/build_images` or set CONTAINER_IMAGE.",
            image=image,
        )


class FileNotFound(NotFound):
    reason = "FILE_NOT_FOUND"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"There is no {quoted(path)} in the workspace; ListFiles tells what there is.",
            path=path,
        )


class AlreadyExists(SandboxdError):
    """Category: the name is taken."""


class ExecConflict(AlreadyExists):
    reason = "EXEC_CONFLICT"

    def __init__(self, exec_id: str) -> None:
        super().__init__(
            f"Exec {quoted(exec_id)} is there already, with another command or other settings; use "
            "a new exec_id for a new command.",
            execId=exec_id,
        )


class FileExists(AlreadyExists):
    reason = "FILE_EXISTS"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"There is something at {quoted(path)} already; remove it, or ask to replace it.",
            path=path,
        )


class WrongState(SandboxdError):
    """Category: the request is fine, but not now."""


class SessionExpired(WrongState):
    reason = "SESSION_EXPIRED"

    def __init__(self, session_id: str, why: str) -> None:
        super().__init__(
            f"Session {session_id} {why}; its sandbox and files are gone. "
            "Call OpenSession for a fresh one.",
            sessionId=session_id,
        )


class SessionClosed(WrongState):
    reason = "SESSION_CLOSED"

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"Session {session_id} was closed; call OpenSession for a new one.",
            sessionId=session_id,
        )


class SessionRecreated(WrongState):
    reason = "SESSION_RECREATED"

    def __init__(self, session_id: str, *, asked: int, current: int) -> None:
        super().__init__(
            f"Session {session_id} is on incarnation {current}, not {asked}: its sandbox was "
            "replaced. Read `incarnation` and `workspace_kept` from OpenSession, and prepare again "
            "what is gone.",
            sessionId=session_id,
            incarnation=str(current),
        )


class ExecEnded(WrongState):
    """The exec is not there any more to be acted on."""

    reason = "EXEC_ENDED"

    def __init__(self, exec_id: str, problem: str) -> None:
        super().__init__(f"Exec {quoted(exec_id)} {problem}.", execId=exec_id)


class CommandNotStartable(WrongState):
    """The guest could not start the command: no such directory, program or shell; or no process for
    it just then, and another try may help."""

    reason = "COMMAND_NOT_STARTABLE"

    def __init__(self, problem: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(
            f"The command was not started: {problem}.", retry_after_seconds=retry_after_seconds
        )


class NotAFile(WrongState):
    reason = "NOT_A_FILE"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{quoted(path)} is not a regular file; StatFile tells what it is.", path=path
        )


class NotADirectory(WrongState):
    reason = "NOT_A_DIRECTORY"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{quoted(path)}, or something above it, is not a directory; StatFile tells what it "
            "is.",
            path=path,
        )


class DirectoryNotEmpty(WrongState):
    reason = "DIRECTORY_NOT_EMPTY"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"The directory {quoted(path)} is not empty; remove it with `recursive`, and stop what "
            "writes to it.",
            path=path,
        )


class OutsideWorkspace(WrongState):
    reason = "OUTSIDE_WORKSPACE"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{quoted(path)} leads out of the workspace, or in circles, through a symbolic link; "
            "copy what it points to into the workspace with a command.",
            path=path,
        )


class ProtectedPath(WrongState):
    reason = "PROTECTED_PATH"

    def __init__(self, path: str, problem: str = "is part of the layout of the workspace") -> None:
        super().__init__(
            f"{quoted(path)} {problem}; only what is below it can be removed or moved, within the "
            "same area.",
            path=path,
        )


class FileNotPermitted(WrongState):
    reason = "FILE_NOT_PERMITTED"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"The permissions of {quoted(path)}, or of a directory above it, forbid this; change "
            "them with a command, or use another path.",
            path=path,
        )


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
    """In bytes or in files; the figures are those of the area that it was meant for."""

    reason = "WORKSPACE_FULL"

    def __init__(self, path: str, **figures: int) -> None:
        super().__init__(
            f"The workspace has no room for {quoted(path)}; remove files that are done with.",
            path=path,
        )
        self.metadata |= {name: str(value) for name, value in figures.items()}


class TextNotFound(WrongState):
    reason = "TEXT_NOT_FOUND"

    def __init__(self, path: str, *, count: int, expected: int | None) -> None:
        wanted = "at least once" if expected is None else f"{expected} times"
        super().__init__(
            f"The text is {count} times in {quoted(path)}, not {wanted}; read the file and give "
            "the text exactly, with enough around it.",
            path=path,
            count=str(count),
        )


class NotPermitted(SandboxdError):
    """Category: a rule of the operator's forbids it."""


class CallNotPermitted(NotPermitted):
    """The caller is known and may not do this."""

    reason = "NOT_PERMITTED"


class CommandNotAllowed(NotPermitted):
    """The command policy refuses the command; nothing was started."""

    reason = "COMMAND_NOT_ALLOWED"

    def __init__(self, policy: str, *, rule: str, command: str, why: str) -> None:
        super().__init__(
            f"The policy `{policy}` refuses this command (rule {rule}): {why}",
            policy=policy,
            rule=rule,
            command=command,
        )


class Exhausted(SandboxdError):
    """Category: a limit is reached; it frees up by itself."""


class PoolExhausted(Exhausted):
    reason = "POOL_EXHAUSTED"


class ExecLimitReached(Exhausted):
    reason = "EXEC_LIMIT_REACHED"


class SessionLimitReached(Exhausted):
    """The user has as many sessions as a user may."""

    reason = "SESSION_LIMIT_REACHED"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"This user has {limit} sessions, which is as many as a user may; close one that is "
            "done, or try again when one has expired.",
            retry_after_seconds=10.0,
            limit=str(limit),
        )


class DiskSpaceLow(Exhausted):
    """Another workspace would leave less free space on the host than is kept in reserve."""

    reason = "DISK_SPACE_LOW"

    def __init__(self, free_bytes: int, reserve_bytes: int) -> None:
        super().__init__(
            f"The host has {free_bytes >> 20} MiB of disk space left, too little for another "
            f"workspace with {reserve_bytes >> 20} MiB in reserve; close sessions that are done, "
            "or try again later.",
            retry_after_seconds=10.0,
            freeBytes=str(free_bytes),
            reserveBytes=str(reserve_bytes),
        )


class OpenFilesExhausted(Exhausted):
    """Another sandbox would take file descriptors that the daemon needs for those it has."""

    reason = "OPEN_FILES_EXHAUSTED"

    def __init__(self, used: int, limit: int) -> None:
        super().__init__(
            f"The daemon has {used} of {limit} files open, too many for another sandbox; close "
            "sessions that are done, or try again later. An operator can raise the limit "
            "(LimitNOFILE= of the service, ulimit -n).",
            retry_after_seconds=5.0,
            openFiles=str(used),
            limit=str(limit),
        )


class TooManyRequests(Exhausted):
    reason = "TOO_MANY_REQUESTS"


class FileBusy(Exhausted):
    reason = "FILE_BUSY"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} calls are at work on the files of this session already; wait for one to end.",
            retry_after_seconds=1.0,
            limit=str(limit),
        )


class Unavailable(SandboxdError):
    """Category: the daemon cannot serve this now, whoever asks."""


class EngineUnreachable(Unavailable):
    """No Docker Engine answers."""

    reason = "ENGINE_UNREACHABLE"


class EngineFailed(Unavailable):
    """The engine answered with a failure, or not in time."""

    reason = "ENGINE_FAILED"


class StateNotSaved(Unavailable):
    """The registry cannot be written: the disk is full, or someone has the file locked."""

    reason = "STATE_NOT_SAVED"


class Draining(Unavailable):
    """The daemon is shutting down."""

    reason = "DRAINING"


class Lost(SandboxdError):
    """Category: what the caller was using, or what was under way, is gone."""


class SandboxLost(Lost):
    reason = "SANDBOX_LOST"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The sandbox of this session was lost ({why}); call OpenSession for a fresh one, "
            "which also says whether the files are still there.",
            why=why,
        )
        self.why = why


class ChecksumMismatch(Lost):
    """What arrived is not what was announced; nothing was written."""

    reason = "CHECKSUM_MISMATCH"

    def __init__(self, path: str, *, what: str, announced: str, arrived: str) -> None:
        super().__init__(
            f"What arrived for {quoted(path)} has another {what} than announced, and was not "
            "written; send it again.",
            path=path,
            announced=announced,
            arrived=arrived,
        )


class FileChanged(Lost):
    reason = "FILE_CHANGED"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{quoted(path)} became shorter while it was read; read it again.", path=path
        )


class FileWorkInterrupted(Lost):
    """The worker in the sandbox was ended, stopped, or says what cannot be."""

    reason = "FILE_WORK_INTERRUPTED"

    def __init__(self) -> None:
        super().__init__(
            "What was at work on the files was ended or stopped by a command of this session; "
            "try again."
        )


class UploadStalled(Lost):
    """Its caller is connected and sends nothing."""

    reason = "UPLOAD_STALLED"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"Nothing arrived of this upload for {seconds:g} s, so it was given up; send it again."
        )
