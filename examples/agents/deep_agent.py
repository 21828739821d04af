"""A deep agent whose files and commands are in the sandbox of its conversation.

Needs `pip install 'sandboxd[deepagents]'`; a real model needs its provider's package too:
    export MODEL=provider:model
    python examples/agents/deep_agent.py "Write a program that prints the first ten primes, run it."
Without MODEL the answer follows a script.
"""

from __future__ import annotations

import sys
from typing import Any

from deepagents import create_deep_agent
from langchain.messages import AIMessage, HumanMessage
from scripted_model import call, chosen_model

from sandboxd_client.integrations.deepagents import SandboxdBackend, with_artifacts

QUESTION = "Write a program that prints the first four primes, run it."
SCRIPT = [
    call("write_file", file_path="/workspace/primes.py", content="print(2, 3, 5, 7)\n"),
    call("execute", command="python3 primes.py"),
    AIMessage("The program printed: {answer}"),
]


def answer(model: Any, question: str, user_id: str, thread_id: str) -> str:
    """Ask the agent once. The sandbox is kept for the next question of the thread."""
    agent = create_deep_agent(model=model, backend=with_artifacts(SandboxdBackend()))
    done = agent.invoke(
        {"messages": [HumanMessage(question)]},
        config={"configurable": {"user_id": user_id, "thread_id": thread_id}},
    )
    return str(done["messages"][-1].content)


if __name__ == "__main__":
    question = sys.argv[1] if len(sys.argv) > 1 else QUESTION
    print(answer(chosen_model(SCRIPT), question, "ada", "example-deep-agent"))
