"""A code executor for AutoGen agents; needs the extra `autogen`.

Example:
    from autogen_agentchat.agents import CodeExecutorAgent
    from sandboxd_client.integrations.autogen import SandboxdCodeExecutor

    async with SandboxdCodeExecutor(user_id="ada", thread_id="42") as executor:
        agent = CodeExecutorAgent("runner", code_executor=executor)
"""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from sandboxd_client.errors import CommandError
from sandboxd_client.integrations.interpreters import interpreter
from sandboxd_client.integrations.owned import opened_for
from sandboxd_client.sandbox import AsyncSandbox

TIMED_OUT_CODE = 124
REFUSED_CODE = 126


class SandboxdCodeExecutor(CodeExecutor):
    """Runs each block as a program: in a conversation's sandbox, or a new one that `stop` ends.

    Files stay from block to block, variables do not. `timeout` is how many seconds a block may
    run; `options` are those of `AsyncSandbox.create`.
    """

    def __init__(
        self,
        sandbox: AsyncSandbox | None = None,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
        timeout: float = 60,
        **options: Any,
    ) -> None:
        self._owned = opened_for(sandbox, user_id, thread_id, **options)
        self._timeout = timeout

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Run the blocks one after the other until one fails; a cancelled one is killed."""
        outputs, exit_code = [], 0
        for block in code_blocks:
            running = asyncio.ensure_future(self._run(block))
            cancellation_token.link_future(running)
            done = await running
            outputs.append(done.output)
            exit_code = done.exit_code
            if exit_code:
                break
        return CodeResult(exit_code=exit_code, output="".join(outputs))

    async def _run(self, block: CodeBlock) -> CodeResult:
        sandbox = await self._owned.get()
        try:
            done = await sandbox.commands.run(
                interpreter(block.language),
                stdin=block.code,
                timeout=self._timeout,
                merge_stderr=True,
            )
        except CommandError as error:
            return CodeResult(exit_code=REFUSED_CODE, output=f"{error}\n")
        if done.reason == "timed_out":
            return CodeResult(exit_code=TIMED_OUT_CODE, output=f"{done.stdout}{done.hint}\n")
        return CodeResult(exit_code=done.exit_code, output=done.stdout)

    async def start(self) -> None:
        await self._owned.get()

    async def stop(self) -> None:
        await self._owned.aclose()

    async def restart(self) -> None:
        """A sandbox that is only ours is replaced by a new one; another one stays as it is."""
        await self.stop()
        await self.start()
