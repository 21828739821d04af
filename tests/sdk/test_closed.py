"""A sandbox that was closed says so at once, and closing it waits for what has to be undone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from sandboxd_client import AsyncSandbox, ClientClosedError
from tests.docker.daemon_process import DaemonProcess
from tests.sdk.faces import Face

pytestmark = pytest.mark.asyncio(loop_scope="session")

HANG = 10
"""Seconds after which a call is taken to hang; it used to take 15 to 120."""

CALLS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "run": lambda sandbox: sandbox.commands.run("true"),
    "watched run": lambda sandbox: sandbox.commands.run("true", on_stdout=print),
    "commands": lambda sandbox: sandbox.commands.list(),
    "shell": lambda sandbox: sandbox.shell().run("true"),
    "pty": lambda sandbox: sandbox.pty.create(),
    "list": lambda sandbox: sandbox.files.list(),
    "read": lambda sandbox: sandbox.files.read("a"),
    "write": lambda sandbox: sandbox.files.write("a", "a"),
    "refresh": lambda sandbox: sandbox.refresh(),
    "reset": lambda sandbox: sandbox.reset(),
    "kill": lambda sandbox: sandbox.kill(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_call_after_close_is_refused_at_once(face: Face, thread: str, name: str) -> None:
    """Whatever is called; the daemon is not blamed, and the message says what to do."""
    sandbox = await face.open("ada", thread)
    await sandbox.aclose()

    async with asyncio.timeout(HANG):
        with pytest.raises(ClientClosedError, match="was closed; open it again"):
            await CALLS[name](sandbox)


async def test_handle_of_a_closed_sandbox_is_refused_at_once(face: Face, thread: str) -> None:
    """What was obtained from the sandbox is closed with it; what is known stays known."""
    async with await face.create() as sandbox:
        command = await sandbox.commands.run("sleep 60", background=True, stdin=True, timeout=60)
        ended = await sandbox.commands.run("echo hello", background=True)
        await ended.wait()

    async with asyncio.timeout(HANG):
        for call in (command.wait, command.kill, command.info, command.close_stdin):
            with pytest.raises(ClientClosedError):
                await call()
        assert (await ended.wait()).stdout == "hello\n"
        with pytest.raises(ClientClosedError):
            async with sandbox.files.watch_dir():
                pass
    await sandbox.aclose()  # once more does nothing


async def test_sandbox_of_a_closed_client_is_refused_at_once(face: Face, thread: str) -> None:
    """It has no connection but that of the client."""
    client = face.client()
    await client.get_or_create_session("ada", thread)
    sandbox = client.sandbox
    await client.close_session()
    await client.aclose()

    async with asyncio.timeout(HANG):
        with pytest.raises(ClientClosedError):
            await sandbox.commands.run("true")


@pytest.mark.parametrize("how", ["waited", "watched"])
async def test_call_under_way_ends_with_the_connection(sdk_daemon: DaemonProcess, how: str) -> None:
    """Its caller gets an error: nobody has cancelled it."""
    watching: dict[str, Any] = {"on_stdout": print} if how == "watched" else {}
    sandbox = await AsyncSandbox.create(server_url=f"unix:{sdk_daemon.socket}")
    running = asyncio.create_task(sandbox.commands.run("sleep 60", timeout=60, **watching))
    async with asyncio.timeout(HANG):
        while not await sandbox.commands.list(running=True):
            await asyncio.sleep(0.01)

        await sandbox.aclose()

        with pytest.raises(ClientClosedError):
            await running
    again = await AsyncSandbox.connect(sandbox.session_id, server_url=f"unix:{sdk_daemon.socket}")
    await again.kill()
    await again.aclose()


@pytest.mark.parametrize("n_turns", [*range(12), 50])
async def test_cancelled_command_ends_though_the_sandbox_is_closed(
    sdk_daemon: DaemonProcess, n_turns: int
) -> None:
    """Cancelled at any turn of the loop, and closed right after, as `finally` does it."""
    server_url = f"unix:{sdk_daemon.socket}"
    async with await AsyncSandbox.create(server_url=server_url) as watcher:
        with anyio.CancelScope() as scope:
            sandbox = await AsyncSandbox.connect(watcher.session_id, server_url=server_url)
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(
                        lambda: sandbox.commands.run("sleep 60", timeout=60, on_stdout=print)
                    )
                    for _ in range(n_turns):
                        await asyncio.sleep(0.002 if n_turns == 50 else 0)
                    scope.cancel()
            finally:
                await sandbox.aclose()

        assert scope.cancelled_caught
        async with asyncio.timeout(HANG):
            while await watcher.commands.list(running=True):
                await asyncio.sleep(0.01)


async def test_closing_the_input_of_an_ended_command_does_nothing(face: Face) -> None:
    """Every caller has this race: the command may just have ended."""
    async with await face.create() as sandbox:
        for stdin in (True, False):  # without one there is nothing to close either
            command = await sandbox.commands.run("true", background=True, stdin=stdin)
            await command.wait()

            await command.close_stdin()
            await command.close_stdin()


async def test_every_occurrence_of_a_text_is_replaced(face: Face) -> None:
    """With `replace_all` any number; otherwise as many as expected, which is one."""
    async with await face.create() as sandbox:
        await sandbox.files.write("a.txt", "one one one")

        assert await sandbox.files.edit("a.txt", "one", "two", replace_all=True) == 3
        assert await sandbox.files.edit("a.txt", "two", "six", expected_count=3) == 3
        assert await sandbox.files.read("a.txt") == "six six six"
