"""Programs under anyio: every call of the SDK may be cancelled by a scope, at any moment."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from sandboxd_client import AsyncSandbox, AsyncSandboxClient, SandboxLostError
from tests.docker.daemon_process import DaemonProcess
from tests.scale import SCALE
from tests.sdk.conftest import local_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")

CANCELLATIONS = round(200 * SCALE)
DELAYS = (0.0, 0.001, 0.02)
"""Seconds until a call is cancelled, at most; some calls are shorter, others sleep."""

Where = dict[str, Any]
Call = Callable[[AsyncSandbox, Where, Path], Awaitable[object]]


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=["local", "remote"])
async def where(request: pytest.FixtureRequest, sdk_daemon: DaemonProcess) -> AsyncIterator[Where]:
    """Arguments that lead to a daemon in this process, or in another."""
    async with local_settings() as settings:
        found: Where = {"mode": "local", "local_settings": settings}
        if request.param == "remote":
            found = {"server_url": f"unix:{sdk_daemon.socket}"}
        async with AsyncSandboxClient(**found) as holder:
            await holder.server_status()  # or a local daemon would end with each sandbox
            yield found


async def background(sandbox: AsyncSandbox, _: Where, __: Path) -> None:
    command = await sandbox.commands.run("sleep 60", background=True, timeout=60)
    try:
        await command.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await command.kill()


async def two_in_a_shell(sandbox: AsyncSandbox, _: Where, __: Path) -> None:
    async with anyio.create_task_group() as group:
        for _number in range(2):
            group.start_soon(partial(sandbox.shell("main").run, "sleep 60", on_stdout=print))


async def fed_in_the_background(sandbox: AsyncSandbox, _: Where, __: Path) -> None:
    stdin = "x" * 3_000_000
    command = await sandbox.commands.run("sleep 60", background=True, stdin=stdin, timeout=60)
    await command.kill()  # not reached: nobody reads so much


async def stream(sandbox: AsyncSandbox, _: Where, __: Path) -> None:
    command = await sandbox.commands.run("seq 3; sleep 0.05", background=True)
    async with command.stream() as events:
        async for _event in events:
            pass


async def temporary(_: AsyncSandbox, where: Where, __: Path) -> None:
    async with await AsyncSandbox.create(user_id="temporary", **where) as sandbox:
        await sandbox.commands.run("sleep 60", timeout=60, on_stdout=print)


async def connected_again(sandbox: AsyncSandbox, where: Where, _: Path) -> None:
    again = await AsyncSandbox.connect(sandbox.session_id, **where)
    try:
        await again.commands.run("sleep 60", timeout=60, on_stdout=print)
    finally:
        await again.aclose()


async def of_client(_: AsyncSandbox, where: Where, __: Path) -> None:
    async with AsyncSandboxClient(**where) as client:
        await client.get_or_create_session("lasting", "of a client")
        await client.execute("sleep 60", timeout=60)


async def streamed(sandbox: AsyncSandbox, _: Where, __: Path) -> None:
    async with await sandbox.files.read("kept.bin", format="stream") as chunks:
        async for _chunk in chunks:
            pass


async def project(_: AsyncSandbox, where: Where, path: Path) -> None:
    client = AsyncSandboxClient(**where)
    try:
        await client.projects.create("lasting", "book")
        await client.projects.write("lasting", "book", "a.txt", "hello", on_conflict="replace")
        await client.projects.download("lasting", "book", "a.txt", path / "down.bin")
    finally:
        await client.aclose()


async def watch(sandbox: AsyncSandbox, _: Where, __: Path) -> None:
    async with sandbox.files.watch_dir() as changes:
        await anext(changes)


CALLS: dict[str, Call] = {
    "run": lambda box, _, __: box.commands.run("sleep 60", timeout=60),
    "short run": lambda box, _, __: box.commands.run("true"),
    "watched run": lambda box, _, __: box.commands.run("sleep 60", timeout=60, on_stdout=print),
    "fed run": lambda box, _, __: box.commands.run("sleep 60", timeout=60, stdin="x" * 3_000_000),
    "shell": lambda box, _, __: box.shell("main").run("sleep 60", timeout=60),
    "watched shell": lambda box, _, __: box.shell("main").run("sleep 60", on_stdout=print),
    "two in a shell": two_in_a_shell,
    "background": background,
    "fed in the background": fed_in_the_background,
    "stream": stream,
    "commands": lambda box, _, __: box.commands.list(),
    "write": lambda box, _, __: box.files.write("a.bin", bytes(3_000_000)),
    "read": lambda box, _, __: box.files.read("kept.bin", format="bytes"),
    "streamed": streamed,
    "write_files": lambda box, _, __: box.files.write_files({f"{n}.txt": "a" for n in range(20)}),
    "project": project,
    "edit": lambda box, _, __: box.files.edit("kept.txt", "a", "a", replace_all=True),
    "list": lambda box, _, __: box.files.list(recursive=True),
    "grep": lambda box, _, __: box.files.grep("x"),
    "watch": watch,
    "upload": lambda box, _, path: box.files.upload(path / "local.bin"),
    "download": lambda box, _, path: box.files.download("kept.bin", path / "down.bin"),
    "upload_dir": lambda box, _, path: box.files.upload_dir(path / "tree", "tree"),
    "download_dir": lambda box, _, path: box.files.download_dir("outputs", path / "outputs"),
    "refresh": lambda box, _, __: box.refresh(),
    "temporary": temporary,
    "connect": connected_again,
    "client": of_client,
}


async def cancelled(work: Awaitable[object], seconds: float) -> bool:
    """Do it in a scope that is cancelled after this time; whether it was."""
    with anyio.move_on_after(seconds) as scope:
        await work
    return scope.cancelled_caught


async def with_files(stack: AsyncExitStack, where: Where) -> AsyncSandbox:
    """A sandbox with the files that the calls expect."""
    sandbox = await stack.enter_async_context(await AsyncSandbox.create(**where))
    await sandbox.files.write("kept.bin", bytes(3_000_000))
    await sandbox.files.write("kept.txt", "a" * 100_000)
    return sandbox


async def until_nothing_is_left(sandbox: AsyncSandbox, holder: AsyncSandboxClient) -> None:
    async with asyncio.timeout(60):
        while await sandbox.commands.list(running=True):
            await asyncio.sleep(0.05)
        while await holder.list_sessions(user_id="temporary", state="active"):
            await asyncio.sleep(0.05)


async def test_scopes_cancel_calls_and_nothing_is_left(where: Where, tmp_path: Path) -> None:
    """Each scope takes back its own cancellation, the task goes on, and neither commands nor
    sessions outlive the calls that began them."""
    chance = random.Random(17)
    (tmp_path / "local.bin").write_bytes(bytes(3_000_000))
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "one.bin").write_bytes(bytes(1_000_000))
    caught = dict.fromkeys(CALLS, 0)
    async with AsyncSandboxClient(**where) as holder, AsyncExitStack() as stack:
        sandbox = await with_files(stack, where)
        while sum(caught.values()) < CANCELLATIONS:
            for name, call in CALLS.items():
                work = call(sandbox, where, tmp_path)
                try:
                    caught[name] += await cancelled(work, chance.uniform(0, chance.choice(DELAYS)))
                except* SandboxLostError:  # on a host that is too busy to end commands in time
                    sandbox = await with_files(stack, where)

        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await until_nothing_is_left(sandbox, holder)
    assert all(caught.values()), caught
    assert set(os.listdir(tmp_path)) <= {"local.bin", "tree", "down.bin", "outputs"}
    print(f"anyio: {sum(caught.values())} calls cancelled, 0 leaked, 0 commands left")
