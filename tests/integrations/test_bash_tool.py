"""The bash tool: files are in place, sent once, and what a model has to know is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from sandboxd.daemon.composition import Daemon
from sandboxd_client import (
    ConnectionLostError,
    InvalidRequestError,
    NoSessionError,
    SandboxError,
    SandboxLostError,
    SessionExpiredError,
    WorkspaceFullError,
)
from sandboxd_client.integrations import (
    AsyncBashTool,
    BashTool,
    Conversation,
    FilesFromFunctions,
    FilesInMemory,
    VirtualFiles,
    system_prompt,
)
from sandboxd_client.integrations.sent_files import MAX_SESSIONS, SentFiles
from tests.fakes.guest import FakeGuests
from tests.fakes.workspaces import FakeWorkspace, FakeWorkspaces

ADA = {"user_id": "ada", "thread_id": "42"}
RECEIPTS = "/data-exports/receipts.json"


@pytest.fixture
def workspaces() -> FakeWorkspaces:
    return FakeWorkspaces()


@pytest.fixture
def files() -> FilesInMemory:
    return FilesInMemory({RECEIPTS: b"[1, 2]", "/scripts/process.py": b"print()"})


@pytest.fixture
def bash(workspaces: FakeWorkspaces, files: FilesInMemory) -> AsyncBashTool:
    return AsyncBashTool(sandboxes=workspaces, files=files)


def workspace_of_ada(workspaces: FakeWorkspaces) -> FakeWorkspace:
    return workspaces.of[Conversation("ada", "42")]


async def test_files_are_in_the_workspace_before_the_command_runs(bash: AsyncBashTool) -> None:
    """Each of file_paths is there under its name, and the answer has the documented keys alone."""
    result = await bash.execute_bash_command(
        "cat receipts.json; cat process.py", [RECEIPTS, "/scripts/process.py"], **ADA
    )

    assert result == {
        "exit_code": 0,
        "stdout": "[1, 2]print()",
        "stderr": "",
        "execution_time_ms": 0,
        "uploaded_files": ["receipts.json", "process.py"],
    }
    assert result.stdout == result["stdout"]
    assert json.loads(json.dumps(result)) == result


async def test_a_file_that_has_not_changed_is_not_sent_again(
    bash: AsyncBashTool, workspaces: FakeWorkspaces, files: FilesInMemory
) -> None:
    """By its content: the same is sent once, another is sent again."""
    await bash.execute_bash_command("echo 1", [RECEIPTS], **ADA)
    second = await bash.execute_bash_command("echo 2", [RECEIPTS], **ADA)

    assert second.uploaded_files == second.unchanged_files == ["receipts.json"]
    assert workspace_of_ada(workspaces).writes == ["receipts.json"]

    await files.write(RECEIPTS, b"[3]")
    third = await bash.execute_bash_command("cat receipts.json", [RECEIPTS], **ADA)
    assert third.stdout == "[3]"
    assert "unchanged_files" not in third


@pytest.mark.parametrize("change", ["remove receipts.json", "touch receipts.json"])
async def test_a_file_that_a_command_has_touched_is_sent_again(
    bash: AsyncBashTool, workspaces: FakeWorkspaces, change: str
) -> None:
    """What a command removed or wrote to is not what was uploaded any more."""
    await bash.execute_bash_command(change, [RECEIPTS], **ADA)
    result = await bash.execute_bash_command("cat receipts.json", [RECEIPTS], **ADA)

    assert result.stdout == "[1, 2]"
    assert workspace_of_ada(workspaces).writes == ["receipts.json"] * 2


async def test_on_a_new_sandbox_everything_is_sent_again_and_the_model_is_told(
    bash: AsyncBashTool, workspaces: FakeWorkspaces
) -> None:
    """Nothing is believed of another incarnation, and lost files are not kept secret."""
    await bash.execute_bash_command("write mine.txt hello", [RECEIPTS], **ADA)
    workspace = workspace_of_ada(workspaces)

    workspace.replace(is_kept=False)
    fresh = await bash.execute_bash_command("cat mine.txt", [RECEIPTS], **ADA)
    assert fresh.stdout == "no such file\n"
    assert "gone" in fresh.notice
    assert workspace.writes == ["receipts.json"] * 2

    workspace.replace(is_kept=True)
    kept = await bash.execute_bash_command("echo", [RECEIPTS], **ADA)
    assert "replaced" in kept.notice
    assert workspace.writes == ["receipts.json"] * 3

    assert "notice" not in await bash.execute_bash_command("echo", [RECEIPTS], **ADA)


async def test_a_sandbox_that_someone_else_replaced_is_told_too(
    bash: AsyncBashTool, workspaces: FakeWorkspaces
) -> None:
    """Another process of the service may have opened the session again before us."""
    await bash.execute_bash_command("echo", **ADA)
    workspace = workspace_of_ada(workspaces)
    workspace.replace(is_kept=False)
    workspace.opened()

    assert "replaced" in (await bash.execute_bash_command("echo", **ADA)).notice


@pytest.mark.parametrize("error", [SessionExpiredError("idle"), SandboxLostError("died")])
async def test_a_session_that_ends_on_the_way_is_opened_again_with_its_files(
    bash: AsyncBashTool, workspaces: FakeWorkspaces, error: SandboxError
) -> None:
    """The second try uploads again: the command finds its input in the new workspace."""
    await bash.execute_bash_command("echo", [RECEIPTS], **ADA)
    # The command fails, not the upload: the file is there and not sent before it.
    workspace_of_ada(workspaces).fail_next(error, is_replaced=True)

    result = await bash.execute_bash_command("cat receipts.json", [RECEIPTS], **ADA)

    assert result.stdout == "[1, 2]"
    assert "gone" in result.notice
    assert workspaces.repeated == 1


async def test_a_command_that_may_have_run_is_not_run_again(
    bash: AsyncBashTool, workspaces: FakeWorkspaces
) -> None:
    """Where an earlier try of the call was cut off, the model is told instead."""
    await bash.execute_bash_command("echo", **ADA)
    lost = SandboxLostError("the sandbox died")
    lost.may_have_begun = True
    workspace_of_ada(workspaces).fail_next(lost)

    result = await bash.execute_bash_command("echo twice", **ADA)

    assert (result.exit_code, result.error) == (-1, "the sandbox died")
    assert workspace_of_ada(workspaces).lines == ["echo"]


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["/missing.txt"], "/missing.txt is not in the virtual file system"),
        (["/a/x.txt", "/b/x.txt"], "would both become x.txt"),
        (["/data-exports/"], "not a valid path of a file"),
        ([f"/{number}" for number in range(101)], "at most 100"),
    ],
)
async def test_nothing_runs_on_files_that_cannot_be_had(
    bash: AsyncBashTool, workspaces: FakeWorkspaces, paths: list[str], words: str
) -> None:
    """A wrong path is told to the model, and the command does not run without its input."""
    result = await bash.execute_bash_command("echo ran", paths, **ADA)

    assert words in result.error
    assert (result.exit_code, result.stdout, result.uploaded_files) == (-1, "", [])
    assert workspace_of_ada(workspaces).lines == []


async def test_a_full_workspace_is_told_to_the_model(
    bash: AsyncBashTool, workspaces: FakeWorkspaces
) -> None:
    """An upload that fails is an answer, not an exception in the agent's loop."""
    await bash.execute_bash_command("echo", **ADA)
    workspace_of_ada(workspaces).fail_next(WorkspaceFullError("no room for receipts.json"))

    result = await bash.execute_bash_command("echo", [RECEIPTS], **ADA)

    assert result.error == "no room for receipts.json"


async def test_a_daemon_that_is_gone_is_told_to_the_model(
    bash: AsyncBashTool, workspaces: FakeWorkspaces
) -> None:
    """The agent can tell its user, and the conversation goes on."""
    await bash.execute_bash_command("echo", **ADA)
    workspace_of_ada(workspaces).fail_next(ConnectionLostError("the daemon does not answer"))

    result = await bash.execute_bash_command("echo", **ADA)

    assert result.error == "the daemon does not answer"


async def test_a_slow_file_system_is_not_waited_for_for_ever(workspaces: FakeWorkspaces) -> None:
    """There is a limit, and it is told in words."""

    async def never(path: str) -> bytes:
        await asyncio.Event().wait()
        return b""

    bash = AsyncBashTool(sandboxes=workspaces, files=FilesFromFunctions(never), files_timeout=0.01)
    result = await bash.execute_bash_command("echo", ["/slow"], **ADA)

    assert "did not answer within 0.01 s" in result.error


async def test_conversations_have_workspaces_and_files_of_their_own(
    workspaces: FakeWorkspaces,
) -> None:
    """The file system can depend on who asks, and one user's file never lands at another's."""
    owned = {
        "ada": FilesInMemory({"/notes.txt": b"of ada"}),
        "bob": FilesInMemory({"/notes.txt": b"of bob"}),
    }

    def files_of(conversation: Conversation) -> VirtualFiles:
        return owned[conversation.user_id]

    bash = AsyncBashTool(sandboxes=workspaces, files=files_of)
    seen = await asyncio.gather(
        *(
            bash.execute_bash_command(
                "cat notes.txt", ["/notes.txt"], user_id=user, thread_id=f"t{number}"
            )
            for number in range(10)
            for user in ("ada", "bob")
        )
    )

    assert [one.stdout for one in seen] == ["of ada", "of bob"] * 10
    assert len(workspaces.of) == 20


@pytest.mark.parametrize("missing", [{"user_id": ""}, {"thread_id": ""}])
async def test_without_a_user_and_a_thread_nothing_is_opened(
    bash: AsyncBashTool, workspaces: FakeWorkspaces, missing: dict[str, str]
) -> None:
    """A context that names nobody is the program's fault, and raised."""
    with pytest.raises(InvalidRequestError):
        await bash.execute_bash_command("echo", **{**ADA, **missing})
    assert workspaces.of == {}


async def test_long_output_is_cut_in_the_middle_and_says_where_the_rest_is(
    workspaces: FakeWorkspaces,
) -> None:
    """Beginning and end are there, and the call that gives the rest is written out."""
    bash = AsyncBashTool(sandboxes=workspaces, max_output_bytes=100)
    result = await bash.execute_bash_command("flood 1000", **ADA)

    assert result.stdout.startswith("line 0\n")
    assert result.stdout.endswith("line 999\n")
    assert len(result.stdout) < 400
    assert result.output_id == "exe_1"
    assert 'read_command_output("exe_1", stream="stdout", offset=50)' in result.stdout


async def test_a_result_is_saved_to_the_virtual_file_system(
    bash: AsyncBashTool, files: FilesInMemory
) -> None:
    """download_sandbox_file answers as documented, and with words where there is no such file."""
    await bash.execute_bash_command("write report.csv a,b", **ADA)

    saved = await bash.download_sandbox_file("report.csv", "/data-exports/report.csv", **ADA)
    missing = await bash.download_sandbox_file("other.csv", "/x", **ADA)

    assert saved == {"status": "downloaded", "path": "/data-exports/report.csv", "size_bytes": 3}
    assert files.files["/data-exports/report.csv"] == b"a,b"
    assert (missing["status"], missing["error"]) == ("error", "other.csv does not exist")


def test_the_sync_tool_does_the_same(workspaces: FakeWorkspaces, files: FilesInMemory) -> None:
    """The same calls without await, for programs without an event loop."""
    with BashTool(sandboxes=workspaces, files=files) as bash:
        result = bash.execute_bash_command("cat receipts.json; exit 3", [RECEIPTS], **ADA)
        listed = bash.list_files(**ADA)
        plain = bash.execute("echo hello", "ada", "42")

    assert (result.exit_code, result.stdout) == (3, "[1, 2]")
    assert [file.name for file in listed.files] == ["receipts.json"]
    assert plain["stdout"] == "hello\n"
    assert workspaces.is_closed


async def test_cleanup_ends_the_conversation_that_was_used_last(
    bash: AsyncBashTool, workspaces: FakeWorkspaces
) -> None:
    """By this task; of another one it takes nothing, and asks for names instead."""
    for thread_id in ("1", "2", "3"):
        await bash.execute_bash_command("write mine x", user_id="ada", thread_id=thread_id)
    await asyncio.create_task(
        bash.execute_bash_command("write hers x", user_id="eve", thread_id="3")
    )

    await bash.cleanup_session()
    await bash.cleanup_session("1")

    left = [key for key, workspace in workspaces.of.items() if workspace.content]
    assert left == [Conversation("ada", "2"), Conversation("eve", "3")]
    await bash.aclose()
    with pytest.raises(NoSessionError, match="user_id and thread_id"):
        await bash.cleanup_session("1")


def test_what_is_remembered_of_sessions_is_bounded() -> None:
    """A service that runs for months does not grow with its conversations."""
    sent = SentFiles()
    for number in range(MAX_SESSIONS + 10):
        sent.of(FakeWorkspace(Conversation("ada", str(number))).opened().info)

    assert len(sent._sessions) == MAX_SESSIONS


def test_the_prompt_names_the_tools_and_the_limits() -> None:
    """Text for a system prompt: no braces left over from the template, numbers filled in."""
    text = system_prompt(command_seconds=45)

    for word in (
        "execute_bash_command(command, file_paths=None)",
        "download_sandbox_file(filename, save_path)",
        "read_command_output",
        "45 seconds per command, 100 MB per file, 500 MB and 1000 files",
        "'{s += $1} END {print s}'",
    ):
        assert word in text
    assert "{{" not in text


async def test_what_a_policy_refuses_is_told_with_the_rule(
    start_daemon: Callable[..., Awaitable[Daemon]], guests: FakeGuests
) -> None:
    """A daemon with the strict policy: the model hears what it may not run, and nothing is run."""
    daemon = await start_daemon(command_policy="strict")
    async with AsyncBashTool(server_url=f"unix:{daemon.config.api_socket}") as bash:
        refused = await bash.execute_bash_command("echo x; rm y", **ADA)
        allowed = await bash.execute_bash_command("echo x", **ADA)

    assert refused.exit_code == -1
    assert "rm" in refused.error
    assert (allowed.exit_code, allowed.stdout) == (0, "x\n")
    assert [one.line for one in guests.commands] == ["echo x"]
