"""A LangChain agent with a scripted model uses the tools; the sandbox is that of its context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.store.memory import InMemoryStore

from sandboxd_client import InvalidRequestError
from sandboxd_client.integrations import (
    AsyncBashTool,
    BashTool,
    Conversation,
    FilesInMemory,
    StoreFiles,
)
from sandboxd_client.integrations.langchain import sandbox_tools
from tests.fakes.chat_model import ScriptedModel, calls, says
from tests.fakes.workspaces import FakeWorkspaces

QUESTION = {"messages": [{"role": "user", "content": "How much did I spend?"}]}


@dataclass
class AgentContext:
    user_id: str
    thread_id: str


@pytest.fixture
def workspaces() -> FakeWorkspaces:
    return FakeWorkspaces()


@pytest.fixture
def files() -> FilesInMemory:
    return FilesInMemory({"/data-exports/receipts.json": b"142.5"})


def script() -> ScriptedModel:
    return ScriptedModel(
        steps=[
            calls(
                "execute_bash_command",
                command="cat receipts.json; write total.txt 142.5",
                file_paths=["/data-exports/receipts.json"],
            ),
            calls(
                "download_sandbox_file", filename="total.txt", save_path="/data-exports/total.txt"
            ),
            says(lambda answer: f"{answer['status']} {answer['size_bytes']} bytes"),
        ]
    )


async def test_an_agent_runs_commands_on_its_files(
    workspaces: FakeWorkspaces, files: FilesInMemory
) -> None:
    """From the model's tool call to its answer: upload, command, download, in the right sandbox."""
    bash = AsyncBashTool(sandboxes=workspaces, files=files)
    model = script()
    agent = create_agent(
        model,
        sandbox_tools(bash),
        system_prompt=bash.system_prompt(),
        context_schema=AgentContext,
    )

    answer = await agent.ainvoke(QUESTION, context=AgentContext("ada", "42"))

    assert answer["messages"][-1].content == "downloaded 5 bytes"
    assert files.files["/data-exports/total.txt"] == b"142.5"
    assert list(workspaces.of) == [Conversation("ada", "42")]
    assert "execute_bash_command" in str(model.shown[0][0].content)


def test_a_sync_agent_does_the_same(workspaces: FakeWorkspaces, files: FilesInMemory) -> None:
    """With a BashTool an agent can be invoked without an event loop."""
    agent = create_agent(script(), sandbox_tools(BashTool(sandboxes=workspaces, files=files)))

    answer = agent.invoke(QUESTION, config={"configurable": {"user_id": "ada", "thread_id": "42"}})

    assert answer["messages"][-1].content == "downloaded 5 bytes"
    assert list(workspaces.of) == [Conversation("ada", "42")]


async def test_the_model_cannot_choose_whose_sandbox_it_is(
    workspaces: FakeWorkspaces, files: FilesInMemory
) -> None:
    """Neither user nor thread is among what a model is offered, and what it makes up is ignored."""
    model = ScriptedModel(
        steps=[
            calls("execute_bash_command", command="echo", user_id="bob", thread_id="1"),
            says(lambda answer: f"exit {answer['exit_code']}"),
        ]
    )
    bash = AsyncBashTool(sandboxes=workspaces, files=files)
    agent = create_agent(model, sandbox_tools(bash), context_schema=AgentContext)

    await agent.ainvoke(QUESTION, context=AgentContext("ada", "42"))

    assert list(workspaces.of) == [Conversation("ada", "42")]
    offered = {one["name"]: set(one["parameters"]["properties"]) for one in model.tools}
    assert offered == {
        "execute_bash_command": {"command", "file_paths"},
        "download_sandbox_file": {"filename", "save_path"},
        "read_command_output": {"output_id", "stream", "offset", "pattern"},
    }
    assert all(len(one["description"]) > 60 for one in model.tools)


async def test_without_a_user_in_the_context_the_agent_fails(workspaces: FakeWorkspaces) -> None:
    """It is the program's fault, and no sandbox is opened for nobody."""
    agent = create_agent(script(), sandbox_tools(AsyncBashTool(sandboxes=workspaces)))

    with pytest.raises(InvalidRequestError, match="user_id"):
        await agent.ainvoke(QUESTION)
    assert workspaces.of == {}


async def test_files_can_come_from_the_agents_own_store(workspaces: FakeWorkspaces) -> None:
    """The runtime of the tool call is there for file systems that live in the agent."""
    store = InMemoryStore()
    await StoreFiles(store, ("ada", "files")).write("/data-exports/receipts.json", b"142.5")

    def files_of(conversation: Conversation) -> StoreFiles:
        runtime: Any = conversation.runtime
        return StoreFiles(runtime.store, (conversation.user_id, "files"))

    bash = AsyncBashTool(sandboxes=workspaces, files=files_of)
    agent = create_agent(script(), sandbox_tools(bash), context_schema=AgentContext, store=store)
    answer = await agent.ainvoke(QUESTION, context=AgentContext("ada", "42"))

    assert answer["messages"][-1].content == "downloaded 5 bytes"
    assert await StoreFiles(store, ("ada", "files")).read("/data-exports/total.txt") == b"142.5"


async def test_an_error_is_an_answer_the_model_can_act_on(
    workspaces: FakeWorkspaces, files: FilesInMemory
) -> None:
    """A wrong path comes back as words, and the conversation goes on."""
    model = ScriptedModel(
        steps=[
            calls("execute_bash_command", command="echo", file_paths=["/wrong.json"]),
            says(lambda answer: answer["error"]),
        ]
    )
    agent = create_agent(
        model,
        sandbox_tools(AsyncBashTool(sandboxes=workspaces, files=files)),
        context_schema=AgentContext,
    )
    answer = await agent.ainvoke(QUESTION, context=AgentContext("ada", "42"))

    assert "/wrong.json is not in the virtual file system" in answer["messages"][-1].content
