"""AG2's code adapter runs in a sandbox. Needs `pip install 'sandboxd[ag2]'`."""

from __future__ import annotations

import asyncio

from ag2.tools.sandbox.adapter import CodeAdapter

from sandboxd_client.integrations.ag2 import SandboxdSandbox


async def main() -> None:
    async with SandboxdSandbox() as sandbox:
        done = await CodeAdapter(sandbox).run("print(6 * 7)", "python")
        print(done.output)


asyncio.run(main())
