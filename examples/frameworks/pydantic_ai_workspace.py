"""A workspace of Pydantic AI in a sandbox. Needs `pip install 'sandboxd[pydantic-ai]'`.

With a model: `await agent.run("...", workspace=backend)`.
"""

from __future__ import annotations

import asyncio

from pydantic_ai.workspaces import Workspace

from sandboxd_client.integrations.pydantic_ai import SandboxdWorkspace


async def main() -> None:
    backend = SandboxdWorkspace()
    workspace = Workspace(backend)
    try:
        await workspace.write_text("program.py", "print(6 * 7)")
        done = await workspace.run("python3 program.py", shell=True)
        print(done.stdout)
    finally:
        await backend.kill()


asyncio.run(main())
