"""The OpenAI Agents SDK with its own client for E2B, on the gateway; prints what it found."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox import Manifest

OPTIONS = E2BSandboxClientOptions(
    sandbox_type="e2b", template="base", timeout=300, on_timeout="kill", auto_resume=False
)


async def converse(number):
    client = E2BSandboxClient()
    session = await client.create(options=OPTIONS, manifest=Manifest(root="/workspace/work"))
    try:
        await session.start()
        await session.write(Path(f"mine-{number}.txt"), io.BytesIO(str(number).encode()))
        done = await session.exec("cat mine-*; exit 3")
        read = (await session.read(Path(f"mine-{number}.txt"))).read()
        archive = await session.persist_workspace()
        await session.exec("rm -f mine-*")
        await session.hydrate_workspace(archive)
        again = await session.exec("cat mine-*")
        return [done.exit_code, *(text.decode() for text in (done.stdout, read, again.stdout))]
    finally:
        await session.aclose()
        await client.delete(session)


async def main():
    print(json.dumps(await asyncio.gather(*map(converse, range(20)))))


asyncio.run(main())
