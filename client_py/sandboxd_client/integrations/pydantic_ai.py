"""A workspace for Pydantic AI agents; needs the extra `pydantic-ai`.

Example:
    from pydantic_ai import Agent
    from sandboxd_client.integrations.pydantic_ai import SandboxdWorkspace

    agent = Agent(model, capabilities=[...])
    workspace = SandboxdWorkspace()
    result = await agent.run("...", workspace=workspace)
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic_ai.messages import WorkspaceRef
from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceOutputLimitError,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from sandboxd_client.errors import (
    CommandNotStartableError,
    FileExistsInSandboxError,
    NotADirectoryInSandboxError,
    SandboxError,
    SessionError,
)
from sandboxd_client.integrations.owned import OwnedSandbox
from sandboxd_client.results import FileInfo
from sandboxd_client.sandbox import AsyncSandbox

T = TypeVar("T")
PROVIDER = "sandboxd"
MAX_OUTPUT_BYTES = 32 << 20
NO_PROGRAM_CODE = 127


class SandboxdWorkspace:
    """A workspace in a sandbox: created at its first use, or that of a `ref`.

    `options` are those of `AsyncSandbox.create`. The sandbox stays when a run ends, until it
    expires, or until `kill` is called.
    """

    def __init__(self, ref: WorkspaceRef | None = None, **options: Any) -> None:
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"ref: a workspace of {ref.provider}, not of {PROVIDER}")
        self._ref = ref
        self._options = options
        self._owned = OwnedSandbox(None, self._open)

    async def _open(self) -> AsyncSandbox:
        if self._ref is None:
            opened = await AsyncSandbox.create(**self._options)
            self._ref = WorkspaceRef(provider=PROVIDER, id=opened.session_id)
            return opened
        where = {key: self._options[key] for key in ("server_url", "token") if key in self._options}
        return await _available(AsyncSandbox.connect(self._ref.id, **where))

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._ref

    async def working_dir(self) -> str:
        return (await self._owned.get()).workspace_dir

    async def kill(self) -> None:
        """End the sandbox and delete its files."""
        sandbox = await self._owned.get()
        await sandbox.kill()
        await sandbox.aclose()

    async def aclose(self) -> None:
        """Free the connection; the sandbox stays."""
        await self._owned.aclose()

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        if isinstance(command, str) != shell:
            raise TypeError("command: a text with shell=True, otherwise a list")
        if timeout is not None and not 0 < timeout < float("inf"):
            raise ValueError("timeout must be a positive finite number or None")
        sandbox = await self._owned.get()
        try:
            done = await _available(
                sandbox.commands.run(
                    command,
                    env=env,
                    timeout=timeout or 0,
                    max_output_bytes=MAX_OUTPUT_BYTES,
                )
            )
        except CommandNotStartableError as error:
            return CommandResult(exit_code=NO_PROGRAM_CODE, stdout="", stderr=str(error))
        if done.reason == "timed_out":
            raise WorkspaceTimeoutError(
                f"The command did not end within {timeout} s.",
                stdout=done.stdout,
                stderr=done.stderr,
            )
        if done.exit_code < 0:
            raise WorkspaceUnavailableError("The sandbox was lost while the command ran.")
        if done.stdout_omitted_bytes or done.stderr_omitted_bytes:
            raise WorkspaceOutputLimitError(
                "The command wrote too much.",
                limit=MAX_OUTPUT_BYTES,
                stdout=done.stdout,
                stderr=done.stderr,
            )
        return CommandResult(exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)

    async def read_bytes(self, path: str) -> bytes:
        sandbox = await self._owned.get()
        return await _available(sandbox.files.read(path, format="bytes"))

    async def write_bytes(self, path: str, data: bytes) -> None:
        sandbox = await self._owned.get()
        await _available(sandbox.files.write(path, data))

    async def stat(self, path: str) -> FileEntry:
        sandbox = await self._owned.get()
        return _entry(sandbox, await _available(sandbox.files.stat(path, follow_links=True)), path)

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        sandbox = await self._owned.get()
        found = await _available(sandbox.files.list(path))
        return [await self._followed(sandbox, info) for info in found]

    async def make_dir(self, path: str) -> None:
        sandbox = await self._owned.get()
        try:
            await _available(sandbox.files.make_dir(path))
        except (NotADirectoryInSandboxError, FileExistsInSandboxError) as error:
            if await self.exists(path):
                raise FileExistsError(str(error)) from error
            raise

    async def remove(self, path: str) -> None:
        sandbox = await self._owned.get()
        root = f"{sandbox.workspace_dir}/"
        if root.startswith(f"{posixpath.normpath(path).rstrip('/')}/"):
            raise ValueError("path: the working directory and what is above it cannot be removed")
        await _available(sandbox.files.remove(path))

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def _followed(self, sandbox: AsyncSandbox, info: FileInfo) -> FileEntry:
        """An entry that describes the target of a link, if there is one."""
        path = posixpath.join(sandbox.workspace_dir, info.path)
        if info.type == "symlink":
            try:
                info = await sandbox.files.stat(path, follow_links=True)
            except SandboxError:
                pass  # it leads nowhere
        return _entry(sandbox, info, path)


def _entry(sandbox: AsyncSandbox, info: FileInfo, path: str) -> FileEntry:
    full = posixpath.normpath(posixpath.join(sandbox.workspace_dir, path))
    return FileEntry(
        name=posixpath.basename(full),
        path=full,
        is_dir=info.type == "directory",
        size=info.size_bytes if info.type == "file" else None,
    )


async def _available(call: Awaitable[T]) -> T:
    try:
        return await call
    except SessionError as error:
        raise WorkspaceUnavailableError(str(error)) from error
