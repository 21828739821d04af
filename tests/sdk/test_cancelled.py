"""Who gives up waiting leaves nothing running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sandboxd_client import AsyncSandbox
from tests.docker.daemon_process import DaemonProcess
from tests.sdk.conftest import local_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["local", "remote"])
async def sandbox(
    request: pytest.FixtureRequest, sdk_daemon: DaemonProcess
) -> AsyncIterator[AsyncSandbox]:
    async with local_settings() as settings:
        where: dict[str, Any] = {"mode": "local", "local_settings": settings}
        if request.param == "remote":
            where = {"server_url": f"unix:{sdk_daemon.socket}"}
        async with await AsyncSandbox.create(**where) as sandbox:
            yield sandbox


async def until_running(sandbox: AsyncSandbox, count: int) -> None:
    async with asyncio.timeout(10):
        while len(await sandbox.commands.list(running=True)) != count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["waited", "watched", "fed"])
async def test_cancelled_command_ends(how: str, sandbox: AsyncSandbox) -> None:
    """Whether its end was waited for, its output watched or its input fed."""
    extra: dict[str, Any] = {
        "waited": {},
        "watched": {"on_stdout": lambda text: None},
        "fed": {"stdin": "x" * 10_000_000},
    }[how]
    running = asyncio.create_task(sandbox.commands.run("sleep 60", timeout=60, **extra))
    await until_running(sandbox, 1)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await until_running(sandbox, 0)
    ended = (await sandbox.commands.list())[0]
    assert ended.reason in ("cancelled", "signalled")


async def test_cancelled_watch_leaves_the_background_command(sandbox: AsyncSandbox) -> None:
    """It was started to run on."""
    command = await sandbox.commands.run("read x; echo $x", background=True, stdin=True, timeout=60)
    watching = asyncio.create_task(command.wait())
    await until_running(sandbox, 1)
    await asyncio.sleep(0)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching

    await command.send_stdin("still here\n")

    assert (await command.wait()).stdout == "still here\n"
