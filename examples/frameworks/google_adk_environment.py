"""The tools of Google's ADK act on a sandbox. Needs `pip install 'sandboxd[google-adk]'`.

With a model: `Agent(model=..., tools=[EnvironmentToolset(environment=environment)])`.
"""

from __future__ import annotations

import asyncio

from sandboxd_client.integrations.google_adk import SandboxdEnvironment


async def main() -> None:
    environment = SandboxdEnvironment()
    await environment.initialize()
    try:
        done = await environment.execute("python3 -c 'print(6 * 7)'")
        print(done.stdout)
    finally:
        await environment.close()


asyncio.run(main())
