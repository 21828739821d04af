"""Sandboxes without a daemon, for what is built on top of the SDK.

A command is a line of steps joined with `; `: `echo X`, `cat NAME`, `remove NAME`, `touch NAME`,
`write NAME X`, `flood N`, `exit N`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandboxd_client import MissingFileError, OutputPreview, SandboxError
from sandboxd_client.integrations import Conversation
from sandboxd_client.results import CommandResult, FileInfo, SessionInfo
from sandboxd_proto.v1 import exec_pb2, session_pb2

WORKSPACE = "/workspace/"


class FakeWorkspaces:
    """Keeps one workspace per conversation."""

    def __init__(self) -> None:
        self.of: dict[Conversation, FakeWorkspace] = {}
        self.is_closed = False
        self.repeated = 0

    async def open(self, conversation: Conversation, *, is_repeated: bool = False) -> Any:
        self.repeated += is_repeated
        workspace = self.of.get(conversation)
        if workspace is None:
            workspace = self.of[conversation] = FakeWorkspace(conversation)
        return workspace.opened()

    async def aclose(self) -> None:
        self.is_closed = True


class FakeWorkspace:
    """Files and commands of one conversation. What was written to it is told in `writes`."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.incarnation = 1
        self.content: dict[str, bytes] = {}
        self.times: dict[str, int] = {}
        self.writes: list[str] = []
        self.lines: list[str] = []
        self.outputs: dict[str, bytes] = {}
        self._failure: SandboxError | None = None
        self._is_replaced_then = False
        self.next_status = "created"
        self.is_kept = True
        self._clock = 0

    def replace(self, *, is_kept: bool) -> None:
        """As the daemon does with a session whose sandbox was lost or which expired."""
        self.incarnation += 1
        self.next_status = "recreated"
        self.is_kept = is_kept
        if not is_kept:
            self.content.clear()

    def opened(self) -> FakeSandbox:
        session = session_pb2.Session(
            session_id=f"ses_{self.conversation.thread_id}",
            user_id=self.conversation.user_id,
            thread_id=self.conversation.thread_id,
            state=session_pb2.SESSION_STATE_ACTIVE,
            incarnation=self.incarnation,
            workspace_dir="/workspace",
        )
        info = SessionInfo.of(session, status=self.next_status, is_kept=self.is_kept)
        self.next_status, self.is_kept = "attached", True
        return FakeSandbox(self, info)

    def fail_next(self, error: SandboxError, *, is_replaced: bool = False) -> None:
        """The next upload or command fails; with `is_replaced` because the sandbox is gone."""
        self._failure, self._is_replaced_then = error, is_replaced

    def fail_if_asked(self) -> None:
        error, self._failure = self._failure, None
        if error is not None:
            if self._is_replaced_then:
                self.replace(is_kept=False)
            raise error

    def put(self, name: str, data: bytes) -> FileInfo:
        self._clock += 1
        self.content[name] = data
        self.times[name] = self._clock
        return self.entry(name)

    def entry(self, path: str) -> FileInfo:
        name = path.removeprefix(WORKSPACE)
        if name not in self.content:
            raise MissingFileError(f"{path} does not exist")
        return FileInfo(
            name=name,
            path=name,
            type="file",
            size_bytes=len(self.content[name]),
            modified=f"2026-01-01T00:00:{self.times[name]:02}Z",
            permissions="-rw-r--r--",
        )


class FakeSandbox:
    """What a caller of `open` gets."""

    def __init__(self, workspace: FakeWorkspace, info: SessionInfo) -> None:
        self._workspace = workspace
        self.info = info
        self.files = FakeFiles(workspace)
        self.commands = FakeCommands(workspace)

    async def kill(self) -> None:
        self._workspace.content.clear()


class FakeFiles:
    def __init__(self, workspace: FakeWorkspace) -> None:
        self._workspace = workspace

    async def write(self, path: str, data: bytes) -> FileInfo:
        self._workspace.fail_if_asked()
        self._workspace.writes.append(path)
        return self._workspace.put(path, data)

    async def stat(self, path: str, *, follow_links: bool = False) -> FileInfo:
        return self._workspace.entry(path)

    async def read(self, path: str, *, format: str) -> bytes:
        self._workspace.entry(path)
        return self._workspace.content[path.removeprefix(WORKSPACE)]

    async def list(self, *, recursive: bool) -> list[FileInfo]:
        return [self._workspace.entry(name) for name in sorted(self._workspace.content)]


class FakeCommands:
    def __init__(self, workspace: FakeWorkspace) -> None:
        self._workspace = workspace

    async def run(self, line: str, *, timeout: float | None = None) -> CommandResult:
        workspace = self._workspace
        workspace.fail_if_asked()
        workspace.lines.append(line)
        exec_id = f"exe_{len(workspace.lines)}"
        output, code = bytearray(), 0
        for step in line.split("; "):
            word, _, rest = step.partition(" ")
            if word == "exit":
                code = int(rest)
            else:
                output += self._steps()[word](rest)
        workspace.outputs[exec_id] = bytes(output)
        status = exec_pb2.ExitStatus(code=code, reason=exec_pb2.EXIT_REASON_EXITED)
        captured = exec_pb2.CapturedOutput(data=bytes(output))
        return CommandResult.of(exec_id, status, captured, exec_pb2.CapturedOutput())

    def _steps(self) -> dict[str, Callable[[str], bytes]]:
        workspace = self._workspace

        def touch(name: str) -> bytes:
            workspace.put(name, workspace.content[name])
            return b""

        def remove(name: str) -> bytes:
            del workspace.content[name]
            return b""

        def write(rest: str) -> bytes:
            name, _, text = rest.partition(" ")
            workspace.put(name, text.encode())
            return b""

        return {
            "echo": lambda text: f"{text}\n".encode(),
            "cat": lambda name: workspace.content.get(name, b"no such file\n"),
            "flood": lambda count: b"".join(b"line %d\n" % one for one in range(int(count))),
            "touch": touch,
            "remove": remove,
            "write": write,
        }

    async def connect(self, exec_id: str) -> FakeHandle:
        return FakeHandle(self._workspace.outputs[exec_id])


class FakeHandle:
    def __init__(self, output: bytes) -> None:
        self._output = output

    async def preview_output(
        self, *, max_bytes: int, collapse: bool
    ) -> tuple[OutputPreview, OutputPreview]:
        text, half = self._output.decode(), max_bytes // 2
        omitted = len(text) - 2 * half
        preview = OutputPreview(text[:half], text[-half:], omitted, len(text))
        return preview, OutputPreview("", "", 0, 0)
