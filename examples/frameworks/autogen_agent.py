"""AutoGen runs code blocks in a sandbox. Needs `autogen-agentchat` and `sandboxd[autogen]`."""

from __future__ import annotations

import asyncio

from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken

from sandboxd_client.integrations.autogen import SandboxdCodeExecutor


async def main() -> None:
    async with SandboxdCodeExecutor() as executor:
        agent = CodeExecutorAgent("runner", code_executor=executor)
        message = TextMessage(content="```python\nprint(6 * 7)\n```", source="user")
        done = await agent.on_messages([message], CancellationToken())
        print(done.chat_message.to_text())


asyncio.run(main())
