"""A sandbox for Strands agents; needs the extra `strands`.

Example:
    from strands import Agent
    from sandboxd_client.integrations.strands import SandboxdSandbox

    agent = Agent(model=..., sandbox=SandboxdSandbox(user_id="ada", thread_id="42"))
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from strands.sandbox import ExecutionResult, FileInfo, Sandbox, StreamChunk

from sandboxd_client.integrations.interpreters import interpreter
from sandboxd_client.integrations.owned import opened_for
from sandboxd_client.results import OutputChunk
from sandboxd_client.sandbox import AsyncSandbox


class SandboxdSandbox(Sandbox):
    """A sandbox of a conversation, or a new one that `aclose` ends.

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

    async def aclose(self) -> None:
        """Free the connection, and end a sandbox that nobody else can reach."""
        await self._owned.aclose()

    async def execute_streaming(
        self,
        command: str,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[StreamChunk | ExecutionResult, None]:
        async for event in self._run(command, None, timeout, cwd, env):
            yield event

    async def execute_code_streaming(
        self,
        code: str,
        language: str,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[StreamChunk | ExecutionResult, None]:
        async for event in self._run(interpreter(language), code, timeout, cwd, env):
            yield event

    async def _run(
        self,
        command: str | Sequence[str],
        code: str | None,
        timeout: float | None,
        cwd: str | None,
        env: dict[str, str] | None,
    ) -> AsyncGenerator[StreamChunk | ExecutionResult, None]:
        """What a command writes as it does, then its end; it is killed if nobody reads on."""
        sandbox = await self._owned.get()
        handle = await sandbox.commands.run(
            command, background=True, stdin=code, timeout=timeout or 0, cwd=cwd, env=env
        )
        try:
            if code is not None:
                await handle.close_stdin()
            async with handle.stream() as events:
                async for event in events:
                    if isinstance(event, OutputChunk) and event.text:
                        yield StreamChunk(data=event.text, stream_type=event.stream)
        finally:
            if handle.result is None:
                await handle.kill()
        done = handle.result
        assert done is not None
        yield ExecutionResult(exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)

    async def read_file(self, path: str, **kwargs: Any) -> bytes:
        return await (await self._owned.get()).files.read(path, format="bytes")

    async def write_file(self, path: str, content: bytes, **kwargs: Any) -> None:
        await (await self._owned.get()).files.write(path, content)

    async def remove_file(self, path: str, **kwargs: Any) -> None:
        await (await self._owned.get()).files.remove(path)

    async def list_files(self, path: str, **kwargs: Any) -> list[FileInfo]:
        found = await (await self._owned.get()).files.list(path)
        return [
            FileInfo(name=info.name, is_dir=info.type == "directory", size=info.size_bytes)
            for info in found
        ]
