"""Where the base of an environment comes from."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from subprocess import PIPE, STDOUT

from sandboxd.engine.contract import Engine, ImageId, ImageInfo
from sandboxd.environments.definition import RECIPES, recipe
from sandboxd.environments.engine_builds import DOCKERFILE, EngineBuilds, plain
from sandboxd.environments.images import MADE_HERE
from sandboxd.environments.parts import Package, SourceUnavailable
from sandboxd.environments.progress import Progress
from sandboxd.processes import exited, reading, start

BOOTSTRAP_LABELS = {"sandboxd.stage": "bootstrap"}
"""Labels of the image in which a Debian was made, which is of no further use."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """The image that a Dockerfile begins with."""

    image: ImageInfo
    source: str
    skipped: Sequence[str] = ()
    """Why sources that would have been preferred were not used."""
    packages: Sequence[Package] = ()
    """What earlier layers added to it, beside packages of Debian."""


class Bases:
    """Gets bases. What is there is not made again, unless it is to be rebuilt."""

    def __init__(self, engine: Engine, builds: EngineBuilds) -> None:
        self._engine = engine
        self._builds = builds

    async def pulled(self, reference: str, progress: Progress, *, rebuild: bool) -> Base:
        """An image of a registry."""
        info = None if rebuild else await self._builds.find(reference)
        if info is None:
            progress.begin("base", f"asking a registry for {reference}")
            info = await self._builds.pull(reference, progress)
        return Base(image=info, source="registry")

    async def debian(self, suite: str, progress: Progress, *, rebuild: bool) -> Base:
        """A Debian of a registry, otherwise one that is made from its packages."""
        tag, pulled = base_tag(suite), _pulled_tag(suite)
        info = await self._builds.find(tag)
        if info is not None and not rebuild:
            return Base(image=info, source=origin(info, suite))
        progress.begin("base", f"asking a registry for {pulled}")
        try:
            await self._builds.pull(pulled, progress)
        except SourceUnavailable as error:
            progress.begin("base", f"building Debian {suite} from its packages")
            await self._bootstrap(suite, tag, progress)
            info = await self._builds.expect(tag)
            return Base(image=info, source="debian", skipped=[str(error)])
        await self._engine.tag_image(pulled, tag=tag)
        return Base(image=await self._builds.expect(tag), source="registry")

    async def with_stage(
        self, base: Base, stage: str, progress: Progress, *, rebuild: bool
    ) -> Base:
        """A base to which a recipe that several environments share was applied."""
        text = recipe(stage).read_text()
        repository = "secure" if stage == "default" else stage
        tag = f"sandboxd/{repository}:{key_of(text, base.image.id)}"
        info = None if rebuild else await self._builds.find(tag)
        if info is None:
            progress.begin("tools", "installing tools")
            async with self._builds.context() as context:
                (context / DOCKERFILE).write_text(text)
                info = await self._builds.build(
                    context,
                    tag=tag,
                    args={"BASE": base.image.id},
                    labels=MADE_HERE,
                    progress=progress,
                    use_cache=not rebuild,
                )
        return replace(base, image=info)

    # --- Debian from its packages ---

    async def _bootstrap(self, suite: str, tag: str, progress: Progress) -> None:
        """In another Debian if the engine has one, so that the host needs nothing for it; otherwise
        on the host."""
        for other in ("bookworm", "trixie"):
            builder = await self._builds.find(base_tag(other))
            if builder is not None:
                await self._bootstrap_in_engine(builder.id, suite, tag, progress)
                return
        await self._bootstrap_on_host(suite, tag, progress)

    async def _bootstrap_in_engine(
        self, builder: ImageId, suite: str, tag: str, progress: Progress
    ) -> None:
        async with self._builds.context() as context:
            shutil.copy(recipe("base"), context / DOCKERFILE)
            shutil.copy(RECIPES / "bootstrap", context)
            args = {"BASE": builder, "SUITE": suite}
            # Without the cache: the packages may be newer than those of the last time.
            await self._builds.build(
                context, tag=tag, args=args, labels={}, progress=progress, use_cache=False
            )
        await self._engine.prune_images(BOOTSTRAP_LABELS)

    async def _bootstrap_on_host(self, suite: str, tag: str, progress: Progress) -> None:
        if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
            raise SourceUnavailable(
                "no Debian image is there to begin with, and mmdebstrap cannot be run here"
            )
        async with self._builds.context() as context:
            archive = context / "base.tar"
            running = _lines_of("bash", str(RECIPES / "bootstrap"), suite, str(archive))
            async with aclosing(running) as lines:
                async for line in lines:
                    progress.advance(0.5, line)
            await self._engine.import_image(archive, tag=tag, command="bash")


def base_tag(suite: str) -> str:
    return f"sandboxd/base:{suite}"


def _pulled_tag(suite: str) -> str:
    return f"debian:{suite}-slim"


def origin(base: ImageInfo | None, suite: str) -> str:
    """Where a Debian came from, as its names show."""
    return "registry" if base is not None and _pulled_tag(suite) in base.tags else "debian"


def key_of(*parts: str) -> str:
    """A name for what is made from these."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


async def _lines_of(*command: str) -> AsyncGenerator[str, None]:
    """The output of a program; SourceUnavailable if it fails."""
    process = start(command, stdout=PIPE, stderr=STDOUT)
    last = ""
    try:
        async with reading(process.stdout) as output:
            async for line in output:
                last = plain(line.decode(errors="replace")) or last
                yield last
        if await exited(process) != 0:
            raise SourceUnavailable(f"mmdebstrap failed: {last[:200]}")
    finally:
        if process.poll() is None:
            process.kill()
        await exited(process)
