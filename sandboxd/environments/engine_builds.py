"""Builds and downloads of single images, with their progress."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from sandboxd.engine.contract import Engine, ImageInfo, RegistrySilent
from sandboxd.environments.parts import SourceUnavailable
from sandboxd.environments.progress import Progress
from sandboxd.tasks import run_to_end

_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
DOCKERFILE = "Dockerfile"
"""Name of the Dockerfile in a context."""


class EngineBuilds:
    """Asks the engine for images. A context is a directory that goes when the build has ended."""

    def __init__(self, engine: Engine, directory: Path, *, registry_seconds: float) -> None:
        """`registry_seconds`: how long a registry may take to begin to answer."""
        self._engine = engine
        self._directory = directory
        self._registry_seconds = registry_seconds

    def clean_up(self) -> None:
        """Delete what a killed process left."""
        shutil.rmtree(self._directory, ignore_errors=True)

    @asynccontextmanager
    async def context(self) -> AsyncIterator[Path]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=self._directory))
        try:
            yield made
        finally:
            await run_to_end(asyncio.to_thread(shutil.rmtree, made, ignore_errors=True))

    async def build(
        self,
        context: Path,
        *,
        tag: str,
        args: Mapping[str, str],
        labels: Mapping[str, str],
        progress: Progress,
        use_cache: bool = True,
    ) -> ImageInfo:
        """Build the Dockerfile of a context."""
        proxies = {name: os.environ[name] for name in _PROXIES if name in os.environ}
        building = self._engine.build_image(
            context=context,
            dockerfile=DOCKERFILE,
            tag=tag,
            build_args={**proxies, **args},
            labels=labels,
            use_cache=use_cache,
        )
        part = 0.0
        async with aclosing(building) as lines:
            async for line in lines:
                text = plain(line)
                if match := _STEP.match(text):
                    part, text = (int(match[1]) - 1) / int(match[2]), match[3]
                if text:
                    progress.advance(part, text)
        return await self.expect(tag)

    async def pull(self, reference: str, progress: Progress) -> ImageInfo:
        """SourceUnavailable if no registry has the image, or none answers."""
        pulling = self._engine.pull_image(reference, first_sign_seconds=self._registry_seconds)
        try:
            async with aclosing(pulling) as lines:
                async for line in lines:
                    progress.advance(0.5, plain(line))
        except RegistrySilent as error:
            raise SourceUnavailable(str(error)) from error
        return await self.expect(reference)

    async def find(self, reference: str) -> ImageInfo | None:
        return await self._engine.inspect_image(reference)

    async def expect(self, reference: str) -> ImageInfo:
        """An image that must be there by now."""
        info = await self._engine.inspect_image(reference)
        if info is None:
            raise SourceUnavailable(f"the engine does not have {reference}")
        return info


def plain(line: str) -> str:
    """A line of a program, without colours and control characters."""
    return "".join(letter for letter in _COLOUR.sub("", line) if letter.isprintable())
