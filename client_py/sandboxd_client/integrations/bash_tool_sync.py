"""The bash tool without `await`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType

from sandboxd_client.integrations.bash_tool import AsyncBashTool, FilesOf
from sandboxd_client.integrations.conversation import Sandboxes
from sandboxd_client.integrations.tool_results import BashResult, DownloadResult, OutputPage
from sandboxd_client.portal import portal
from sandboxd_client.results import (
    CommandResult,
    DownloadedFile,
    FileListing,
    StreamName,
    UploadResult,
)
from sandboxd_client.settings import Mode, Timeouts


class BashTool:
    """Runs commands for a model in the sandbox of its conversation; see AsyncBashTool.

    Virtual file systems are asynchronous here too; they are called in the thread of the client.

    Example:
        with BashTool(files=FilesInMemory({"/in.txt": b"3\\n1\\n2\\n"})) as bash:
            result = bash.execute_bash_command(
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
        timeout_minutes: float | None = None,
        timeout: float | None = None,
        max_output_bytes: int = 16 << 10,
        files_timeout: float = 60.0,
        timeouts: Timeouts | None = None,
        local_settings: Mapping[str, object] | None = None,
        sandboxes: Sandboxes | None = None,
    ) -> None:
        self._inner = AsyncBashTool(
            mode,
            server_url,
            files=files,
            token=token,
            timeout_minutes=timeout_minutes,
            timeout=timeout,
            max_output_bytes=max_output_bytes,
            files_timeout=files_timeout,
            timeouts=timeouts,
            local_settings=local_settings,
            sandboxes=sandboxes,
        )

    def __enter__(self) -> BashTool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the connection. Sessions stay open until they expire."""
        portal.call(self._inner.aclose())

    def system_prompt(self) -> str:
        """Text for the system prompt of an agent that has these tools."""
        return self._inner.system_prompt()

    def execute_bash_command(
        self,
        command: str,
        file_paths: Sequence[str] | None = None,
        *,
        user_id: str,
        thread_id: str,
        runtime: object = None,
    ) -> BashResult:
        """Upload the files, then run the command; answer with its result."""
        return portal.call(
            self._inner.execute_bash_command(
                command, file_paths, user_id=user_id, thread_id=thread_id, runtime=runtime
            )
        )

    def download_sandbox_file(
        self,
        filename: str,
        save_path: str,
        *,
        user_id: str,
        thread_id: str,
        runtime: object = None,
    ) -> DownloadResult:
        """Copy a file of the sandbox to the virtual file system."""
        return portal.call(
            self._inner.download_sandbox_file(
                filename, save_path, user_id=user_id, thread_id=thread_id, runtime=runtime
            )
        )

    def read_command_output(
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
        """A piece of the output of an earlier command, or its lines that match a pattern."""
        return portal.call(
            self._inner.read_command_output(
                output_id,
                stream=stream,
                offset=offset,
                pattern=pattern,
                user_id=user_id,
                thread_id=thread_id,
                runtime=runtime,
            )
        )

    def execute(
        self, command: str, user_id: str, thread_id: str, timeout: float | None = None
    ) -> CommandResult:
        """Run a command in the conversation's sandbox, with all its output; errors are raised."""
        return portal.call(self._inner.execute(command, user_id, thread_id, timeout))

    def upload_file(
        self,
        file_path: str | os.PathLike[str],
        user_id: str,
        thread_id: str,
        remote_name: str | None = None,
    ) -> UploadResult:
        """Send a file of this machine to the conversation's workspace."""
        return portal.call(self._inner.upload_file(file_path, user_id, thread_id, remote_name))

    def download_file(
        self,
        remote_name: str,
        user_id: str,
        thread_id: str,
        local_path: str | os.PathLike[str] | None = None,
    ) -> DownloadedFile:
        """Fetch a file of the conversation's workspace to this machine."""
        return portal.call(self._inner.download_file(remote_name, user_id, thread_id, local_path))

    def list_files(self, user_id: str, thread_id: str) -> FileListing:
        """All files of the conversation's workspace."""
        return portal.call(self._inner.list_files(user_id, thread_id))

    def cleanup_session(self, user_id: str, thread_id: str) -> None:
        """End the conversation's session, with its files; otherwise it expires by itself."""
        portal.call(self._inner.cleanup_session(user_id, thread_id))
