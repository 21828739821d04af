"""Programs that builds of environments run."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from sandboxd.environments.parts import output_of


async def test_output_and_exit_code_of_a_program() -> None:
    """Both of its streams, and its code, negative for a signal."""
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"

    assert await output_of(sys.executable, "-c", script) == (3, "out\nerr\n")
    assert await output_of("/bin/sh", "-c", "kill -9 $$") == (-9, "")


async def test_cancel_ends_the_program(tmp_path: Path) -> None:
    """Nothing of it is left when the caller goes on."""
    began = tmp_path / "began"
    script = f'echo $$ >"{began}.new"; mv "{began}.new" "{began}"; exec sleep 1000'
    running = asyncio.create_task(output_of("/bin/sh", "-c", script))
    async with asyncio.timeout(60):
        while not began.exists():
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with pytest.raises(ProcessLookupError):
        os.kill(int(began.read_text()), 0)
