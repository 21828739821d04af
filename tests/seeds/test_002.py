"""Document 002: a bash tool that uploads files of a virtual filesystem by itself."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import typing
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain.tools import InjectedToolArg, ToolRuntime, tool

from sandboxd_client import SandboxClient
from tests.seeds.conftest import Documents
from tests.seeds.document import Document

pytestmark = pytest.mark.usefixtures("local_mode")

TYPING = ("Annotated", "Any", "Dict", "List", "Optional")
EVENTS = [
    {"title": "Daily standup", "duration_minutes": 15},
    {"title": "1:1 with Grace"},
    {"title": "Review", "duration_minutes": 90},
]


@dataclass
class AgentContext:
    user_id: str
    thread_id: str


class VirtualFiles(dict[str, str]):
    """The virtual filesystem of the agent. Its writer is called with and without `await`."""

    async def read(self, path: str) -> str:
        return self[path]

    def write(self, path: str, text: str) -> VirtualFiles:
        self[path] = text
        return self

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


@pytest.fixture
def files() -> VirtualFiles:
    return VirtualFiles()


@pytest.fixture
def proposal(document: Documents, files: VirtualFiles, request: pytest.FixtureRequest) -> Document:
    """With its two tools, which its programs call as a model does."""
    proposal = document(
        "002",
        **{name: getattr(typing, name) for name in TYPING},
        AgentContext=AgentContext,
        InjectedToolArg=InjectedToolArg,
        ToolRuntime=ToolRuntime,
        json=json,
        logger=logging.getLogger("program"),
        os=os,
        read_file=files.read,
        tool=tool,
        write_file=files.write,
    )
    for block in (3, 4, 5):
        proposal.run(block)
    for name in ("execute_bash_command", "download_sandbox_file"):
        proposal.names[f"tool {name}"] = proposal.names[name]
        proposal.names[name] = partial(called, proposal.names[name], request.node.name)
    return proposal


def called(tool: Any, thread_id: str, *arguments: Any, **named: Any) -> Any:
    """What a tool answers to the agent of a conversation."""
    return asyncio.run(answer(tool, thread_id, *arguments, **named))


async def answer(tool: Any, thread_id: str, *arguments: Any, **named: Any) -> Any:
    runtime = SimpleNamespace(context=AgentContext("ada", thread_id))
    return await tool.coroutine(*arguments, **named, runtime=runtime)


def test_receipts_are_added_up(proposal: Document, files: VirtualFiles) -> None:
    """The first example, and the one of the prompt: result, keys and names as promised."""
    amounts = {"first": 45.5, "second": 67.0, "third": 30.0}
    for block in (7, 11):
        proposal.run(block, search_emails=lambda _: list(amounts), extract_amount=amounts.get)
        result = proposal.names["result"]
        assert (result["exit_code"], float(result["stdout"])) == (0, 142.50)
        assert (result["stderr"], result["execution_time_ms"] >= 0) == ("", True)
        assert result["uploaded_files"][0].endswith("receipts.json")


def test_events_become_a_report(proposal: Document, files: VirtualFiles) -> None:
    """By its output, or as a file that is downloaded, of which nothing is left on the host."""
    proposal.run(8, list_calendar_events=lambda start, end: EVENTS)
    report = "Standups: 0.2 hours\n1-on-1s: 0.5 hours\nOther: 1.5 hours\n"
    assert files["/data-exports/meeting_report_2024.txt"] == report

    processing = proposal.text(8).partition("# Categorize meetings\n")[2].partition("\n# Print")[0]
    proposal.replace("# ... processing ...", processing)
    files["/data-exports/meeting_report_2024.txt"] = ""
    proposal.run(9)
    assert files["/data-exports/meeting_report_2024.txt"] == report
    assert list(Path.cwd().iterdir()) == []


def test_several_files_and_a_large_result(proposal: Document, files: VirtualFiles) -> None:
    """The program and its data are both uploaded; the download says how much it was."""
    program = "import json, sys\nprint(sum(json.load(open(sys.argv[1]))))"
    proposal.run(12, data=[1, 2, 3], python_script=program)
    assert proposal.names["result"]["stdout"] == "6\n"
    assert proposal.names["result"]["uploaded_files"] == ["data.json", "process.py"]

    proposal.replace("jq '...'", "jq '.[]'")
    proposal.run(13)
    assert files["/data-exports/results.csv"] == "1\n2\n3\n"
    assert proposal.names["download_sandbox_file"]("results.csv", "/copy.csv") == {
        "status": "downloaded",
        "path": "/copy.csv",
        "size_bytes": 6,
    }


def test_two_conversations_at_once(proposal: Document, files: VirtualFiles) -> None:
    """With the one client of the program, each in its own workspace."""
    bash = proposal.names["tool execute_bash_command"]
    files["/name.txt"] = ""

    async def converse(thread_id: str) -> Any:
        await answer(bash, thread_id, f"echo {thread_id} > name.txt", ["/name.txt"])
        return (await answer(bash, thread_id, "cat name.txt"))["stdout"]

    async def both() -> list[str]:
        return await asyncio.gather(converse("one"), converse("two"))

    assert asyncio.run(both()) == ["one\n", "two\n"]


def test_the_proposed_method_is_there(proposal: Document) -> None:
    """With the same parameters; its body is that of another client."""
    proposal.run(14)
    proposed = inspect.signature(proposal.names["upload_file_from_bytes"])
    ours = inspect.signature(SandboxClient.upload_file_from_bytes)
    assert list(ours.parameters) == list(proposed.parameters)
