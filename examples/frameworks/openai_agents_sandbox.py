"""An agent of the OpenAI Agents SDK in a sandbox. Needs `pip install 'sandboxd[openai-agents]'`.

Without OPENAI_API_KEY it uses the sandbox session as its own program.
"""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path

from agents import RunConfig, Runner
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File

from sandboxd_client.integrations.openai_agents import SandboxdClient, SandboxdOptions

MANIFEST = Manifest(entries={"numbers.txt": File(content=b"6\n7\n")})


async def with_a_model() -> None:
    agent = SandboxAgent(name="analyst", instructions="Answer with the number only.")
    sandbox = SandboxRunConfig(
        client=SandboxdClient(), options=SandboxdOptions(user_id="ada"), manifest=MANIFEST
    )
    question = "What is the product of the numbers in numbers.txt?"
    done = await Runner.run(agent, question, run_config=RunConfig(sandbox=sandbox))
    print(done.final_output)


async def without_a_model() -> None:
    client = SandboxdClient()
    session = await client.create(options=SandboxdOptions(), manifest=MANIFEST)
    async with session:
        program = b"a, b = map(int, open('numbers.txt'))\nprint(a * b)\n"
        await session.write(Path("program.py"), io.BytesIO(program))
        done = await session.exec("python3 program.py")
        print(done.stdout.decode())


asyncio.run(with_a_model() if os.environ.get("OPENAI_API_KEY") else without_a_model())
