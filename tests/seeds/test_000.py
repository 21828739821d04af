"""Document 000: a LangChain agent with a bash tool, in local mode."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

import pydantic.v1
import pytest
from langchain.agents import create_agent

from sandboxd_client import SandboxClient
from tests.fakes.chat_model import ScriptedModel, calls, says
from tests.seeds.conftest import Documents
from tests.seeds.document import Document, settings_of

pytestmark = pytest.mark.usefixtures("local_mode")


@dataclass
class AgentContext:
    user_id: str
    session_id: str


@pytest.fixture
def guide(document: Documents, monkeypatch: pytest.MonkeyPatch) -> Document:
    """With the modules of the program that it is about, whose settings are its own."""
    guide = document(
        "000", BaseSettings=pydantic.v1.BaseSettings, Field=pydantic.v1.Field, Literal=Literal
    )
    modules = {
        "src.services.ai_agent_v3.context": {"AgentContext": AgentContext},
        "src.config.settings": {"get_settings": lambda: guide.names["Settings"]()},
    }
    for name, names in modules.items():
        module = ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
    for name, value in settings_of(guide.text(4)).items():
        monkeypatch.setenv(name, value)
    guide.run(3)
    return guide


def test_the_tool_works_in_an_agent(guide: Document) -> None:
    """The example of its docstring: the second command reads what the first has written."""
    guide.run(2)
    model = ScriptedModel(
        steps=[
            calls(
                "execute_bash_command",
                command="""echo '[{"amount": 42}, {"amount": 100}]' > data.json""",
            ),
            calls(
                "execute_bash_command",
                command="jq -r '.[].amount' data.json | awk '{sum += $1} END {print sum}'",
            ),
            says(str),
        ]
    )
    agent = create_agent(model, guide.names["BASH_TOOLS"], context_schema=AgentContext)

    answer = asyncio.run(
        agent.ainvoke(
            {"messages": [{"role": "user", "content": "How much?"}]},
            context=AgentContext("ada-lovelace", "conversation"),
        )
    )

    wanted = {"status": "success", "stdout": "142\n", "stderr": "", "return_code": 0}
    assert answer["messages"][-1].content == str(wanted)


def test_the_new_prompt_is_true(guide: Document) -> None:
    """Its commands work as it says they do."""
    lines = guide.text(6).splitlines()
    create, use = (line for line in lines if line.startswith(("echo ", "jq ")))
    guide.run(7, SandboxClient=SandboxClient)
    client = guide.names["client"]
    client.get_or_create_session(user_id="ada", thread_id="prompt")

    assert client.execute(create)["exit_code"] == 0
    assert client.execute(use)["stdout"].split() == ["[", "1,", "2,", "3", "]"]


def test_settings_choose_the_mode(guide: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    """As fields of the program's settings, and as variables that the client reads itself."""
    settings = guide.names["Settings"]()
    assert settings.sandbox_mode == SandboxClient(settings.sandbox_mode).mode == "local"
    assert SandboxClient().mode == "local"
    monkeypatch.setenv("SANDBOX_MODE", "remote")
    for client in (SandboxClient(), SandboxClient("remote", settings.sandbox_url)):
        with client:
            assert client.server_status()
    guide.run(8, SandboxClient=SandboxClient)
    assert guide.names["client"].server_status()
