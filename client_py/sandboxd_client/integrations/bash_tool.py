"""The bash tool: runs commands for a model, and uploads the files that they need."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import TypeVar

from sandboxd_client.command_policy import STRICT, CommandPolicy
from sandboxd_client.downloads import downloaded
from sandboxd_client.errors import (
    InvalidRequestError,
    MissingFileError,
    NoSessionError,
    SandboxError,
)
from sandboxd_client.integrations import prompt
from sandboxd_client.integrations.conversation import (
    Conversation,
    DaemonSandboxes,
    Sandboxes,
    in_sandbox,
)
from sandboxd_client.integrations.model_output import shaped
from sandboxd_client.integrations.sent_files import SentFiles, SessionMemory
from sandboxd_client.integrations.tool_results import (
    NOT_RUN_CODE,
    BashResult,
    DownloadResult,
    OutputPage,
)
from sandboxd_client.integrations.virtual_files import (
    DigestedFiles,
    FilesOf,
    VirtualFileError,
    VirtualFiles,
    name_in_workspace,
)
from sandboxd_client.results import (
    CommandResult,
    DownloadedFile,
    FileInfo,
    FileListing,
    SessionInfo,
    StreamName,
    UploadResult,
)
from sandboxd_client.sandbox import AsyncSandbox
from sandboxd_client.settings import Mode, Timeouts
from sandboxd_client.snapshot_results import AutoSnapshotName
from sandboxd_client.tracebacks import edge
from sandboxd_client.turns import turn

T = TypeVar("T")

MAX_FILE_PATHS = 100
"""Most files that one call may name."""
MAX_DOWNLOAD_BYTES = 100 << 20
MAX_PAGE_BYTES = 64 << 10
MAX_MATCHES = 200
UPLOADS_AT_ONCE = 4

_FRESH = (
    "The sandbox is new since the last command: files that earlier commands created are gone. "
    "Files of file_paths are there."
)
_REPLACED = (
    "The sandbox was replaced since the last command: processes that ran in it are gone. "
    "Check that the files you need are still there."
)
_log = logging.getLogger(__name__)
_numbers = itertools.count()
_last: ContextVar[Mapping[int, Conversation]] = ContextVar("last", default={})  # noqa: B039
"""The conversation that this task has used last, by tool: one tool serves many at once."""


class AsyncBashTool:
    """Runs commands for a model in the sandbox of its conversation.

    The program around the model sets `user_id` and `thread_id` from its own context; a model must
    never choose them. Errors that a model can correct, or should report to its user, are results
    with `error`; they are not raised.

    `files` is the agent's virtual file system, or a function that returns the one of a
    conversation. The daemon and `policy` are chosen as for AsyncSandboxClient. `timeout_minutes` is
    the idle time after which a session expires, `timeout` how many seconds a command may run,
    `max_output_bytes` how much of each stream a model sees. With `auto_snapshot="turns"` each call
    is a turn that `undo` takes back. New sessions have the policy `strict`, as with
    AsyncSandboxClient, or `command_policy`. Leaving the `async with` block frees the connection;
    sessions stay open, so the next message of the conversation finds its files.

    Example:
        async with AsyncBashTool(files=FilesInMemory({"/in.txt": b"3\\n1\\n2\\n"})) as bash:
            result = await bash.execute_bash_command(
                "sort -n in.txt", ["/in.txt"], user_id="ada", thread_id="conversation-42"
            )
            print(result["stdout"], result["uploaded_files"])
    """

    def __init__(
        self,
        mode: Mode | None = None,
        server_url: str | None = None,
        *,
        files: FilesOf | None = None,
        token: str | None = None,
        policy: CommandPolicy | None = None,
        timeout_minutes: float | None = None,
        timeout: float | None = None,
        max_output_bytes: int = 16 << 10,
        files_timeout: float = 60.0,
        timeouts: Timeouts | None = None,
        local_settings: Mapping[str, object] | None = None,
        sandboxes: Sandboxes | None = None,
        auto_snapshot: AutoSnapshotName | None = None,
        command_policy: str = "",
    ) -> None:
        self._sandboxes = sandboxes or DaemonSandboxes(
            mode,
            server_url,
            token=token,
            policy=policy,
            timeouts=timeouts,
            local_settings=local_settings,
            idle_minutes=timeout_minutes,
            auto_snapshot=auto_snapshot,
            command_policy=command_policy,
            default_policy=STRICT,
        )
        self._has_turns = auto_snapshot not in (None, "off")
        self._files = files
        self._timeout = timeout
        self._max_output_bytes = max_output_bytes
        self._files_timeout = files_timeout
        self._sent = SentFiles()
        self._number = next(_numbers)

    async def __aenter__(self) -> AsyncBashTool:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Free the connection. Sessions stay open until they expire.

        Example:
            bash = AsyncBashTool()
            await bash.aclose()
        """
        _last.set({k: v for k, v in _last.get().items() if k != self._number})
        await self._sandboxes.aclose()

    def system_prompt(self) -> str:
        """Text for the system prompt of an agent that has these tools.

        Example:
            print(bash.system_prompt())
        """
        return prompt.system_prompt(command_seconds=self._timeout)

    # --- what a model calls ---

    async def execute_bash_command(
        self,
        command: str,
        file_paths: Sequence[str] | None = None,
        *,
        user_id: str,
        thread_id: str,
        runtime: object = None,
        turn_id: str | None = None,
    ) -> BashResult:
        """Upload the files, run the command and return its result.

        A file is sent again only if it has changed, here or in the sandbox. All files are in place
        before the command starts; if one cannot be read, nothing is run. With `auto_snapshot` the
        call is a turn: `turn_id`, or a new one, which is in the result.

        Example:
            result = await bash.execute_bash_command(
                "wc -l log.txt", ["/logs/log.txt"], user_id="ada", thread_id="42"
            )
        """
        conversation = Conversation(user_id, thread_id, runtime)
        turn_id = (turn_id or f"turn-{secrets.token_hex(6)}") if self._has_turns else ""
        try:
            with turn(turn_id):
                result = await self._in_sandbox(
                    conversation,
                    lambda sandbox, notice: self._execute(
                        sandbox, conversation, command, file_paths or (), notice
                    ),
                )
            if turn_id:
                result["turn_id"] = turn_id
            return result
        except (SandboxError, VirtualFileError) as error:
            _log.warning("a command of thread %s was not run: %s", thread_id, error)
            return BashResult(
                exit_code=NOT_RUN_CODE,
                stdout="",
                stderr="",
                execution_time_ms=0,
                uploaded_files=[],
                error=str(error),
            )

    async def download_sandbox_file(
        self,
        filename: str,
        save_path: str,
        *,
        user_id: str,
        thread_id: str,
        runtime: object = None,
    ) -> DownloadResult:
        """Copy a file of the sandbox to the virtual file system.

        Example:
            saved = await bash.download_sandbox_file(
                "report.csv", "/data-exports/report-of-today.csv", user_id="ada", thread_id="42"
            )
        """
        conversation = Conversation(user_id, thread_id, runtime)
        try:
            files = self._files_of(conversation)
            data = await self._in_sandbox(
                conversation, lambda sandbox, _: _downloaded(sandbox, filename)
            )
            await self._of_files(save_path, files.write(save_path, data))
        except (SandboxError, VirtualFileError) as error:
            return DownloadResult(status="error", path=save_path, size_bytes=0, error=str(error))
        return DownloadResult(status="downloaded", path=save_path, size_bytes=len(data))

    async def read_command_output(
        self,
        output_id: str,
        *,
        stream: StreamName = "stdout",
        offset: int = 0,
        pattern: str | None = None,
        user_id: str,
        thread_id: str,
        runtime: object = None,
    ) -> OutputPage:
        """A piece of an earlier command's output, or the lines of it that match a pattern.

        Example:
            found = await bash.read_command_output(
                result["output_id"], pattern="^[A-Z]*Error:", user_id="ada", thread_id="42"
            )
        """
        conversation = Conversation(user_id, thread_id, runtime)
        try:
            return await self._in_sandbox(
                conversation,
                lambda sandbox, _: _page(sandbox, output_id, stream, offset, pattern),
            )
        except SandboxError as error:
            return OutputPage(text="", next_offset=None, total_bytes=0, error=str(error))

    # --- what the program around the model calls ---

    async def undo(self, turn_id: str, *, user_id: str, thread_id: str) -> SessionInfo:
        """Take a call back, and all calls after it: the workspace is as it was before.

        It needs `auto_snapshot`. Processes that run in the sandbox end.

        Example:
            bash = AsyncBashTool(auto_snapshot="turns")
            await bash.execute_bash_command("echo 1 > a.txt", user_id="ada", thread_id="43")
            done = await bash.execute_bash_command("echo 2 > a.txt", user_id="ada", thread_id="43")
            await bash.undo(done.turn_id, user_id="ada", thread_id="43")
            await bash.aclose()
        """
        return await self._in_sandbox(
            Conversation(user_id, thread_id), lambda sandbox, _: sandbox.rewind(before=turn_id)
        )

    async def execute(
        self, command: str, user_id: str, thread_id: str, timeout: float | None = None
    ) -> CommandResult:
        """Run a command in the conversation's sandbox and return all its output; errors are raised.

        Example:
            result = await bash.execute("ls", user_id="ada", thread_id="42")
        """
        seconds = timeout or self._timeout
        return await self._in_sandbox(
            Conversation(user_id, thread_id),
            lambda sandbox, _: sandbox.commands.run(command, timeout=seconds),
        )

    async def upload_file(
        self,
        file_path: str | os.PathLike[str],
        user_id: str,
        thread_id: str,
        remote_name: str | None = None,
    ) -> UploadResult:
        """Upload a local file to the conversation's workspace.

        Example:
            await bash.upload_file("report.csv", user_id="ada", thread_id="42")
        """

        async def upload(sandbox: AsyncSandbox, _: str) -> UploadResult:
            written = await sandbox.files.upload(file_path, remote_name)
            return UploadResult.of(sandbox.info, written)

        return await self._in_sandbox(Conversation(user_id, thread_id), upload)

    async def download_file(
        self,
        remote_name: str,
        user_id: str,
        thread_id: str,
        local_path: str | os.PathLike[str] | None = None,
    ) -> DownloadedFile:
        """Download a file of the conversation's workspace, as `AsyncSandboxClient.download_file`.

        Example:
            path = await bash.download_file("report.csv", user_id="ada", thread_id="42")
        """
        return await self._in_sandbox(
            Conversation(user_id, thread_id),
            lambda sandbox, _: downloaded(sandbox.files, remote_name, local_path),
        )

    async def list_files(self, user_id: str, thread_id: str) -> FileListing:
        """All files of the conversation's workspace.

        Example:
            print((await bash.list_files(user_id="ada", thread_id="42"))["total_files"])
        """

        async def listing(sandbox: AsyncSandbox, _: str) -> FileListing:
            return FileListing.of(sandbox.info, await sandbox.files.list(recursive=True))

        return await self._in_sandbox(Conversation(user_id, thread_id), listing)

    async def cleanup_session(
        self, thread_id: str | None = None, *, user_id: str | None = None
    ) -> None:
        """End a conversation's session and delete its files; otherwise it expires by itself.

        What is not named is that of the conversation that this task (or thread of the program) has
        used last.

        Example:
            await bash.cleanup_session(user_id="ada", thread_id="42")
        """
        last = _last.get().get(self._number)
        if last is None and not (user_id and thread_id):
            raise NoSessionError(
                "This task has not used the bash tool; name user_id and thread_id."
            )
        named = Conversation(
            user_id or (last.user_id if last else ""),
            thread_id or (last.thread_id if last else ""),
        )
        sandbox = await self._sandboxes.open(named)
        await sandbox.kill()

    # --- life of a command ---

    async def _in_sandbox(
        self,
        conversation: Conversation,
        work: Callable[[AsyncSandbox, str], Awaitable[T]],
    ) -> T:
        """Do the work in the conversation's sandbox; start again if the session ends meanwhile.

        The second argument of `work` is a notice about the workspace, if there is one.
        """
        notice = ""

        async def noticed(sandbox: AsyncSandbox) -> T:
            nonlocal notice
            notice = self._notice(sandbox.info) or notice
            return await work(sandbox, notice)

        _last.set({**_last.get(), self._number: conversation})
        with edge:
            return await in_sandbox(self._sandboxes, conversation, noticed)

    def _notice(self, session: SessionInfo) -> str:
        _, has_moved = self._sent.of(session)
        if session.status == "recreated" and not session.workspace_kept:
            return _FRESH
        return _REPLACED if has_moved or session.status == "recreated" else ""

    async def _execute(
        self,
        sandbox: AsyncSandbox,
        conversation: Conversation,
        command: str,
        file_paths: Sequence[str],
        notice: str,
    ) -> BashResult:
        names = _names(file_paths)
        unchanged = await self._put_in_place(sandbox, conversation, names) if names else []
        ended = await sandbox.commands.run(command, timeout=self._timeout)
        stdout, stderr, is_cut = await shaped(sandbox, ended, self._max_output_bytes)
        result = BashResult(
            exit_code=ended.exit_code,
            stdout=stdout,
            stderr=stderr,
            execution_time_ms=ended.execution_time_ms,
            uploaded_files=list(names),
        )
        optional = {
            "unchanged_files": unchanged,
            "output_id": ended.exec_id if is_cut else "",
            "hint": ended.hint,
            "notice": notice,
        }
        result.update({key: value for key, value in optional.items() if value})
        return result

    async def _put_in_place(
        self, sandbox: AsyncSandbox, conversation: Conversation, names: Mapping[str, str]
    ) -> list[str]:
        """Upload files that are missing or changed; returns the names of the others."""
        files = self._files_of(conversation)
        memory, _ = self._sent.of(sandbox.info)
        places = asyncio.Semaphore(UPLOADS_AT_ONCE)

        async def put(name: str, path: str) -> bool:
            async with places:
                return await self._put(sandbox, files, memory, name, path)

        puts: dict[str, asyncio.Task[bool]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for name, path in names.items():
                    puts[name] = group.create_task(put(name, path))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        return [name for name, task in puts.items() if not task.result()]

    async def _put(
        self,
        sandbox: AsyncSandbox,
        files: VirtualFiles,
        memory: SessionMemory,
        name: str,
        path: str,
    ) -> bool:
        """Upload a file unless it is already there; returns whether it was sent."""
        data: bytes | None = None
        if isinstance(files, DigestedFiles):
            digest = await self._of_files(path, files.digest(path))
        else:
            data = await self._of_files(path, files.read(path))
            digest = hashlib.sha256(data).hexdigest()
        sent = memory.files.get(name)
        if sent is not None and sent.digest == digest:
            there = await _stat(sandbox, name)
            if there is not None and sent.is_still(there):
                return False
        if data is None:
            data = await self._of_files(path, files.read(path))
            digest = hashlib.sha256(data).hexdigest()  # it may have just changed
        written = await sandbox.files.write(name, data)
        memory.remember(name, digest, written)
        return True

    def _files_of(self, conversation: Conversation) -> VirtualFiles:
        if self._files is None:
            raise VirtualFileError(
                "There is no virtual file system; write the data to a file with a command."
            )
        return self._files if isinstance(self._files, VirtualFiles) else self._files(conversation)

    async def _of_files(self, path: str, work: Awaitable[T]) -> T:
        """Wait for the virtual file system; its failures become errors for the model."""
        try:
            async with asyncio.timeout(self._files_timeout):
                return await work
        except FileNotFoundError:
            raise VirtualFileError(
                f"{path} is not in the virtual file system; save it there first, or correct the "
                "path. Nothing was run."
            ) from None
        except TimeoutError:
            raise VirtualFileError(
                f"The virtual file system did not answer within {self._files_timeout:g} s for "
                f"{path}; try again."
            ) from None
        except OSError as error:
            raise VirtualFileError(f"{path}: {error.strerror or error}") from error


def _names(file_paths: Sequence[str]) -> dict[str, str]:
    """The path of each file, by its name in the workspace."""
    if len(file_paths) > MAX_FILE_PATHS:
        raise VirtualFileError(
            f"{len(file_paths)} files are too many for one call; name at most {MAX_FILE_PATHS}."
        )
    names: dict[str, str] = {}
    for path in dict.fromkeys(file_paths):
        name = name_in_workspace(path)
        if name in names:
            raise VirtualFileError(
                f"{names[name]} and {path} would both become {name} in the workspace; name one of "
                "them, copy it to another name with a command, then name the other."
            )
        names[name] = path
    return names


async def _stat(sandbox: AsyncSandbox, name: str) -> FileInfo | None:
    try:
        return await sandbox.files.stat(name)
    except MissingFileError:
        return None


async def _downloaded(sandbox: AsyncSandbox, filename: str) -> bytes:
    found = await sandbox.files.stat(filename, follow_links=True)
    if found.size_bytes > MAX_DOWNLOAD_BYTES:
        raise InvalidRequestError(
            f"{filename} has {found.size_bytes} bytes; at most {MAX_DOWNLOAD_BYTES} can be saved. "
            "Make it smaller with a command."
        )
    return await sandbox.files.read(filename, format="bytes")


async def _page(
    sandbox: AsyncSandbox, output_id: str, stream: StreamName, offset: int, pattern: str | None
) -> OutputPage:
    command = await sandbox.commands.connect(output_id)
    if pattern is not None:
        matches = await command.search_output(pattern, stream=stream, max_matches=MAX_MATCHES)
        info = await command.info()
        return OutputPage(
            text="".join(f"{match.line_number}: {match.line}\n" for match in matches),
            next_offset=None,
            total_bytes=info.stdout_bytes if stream == "stdout" else info.stderr_bytes,
        )
    piece = await command.read_output(stream, offset=max(offset, 0), max_bytes=MAX_PAGE_BYTES)
    end = piece.offset + len(piece.data)
    text = piece.data.decode(errors="replace")
    if piece.dropped_bytes:
        text = f"[... {piece.dropped_bytes} bytes are no longer kept ...]\n{text}"
    return OutputPage(
        text=text,
        next_offset=end if end < piece.total_bytes else None,
        total_bytes=piece.total_bytes,
    )
