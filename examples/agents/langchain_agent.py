"""A LangChain agent with a sandbox for each conversation, and its users' files in PostgreSQL.

Needs `pip install 'sandboxd[langchain,postgres]'`; a real model needs its provider's package too:
    export MODEL=provider:model DATABASE=postgresql:///agents
    python examples/agents/langchain_agent.py "How much did I spend?"
Without MODEL the answer follows a script; without DATABASE the files are in memory.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain.messages import AIMessage, HumanMessage
from scripted_model import call, chosen_model

from sandboxd_client.integrations import AsyncBashTool, FilesInMemory
from sandboxd_client.integrations.langchain import sandbox_tools
from sandboxd_client.integrations.postgres_files import PostgresStore

SUM = "awk -F, '{sum += $2} END {print sum}' receipts.csv"
SCRIPT = [
    call("execute_bash_command", command=SUM, file_paths=["/receipts.csv"]),
    AIMessage("The command answered: {answer}"),
]


@dataclass
class AgentContext:
    """User and thread of a message; the model never sees them."""

    user_id: str
    thread_id: str


async def answer(model: Any, files: Any, question: str, context: AgentContext) -> str:
    """Ask the agent once. The sandbox and the files are kept for the next question."""
    async with AsyncBashTool(files=files) as bash:
        agent = create_agent(
            model,
            sandbox_tools(bash),
            system_prompt=bash.system_prompt(),
            context_schema=AgentContext,
        )
        done = await agent.ainvoke({"messages": [HumanMessage(question)]}, context=context)
        return str(done["messages"][-1].content)


async def answer_with_database(
    model: Any, database: str, question: str, context: AgentContext
) -> str:
    async with PostgresStore(database) as store:
        await store.setup()
        return await answer(
            model, lambda conversation: store.files(conversation.user_id), question, context
        )


async def main() -> str:
    question = sys.argv[1] if len(sys.argv) > 1 else "How much did I spend?"
    model = chosen_model(SCRIPT)
    context = AgentContext(user_id="ada", thread_id="example-langchain")
    if database := os.environ.get("DATABASE"):
        return await answer_with_database(model, database, question, context)
    files = FilesInMemory({"/receipts.csv": b"books,45.5\ntea,97\n"})
    return await answer(model, files, question, context)


if __name__ == "__main__":
    print(asyncio.run(main()))
