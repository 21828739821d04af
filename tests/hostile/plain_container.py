"""A container as one would start it without a second thought, to see the attacks succeed."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiodocker

IMAGE = "sandbox-secure:latest"
LABEL = "sandboxd.tests.plain"
DEADLINE_SECONDS = 30.0

# Stands in for an agent: runs the attack as a child with its own uid, gives it three seconds, and
# then says how it is itself. Its few megabytes make it larger than most of its children.
AGENT = """
import os, signal, subprocess, sys
ballast = b"x" * (6 << 20)
print("agent ready", flush=True)
attack = subprocess.Popen(sys.argv[1:], start_new_session=True)
try:
    attack.wait(3)
except subprocess.TimeoutExpired:
    pass
print("agent nice", os.nice(0), flush=True)
subprocess.run(["true"], check=True)
print("agent fine", flush=True)
signal.pause() if sys.argv[-1] == "hold" else None
"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int
    output: str


class PlainContainer:
    """Runs one program under the stand-in agent. Bounded by the engine, and by nothing of ours."""

    def __init__(self, container: aiodocker.containers.DockerContainer) -> None:
        self._container = container

    async def output(self) -> str:
        return "".join(await self._container.log(stdout=True, stderr=True))

    async def until(self, pattern: str) -> str:
        """What it has printed, as soon as that matches."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not re.search(pattern, text := await self.output()):
                await asyncio.sleep(0.05)
        return text

    async def ended(self) -> Ended:
        """How its first process ended, as it must within the deadline."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            code = (await self._container.wait())["StatusCode"]
        return Ended(code=code, output=await self.output())


@asynccontextmanager
async def plain_container(
    docker: aiodocker.Docker,
    attack: Sequence[str],
    *,
    programs: Path,
    uid: int,
    binds: Sequence[str] = (),
) -> AsyncIterator[PlainContainer]:
    config: dict[str, Any] = {
        "Image": IMAGE,
        "Entrypoint": ["python3", "-c", AGENT, *attack],
        "User": f"{uid}:{uid}",
        "WorkingDir": "/workspace",
        "Labels": {LABEL: "1"},
        "NetworkDisabled": True,
        "HostConfig": {
            "Memory": 128 << 20,
            "MemorySwap": 128 << 20,
            "PidsLimit": 128,
            "NanoCpus": 1_000_000_000,
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
            "Tmpfs": {"/tmp": "rw,exec", "/workspace": f"rw,exec,uid={uid},mode=755"},
            "Binds": [f"{programs}:/programs:ro", *binds],
        },
    }
    name = f"sandboxd-plain-{secrets.token_hex(6)}"
    async with asyncio.timeout(DEADLINE_SECONDS):
        container = await docker.containers.create(config, name=name)
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await container.start()
        yield PlainContainer(container)
    finally:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await container.delete(force=True, v=True)
