"""Peers from the package index, in virtual environments and an image that end with the run."""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.client import CommandFailed

SECONDS = 600.0
PACKAGES = {
    "llm-sandbox": ("llm-sandbox[docker]",),
    # swe-rex imports aiohttp without asking for it.
    "SWE-ReX": ("swe-rex", "aiohttp"),
}
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
INSIDE = ("pip", "swe-rex", "ipython")
"""SWE-ReX's server, and what llm-sandbox's interactive session looks for in a container."""
IMAGE_PYTHON = "3.11"
DOCKERFILE = """
ARG BASE
FROM ${BASE}
USER root
COPY wheels /wheels
RUN pip=$(echo /wheels/pip-*.whl)/pip \\
 && for at in /sandbox/.sandbox-venv /opt/swe-rex; do python3 -m venv --without-pip $at; done \\
 && install="install --no-index --find-links /wheels --no-cache-dir" \\
 && /sandbox/.sandbox-venv/bin/python $pip $install pip ipython \\
 && /opt/swe-rex/bin/python $pip $install swe-rex \\
 && ln -s /opt/swe-rex/bin/swerex-remote /usr/local/bin/ \\
 && rm -rf /wheels
USER sandboxuser
"""


@dataclass(frozen=True)
class Installed:
    """Where the peers are; one that could not be installed has a reason in place of a Python."""

    image: str
    pythons: dict[str, Path]
    reasons: dict[str, str]


@asynccontextmanager
async def installed(directory: Path, base: str, tag: str) -> AsyncIterator[Installed]:
    """The peers for the block, and an image of `base` with what they need inside."""
    pythons: dict[str, Path] = {}
    reasons: dict[str, str] = {}

    async def install(peer: str) -> None:
        home = directory / peer
        try:
            await run(sys.executable, "-m", "venv", "--without-pip", home)
            python = home / "bin" / "python"
            await run(*PIP, f"--python={python}", "install", "--quiet", *PACKAGES[peer])
            pythons[peer] = python
        except CommandFailed as error:
            reasons[peer] = str(error)

    async def build() -> None:
        try:
            await _build(directory / "image", base, tag)
        except CommandFailed as error:
            reasons.update(dict.fromkeys(PACKAGES, f"no image for it: {error}"))

    try:
        await asyncio.gather(build(), *(install(peer) for peer in PACKAGES))
        image = tag if await _is_there(tag) else base
        yield Installed(image, pythons, reasons)
    finally:
        await asyncio.shield(_remove(tag))


async def _is_there(tag: str) -> bool:
    return bool(await run("docker", "image", "ls", "--quiet", tag))


async def _remove(tag: str) -> None:
    if await _is_there(tag):
        await run("docker", "image", "rm", "--force", tag)


async def _build(context: Path, base: str, tag: str) -> None:
    wheels = context / "wheels"
    wheels.mkdir(parents=True)
    (context / "Dockerfile").write_text(DOCKERFILE.lstrip())
    machine = platform.machine()
    platforms = [f"--platform={kind}_{machine}" for kind in ("manylinux2014", "manylinux_2_28")]
    only = ("--only-binary=:all:", f"--python-version={IMAGE_PYTHON}", *platforms)
    await run(*PIP, "download", "--quiet", f"--dest={wheels}", *only, *INSIDE)
    arguments = ("--network=none", f"--build-arg=BASE={base}", f"--tag={tag}")
    await run("docker", "build", "--quiet", *arguments, context)


async def run(*words: str | Path) -> str:
    """The output of a command."""
    what = " ".join(Path(word).name for word in words if not str(word).startswith("-"))
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
    except BaseException as error:
        process.kill()
        if isinstance(error, TimeoutError):
            raise CommandFailed(f"`{what}` took more than {SECONDS:g} s") from None
        raise
    if process.returncode != 0:
        lines = [line for line in output.decode(errors="replace").split("\n") if line.strip()]
        last = lines[-1] if lines else ""
        raise CommandFailed(f"`{what}` failed: {last[:300]}")
    return output.decode(errors="replace")
