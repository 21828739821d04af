"""A deep agent works in the sandbox of its thread, through the framework's own tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio
from deepagents import create_deep_agent
from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox
from langchain_core.messages import ToolMessage

from sandboxd_client.integrations.deepagents import SandboxdBackend, with_artifacts
from tests.docker.daemon_process import DaemonProcess, running_daemon
from tests.fakes.chat_model import ScriptedModel, calls, says

QUESTION = {"messages": [{"role": "user", "content": "Please."}]}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon() -> AsyncIterator[DaemonProcess]:
    async with running_daemon(MAX_CONTAINERS="40") as daemon:
        yield daemon


@pytest.fixture
def url(daemon: DaemonProcess) -> str:
    return f"unix:{daemon.socket}"


def config(thread: str) -> Any:
    return {"configurable": {"user_id": "ada", "thread_id": thread}}


def agent_of(url: str, *steps: Any, tools: Sequence[Any] = ()) -> Any:
    model = ScriptedModel(steps=[*steps, says(lambda answer: "done")])
    backend = with_artifacts(SandboxdBackend(server_url=url))
    return create_deep_agent(model=model, tools=list(tools), backend=backend)


def answers(done: dict[str, Any]) -> list[str]:
    return [str(message.content) for message in done["messages"] if message.type == "tool"]


STEPS = (
    calls("write_file", file_path="/workspace/src/a.py", content="one = 1\ntwo = 2\n"),
    calls("execute", command="cd src && python3 -c 'import a; print(a.one + a.two)'"),
    calls("edit_file", file_path="/workspace/src/a.py", old_string="two", new_string="three"),
    calls("read_file", file_path="/workspace/src/a.py"),
    calls("grep", pattern="three", path="/workspace", output_mode="content"),
    calls("glob", pattern="**/*.py", path="/workspace"),
    calls("ls", path="/workspace/src"),
    calls("delete", file_path="/workspace/src"),
    calls("read_file", file_path="/workspace/src/a.py"),
)


def check(found: list[str]) -> None:
    _, ran, edited, read, grep, glob, ls, _, missing = found
    assert ran.startswith("3\n")
    assert "exit code 0" in ran
    assert "a.py" in edited
    assert "three = 2" in read
    assert "/workspace/src/a.py" in grep
    assert "three = 2" in grep
    assert "/workspace/src/a.py" in glob
    assert "/workspace/src/a.py" in ls
    assert "file_not_found" in missing


def test_an_agent_uses_every_tool(url: str) -> None:
    """Files, searches and commands of one conversation act on one workspace."""
    agent = agent_of(url, *STEPS)

    check(answers(agent.invoke(QUESTION, config=config("every tool"))))


async def test_an_awaited_agent_uses_every_tool(url: str) -> None:
    agent = agent_of(url, *STEPS)

    check(answers(await agent.ainvoke(QUESTION, config=config("every awaited tool"))))


async def test_large_output_is_saved_in_the_workspace(url: str) -> None:
    """The model gets a preview with the true exit code, and the path of a file with everything."""
    agent = agent_of(
        url,
        calls("execute", command="seq 200000; echo oops >&2; exit 3"),
        calls("execute", command="wc -l /workspace/.deepagents/large_tool_results/*"),
    )

    done = await agent.ainvoke(QUESTION, config=config("large output"))

    preview, counted = answers(done)
    assert "exit code 3" in preview
    assert "/workspace/.deepagents/large_tool_results/" in preview
    assert "oops" in preview
    assert len(preview) < 10_000
    assert counted.split()[0] == "200001"
    ran = next(message for message in done["messages"] if isinstance(message, ToolMessage))
    assert ran.artifact["exit_code"] == 3


def report() -> str:
    """A tool with a long answer."""
    return "\n".join(f"row {number}" for number in range(20_000))


async def test_a_large_result_of_another_tool_is_saved_in_the_workspace(url: str) -> None:
    """What the middleware takes out of the context is where commands of the sandbox find it."""
    agent = agent_of(
        url,
        calls("report"),
        calls("execute", command="cat .deepagents/large_tool_results/* | wc -l"),
        tools=[report],
    )

    found, count = answers(await agent.ainvoke(QUESTION, config=config("large result")))

    assert "/workspace/.deepagents/large_tool_results/" in found
    assert int(count.split()[0]) >= 19_999


async def test_twenty_conversations_at_once_do_not_mix(url: str) -> None:
    """One backend serves them all; each finds in its workspace only what it wrote."""
    backend = with_artifacts(SandboxdBackend(server_url=url))

    async def converse(number: int) -> list[str]:
        model = ScriptedModel(
            steps=[
                calls("write_file", file_path=f"/workspace/{number}.txt", content=f"I am {number}"),
                calls("execute", command="cat *.txt"),
                says(lambda answer: "done"),
            ]
        )
        agent = create_deep_agent(model=model, backend=backend)
        return answers(await agent.ainvoke(QUESTION, config=config(f"conversation {number}")))

    found = await asyncio.gather(*map(converse, range(20)))

    for number, (_, printed) in enumerate(found):
        assert printed.splitlines()[0].removesuffix("[Command succeeded with exit code 0]") == (
            f"I am {number}"
        )


def test_errors_have_the_codes_of_the_protocol(url: str) -> None:
    backend = SandboxdBackend(server_url=url, user_id="ada", thread_id="errors")

    wrong = backend.download_files(["/workspace/none", "/workspace", "relative", "/etc/shadow"])
    uploads = backend.upload_files([("/etc/x", b"1"), ("x", b"1"), ("/workspace/x", b"\x00\xff")])
    refused = backend.execute("sleep 9", timeout=1)

    assert [one.error for one in wrong] == [
        "file_not_found",
        "is_directory",
        "invalid_path",
        "permission_denied",
    ]
    assert [one.error for one in uploads] == ["permission_denied", "invalid_path", None]
    assert backend.download_files(["/workspace/x"])[0].content == b"\x00\xff"
    assert refused.exit_code == 124
    assert "not found" in str(backend.edit("/workspace/none", "a", "b").error)
    assert "not found" in str(backend.delete("/workspace/none").error)
    backend.close()


def test_a_backend_needs_a_conversation(url: str) -> None:
    """Outside of an agent's run, and without a user and a thread, nothing is run."""
    backend = SandboxdBackend(server_url=url)

    assert "user_id and a thread_id" in backend.execute("echo hello").output


class ThroughCommands(BaseSandbox):
    """The framework's own implementation of files, which runs Python programs in the sandbox."""

    def __init__(self, backend: SandboxdBackend) -> None:
        self._backend = backend

    @property
    def id(self) -> str:
        return self._backend.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return self._backend.execute(command, timeout=timeout)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return self._backend.upload_files(files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return self._backend.download_files(paths)


PREPARE = r"""
mkdir -p src/.hidden .git && cd src
printf 'one\ntwo\nthree\n' > a.py; printf 'x\r\ny\r\n' > crlf.txt; printf 'no end' > end.md
printf '' > empty; printf '\377\376\000' > raw.bin; printf 'pic' > p.png; cp a.py .hidden/b.py
cp a.py ../.git/c.py; cp a.py .d.py; seq 5000 > numbers; ln -s a.py link
"""
SAME: list[tuple[str, tuple[Any, ...]]] = [
    ("read", ("/workspace/src/a.py",)),
    ("read", ("/workspace/src/a.py", 1, 1)),
    ("read", ("/workspace/src/a.py", -1, 2)),
    ("read", ("/workspace/src/a.py", 0, 0)),
    ("read", ("/workspace/src/a.py", 9, 1)),
    ("read", ("/workspace/src/crlf.txt",)),
    ("read", ("/workspace/src/end.md",)),
    ("read", ("/workspace/src/empty",)),
    ("read", ("/workspace/src/raw.bin",)),
    ("read", ("/workspace/src/p.png",)),
    ("read", ("/workspace/src/link",)),
    ("read", ("/workspace/src/numbers", 100, 50)),
    ("read", ("/workspace/src/none",)),
    ("glob", ("*.py", "/workspace")),
    ("glob", ("**/*.py", "/workspace")),
    ("glob", ("/*.py", "/workspace/src")),
    ("glob", ("src/*.{py,md}", "/workspace")),
    ("glob", (".*", "/workspace")),
    ("grep", ("two", "/workspace")),
    ("grep", ("two", "/workspace", "*.py")),
    ("grep", ("none of it", "/workspace")),
    ("edit", ("/workspace/src/crlf.txt", "x\ny", "1\n2")),
    ("edit", ("/workspace/src/a.py", "none", "")),
    ("edit", ("/workspace/src/a.py", "o", "")),
    ("edit", ("/workspace/src/none", "o", "")),
    ("ls", ("/workspace/src",)),
    ("ls", ("/workspace/none",)),
    ("delete", ("/workspace/none",)),
]


def plain(answer: Any) -> Any:
    """An answer without what only one of both says: sizes, times, words of errors, the order."""
    found = dict(vars(answer))
    if found.get("error"):
        return "an error"
    for name in ("entries", "matches"):
        if name in found:
            # The framework's own glob lists links to files as files, and ls marks directories.
            rows = [
                {key: row[key] for key in ("path", "line", "text") if key in row}
                for row in found[name]
                if not row["path"].endswith("/link")
            ]
            found[name] = sorted(rows, key=lambda row: (row["path"], row.get("line")))
    return found


@pytest.mark.parametrize(("method", "arguments"), SAME, ids=lambda value: str(value))
def test_files_are_as_the_framework_reads_them(
    url: str, method: str, arguments: tuple[Any, ...]
) -> None:
    """The daemon's file service answers what the framework's programs in the sandbox answer."""
    ours = SandboxdBackend(server_url=url, user_id="ada", thread_id="ours")
    theirs = ThroughCommands(SandboxdBackend(server_url=url, user_id="ada", thread_id="theirs"))
    for backend in (ours, theirs):
        assert backend.execute(f"rm -rf src .git; {PREPARE}").exit_code == 0

    expected = plain(getattr(theirs, method)(*arguments))

    assert plain(getattr(ours, method)(*arguments)) == expected
