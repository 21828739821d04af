"""Programs that use a package of .cache/frameworks, which is not installed in .venv."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ROOT / ".cache" / "frameworks"


@asynccontextmanager
async def program(
    framework: str, *arguments: str, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Python with the framework on its path; it has ended when the block ends."""
    installed = FRAMEWORKS / framework
    assert (installed / ".installed").exists(), "run tests/integrations/install_frameworks first"
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
        async with asyncio.timeout(240):
            printed, _ = await process.communicate()
    assert process.returncode == 0, f"{process.returncode}: {printed.decode()}"
    return json.loads(printed.decode().splitlines()[-1])
