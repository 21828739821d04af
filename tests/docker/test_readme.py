"""The programs in the README and in docs/api.md work as they stand there."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from tests.docker.daemon_process import running_daemon

ROOT = Path(__file__).parents[2]


SNIPPETS = [
    ("README.md", "sdk"),
    ("docs/api.md", "quickstart"),
    ("docs/code.md", "run"),
    ("docs/code.md", "debugger"),
]


@pytest.mark.parametrize(("page", "name"), SNIPPETS)
async def test_python_of_a_page_prints_what_it_says(page: str, name: str) -> None:
    """The snippet runs unchanged but for the socket, under the default policy, and prints what its
    comments promise."""
    text = (ROOT / page).read_text()
    match = re.search(rf"<!-- snippet: {name} -->\n```python\n(.*?)```", text, re.S)
    assert match
    async with running_daemon(SANDBOXD_COMMAND_POLICY="strict") as daemon:
        snippet = match[1].replace("/run/sandboxd/sandboxd.sock", str(daemon.socket))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", snippet),
            env={**os.environ, "SANDBOXD_URL": f"unix:{daemon.socket}"},
            stdout=asyncio.subprocess.PIPE,
        )
        stdout, _ = await process.communicate()
    promised = re.findall(r"print\(.*\)  # (.*)", snippet)

    assert process.returncode == 0
    shown = stdout.decode().splitlines()
    assert len(shown) == len(promised)
    for line, promise in zip(shown, promised, strict=True):
        assert line.startswith(promise.removesuffix("..."))
