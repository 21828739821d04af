"""The MCP server, driven by the official client over both transports and both protocol versions."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import pytest_asyncio
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    TextContent,
)

from tests.docker.token_daemon import TokenDaemon, token_daemon

VERSIONS = ["legacy", "2026-07-28"]


class Served:
    """A daemon that asks for tokens, and servers in front of it."""

    def __init__(self, daemon: TokenDaemon) -> None:
        self.daemon, self.tokens = daemon, daemon.tokens
        self.url = ""

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SANDBOXD_URL": self.daemon.url}

    @asynccontextmanager
    async def client(
        self, who: str = "ada", path: str = "", *, mode: str = "legacy", **headers: str
    ) -> AsyncIterator[Client]:
        authorization = {"authorization": f"Bearer {self.tokens.get(who, who)}"}
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with httpx2.AsyncClient(headers={**authorization, **sent}, timeout=60) as http:
            transport = streamable_http_client(f"{self.url}{path}", http_client=http)
            async with Client(transport, mode=mode) as client:
                yield client

    def stdio(self, *arguments: str) -> StdioServerParameters:
        return StdioServerParameters(
            command=sys.executable,
            args=["-m", "sandboxd", "mcp", *arguments],
            env={**self.environment, "SANDBOXD_TOKEN": self.tokens["ada"]},
        )


@asynccontextmanager
async def server(environment: dict[str, str], *arguments: str) -> AsyncIterator[str]:
    """`sandboxd mcp --http`; yields its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sandboxd",
        "mcp",
        "--http",
        "127.0.0.1:0",
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            yield (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(30):
            await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with token_daemon(tmp_path_factory.mktemp("tokens")) as daemon:
        found = Served(daemon)
        async with server(found.environment) as found.url:
            yield found


async def answer(client: Client, name: str, **arguments: Any) -> Any:
    """The structured answer of a tool that succeeds."""
    done = await client.call_tool(name, arguments)
    assert not done.is_error, done.content
    return done.structured_content


async def refusal(client: Client, name: str, **arguments: Any) -> str:
    done = await client.call_tool(name, arguments)
    assert done.is_error
    (block,) = done.content
    assert isinstance(block, TextContent)
    return block.text


async def converse(client: Client) -> None:
    """A conversation that uses every tool."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {"run_command", "read_output", "read_file", "write_file", "search_files"} <= set(tools)
    assert all(tool.description for tool in tools.values())
    assert tools["read_file"].annotations.read_only_hint  # type: ignore[union-attr]

    assert (await answer(client, "workspace_info"))["directory"] == "/workspace"
    written = await answer(client, "write_file", path="src/a.py", content="print(6 * 7)\n")
    assert written == {"path": "src/a.py", "size_bytes": 13}
    ran = await answer(client, "run_command", command="python3 src/a.py; echo no >&2; exit 3")
    assert (ran["stdout"], ran["stderr"], ran["exit_code"]) == ("42\n", "no\n", 3)
    assert (await answer(client, "edit_file", path="src/a.py", old_text="7", new_text="8")) == {
        "count": 1
    }
    page = await answer(client, "read_file", path="src/a.py")
    assert (page["text"], page["total_lines"], page["is_complete"]) == ("print(6 * 8)\n", 1, True)
    found = await answer(client, "search_files", pattern="6 *", glob="*.py")
    assert found["matches"] == [{"path": "src/a.py", "line_number": 1, "line": "print(6 * 8)"}]
    listed = await answer(client, "list_files", depth=2)
    assert "src/a.py" in [entry["path"] for entry in listed["entries"]]
    globbed = await answer(client, "find_files", pattern="*.py")
    assert [entry["path"] for entry in globbed["entries"]] == ["src/a.py"]
    moved = await answer(client, "move_file", path="src/a.py", new_path="lib/b.py")
    assert moved["path"] == "lib/b.py"
    assert (await answer(client, "remove_file", path="lib")) == {"count": 2}
    assert "b.py" in await refusal(client, "read_file", path="lib/b.py")

    await converse_about_bytes(client)
    await converse_about_output(client)
    await converse_about_state(client)
    await answer(client, "run_code", code="x = 20\nprint('hi')")
    ran = await answer(client, "run_code", code="x * 2 + 2")
    assert (ran["value"], ran["is_state_kept"]) == ("42", True)
    assert "ZeroDivisionError" in (await answer(client, "run_code", code="1 / 0"))["error"]

    again = await answer(client, "reset_workspace")
    assert again["incarnation"] == 3
    assert "no-such-program" in str(await answer(client, "run_command", command="no-such-program"))


async def converse_about_bytes(client: Client) -> None:
    raw = bytes(range(256))
    content = base64.b64encode(raw).decode()
    written = await answer(client, "upload_file", path="raw.bin", content=content)
    assert written == {"path": "raw.bin", "size_bytes": 256}
    first = await client.call_tool("download_file", {"path": "raw.bin", "max_bytes": 200})
    assert first.structured_content == {
        "path": "raw.bin",
        "offset": 0,
        "size_bytes": 200,
        "total_bytes": 256,
        "next_offset": 200,
    }
    rest = await client.call_tool("download_file", {"path": "raw.bin", "offset": 200})
    assert rest.structured_content is not None
    assert rest.structured_content["next_offset"] is None
    assert embedded(first) + embedded(rest) == raw
    assert "download_file" in await refusal(client, "read_file", path="raw.bin")
    resource = await client.read_resource("sandbox://files/raw.bin")
    assert base64.b64decode(resource.contents[0].blob) == raw  # type: ignore[union-attr]
    await answer(client, "run_command", command="cp raw.bin p.png")
    (picture,) = (await client.call_tool("read_file", {"path": "p.png"})).content
    assert isinstance(picture, ImageContent)
    assert picture.mime_type == "image/png"


def embedded(done: CallToolResult) -> bytes:
    """The bytes of an answer with one embedded resource."""
    (block,) = done.content
    assert isinstance(block, EmbeddedResource)
    assert isinstance(block.resource, BlobResourceContents)
    assert block.resource.mime_type == "application/octet-stream"
    return base64.b64decode(block.resource.blob)


async def converse_about_output(client: Client) -> None:
    long = await answer(client, "run_command", command="seq 100000")
    assert long["is_shortened"]
    assert "read_output(" in long["stdout"]
    rest = await answer(client, "read_output", output_id=long["output_id"], offset=500_000)
    assert "\n85200\n" in rest["text"]
    lines = await answer(client, "read_output", output_id=long["output_id"], pattern="^9999.$")
    assert lines["text"].count("\n") == 10

    started = await answer(client, "run_command", command="read x; echo got $x", background=True)
    assert started["state"] == "running"
    await answer(client, "send_input", output_id=started["output_id"], text="it\n")
    async with asyncio.timeout(30):
        got: dict[str, Any] = {"exit_code": None}
        while got["exit_code"] != 0:
            got = await answer(client, "read_output", output_id=started["output_id"])
    assert got["text"] == "got it\n"
    endless = await answer(client, "run_command", command="sleep 600", background=True)
    stopped = await answer(client, "stop_command", output_id=endless["output_id"])
    assert stopped["state"] == "ended"


async def converse_about_state(client: Client) -> None:
    """Snapshots of files, and ports of programs."""
    await answer(client, "write_file", path="draft.txt", content="first\n")
    saved = await answer(client, "save_snapshot", label="clean")
    await answer(client, "write_file", path="draft.txt", content="second\n")
    found = await answer(client, "compare_snapshot", snapshot="clean")
    (changed,) = [one for one in found["changes"] if one["path"] == "draft.txt"]
    assert "-first" in changed["difference"]
    assert "+second" in changed["difference"]
    listed = await answer(client, "list_snapshots")
    assert saved["number"] in [one["number"] for one in listed["snapshots"]]
    await answer(client, "restore_snapshot", snapshot=str(saved["number"]))
    assert (await answer(client, "read_file", path="draft.txt"))["text"] == "first\n"
    assert "none" in await refusal(client, "restore_snapshot", snapshot="none")

    command = "python3 -m http.server 8123 --bind 127.0.0.1"
    await answer(client, "run_command", command=command, background=True)
    async with asyncio.timeout(60):
        while not (await answer(client, "list_ports"))["ports"]:
            await asyncio.sleep(0.1)
    ports = await answer(client, "list_ports")
    assert [one["port"] for one in ports["ports"]] == [8123]
    opened = await answer(client, "open_port", port=8123, seconds=60)
    assert opened["expires_at"]
    async with httpx2.AsyncClient(timeout=60) as browser:
        page = await browser.get(opened["path_url"])
    assert (page.status_code, "draft.txt" in page.text) == (200, True)


@pytest.mark.parametrize("mode", VERSIONS)
async def test_a_conversation_over_stdio(served: Served, mode: str) -> None:
    """One process is one conversation."""
    async with Client(served.stdio("--user", "ada"), mode=mode) as client:
        await converse(client)


@pytest.mark.parametrize("mode", VERSIONS)
async def test_a_conversation_over_http(served: Served, mode: str) -> None:
    async with served.client(mode=mode, x_sandboxd_thread=f"all tools {mode}") as client:
        await converse(client)


@pytest.mark.parametrize("mode", VERSIONS)
async def test_a_running_command_reports_progress(served: Served, mode: str) -> None:
    """Lines arrive while it runs, not only with its result."""
    seen: list[str] = []

    async def progress(_: float, __: float | None, message: str | None) -> None:
        seen.append(message or "")

    async with served.client(mode=mode, x_sandboxd_thread="progress") as client:
        await client.call_tool(
            "run_command",
            {"command": "for i in 1 2 3; do echo step $i; sleep 0.7; done"},
            progress_callback=progress,
        )

    assert "step 1" in seen
    assert "step 3" in seen


@pytest.mark.parametrize("mode", VERSIONS)
async def test_a_cancelled_call_ends_its_command(served: Served, mode: str) -> None:
    thread = f"cancelled {mode}"
    async with served.client(mode=mode, x_sandboxd_thread=thread) as client:
        with anyio.move_on_after(2):
            await client.call_tool("run_command", {"command": "sleep 600"})
        async with asyncio.timeout(60):
            while True:
                sessions = await served.daemon.sessions("ada")
                running = [one.running_execs for one in sessions if one.thread_id == thread]
                if running == [0]:
                    break
                await asyncio.sleep(0.1)
        assert (await answer(client, "run_command", command="echo fine"))["stdout"] == "fine\n"


async def test_the_policy_and_time_limits_are_answers(served: Served) -> None:
    """A model gets words that it can use, never an error of the protocol."""
    async with served.client(x_sandboxd_thread="answers") as client:
        late = await answer(client, "run_command", command="sleep 60", timeout=0.5)
        assert (late["exit_code"], late["reason"]) == (124, "timed_out")
        assert late["hint"]
        assert "exe_none" in await refusal(client, "read_output", output_id="exe_none")
        assert "not base64" in await refusal(client, "upload_file", path="x", content="!")
        long = base64.b64encode(bytes((4 << 20) + 3)).decode()
        assert "parts" in await refusal(client, "upload_file", path="x", content=long)
        assert "none" in await refusal(client, "download_file", path="none")
        assert "read-only" in await refusal(client, "upload_file", path="/etc/passwd", content="")
        await answer(client, "upload_file", path="x", content="", overwrite=False)
        assert "x" in await refusal(client, "upload_file", path="x", content="", overwrite=False)
        ended = await client.call_tool("download_file", {"path": "x", "offset": 1})
        assert ended.is_error or (ended.structured_content or {})["next_offset"] is None
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert not {"upload_local_file", "download_local_file"} & tools


async def test_files_of_a_shared_directory(served: Served, tmp_path: Path) -> None:
    """Over stdio an agent copies files to and from the directory of --share, and from nowhere
    else, whatever path or link it names."""
    shared, outside = tmp_path / "shared", tmp_path / "outside"
    (shared / "d").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text("secret")
    raw = bytes(range(256)) * 20_000
    (shared / "d" / "in.bin").write_bytes(raw)
    (shared / "file-link").symlink_to(outside / "secret")
    (shared / "directory-link").symlink_to(outside)
    os.mkfifo(shared / "pipe")

    async with Client(served.stdio("--user", "ada", "--share", str(shared))) as client:
        copied = await answer(client, "upload_local_file", local_path="d/in.bin", path="a/in.bin")
        assert copied == {"path": "a/in.bin", "size_bytes": len(raw)}
        copy = shared / "d" / "out.bin"
        await answer(client, "download_local_file", path="a/in.bin", local_path=str(copy))
        assert copy.read_bytes() == raw
        assert "exists" in await refusal(
            client, "download_local_file", path="a/in.bin", local_path="d/out.bin"
        )
        await answer(
            client, "download_local_file", path="a/in.bin", local_path="file-link", overwrite=True
        )
        assert not (shared / "file-link").is_symlink()
        (shared / "file-link").unlink()
        (shared / "file-link").symlink_to(outside / "secret")

        for path in ("file-link", "directory-link/secret", "../outside/secret", "pipe", "d", ""):
            await refusal(client, "upload_local_file", local_path=path, path="taken")
        secret = str(outside / "secret")
        assert "not below" in await refusal(
            client, "upload_local_file", local_path=secret, path="taken"
        )
        for path in ("directory-link/new", "../outside/new", str(outside / "new"), "no/new", "d"):
            await refusal(
                client, "download_local_file", path="a/in.bin", local_path=path, overwrite=True
            )
        assert "none" in await refusal(
            client, "download_local_file", path="none", local_path="d/none"
        )
        listed = await answer(client, "list_files")
        assert "taken" not in [entry["path"] for entry in listed["entries"]]

    assert sorted(path.name for path in (shared / "d").iterdir()) == ["in.bin", "out.bin"]
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "secret"


async def test_conversations_on_one_server_do_not_mix(served: Served) -> None:
    """Twenty at once: by header, by address, by MCP session and by handle, for two users."""

    async def by_header(number: int) -> str:
        async with served.client(x_sandboxd_thread=f"mixed {number}") as client:
            return await written_and_read(client, f"header {number}")

    async def by_address(number: int) -> str:
        async with served.client("bob", f"/t/mixed-{number}", mode="2026-07-28") as client:
            return await written_and_read(client, f"address {number}")

    async def by_session(number: int) -> str:
        async with served.client("bob") as client:
            return await written_and_read(client, f"session {number}")

    async def by_handle(number: int) -> str:
        async with served.client(mode="2026-07-28") as client:
            assert "open_workspace" in await refusal(client, "run_command", command="true")
            handle = (await answer(client, "open_workspace"))["workspace"]
            return await written_and_read(client, f"handle {number}", workspace=handle)

    ways = [by_header, by_address, by_session, by_handle]
    found = await asyncio.gather(*(way(number) for number in range(5) for way in ways))

    names = [f"{way.__name__[3:]} {number}" for number in range(5) for way in ways]
    assert found == [f"{name}\n" for name in names]


async def written_and_read(client: Client, text: str, **where: str) -> str:
    command = f"echo {text} >> mine; sleep 0.5; cat mine"
    return str((await answer(client, "run_command", command=command, **where))["stdout"])


async def test_a_thread_belongs_to_the_user_of_the_token(served: Served) -> None:
    """Another user's thread, session or handle of the same name is another workspace."""
    async with served.client("ada", x_sandboxd_thread="same") as ada:
        await answer(ada, "write_file", path="secret", content="of ada")
    async with served.client("bob", x_sandboxd_thread="same", x_sandboxd_user="ada") as bob:
        assert "secret" in await refusal(bob, "read_file", path="secret")
    async with served.client("admin", x_sandboxd_thread="same", x_sandboxd_user="ada") as admin:
        assert (await answer(admin, "read_file", path="secret"))["text"] == "of ada"
    async with served.client("admin", x_sandboxd_thread="same") as admin:
        assert "admin" in await refusal(admin, "read_file", path="secret")
    async with served.client("ada", mode="2026-07-28") as ada:
        assert "open_workspace" in await refusal(ada, "read_file", path="x", workspace="same")


@pytest.mark.parametrize("token", ["", "sbx_" + "0" * 48, "reader"])
async def test_a_request_without_a_valid_token_is_refused(served: Served, token: str) -> None:
    bearer = {"authorization": f"Bearer {served.tokens.get(token, token)}"} if token else {}
    async with httpx2.AsyncClient(headers=bearer) as http:
        for path in ("", "/t/x"):
            answered = await http.post(f"{served.url}{path}", json={})
            assert answered.status_code == 401


async def test_a_web_page_under_another_name_is_refused(served: Served) -> None:
    """DNS rebinding: the browser of a user must not be able to reach the server for a page."""
    headers = {
        "authorization": f"Bearer {served.tokens['ada']}",
        "host": "evil.example",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
    }
    async with httpx2.AsyncClient(headers=headers) as http:
        answered = await http.post(served.url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert answered.status_code in (403, 421)


async def test_a_large_request_is_refused(served: Served) -> None:
    headers = {"authorization": f"Bearer {served.tokens['ada']}"}
    async with httpx2.AsyncClient(headers=headers) as http:
        answered = await http.post(served.url, content=b" " * (9 << 20))
    assert answered.status_code == 413


async def test_one_user_on_loopback_needs_no_token(served: Served) -> None:
    """With --user the server's own token is used, and beyond loopback it does not start."""
    environment = {**served.environment, "SANDBOXD_TOKEN": served.tokens["ada"]}
    async with (
        server(environment, "--user", "ada", "--tools", "basic") as url,
        Client(f"{url}/t/mine", mode="2026-07-28") as client,
    ):
        assert len((await client.list_tools()).tools) == 7
        assert (await answer(client, "run_command", command="echo hi"))["stdout"] == "hi\n"

    refused = await run(environment, "--http", "0.0.0.0:0", "--user", "ada")
    assert "loopback" in refused


async def test_the_example(served: Served) -> None:
    """As a program of its own, which starts the server as a desktop agent does."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "examples/agents/mcp_client.py",
        env={**served.environment, "SANDBOXD_TOKEN": served.tokens["ada"], "PATH": "/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        printed, _ = await program.communicate()

    assert program.returncode == 0
    assert printed.decode().splitlines()[-1] == "largest: 3"


async def test_many_callers_need_a_daemon_that_checks_tokens(served: Served) -> None:
    """At an address where the daemon takes every caller for an admin, it does not start."""
    socket = f"unix:{served.daemon.daemon.socket}"
    refused = await run({**os.environ, "SANDBOXD_URL": socket}, "--http", "127.0.0.1:0")

    assert "does not ask for tokens" in refused


async def run(environment: dict[str, str], *arguments: str) -> str:
    """What `sandboxd mcp` says when it refuses to start."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sandboxd",
        "mcp",
        *arguments,
        env=environment,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    assert process.returncode != 0
    return said.decode()
