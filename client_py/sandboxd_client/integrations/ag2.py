"""A sandbox for AG2 agents; needs the extra `ag2`.

Example:
    from ag2.tools.sandbox import ShellAdapter
    from sandboxd_client.integrations.ag2 import SandboxdSandbox

    async with SandboxdSandbox(user_id="ada", thread_id="42") as sandbox:
        result = await sandbox.exec(["ls"])
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from ag2.tools.sandbox.base import ExecResult, SandboxBase

from sandboxd_client.errors import CommandNotStartableError
from sandboxd_client.integrations.owned import opened_for
from sandboxd_client.sandbox import AsyncSandbox

NO_PROGRAM_CODE = 127


class SandboxdSandbox(SandboxBase):
    """A sandbox of a conversation, or a new one that the end of the block ends.

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
    def workdir(self) -> PurePosixPath:
        opened = self._owned.opened
        return PurePosixPath(opened.workspace_dir if opened else "/workspace")

    @property
    def host_workdir(self) -> Path | None:
        return None

    async def exec(
        self,
        argv: list[str],
        *,
        env: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> ExecResult:
        sandbox = await self._owned.get()
        try:
            done = await sandbox.commands.run(argv, env=env, timeout=timeout, merge_stderr=True)
        except CommandNotStartableError as error:
            return ExecResult(output=str(error), exit_code=NO_PROGRAM_CODE)
        return ExecResult(output=done.stdout.strip(), exit_code=done.exit_code)

    async def put_file(self, path: PurePosixPath, content: bytes) -> None:
        if path.is_absolute():
            raise ValueError(f"Absolute paths are not allowed in put_file: {path}")
        await (await self._owned.get()).files.write(path, content)

    async def remove_file(self, path: PurePosixPath) -> None:
        if path.is_absolute():
            raise ValueError(f"Absolute paths are not allowed in remove_file: {path}")
        await (await self._owned.get()).files.remove(path, ignore_missing=True)

    async def aclose(self) -> None:
        await self._owned.aclose()
