"""A daemon that is killed and started again costs users of the SDK a moment, nothing else."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sandboxd_client import AsyncSandbox, ConnectionLostError, OutputChunk, Sandbox, Timeouts
from tests.docker.daemon_process import DaemonProcess, running_daemon

LINES = 30
FILE_BYTES = 40 << 20
"""More than is on its way at any time."""
COUNTING = f"for i in $(seq {LINES}); do echo line $i; echo e$i >&2; sleep 0.1; done; exit 7"
EXPECTED = "".join(f"line {i}\n" for i in range(1, LINES + 1))


async def kill_and_start_again(daemon: DaemonProcess) -> None:
    await daemon.signal(signal.SIGKILL)
    await daemon.start()


async def test_async_loop_goes_on() -> None:
    """No byte is lost or doubled, and the exit code is the command's own."""
    async with running_daemon(POOL_SIZE="1") as daemon:
        url = f"unix:{daemon.socket}"
        async with await AsyncSandbox.open("ada", "loop", server_url=url) as sandbox:
            command = await sandbox.commands.run(COUNTING, background=True, timeout=60)
            restart: asyncio.Task[None] | None = None
            seen: list[OutputChunk] = []
            async with command.stream() as events:
                async for event in events:
                    assert isinstance(event, OutputChunk)
                    seen.append(event)
                    if restart is None and len(seen) >= 4:
                        restart = asyncio.create_task(kill_and_start_again(daemon))
            assert restart is not None
            await restart

            stdout = [one for one in seen if one.stream == "stdout"]
            assert "".join(one.text for one in stdout) == EXPECTED
            ends = [0, *(one.offset + len(one.data) for one in stdout)]
            assert [one.offset for one in stdout] == ends[:-1]
            assert events.result is not None
            assert events.result.exit_code == 7
            await sandbox.kill()


async def test_sync_loop_goes_on() -> None:
    """The same for a plain `for` of the sync face, killed twice."""
    async with running_daemon(POOL_SIZE="1") as daemon:
        loop = asyncio.get_running_loop()
        kill_at = [2, 15]

        def work(restart: Callable[[], None]) -> tuple[str, int]:
            text = ""
            with Sandbox.open("ada", "loop", server_url=f"unix:{daemon.socket}") as sandbox:
                command = sandbox.commands.run(COUNTING, background=True, timeout=60)
                with command.stream() as events:
                    for event in events:
                        assert isinstance(event, OutputChunk)
                        if event.stream == "stdout":
                            text += event.text
                        # Several lines may come at once.
                        if kill_at and text.count("\n") >= kill_at[0]:
                            kill_at.pop(0)
                            restart()
                assert events.result is not None
                sandbox.kill()
                return text, events.result.exit_code

        def restart() -> None:
            asyncio.run_coroutine_threadsafe(kill_and_start_again(daemon), loop).result(30)

        assert await asyncio.to_thread(work, restart) == (EXPECTED, 7)
        assert not kill_at


async def test_command_is_run_once_and_its_caller_gets_the_answer() -> None:
    """A call that waits for a command's end gets it, though the daemon died in between."""
    async with running_daemon(POOL_SIZE="1") as daemon:
        url = f"unix:{daemon.socket}"
        async with await AsyncSandbox.open("ada", "once", server_url=url) as sandbox:
            running = asyncio.create_task(
                sandbox.commands.run("echo run >> runs; sleep 3; echo done", timeout=30)
            )
            async with asyncio.timeout(10):
                while not await sandbox.commands.list(running=True):
                    await asyncio.sleep(0.02)
            await kill_and_start_again(daemon)

            assert (await running).stdout == "done\n"
            assert (await sandbox.commands.run("cat runs")).stdout == "run\n"
            await sandbox.kill()


async def test_files_go_on(tmp_path: Path) -> None:
    """A file that is on its way up or down arrives whole, and is told to have moved once."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(random.Random(7).randbytes(FILE_BYTES))
    async with running_daemon(POOL_SIZE="1") as daemon:
        url = f"unix:{daemon.socket}"
        async with await AsyncSandbox.open("ada", "files", server_url=url) as sandbox:
            for move in (
                partial(sandbox.files.upload, source, "x"),
                partial(sandbox.files.download, "x", target),
            ):
                moved: list[int] = []

                async def kill_once(count: int, moved: list[int] = moved) -> None:
                    moved.append(count)
                    if len(moved) == 3:
                        await kill_and_start_again(daemon)

                await move(on_progress=kill_once)
                assert sum(moved) == FILE_BYTES
            await sandbox.kill()

    assert target.read_bytes() == source.read_bytes()


async def test_daemon_that_stays_away_is_an_error_in_time() -> None:
    """Who waits for a daemon that does not come back is told after the time for that."""
    daemon = DaemonProcess(POOL_SIZE="1", SANDBOXD_GRACE_SECONDS="0")
    try:
        await daemon.start()
        sandbox = await AsyncSandbox.open(
            "ada", "gone", server_url=f"unix:{daemon.socket}", timeouts=Timeouts(reconnect=1.0)
        )
        command = await sandbox.commands.run("sleep 60", background=True, timeout=60)
        watching = asyncio.create_task(command.wait())
        await daemon.signal(signal.SIGKILL)

        async with asyncio.timeout(10):
            results = await asyncio.gather(
                watching, sandbox.commands.run("true"), return_exceptions=True
            )
        assert [type(one) for one in results] == [ConnectionLostError] * 2
        await sandbox.aclose()
    finally:
        await daemon.start()  # to remove what the killed one left
        await daemon.stop()
        daemon.remove_directory()
