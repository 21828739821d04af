"""What tools answer. Each is described to the client by its schema."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from sandboxd_client.results import CommandInfo, FileInfo
from sandboxd_client.snapshot_results import SnapshotInfo


class CommandAnswer(BaseModel):
    """How a command ended."""

    state: Literal["ended", "running"]
    exit_code: int | None = Field(
        default=None, description="128 + n if signal n ended it, 124 if it timed out."
    )
    stdout: str = ""
    stderr: str = ""
    reason: str = Field(
        default="", description="Why it ended, such as exited, timed_out, out_of_memory."
    )
    hint: str = Field(
        default="", description="What happened beyond the exit code, and what to do next."
    )
    is_shortened: bool = Field(
        default=False, description="Whether output was left out in the middle."
    )
    output_id: str = Field(description="For read_output, stop_command and send_input.")
    notice: str = Field(
        default="", description="What changed in the workspace since the last command."
    )


class OutputAnswer(BaseModel):
    """A piece of a command's output."""

    text: str
    next_offset: int | None = Field(description="Where the next piece begins; null at the end.")
    total_bytes: int
    state: str = Field(default="", description="queued, running or ended")
    exit_code: int | None = None


class CommandState(BaseModel):
    """A command as it is now."""

    output_id: str
    state: str
    exit_code: int | None

    @classmethod
    def of(cls, info: CommandInfo) -> CommandState:
        return cls(output_id=info.exec_id, state=info.state, exit_code=info.exit_code)


class TextAnswer(BaseModel):
    """Lines of a text file."""

    path: str
    text: str
    first_line: int
    line_count: int
    total_lines: int
    is_complete: bool = Field(description="Whether this is the rest of the file.")


class Entry(BaseModel):
    """A file or directory."""

    path: str
    type: str
    size_bytes: int
    modified: str

    @classmethod
    def of(cls, info: FileInfo) -> Entry:
        return cls(
            path=info.path, type=info.type, size_bytes=info.size_bytes, modified=info.modified
        )


class Entries(BaseModel):
    """Files and directories."""

    entries: list[Entry]
    is_complete: bool


class Line(BaseModel):
    """A line of a file."""

    path: str
    line_number: int
    line: str


class Lines(BaseModel):
    """Lines that a search found."""

    matches: list[Line]
    is_complete: bool


class Written(BaseModel):
    """A file that was written."""

    path: str
    size_bytes: int


class Piece(BaseModel):
    """Bytes of a file."""

    path: str
    offset: int
    size_bytes: int
    total_bytes: int
    next_offset: int | None = Field(description="Where the next piece begins; null at the end.")


class Count(BaseModel):
    """How many entries or places were changed."""

    count: int


class WorkspaceAnswer(BaseModel):
    """The workspace of the conversation."""

    workspace: str | None = Field(
        default=None, description="Id for the argument `workspace`; null if it is not needed."
    )
    directory: str
    incarnation: int = Field(description="Grows when the sandbox is replaced.")
    expires_at: str
    seconds_per_command: float
    max_file_bytes: int
    workspace_bytes: int
    workspace_files: int
    is_new: bool


class Snapshot(BaseModel):
    """A snapshot of the workspace."""

    number: int
    label: str
    created_at: str
    cause: str
    files: int
    size_bytes: int

    @classmethod
    def of(cls, info: SnapshotInfo) -> Snapshot:
        return cls(
            number=info.number,
            label=info.label,
            created_at=info.created_at,
            cause=info.cause,
            files=info.files,
            size_bytes=info.size_bytes,
        )


class Snapshots(BaseModel):
    """Snapshots, newest first."""

    snapshots: list[Snapshot]
    is_complete: bool


class Change(BaseModel):
    """A file that differs from a snapshot."""

    kind: str
    path: str
    difference: str = Field(description="As diff -u shows it, if both are text.")


class Changes(BaseModel):
    """What differs from a snapshot."""

    changes: list[Change]
    is_complete: bool


class Port(BaseModel):
    """A port that a program listens on."""

    port: int
    address: str


class Ports(BaseModel):
    """Ports that programs listen on."""

    ports: list[Port]


class PortAddress(BaseModel):
    """Where a browser on the daemon's host reaches a port. The addresses are secrets."""

    url: str
    path_url: str = Field(description="For programs that do not resolve names below localhost.")
    expires_at: str
