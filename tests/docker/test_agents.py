"""Agents on real sandboxes: a LangChain agent with a scripted model, files in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deepagents.backends import StoreBackend
from langchain.agents import create_agent
from langgraph.store.memory import InMemoryStore

from sandboxd_client import AsyncSandbox
from sandboxd_client.integrations import (
    AsyncBashTool,
    BackendFiles,
    BashTool,
    FilesInDirectory,
    FilesInMemory,
)
from sandboxd_client.integrations.langchain import sandbox_tools
from sandboxd_client.integrations.postgres_files import PostgresStore
from tests.docker.daemon_process import DaemonProcess
from tests.fakes.chat_model import Answer, ScriptedModel, call, calls, says
from tests.integrations.postgres_cluster import running_cluster
from tests.sdk.conftest import local_settings

RECEIPTS = json.dumps([{"amount": 45.5}, {"amount": 67}, {"amount": 30}]).encode()
TOTAL = "jq '.[] | .amount' /workspace/receipts.json | awk '{sum += $1} END {print sum}'"


@dataclass
class AgentContext:
    user_id: str
    thread_id: str


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_cluster() as conninfo:
        yield conninfo


@pytest.fixture
def url(shared_daemon: DaemonProcess) -> str:
    return f"unix:{shared_daemon.socket}"


@pytest.fixture
async def thread(url: str, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A conversation of the test's own, whose session is closed afterwards."""
    yield request.node.name
    async with await AsyncSandbox.open("ada", request.node.name, server_url=url) as sandbox:
        await sandbox.kill()


async def test_an_agent_works_on_files_in_postgresql(url: str, thread: str, postgres: str) -> None:
    """Two messages of a conversation: what the first left in the sandbox, the second finds."""
    context = AgentContext("ada", thread)
    async with (
        PostgresStore(postgres) as store,
        AsyncBashTool(server_url=url, files=lambda who: store.files(who.user_id)) as bash,
    ):
        await store.setup()
        await store.files("ada").write("/data-exports/receipts.json", RECEIPTS)
        first = ScriptedModel(
            steps=[
                calls(
                    "execute_bash_command",
                    command=f"{TOTAL} | tee total.txt",
                    file_paths=["/data-exports/receipts.json"],
                ),
                says(lambda answer: f"You spent {answer['stdout'].strip()}."),
            ]
        )
        second = ScriptedModel(
            steps=[
                calls("execute_bash_command", command="cat total.txt && rm receipts.json"),
                calls("execute_bash_command", command="cat missing.txt"),
                lambda answer: call(
                    "download_sandbox_file",
                    filename="total.txt",
                    save_path=f"/data-exports/code-{answer['exit_code']}.txt",
                ),
                says(lambda answer: answer["path"]),
            ]
        )
        told = []
        for model in (first, second):
            agent = create_agent(
                model,
                sandbox_tools(bash),
                system_prompt=bash.system_prompt(),
                context_schema=AgentContext,
            )
            answer = await agent.ainvoke(
                {"messages": [{"role": "user", "content": "How much?"}]}, context=context
            )
            told.append(answer["messages"][-1].content)

        assert told == ["You spent 142.5.", "/data-exports/code-1.txt"]
        assert await store.files("ada").read("/data-exports/code-1.txt") == b"142.5\n"


async def test_files_are_sent_once_and_again_when_they_are_gone(url: str, thread: str) -> None:
    """By hash, as long as the file in the sandbox is the one that was sent."""
    files = FilesInMemory({"/in/receipts.json": RECEIPTS})
    async with AsyncBashTool(server_url=url, files=files) as bash:

        async def run(command: str) -> Answer:
            return await bash.execute_bash_command(
                command, ["/in/receipts.json"], user_id="ada", thread_id=thread
            )

        first = await run(TOTAL)
        second = await run(f"{TOTAL}; rm receipts.json")
        third = await run(f"{TOTAL}; echo '[]' > receipts.json")
        fourth = await run(TOTAL)

    assert [one["stdout"] for one in (first, second, third, fourth)] == ["142.5\n"] * 4
    assert [one.get("unchanged_files", []) for one in (first, second, third, fourth)] == [
        [],
        ["receipts.json"],
        [],
        [],
    ]
    assert first.keys() == {
        "exit_code",
        "stdout",
        "stderr",
        "execution_time_ms",
        "uploaded_files",
    }


async def test_after_a_reset_the_files_are_there_again_and_the_model_is_told(
    url: str, thread: str
) -> None:
    """Another incarnation: everything is sent anew, and the model hears of it."""
    files = FilesInMemory({"/receipts.json": RECEIPTS})
    async with AsyncBashTool(server_url=url, files=files) as bash:
        who = {"user_id": "ada", "thread_id": thread}
        await bash.execute_bash_command("touch mine", ["/receipts.json"], **who)
        async with await AsyncSandbox.open("ada", thread, server_url=url) as sandbox:
            await sandbox.reset()

        result = await bash.execute_bash_command(f"ls mine; {TOTAL}", ["/receipts.json"], **who)

    assert result.stdout == "142.5\n"
    assert "unchanged_files" not in result
    assert "replaced" in result.notice


async def test_long_and_colourful_output_is_fit_for_a_model(url: str, thread: str) -> None:
    """Beginning, end and a way to the rest; progress bars and colours are gone."""
    who = {"user_id": "ada", "thread_id": thread}
    noisy = r"printf '\e[31mred\e[0m\n'; for n in 1 2 3; do printf '%d%%\r' $n; done; echo done"
    async with AsyncBashTool(server_url=url, max_output_bytes=2000) as bash:
        plain = await bash.execute_bash_command(noisy, **who)
        long = await bash.execute_bash_command("seq 100000", **who)
        shown = long.stdout.splitlines()
        offset = int(long.stdout.partition("offset=")[2].partition(")")[0])
        page = await bash.read_command_output(long.output_id, offset=offset, **who)
        found = await bash.read_command_output(long.output_id, pattern="^77777$", **who)
        missing = await bash.read_command_output("exe_none", **who)

    assert plain.stdout == "red\ndone\n"
    assert len(long.stdout) < 2400
    assert (shown[0], shown[-1]) == ("1", "100000")
    head = long.stdout[:offset]
    assert head + page.text[:20] == "".join(f"{n}\n" for n in range(1, 2000))[: offset + 20]
    assert page.next_offset == offset + 65536
    assert found.text == "77777: 77777\n"
    assert "error" in missing


async def test_an_agent_with_a_deepagents_backend(url: str, thread: str) -> None:
    """What the agent's own file tools have written is uploaded, and what is saved they can read."""
    backend = StoreBackend(store=InMemoryStore(), namespace=lambda _: ("ada",))
    await backend.awrite("/receipts.json", RECEIPTS.decode())
    async with AsyncBashTool(server_url=url, files=BackendFiles(backend)) as bash:
        who = {"user_id": "ada", "thread_id": thread}
        await bash.execute_bash_command(f"{TOTAL} > total.txt", ["/receipts.json"], **who)
        await bash.download_sandbox_file("/workspace/total.txt", "/total.txt", **who)

    read = await backend.aread("/total.txt")
    assert read.file_data is not None
    assert read.file_data["content"] == "142.5\n"


async def test_with_the_daemon_in_the_process() -> None:
    """mode="local" is the same tool without a server."""
    files = FilesInMemory({"/receipts.json": RECEIPTS})
    async with (
        local_settings() as settings,
        AsyncBashTool("local", files=files, local_settings=settings) as bash,
    ):
        result = await bash.execute_bash_command(
            TOTAL, ["/receipts.json"], user_id="ada", thread_id="local"
        )

    assert (result.exit_code, result.stdout) == (0, "142.5\n")


def test_without_an_event_loop(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    """The same in plain code, with files in a directory."""
    (tmp_path / "receipts.json").write_bytes(RECEIPTS)
    url = f"unix:{shared_daemon.socket}"
    with BashTool(server_url=url, files=FilesInDirectory(tmp_path)) as bash:
        who = {"user_id": "ada", "thread_id": "plain"}
        result = bash.execute_bash_command(TOTAL, ["/receipts.json"], **who)
        raw = bash.execute("exit 3", "ada", "plain")
        bash.upload_file(tmp_path / "receipts.json", "ada", "plain", "again.json")
        names = [file["name"] for file in bash.list_files("ada", "plain")["files"]]
        bash.download_file("again.json", "ada", "plain", tmp_path / "back.json")
        bash.cleanup_session("plain", user_id="ada")

    assert (result["exit_code"], result["stdout"]) == (0, "142.5\n")
    assert raw["exit_code"] == 3
    assert names == ["again.json", "receipts.json"]
    assert (tmp_path / "back.json").read_bytes() == RECEIPTS
