"""A deep agent whose files and commands are in the sandbox of its conversation.

Needs `pip install 'sandboxd[deepagents]'` and the package of a model's provider. Run it:
    export MODEL=provider:model
    python examples/agents/deep_agent.py "Write a program that prints the first ten primes, run it."
"""

from __future__ import annotations

import os
import sys
from typing import Any

from deepagents import create_deep_agent
from langchain.chat_models import init_chat_model
from langchain.messages import HumanMessage

from sandboxd_client.integrations.deepagents import SandboxdBackend, with_artifacts


def answer(model: Any, question: str, user_id: str, thread_id: str) -> str:
    """Ask the agent once. The sandbox is kept for the next question of the thread."""
    agent = create_deep_agent(model=model, backend=with_artifacts(SandboxdBackend()))
    done = agent.invoke(
        {"messages": [HumanMessage(question)]},
        config={"configurable": {"user_id": user_id, "thread_id": thread_id}},
    )
    return str(done["messages"][-1].content)


if __name__ == "__main__":
    print(answer(init_chat_model(os.environ["MODEL"]), sys.argv[1], "ada", "example-deep-agent"))
