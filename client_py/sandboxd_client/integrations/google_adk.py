"""An environment for agents of Google's ADK; needs the extra `google-adk`.

Example:
    from google.adk.tools.environment import EnvironmentToolset
    from sandboxd_client.integrations.google_adk import SandboxdEnvironment

    agent = Agent(model=..., tools=[EnvironmentToolset(environment=SandboxdEnvironment())])
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from google.adk.environment import BaseEnvironment, ExecutionResult

from sandboxd_client.errors import SandboxError
from sandboxd_client.integrations.owned import opened_for
from sandboxd_client.sandbox import AsyncSandbox


class SandboxdEnvironment(BaseEnvironment):
    """A sandbox of a conversation, or a new one that `close` ends.

    `options` are those of `AsyncSandbox.create`.
    """

    def __init__(
        self,
        sandbox: AsyncSandbox | None = None,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
        **options: Any,
    ) -> None:
        self._owned = opened_for(sandbox, user_id, thread_id, **options)

    @property
    def working_dir(self) -> Path:
        opened = self._owned.opened
        return Path(opened.workspace_dir if opened else "/workspace")

    async def initialize(self) -> None:
        await self._owned.get()
        self.is_initialized = True

    async def close(self) -> None:
        await self._owned.aclose()
        self.is_initialized = False

    async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
        sandbox = await self._owned.get()
        try:
            done = await sandbox.commands.run(command, timeout=timeout or 0)
        except SandboxError as error:
            return ExecutionResult(exit_code=126, stderr=str(error))
        return ExecutionResult(
            exit_code=done.exit_code,
            stdout=done.stdout,
            stderr=done.stderr,
            timed_out=done.reason == "timed_out",
        )

    async def read_file(self, path: Path) -> bytes:
        sandbox = await self._owned.get()
        return await sandbox.files.read(PurePosixPath(path), format="bytes")

    async def write_file(self, path: Path, content: str | bytes) -> None:
        sandbox = await self._owned.get()
        await sandbox.files.write(PurePosixPath(path), content)
