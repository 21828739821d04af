"""A LangChain agent with a sandbox for each conversation, and its users' files in PostgreSQL.

Needs `pip install 'sandboxd[langchain,postgres]'` and the package of a model's provider. Run it:
    export MODEL=provider:model DATABASE=postgresql:///agents
    python examples/agents/langchain_agent.py "How much did I spend?"
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain.messages import HumanMessage

from sandboxd_client.integrations import AsyncBashTool
from sandboxd_client.integrations.langchain import sandbox_tools
from sandboxd_client.integrations.postgres_files import PostgresStore


@dataclass
class AgentContext:
    """User and thread of a message; the model never sees them."""

    user_id: str
    thread_id: str


async def answer(model: Any, database: str, question: str, context: AgentContext) -> str:
    """Ask the agent once. The sandbox and the files are kept for the next question."""
    async with (
        PostgresStore(database) as store,
        AsyncBashTool(files=lambda conversation: store.files(conversation.user_id)) as bash,
    ):
        await store.setup()
        agent = create_agent(
            model,
            sandbox_tools(bash),
            system_prompt=bash.system_prompt(),
            context_schema=AgentContext,
        )
        done = await agent.ainvoke({"messages": [HumanMessage(question)]}, context=context)
        return str(done["messages"][-1].content)


if __name__ == "__main__":
    print(
        asyncio.run(
            answer(
                init_chat_model(os.environ["MODEL"]),
                os.environ["DATABASE"],
                sys.argv[1],
                AgentContext(user_id="ada", thread_id="example-langchain"),
            )
        )
    )
