"""Everything that can go wrong and that a caller is told about.

::

    SandboxdError
    ├── InvalidRequest              the request can never succeed as it is
    │   └── RequestTooLarge
    ├── NotFound
    │   ├── SessionNotFound
    │   ├── ExecNotFound
    │   └── ImageNotFound
    ├── AlreadyExists
    │   └── ExecConflict
    ├── WrongState                  something else has to happen first
    │   ├── SessionExpired
    │   ├── SessionClosed
    │   ├── SessionRecreated
    │   ├── ExecEnded
    │   └── CommandNotStartable
    ├── Exhausted                   try again after `retry_after_seconds`
    │   ├── PoolExhausted
    │   ├── ExecLimitReached
    │   ├── DiskSpaceLow
    │   └── TooManyRequests
    ├── Unavailable                 nothing is wrong with the request
    │   ├── EngineUnreachable
    │   ├── EngineFailed
    │   └── Draining
    └── Lost
        └── SandboxLost             the sandbox died or misbehaved and was destroyed

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


class Exhausted(SandboxdError):
    """Category: a limit is reached; it frees up by itself."""


class PoolExhausted(Exhausted):
    reason = "POOL_EXHAUSTED"


class ExecLimitReached(Exhausted):
    reason = "EXEC_LIMIT_REACHED"


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


class TooManyRequests(Exhausted):
    reason = "TOO_MANY_REQUESTS"


class Unavailable(SandboxdError):
    """Category: the daemon cannot serve this now, whoever asks."""


class EngineUnreachable(Unavailable):
    """No Docker Engine answers."""

    reason = "ENGINE_UNREACHABLE"


class EngineFailed(Unavailable):
    """The engine answered with a failure, or not in time."""

    reason = "ENGINE_FAILED"


class Draining(Unavailable):
    """The daemon is shutting down."""

    reason = "DRAINING"


class Lost(SandboxdError):
    """Category: what the caller was using is gone."""


class SandboxLost(Lost):
    reason = "SANDBOX_LOST"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The sandbox of this session was lost ({why}); call OpenSession for a fresh one, "
            "which also says whether the files are still there.",
            why=why,
        )
        self.why = why
