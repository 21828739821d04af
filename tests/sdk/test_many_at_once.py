"""Many commands at once: none is lost, nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

from sandboxd_client import AsyncSandbox, CommandResult
from tests.docker.daemon_process import running_daemon

SESSIONS = 20
COMMANDS = 500
MAX_SOCKETS = 3
"""A connection, and the pair that gRPC wakes the loop with."""


def open_sockets() -> int:
    # The descriptor that lists them is among them, and gone when it is looked at.
    return sum(_is_socket(one) for one in Path("/proc/self/fd").iterdir())


def _is_socket(descriptor: Path) -> bool:
    try:
        return os.readlink(descriptor).startswith("socket:")
    except FileNotFoundError:  # another thread has closed it meanwhile
        return False


async def run_all(url: str) -> tuple[list[CommandResult], int]:
    """Results in order, and how many sockets there were meanwhile."""
    sandboxes = await asyncio.gather(
        *(AsyncSandbox.open("ada", f"many-{i}", server_url=url) for i in range(SESSIONS))
    )

    async def run(number: int) -> CommandResult:
        sandbox = sandboxes[number % SESSIONS]
        line = f"echo {number}; exit {number % 7}"
        if number % 5:
            return await sandbox.commands.run(line, timeout=60)
        pieces: list[str] = []
        result = await sandbox.commands.run(line, timeout=60, on_stdout=pieces.append)
        assert "".join(pieces) == result.stdout
        return result

    results = await asyncio.gather(*(run(number) for number in range(COMMANDS)))
    sockets = open_sockets()
    for sandbox in sandboxes:
        await sandbox.kill()
        await sandbox.aclose()
    return results, sockets


async def test_500_commands_over_20_sessions() -> None:
    """Each gets its own answer, over one connection, and no task or socket outlives them."""
    async with running_daemon(POOL_SIZE="4", MAX_WORKSPACE_SIZE_MB="16") as daemon:
        gc.collect()
        tasks_before, sockets_before = len(asyncio.all_tasks()), open_sockets()

        results, sockets = await run_all(f"unix:{daemon.socket}")

        assert [result.stdout for result in results] == [f"{n}\n" for n in range(COMMANDS)]
        assert [result.exit_code for result in results] == [n % 7 for n in range(COMMANDS)]
        print(f"sockets for {SESSIONS} sessions: {sockets - sockets_before}")
        assert sockets - sockets_before <= MAX_SOCKETS
        async with asyncio.timeout(20):
            while len(asyncio.all_tasks()) > tasks_before or open_sockets() > sockets_before:
                gc.collect()  # gRPC frees what it shares between channels with the last of them
                await asyncio.sleep(0.1)
