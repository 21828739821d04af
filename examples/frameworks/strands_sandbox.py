"""A Strands agent has its sandbox in sandboxd. Needs `pip install 'sandboxd[strands]'`."""

from __future__ import annotations

import asyncio

from strands import Agent

from sandboxd_client.integrations.strands import SandboxdSandbox


async def main() -> None:
    sandbox = SandboxdSandbox()
    agent = Agent(sandbox=sandbox)
    try:
        done = await agent.sandbox.execute_code("print(6 * 7)", "python")
        print(done.stdout)
    finally:
        await sandbox.aclose()


asyncio.run(main())
