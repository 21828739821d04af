"""Snapshots by the command line, the bash tool, tokens, and in an object service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxd_client import (
    AsyncSandbox,
    AsyncSandboxClient,
    NotPermittedError,
    Sandbox,
    SessionNotFoundError,
    SnapshotStoreFailedError,
    turn,
)
from sandboxd_client.integrations import AsyncBashTool
from tests.cli.command_line import CommandLine
from tests.docker.daemon_process import DaemonProcess, running_daemon
from tests.docker.snapshot_tree import MAKE_TREE, tree_of
from tests.docker.token_daemon import token_daemon
from tests.snapshots.object_server import BUCKET, free_port, object_server

pytestmark = pytest.mark.timeout(300)
WAIT_SECONDS = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon() -> AsyncIterator[DaemonProcess]:
    async with running_daemon(POOL_SIZE="2") as daemon:
        yield daemon


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await check():
            await asyncio.sleep(0.02)


async def test_command_line(daemon: DaemonProcess, tmp_path: Path) -> None:
    """Every command about snapshots does what it says, on one session."""
    sandboxd = CommandLine(daemon.socket)
    await sandboxd("session", "open", "cli", "42", "--auto-snapshot", "off")
    session = "cli/42"
    await sandboxd("exec", session, "printf 'a\\nb\\n' > text")
    first = await sandboxd("snapshot", "create", session, "--label", "first")
    await sandboxd("exec", session, "printf 'a\\nB\\n' > text; echo new > other")
    changed = await sandboxd("diff", session, "@first")
    second = await sandboxd("snapshot", "create", session)
    listed = (await sandboxd("snapshot", "list", session, "--json")).document
    same = (await sandboxd("snapshot", "diff", session, "@-1", "@0", "--json")).document
    shown = (await sandboxd("snapshot", "show", session, "@first", "--json")).document
    old = await sandboxd("snapshot", "cat", session, "@first", "text")
    archive = tmp_path / "first.tar"
    exported = await sandboxd("snapshot", "export", session, "@1", str(archive))
    imported = await sandboxd("snapshot", "import", session, str(archive), "--label", "again")
    restored = await sandboxd("snapshot", "restore", session, "@again")
    now = await sandboxd("exec", session, "cat text; ls")
    forks = (await sandboxd("snapshot", "fork", session, "@0", "--thread", "43", "--json")).document
    verified = await sandboxd("snapshot", "verify")
    deleted = await sandboxd("snapshot", "delete", session, "1")
    missing = await sandboxd("snapshot", "show", session, "@1")
    wrong = await sandboxd("snapshot", "show", session, "first")
    parked = await sandboxd("session", "park", session)
    states = (await sandboxd("session", "list", "--user", "cli", "--json")).document
    for one in (session, "cli/43"):
        await sandboxd("session", "close", one)

    # The comparison with the present took a number.
    assert (first.stdout, second.stdout) == ("1\n", "3\n")
    assert "M text" in changed.stdout
    assert "-b\n+B\n" in changed.stdout
    assert "A other" in changed.stdout
    assert [one["number"] for one in listed] == [3, 1]
    assert sorted(one["path"] for one in same["changes"]) == ["other", "text"]
    assert (shown["label"], shown["number"]) == ("first", 1)
    assert old.stdout == "a\nb\n"
    assert exported.stdout.strip() == str(archive)
    assert imported.code == restored.code == verified.code == deleted.code == parked.code == 0
    assert now.stdout.startswith("a\nb\n")
    assert "other" not in now.stdout
    assert [one["thread_id"] for one in forks] == ["43"]
    assert "0 problems" in verified.stderr
    assert (missing.code, wrong.code) == (3, 2)
    found = [(one["thread_id"], one["state"]) for one in states]
    assert found == [("43", "active"), ("42", "parked")]


async def test_bash_tool_takes_a_call_back(daemon: DaemonProcess) -> None:
    """Each call is a turn; `undo` returns to what was before it, and the next call works."""
    names = {"user_id": "ada", "thread_id": "tool"}
    async with AsyncBashTool(server_url=f"unix:{daemon.socket}", auto_snapshot="turns") as bash:
        first = await bash.execute_bash_command("echo 1 > a.txt", **names)
        await until(lambda: _has(daemon, first["turn_id"]))
        second = await bash.execute_bash_command("echo 2 > a.txt; mkdir mess", **names)
        await until(lambda: _has(daemon, second["turn_id"]))
        await bash.undo(second["turn_id"], **names)
        after = await bash.execute_bash_command("cat a.txt; ls", **names)
        await bash.cleanup_session(**names)

        assert first["turn_id"] != second["turn_id"]
        assert after["stdout"].startswith("1\n")
        assert "mess" not in after["stdout"]


async def _has(daemon: DaemonProcess, turn_id: str) -> bool:
    sandbox = await AsyncSandbox.open("ada", "tool", server_url=f"unix:{daemon.socket}")
    try:
        return any(one.turn_id == turn_id for one in await sandbox.snapshots.list())
    finally:
        await sandbox.aclose()


async def test_client_opens_a_parked_session_by_itself(daemon: DaemonProcess) -> None:
    """A command for a parked session runs in the session that is opened again, with its files."""
    async with AsyncSandboxClient(server_url=f"unix:{daemon.socket}") as client:
        await client.get_or_create_session("ada", "client")
        await client.execute("echo kept > a.txt")
        await client.sandbox.park()
        result = await client.execute("cat a.txt")

        assert result.stdout == "kept\n"
        assert result.session is not None
        assert result.session.status == "unparked"


async def test_sync_face(daemon: DaemonProcess) -> None:
    """The sync classes do the same, in a thread."""

    def work() -> tuple[str, int, str]:
        with Sandbox.open(
            "ada", "sync", server_url=f"unix:{daemon.socket}", auto_snapshot="turns"
        ) as sandbox:
            with turn("t1"):
                sandbox.files.write("a.txt", "1")
            taken = sandbox.snapshots.create("kept")
            sandbox.files.write("a.txt", "2")
            diff = sandbox.snapshots.diff(taken)
            sandbox.rewind(snapshot=taken)
            fork = sandbox.fork()
            content = sandbox.files.read("a.txt")
            copied = fork.files.read("a.txt")
            fork.kill()
            sandbox.kill()
            return content, len(diff.changes), copied

    assert await asyncio.to_thread(work) == ("1", 1, "1")


async def test_object_service() -> None:
    """Snapshots are kept in a bucket; while the service is away, sessions go on, nothing is lost,
    and a parked session waits for it."""
    with object_server() as address:
        port = free_port()
        async with (
            running_daemon(
                POOL_SIZE="2",
                SANDBOXD_SNAPSHOT_STORE=f"s3://{BUCKET}/daemon",
                SANDBOXD_SNAPSHOT_STORE_ENDPOINT=f"http://127.0.0.1:{port}",
                AWS_ACCESS_KEY_ID="test",
                AWS_SECRET_ACCESS_KEY="test",
            ) as daemon,
        ):
            url = f"unix:{daemon.socket}"
            sandbox = await AsyncSandbox.open("ada", "s3", server_url=url)
            await sandbox.commands.run(MAKE_TREE, check=True)
            wanted = await tree_of(sandbox)
            gate = _Gate(port, int(address.rpartition(":")[2]))
            async with gate:
                await sandbox.snapshots.create("kept")
                await sandbox.commands.run("rm -rf deep", check=True)
                await sandbox.rewind(snapshot="kept")
                assert await tree_of(sandbox) == wanted
            with pytest.raises(SnapshotStoreFailedError):
                await sandbox.park()
            assert (await sandbox.refresh()).state == "active"
            assert await tree_of(sandbox) == wanted
            async with gate:
                await sandbox.park()
            with pytest.raises(SnapshotStoreFailedError):
                await AsyncSandbox.open("ada", "s3", server_url=url)
            async with gate:
                again = await AsyncSandbox.open("ada", "s3", server_url=url)
                assert again.info.status == "unparked"
                assert await tree_of(again) == wanted
                assert (await again.snapshots.verify()).problems == []
                await again.kill()
                await again.aclose()
            await sandbox.aclose()


class _Gate:
    """A way to a server that is open while the block lasts."""

    def __init__(self, port: int, target: int) -> None:
        self._port = port
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, far_writer}
        await asyncio.gather(
            self._copy(reader, far_writer), self._copy(far_reader, writer), return_exceptions=True
        )
        self._writers -= {writer, far_writer}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


async def test_session_of_another_user_has_no_snapshots(tmp_path: Path) -> None:
    """With tokens, every call about it fails as if the session did not exist."""
    async with token_daemon(tmp_path, POOL_SIZE="1") as found:
        url, tokens = found.url, found.tokens
        mine = await AsyncSandbox.open("ada", "t", server_url=url, token=tokens["ada"])
        await mine.files.write("secret", "x")
        taken = await mine.snapshots.create()
        theirs = await AsyncSandbox.open("bob", "t", server_url=url, token=tokens["bob"])
        theirs.info["session_id"] = mine.session_id
        number = taken.number
        for call in (
            theirs.snapshots.list(),
            theirs.snapshots.create(),
            theirs.snapshots.get(number),
            theirs.snapshots.diff(number),
            theirs.snapshots.read(number, "secret"),
            theirs.snapshots.delete(number),
            theirs.rewind(snapshot=number),
            theirs.fork(snapshot=number),
            theirs.park(),
        ):
            with pytest.raises(SessionNotFoundError):
                await call
        with pytest.raises(NotPermittedError):
            await mine.snapshots.verify()

        assert [one.number for one in await mine.snapshots.list()] == [number]
        await mine.aclose()
        await theirs.aclose()
