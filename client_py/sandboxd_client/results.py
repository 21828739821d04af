"""Results of calls. Each is a dict with the documented keys, and has typed attributes."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias

from sandboxd_client.errors import CommandFailedError
from sandboxd_client.records import Record, record
from sandboxd_proto.v1 import exec_pb2, files_pb2, session_pb2, snapshot_pb2

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

    from sandboxd_proto.v1 import exec_service_pb2, project_pb2

TIMED_OUT_CODE = 124
"""Exit code of a command that timed out, as with timeout(1)."""
SIGNAL_BASE = 128
"""Added to the number of the signal that ended a command, as shells do."""
NEVER_SEEN_CODE = -1
"""Exit code of a command whose end was not observed, as with a lost sandbox."""

StreamName: TypeAlias = Literal["stdout", "stderr"]
StateName: TypeAlias = Literal["active", "expired", "lost", "closed", "parked", "stopped"]
"""Whether a session can be used, and if not, why."""
SandboxPath: TypeAlias = str | bytes | os.PathLike[str]
"""A path in the sandbox: text, a path object, or the bytes of a name that is not UTF-8."""
Content: TypeAlias = str | bytes | IO[str] | IO[bytes]
"""What can be written to a file."""
OutputCallback: TypeAlias = Callable[[str], Awaitable[object] | object]
"""Receives text as it is written; may be a coroutine function."""
ProgressCallback: TypeAlias = Callable[[int], Awaitable[object] | object]
"""Receives the number of bytes transferred since the last call; may be a coroutine function."""

OnConflict: TypeAlias = Literal["rename", "replace", "fail"]
"""What to do if a project has a file of that name with other content."""


class Result(dict[str, Any]):
    """A dict whose keys are also attributes. Attributes that are not keys are further details."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no {name}") from None


def explain(result: Any, status: exec_pb2.ExitStatus) -> None:
    """Set `reason` and `hint`; they are keys as well if there is more to it than an exit."""
    result.reason, result.hint = exit_reason(status), status.hint
    if result.reason != "exited" or result.hint:
        result.update(reason=result.reason, hint=result.hint)


class SessionInfo(Result):
    """A session, and how it was opened.

    Example:
        info = client.get_or_create_session(user_id="ada", thread_id="42")
        print(info["session_id"], info.status, info.incarnation)
    """

    session_id: str
    status: str
    """`created`, `attached`, `recreated` or `unparked` if it was just opened; otherwise its
    state."""
    user_id: str
    thread_id: str
    incarnation: int
    """Number of the sandbox that the session is on, counted from 1."""
    workspace_dir: str
    workspace_kept: bool
    """Whether the files are as they were left; of a session that was not just opened, whether they
    are there."""
    created_at: str
    expires_at: str
    """ISO 8601 time; every use moves it. For a parked or stopped session, when its files are
    deleted."""
    metadata: dict[str, str]

    state: str
    """`active`, `expired`, `lost`, `closed`, `parked`, or `stopped`: it has no sandbox, but its
    files, and goes on when it is opened."""
    last_used_at: str
    """ISO 8601 time; for an ended session, when it ended."""
    idle_timeout_seconds: float
    """Idle time after which it expires."""
    running_execs: int
    end_reason: str
    limits: session_pb2.SessionLimits
    usage: session_pb2.SessionUsage | None
    """What its commands use now; None if it was not requested or cannot be measured."""
    project_id: str
    """Project whose files are in project_files/; empty if that directory is the session's own."""
    environment: str
    """Name of the environment that it was opened in."""
    packages: list[str]
    """Packages that it added to its environment."""
    command_policy: str
    """Name of the policy that its commands are checked with."""
    auto_snapshot: str
    """Which automatic snapshots it gets: `off`, `commands` or `turns`."""
    snapshots_paused_because: str
    """Why it gets none at the moment; empty if it does."""
    park_after_seconds: float
    """Idle time after which it is parked; 0 if it never is."""
    restored_snapshot: int
    """Number of the snapshot that its files were last restored from; 0 if they never were."""
    forked_from: str
    """Session that it was forked from; empty if it is no fork."""
    data_sources: list[str]
    """Data sources that it may query."""

    @classmethod
    def of(
        cls, session: session_pb2.Session, *, status: str = "", is_kept: bool = True
    ) -> SessionInfo:
        state = session_pb2.SessionState.Name(session.state).removeprefix("SESSION_STATE_").lower()
        info = cls(
            session_id=session.session_id,
            status=status or state,
            user_id=session.user_id,
            thread_id=session.thread_id,
            incarnation=session.incarnation,
            workspace_dir=session.workspace_dir,
            workspace_kept=is_kept and state in ("active", "parked", "stopped"),
            created_at=iso(session.create_time),
            expires_at=iso(session.expire_time),
            metadata=dict(session.metadata),
        )
        info.state = state
        info.idle_timeout_seconds = seconds_of(session.idle_timeout)
        used_at = _moment(session.expire_time)
        if state in ("active", "stopped"):
            used_at -= timedelta(seconds=info.idle_timeout_seconds)
        info.last_used_at = _iso_of(used_at)
        info.running_execs = session.running_execs
        info.end_reason = session.end_reason
        info.limits = session.limits
        info.usage = session.usage if session.HasField("usage") else None
        info.project_id = session.project_id
        info.environment = session.environment
        info.packages = list(session.environment_config.packages)
        info.command_policy = session.command_policy
        auto = snapshot_pb2.AutoSnapshot.Name(session.auto_snapshot)
        info.auto_snapshot = auto.removeprefix("AUTO_SNAPSHOT_").lower()
        info.snapshots_paused_because = session.snapshots_paused_because
        info.park_after_seconds = seconds_of(session.park_after)
        info.restored_snapshot = session.restored_snapshot
        info.forked_from = session.forked_from
        info.data_sources = list(session.data_sources)
        return info


class SessionList(list[SessionInfo]):
    """Sessions, oldest first.

    Example:
        sessions = client.list_sessions(state="active")
        if sessions.missing_workers:
            print("not complete:", sessions.missing_workers)
    """

    def __init__(
        self, sessions: Iterable[SessionInfo] = (), missing_workers: Iterable[str] = ()
    ) -> None:
        super().__init__(sessions)
        self.missing_workers: list[str] = sorted(set(missing_workers))
        """Workers of a cluster that did not answer: sessions that only they know are missing."""


@record(frozen=True)
class Usage(Record):
    """What a command used, as counted by the host."""

    peak_memory_bytes: int
    cpu_seconds: float
    peak_processes: int


class CommandResult(Result):
    """How a command ended, and what it wrote.

    Example:
        result = client.execute("ls missing")
        print(result["exit_code"], result.stderr, result.ok)
    """

    exit_code: int
    """Exit code; 128 + n if signal n ended it, 124 if it timed out, -1 if its end was not seen."""
    stdout: str
    stderr: str
    execution_time_ms: int

    exec_id: str
    reason: str
    """Why it ended: `exited`, `signalled`, `timed_out`, `out_of_memory`, `disk_full`, ... Also a
    key of the dict, as `hint` is, unless the command simply exited."""
    signal: int | None
    hint: str
    """One line for a model: what happened and what to do next; empty for a plain exit."""
    usage: Usage | None
    """None if the host could not measure it, as with a lost sandbox."""
    stdout_bytes: bytes
    """The output before decoding; omissions are not marked."""
    stderr_bytes: bytes
    stdout_omitted_bytes: int
    """Number of bytes left out in the middle of `stdout`, where a line marks them."""
    stderr_omitted_bytes: int
    session: SessionInfo | None = None
    """The session if it had to be opened again for this command; `workspace_kept` says whether its
    files were kept."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def check(self) -> CommandResult:
        """Return this result if the exit code is 0, otherwise raise CommandFailedError."""
        if self.ok:
            return self
        why = " ".join(filter(None, (self.hint, self.stderr.strip()[-500:])))
        message = f"the command ended with exit code {self.exit_code} ({self.reason})"
        raise CommandFailedError(f"{message}: {why}" if why else message, self)

    @classmethod
    def of(
        cls,
        exec_id: str,
        status: exec_pb2.ExitStatus,
        stdout: exec_pb2.CapturedOutput,
        stderr: exec_pb2.CapturedOutput,
    ) -> CommandResult:
        result = cls(
            exit_code=exit_code_of(status),
            stdout=text_of(stdout),
            stderr=text_of(stderr),
            execution_time_ms=round(seconds_of(status.duration) * 1000),
        )
        result.exec_id = exec_id
        explain(result, status)
        result.signal = status.signal if status.WhichOneof("outcome") == "signal" else None
        result.usage = usage_of(status)
        result.stdout_bytes, result.stderr_bytes = stdout.data, stderr.data
        result.stdout_omitted_bytes = stdout.omitted_bytes
        result.stderr_omitted_bytes = stderr.omitted_bytes
        return result


@record(frozen=True)
class OutputChunk(Record):
    """A piece of a command's output."""

    stream: StreamName
    offset: int
    """Position of the first byte in the stream."""
    data: bytes
    text: str
    """The bytes, decoded; a character that is cut at the end of a piece is in the next one."""


@record(frozen=True)
class OutputGap(Record):
    """Output that is no longer kept and cannot be read."""

    stream: StreamName
    offset: int
    size_bytes: int


CommandEvent: TypeAlias = OutputChunk | OutputGap


class CommandInfo(Result):
    """A command of the session, running or ended."""

    exec_id: str
    command: str
    state: str
    """`queued`, `running` or `ended`."""
    started_at: str
    pid: int | None
    """Number of its first process inside the sandbox; None if that is not known, as with a command
    that `run` waits for."""
    shell: str
    """Name of the shell that the command runs in; empty for an unnamed one."""
    has_terminal: bool
    has_stdin: bool
    stdout_bytes: int
    stderr_bytes: int
    exit_code: int | None
    reason: str | None

    @classmethod
    def of(cls, found: exec_pb2.Exec) -> CommandInfo:
        has_ended = found.HasField("exit")
        return cls(
            exec_id=found.exec_id,
            command=found.command,
            state=exec_pb2.ExecState.Name(found.state).removeprefix("EXEC_STATE_").lower(),
            started_at=iso(found.start_time),
            pid=found.pid or None,
            shell=found.shell_name,
            has_terminal=found.has_terminal,
            has_stdin=found.has_stdin,
            stdout_bytes=found.stdout_bytes,
            stderr_bytes=found.stderr_bytes,
            exit_code=exit_code_of(found.exit) if has_ended else None,
            reason=exit_reason(found.exit) if has_ended else None,
        )


@record(frozen=True)
class OutputSlice(Record):
    """A piece of kept output."""

    offset: int
    data: bytes
    dropped_bytes: int
    """Number of requested bytes before `offset` that are no longer kept."""
    total_bytes: int
    """Number of bytes in the whole stream so far."""
    ended: bool
    """True if no more output follows."""

    @classmethod
    def of(cls, found: exec_service_pb2.ReadOutputResponse) -> OutputSlice:
        return cls(found.offset, found.data, found.dropped_bytes, found.total_bytes, found.ended)


@record(frozen=True)
class OutputMatch(Record):
    """A line of output that a search found."""

    stream: StreamName
    line_number: int
    offset: int
    line: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @classmethod
    def of(cls, found: exec_pb2.OutputMatch) -> OutputMatch:
        is_stderr = found.stream == exec_pb2.OUTPUT_STREAM_STDERR
        return cls(
            "stderr" if is_stderr else "stdout",
            found.line_number,
            found.offset,
            _decoded(found.line),
            tuple(map(_decoded, found.before)),
            tuple(map(_decoded, found.after)),
        )


@record(frozen=True)
class OutputPreview(Record):
    """An output stream, shortened to a size that a model can read."""

    head: str
    tail: str
    """End of the stream; empty if nothing was left out."""
    omitted_bytes: int
    total_bytes: int

    @property
    def text(self) -> str:
        """Head and tail, with a line between them that says how much was left out."""
        return f"{self.head}{left_out(self.omitted_bytes)}{self.tail}"

    @classmethod
    def of(cls, found: exec_pb2.OutputPreview) -> OutputPreview:
        return cls(
            _decoded(found.head), _decoded(found.tail), found.omitted_bytes, found.total_bytes
        )


class FileInfo(Result):
    """A file, a directory or another named entry."""

    name: str
    path: str
    """Path relative to the workspace, or absolute outside of it."""
    type: str
    """`file`, `directory`, `symlink`, `fifo`, `socket` or `other`."""
    size_bytes: int
    modified: str
    """ISO 8601 time."""
    permissions: str
    """Permissions as `ls -l` shows them."""

    mode: int
    link_target: str
    path_bytes: bytes
    """Exact path if `path` is not exact."""

    @classmethod
    def of(cls, entry: files_pb2.FileEntry) -> FileInfo:
        info = cls(
            name=entry.name,
            path=entry.path,
            type=files_pb2.FileType.Name(entry.type).removeprefix("FILE_TYPE_").lower(),
            size_bytes=entry.size_bytes,
            modified=entry.modified,
            permissions=entry.permissions,
        )
        info.mode = entry.mode
        info.link_target = entry.link_target
        info.path_bytes = entry.path_bytes or entry.path.encode()
        return info


class ProjectInfo(Result):
    """A project of a user."""

    user_id: str
    project_id: str
    files: int
    """Number of files."""
    size_bytes: int
    """Bytes of all files together."""
    created_at: str
    """ISO 8601 time."""

    @classmethod
    def of(cls, project: project_pb2.Project) -> ProjectInfo:
        return cls(
            user_id=project.user_id,
            project_id=project.project_id,
            files=project.files,
            size_bytes=project.size_bytes,
            created_at=iso(project.create_time),
        )


class ProjectFileInfo(Result):
    """A file of a project."""

    name: str
    """Name that the file got, also in `project_files/`."""
    size_bytes: int
    mime_type: str
    """Type of the content, for example `text/csv`."""
    sha256: str
    """Checksum of the content in hexadecimal digits."""
    created_at: str
    """ISO 8601 time."""

    status: str = ""
    """`created`, `replaced` or `unchanged` if it was just sent; otherwise empty."""

    @classmethod
    def of(cls, file: project_pb2.ProjectFile, *, status: str = "") -> ProjectFileInfo:
        info = cls(
            name=file.name,
            size_bytes=file.size_bytes,
            mime_type=file.mime_type,
            sha256=file.sha256.hex(),
            created_at=iso(file.create_time),
        )
        info.status = status
        return info


@record(frozen=True)
class ProjectUsage(Record):
    """What the projects of a user hold, and the limits on that."""

    projects: int
    files: int
    size_bytes: int
    """Bytes of all files, to which the limits apply."""
    stored_bytes: int
    """Bytes on the daemon's disk: content that several files have is stored once."""
    max_projects: int
    max_size_bytes: int
    max_project_files: int
    max_project_bytes: int
    max_file_bytes: int


class ListedFile(Result):
    """A file of the workspace, in the result of list_files."""

    name: str
    """Path relative to the workspace."""
    size_bytes: int
    modified: str
    permissions: str


class FileListing(Result):
    """All files of a workspace.

    Example:
        files = client.list_files()
        print(files["total_files"], [file.name for file in files.files])
    """

    session_id: str
    workspace_dir: str
    files: list[ListedFile]
    total_files: int
    total_size_bytes: int

    @classmethod
    def of(cls, session: SessionInfo, entries: Sequence[FileInfo]) -> FileListing:
        files = [
            ListedFile(
                name=entry.path,
                size_bytes=entry.size_bytes,
                modified=entry.modified,
                permissions=entry.permissions,
            )
            for entry in entries
            if entry.type == "file"
        ]
        return cls(
            session_id=session.session_id,
            workspace_dir=session.workspace_dir,
            files=files,
            total_files=len(files),
            total_size_bytes=sum(file.size_bytes for file in files),
        )


class UploadResult(Result):
    """An uploaded file."""

    status: str
    """`uploaded`."""
    filename: str
    path: str
    """Absolute path, as commands see it."""
    size_bytes: int

    @classmethod
    def of(cls, session: SessionInfo, info: FileInfo) -> UploadResult:
        return cls(
            status="uploaded",
            filename=info.name,
            path=f"{session.workspace_dir}/{info.path}",
            size_bytes=info.size_bytes,
        )


class DownloadedFile(str):
    """Local path of a downloaded file, with methods to read it.

    `len()` and `decode()` are those of the content, for callers that expect bytes.
    """

    __slots__ = ()

    def __len__(self) -> int:
        return Path(self).stat().st_size

    def __bool__(self) -> bool:
        return True  # also if the file is empty

    def read_bytes(self) -> bytes:
        """Content of the file."""
        return Path(self).read_bytes()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Content as text."""
        return self.read_bytes().decode(encoding, errors)


@record(frozen=True)
class TextPage(Record):
    """Lines of a text file."""

    text: str
    first_line: int
    line_count: int
    total_lines: int
    truncated: bool
    """True if the file has more lines after these, or if the last one is cut."""
    invalid_utf8: bool = False
    """True if bytes that are not UTF-8 were replaced; the file is then probably not text."""


@record(frozen=True)
class GrepMatch(Record):
    """A line that a search found."""

    path: str
    line_number: int
    line: str


@record(frozen=True)
class GrepResult(Record):
    """Result of a search."""

    matches: tuple[GrepMatch, ...]
    complete: bool
    """True if everything was searched."""


@record(frozen=True)
class GlobResult(Record):
    """Entries that match a pattern."""

    entries: tuple[FileInfo, ...]
    complete: bool
    """True if these are all matching entries."""


@record(frozen=True)
class FileEvent(Record):
    """A change to one entry of the workspace."""

    kind: str
    """`created`, `modified`, `removed`, `moved`; `overflow` if changes were missed: list again."""
    path: str
    old_path: str = ""
    """Old path, for a move."""
    is_directory: bool = False


@record(frozen=True)
class TransferReport(Record):
    """Result of uploading or downloading a directory."""

    entries: int
    refused: tuple[tuple[str, str], ...]
    """Name and reason of entries that were left out, at most the first 1000."""
    refused_count: int


def exit_code_of(status: exec_pb2.ExitStatus) -> int:
    timeouts = (exec_pb2.EXIT_REASON_TIMED_OUT, exec_pb2.EXIT_REASON_NO_OUTPUT_TIMEOUT)
    if status.reason in timeouts:
        return TIMED_OUT_CODE
    match status.WhichOneof("outcome"):
        case "code":
            return status.code
        case "signal":
            return SIGNAL_BASE + status.signal
    return NEVER_SEEN_CODE


def exit_reason(status: exec_pb2.ExitStatus) -> str:
    return exec_pb2.ExitReason.Name(status.reason).removeprefix("EXIT_REASON_").lower()


def usage_of(status: exec_pb2.ExitStatus) -> Usage | None:
    if not status.HasField("usage"):
        return None
    usage = status.usage
    return Usage(usage.peak_memory_bytes, seconds_of(usage.cpu_time), usage.peak_processes)


def text_of(output: exec_pb2.CapturedOutput) -> str:
    if not output.omitted_bytes:
        return _decoded(output.data)
    head, tail = output.data[: output.omitted_at], output.data[output.omitted_at :]
    return f"{_decoded(head)}{left_out(output.omitted_bytes)}{_decoded(tail)}"


def left_out(count: int) -> str:
    return f"\n[... {count} bytes left out ...]\n" if count else ""


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def seconds_of(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def iso(time: Timestamp) -> str:
    return _iso_of(_moment(time))


def _moment(time: Timestamp) -> datetime:
    return datetime.fromtimestamp(time.seconds + time.nanos / 1e9, UTC)


def _iso_of(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
