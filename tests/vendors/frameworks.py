"""Packages of others that tests drive, and programs that use those of .cache/frameworks, which are
not installed in .venv."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ROOT / ".cache" / "frameworks"
PACKAGES = {
    "ag2": ("ag2",),
    "autogen": ("autogen-agentchat", "autogen-core"),
    "celery": ("celery",),
    "deepagents": ("deepagents",),
    "deepagents-0.6": ("deepagents",),
    "e2b": ("e2b", "e2b-code-interpreter"),
    "google-adk": ("google-adk",),
    "gunicorn": ("gunicorn",),
    "inspect-ai": ("inspect-ai",),
    "langchain": ("langchain",),
    "mcp": ("mcp",),
    "mini-swe-agent": ("mini-swe-agent",),
    "openai-agents": ("openai-agents",),
    "pydantic-ai": ("pydantic-ai-slim",),
    "smolagents": ("smolagents",),
    "strands": ("strands-agents",),
    "swe-rex": ("swe-rex",),
}
"""Packages whose versions a run of the tests reports, by the name of the framework."""
PROGRAM_SECONDS = 600.0
"""For a program with twenty conversations, on a busy machine."""
ROOM = {"MAX_CONTAINERS": "40", "MAX_WORKSPACE_SIZE_MB": "256", "SANDBOXD_OPEN_WAIT_SECONDS": "300"}
"""Settings of a daemon for them."""


def versions(framework: str) -> dict[str, str]:
    """The installed versions of its packages: those of .cache/frameworks, or of .venv."""
    directory = FRAMEWORKS / framework
    path = [str(directory)] if directory.exists() else sys.path
    found = {
        name: next(iter(distributions(name=name, path=path)), None) for name in PACKAGES[framework]
    }
    return {name: one.version if one else "not installed" for name, one in found.items()}


@asynccontextmanager
async def program(
    framework: str, *arguments: str, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Python with the framework on its path; it has ended when the block ends."""
    installed = FRAMEWORKS / framework
    assert (installed / ".installed").exists(), "run tests/vendors/install_frameworks first"
    paths = [installed, ROOT, ROOT / "client_py", ROOT / "protos"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def output_of(framework: str, module: str, *arguments: str, **environment: str) -> Any:
    """Run a module of the tests with the framework, and return the JSON that it prints last."""
    async with program(framework, "-m", module, *arguments, **environment) as process:
        async with asyncio.timeout(PROGRAM_SECONDS):
            printed, _ = await process.communicate()
    assert process.returncode == 0, f"{process.returncode}: {printed.decode()}"
    return json.loads(printed.decode().splitlines()[-1])
