"""Builds the images of environments with the container engine."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import structlog

from sandboxd.engine.contract import Engine, ImageId, ImageInfo, RegistrySilent
from sandboxd.environments import layers
from sandboxd.environments.definition import (
    RECIPES,
    SECURE_IMAGE,
    Debian,
    Definition,
    Other,
    Pulled,
    Source,
    recipe,
)
from sandboxd.environments.environment import DEFAULT_ENVIRONMENT
from sandboxd.environments.layers import Layer
from sandboxd.environments.parts import Package, SourceUnavailable
from sandboxd.environments.progress import Progress
from sandboxd.errors import (
    EnvironmentBuildFailed,
    EnvironmentUnavailable,
    ImageNotFound,
    SandboxdError,
)
from sandboxd.tasks import run_to_end

log = structlog.get_logger()

STEPS: Mapping[str, float] = {"base": 0.3, "tools": 0.3, "files": 0.15, "image": 0.2, "check": 0.05}
"""Steps of a build, and the share of its time that each usually takes."""
DETAILS_LABEL = "sandboxd.environment"
"""Label of an image with what is known of its build."""
DEBIAN_STATUS = "/var/lib/dpkg/status"
"""File of an image that lists its Debian packages."""
BOOTSTRAP_LABELS = {"sandboxd.stage": "bootstrap"}
"""Labels of the image in which a Debian was made, which is of no further use."""
MAX_PACKAGES = 2000
_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True, kw_only=True)
class BuilderSettings:
    directory: Path
    """Where files for builds are collected; what is there at the start is left over."""
    registry_seconds: float
    """How long a registry may take to begin to answer."""
    npm_registry: str


@dataclass(frozen=True, kw_only=True)
class BuiltImage:
    """An image that was built for an environment, or that is used as it is."""

    image_id: ImageId
    tag: str
    """Name that keeps the engine from deleting it."""
    size_bytes: int = 0
    built_at: float = 0.0
    """Seconds since the epoch."""
    seconds: float = 0.0
    """How long the build took; 0 if there was none."""
    source: str = ""
    """Where its base came from."""
    skipped: Sequence[str] = ()
    """Why sources that would have been preferred were not used."""
    packages: Sequence[Package] = field(default_factory=tuple)
    is_listed: bool = False
    """Whether these are all packages, and not only those that the build added."""


class _Base(NamedTuple):
    image: ImageInfo
    source: str
    skipped: Sequence[str] = ()
    packages: Sequence[Package] = ()


class Builder:
    """Builds images. What is there already, made from the same, is not built again."""

    def __init__(
        self,
        engine: Engine,
        definitions: Sequence[Definition],
        settings: BuilderSettings,
        *,
        read_file: Callable[[ImageId, str], Awaitable[str]],
    ) -> None:
        """`read_file`: reads a file of an image; empty if the image has none."""
        self._engine = engine
        self._read_file = read_file
        self._definitions = {definition.name: definition for definition in definitions}
        self._settings = settings

    def clean_up(self) -> None:
        """Delete what a killed daemon left."""
        shutil.rmtree(self._settings.directory, ignore_errors=True)

    async def find(self, definition: Definition) -> BuiltImage | None:
        """The image of an environment that is used as it is, if the engine has it."""
        info = await self._engine.inspect_image(definition.image) if definition.image else None
        if info is None:
            return None
        for source in definition.sources:  # it was built, and carries no label
            if isinstance(source.base, Debian):
                base = await self._engine.inspect_image(_base_tag(source.base.suite))
                return _described(info, source=_origin(base, source.base.suite))
        return _described(info, source="image")

    async def list_packages(self, built: BuiltImage) -> BuiltImage:
        """An image with the packages that it has; those of Debian are read from it."""
        if built.is_listed:
            return built
        found = _debian_packages(await self._read_file(built.image_id, DEBIAN_STATUS))
        packages = tuple(sorted({*built.packages, *found})[:MAX_PACKAGES])
        return replace(built, packages=packages, is_listed=True)

    async def name_default(self, built: BuiltImage) -> None:
        """Give the image of the default environment the name that daemons look for."""
        await self._engine.tag_image(built.image_id, tag=SECURE_IMAGE)

    async def remove(self, built: BuiltImage) -> None:
        """Remove the name of an image, and the image unless something uses it."""
        if built.tag:
            await self._engine.remove_image(built.tag)

    async def build(
        self, definition: Definition, progress: Progress, *, rebuild: bool = False
    ) -> BuiltImage:
        """Build the image of an environment, or find it.

        EnvironmentUnavailable if none of its sources can be used here, EnvironmentBuildFailed if a
        step fails.
        """
        try:
            if definition.dockerfile is None:
                return await self._pull(definition, progress, rebuild=rebuild)
            return await self._build(definition, progress, rebuild=rebuild)
        except SourceUnavailable as error:
            advice = f" To change that, {definition.advice}." if definition.advice else ""
            raise EnvironmentUnavailable(definition.name, f"{error}.{advice}") from error
        except ImageNotFound as error:
            raise EnvironmentBuildFailed(definition.name, str(error)) from error
        except SandboxdError as error:
            if isinstance(error, EnvironmentUnavailable | EnvironmentBuildFailed):
                raise
            raise EnvironmentBuildFailed(definition.name, error.message) from error

    async def _pull(
        self, definition: Definition, progress: Progress, *, rebuild: bool
    ) -> BuiltImage:
        found = None if rebuild else await self.find(definition)
        if found is not None:
            return found
        progress.begin("base", f"asking a registry for {definition.image}")
        await self._pull_image(definition.image, progress)
        if (found := await self.find(definition)) is None:
            raise SourceUnavailable(f"the engine does not have {definition.image}")
        return found

    async def _build(
        self, definition: Definition, progress: Progress, *, rebuild: bool
    ) -> BuiltImage:
        began, skipped = time.monotonic(), []
        for source in definition.sources:
            try:
                fingerprint = await layers.fingerprint(source.layer) if source.layer else ""
                base = await self._base(source, progress, rebuild=rebuild)
                break
            except SourceUnavailable as error:
                skipped.append(str(error))
        else:
            raise SourceUnavailable("; ".join(skipped))
        assert definition.dockerfile is not None
        is_plain = source.layer is None and isinstance(source.base, Debian | Pulled)
        known = BuiltImage(
            image_id=base.image.id,
            tag="",
            source=base.source if is_plain else layers.source_name(source.layer),
            skipped=[*skipped, *base.skipped],
            packages=base.packages,
        )
        text = definition.dockerfile.read_text()
        tag = _tag(definition, _key(text, base.image.id, fingerprint))
        existing = None if rebuild else await self._engine.inspect_image(tag)
        if existing is None:
            await self._make(definition, source.layer, known, tag, progress, use_cache=not rebuild)
        progress.begin("check", "looking at the image")
        seconds = 0.0 if existing else time.monotonic() - began
        return await self._finished(tag, source=known.source, seconds=seconds)

    async def _make(
        self,
        definition: Definition,
        layer: Layer | None,
        known: BuiltImage,
        tag: str,
        progress: Progress,
        *,
        use_cache: bool,
    ) -> None:
        assert definition.dockerfile is not None
        async with self._context() as context:
            directory = context / "layer"
            directory.mkdir()
            packages = known.packages
            if layer is not None:
                progress.begin("files", "collecting files")
                packages = [*packages, *await self._fill(layer, directory, progress)]
            shutil.copy(definition.dockerfile, context / "Dockerfile")
            progress.begin("image", f"building {definition.name}")
            is_default = definition.name == DEFAULT_ENVIRONMENT
            details = {
                "source": known.source,
                "skipped": known.skipped,
                "packages": packages,
            }
            await self._run_build(
                context,
                tag=tag,
                args={"BASE": known.image_id},
                # Containers inherit labels, and those of the default environment need none.
                labels={} if is_default else {DETAILS_LABEL: json.dumps(details)},
                progress=progress,
                use_cache=use_cache,
            )

    async def _fill(self, layer: Layer, directory: Path, progress: Progress) -> Sequence[Package]:
        loop = asyncio.get_running_loop()

        def report(part: float, detail: str) -> None:  # from a thread
            loop.call_soon_threadsafe(progress.advance, part, detail)

        return await layers.fill(layer, directory, report, npm_registry=self._settings.npm_registry)

    # --- bases ---

    async def _base(self, source: Source, progress: Progress, *, rebuild: bool) -> _Base:
        """The image that an environment's own Dockerfile begins with."""
        match source.base:
            case Debian(suite=suite):
                base = await self._debian(suite, progress, rebuild=rebuild)
            case Pulled(reference=reference):
                base = await self._pulled(reference, progress, rebuild=rebuild)
            case Other(name=name):
                base = await self._other(name, progress)
        for stage in source.stages:
            base = base._replace(
                image=await self._stage(stage, base.image, progress, rebuild=rebuild)
            )
        return base

    async def _other(self, name: str, progress: Progress) -> _Base:
        definition = self._definitions[name]
        # An image that sandboxes use already is not replaced because another one builds on it.
        if (
            definition.image
            and (info := await self._engine.inspect_image(definition.image)) is not None
        ):
            return _Base(info, "environment")
        built = await self.build(definition, progress.part_of("base"))
        info = await self._engine.inspect_image(built.image_id)
        if info is None:
            raise SourceUnavailable(f"the image of {name} is gone")
        own = [package for package in built.packages if package.kind != "debian"]
        return _Base(info, "environment", packages=own)

    async def _pulled(self, reference: str, progress: Progress, *, rebuild: bool) -> _Base:
        info = None if rebuild else await self._engine.inspect_image(reference)
        if info is None:
            progress.begin("base", f"asking a registry for {reference}")
            await self._pull_image(reference, progress)
            info = await self._engine.inspect_image(reference)
        if info is None:
            raise SourceUnavailable(f"the engine does not have {reference}")
        return _Base(info, "registry")

    async def _debian(self, suite: str, progress: Progress, *, rebuild: bool) -> _Base:
        tag, pulled = _base_tag(suite), _pulled_tag(suite)
        info = await self._engine.inspect_image(tag)
        if info is not None and not rebuild:
            return _Base(info, _origin(info, suite))
        skipped: Sequence[str] = ()
        progress.begin("base", f"asking a registry for {pulled}")
        try:
            await self._pull_image(pulled, progress)
            await self._engine.tag_image(pulled, tag=tag)
            source = "registry"
        except SourceUnavailable as error:
            skipped, source = [str(error)], "debian"
            await self._bootstrap(suite, tag, progress)
        info = await self._engine.inspect_image(tag)
        if info is None:
            raise SourceUnavailable(f"the engine does not have {tag}")
        return _Base(info, source, skipped)

    async def _pull_image(self, reference: str, progress: Progress) -> None:
        pulling = self._engine.pull_image(
            reference, first_sign_seconds=self._settings.registry_seconds
        )
        try:
            async with aclosing(pulling) as lines:
                async for line in lines:
                    progress.advance(0.5, line)
        except RegistrySilent as error:
            raise SourceUnavailable(str(error)) from error

    async def _bootstrap(self, suite: str, tag: str, progress: Progress) -> None:
        """Make a Debian from its packages: in another Debian if the engine has one, so that the
        host needs nothing for it; otherwise on the host."""
        progress.begin("base", f"building Debian {suite} from its packages")
        for other in ("bookworm", "trixie"):
            builder = await self._engine.inspect_image(_base_tag(other))
            if builder is not None:
                await self._bootstrap_in_engine(builder.id, suite, tag, progress)
                return
        await self._bootstrap_on_host(suite, tag, progress)

    async def _bootstrap_in_engine(
        self, builder: ImageId, suite: str, tag: str, progress: Progress
    ) -> None:
        async with self._context() as context:
            shutil.copy(recipe("base"), context / "Dockerfile")
            shutil.copy(RECIPES / "bootstrap", context)
            args = {"BASE": builder, "SUITE": suite}
            await self._run_build(context, tag=tag, args=args, labels={}, progress=progress)
        await self._engine.prune_images(BOOTSTRAP_LABELS)

    async def _bootstrap_on_host(self, suite: str, tag: str, progress: Progress) -> None:
        if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
            raise SourceUnavailable(
                "no Debian image is there to begin with, and the daemon cannot run mmdebstrap"
            )
        async with self._context() as context:
            archive = context / "base.tar"
            running = _lines_of("bash", str(RECIPES / "bootstrap"), suite, str(archive))
            async with aclosing(running) as lines:
                async for line in lines:
                    progress.advance(0.5, line)
            await self._engine.import_image(archive, tag=tag, command="bash")

    async def _stage(
        self, stage: str, base: ImageInfo, progress: Progress, *, rebuild: bool
    ) -> ImageInfo:
        """Apply a recipe that several environments share."""
        text = recipe(stage).read_text()
        repository = "secure" if stage == "default" else stage
        tag = f"sandboxd/{repository}:{_key(text, base.id)}"
        info = None if rebuild else await self._engine.inspect_image(tag)
        if info is not None:
            return info
        progress.begin("tools", "installing tools")
        async with self._context() as context:
            (context / "Dockerfile").write_text(text)
            args = {"BASE": base.id}
            await self._run_build(
                context, tag=tag, args=args, labels={}, progress=progress, use_cache=not rebuild
            )
        info = await self._engine.inspect_image(tag)
        if info is None:
            raise SourceUnavailable(f"the engine does not have {tag}")
        return info

    # --- the engine ---

    async def _run_build(
        self,
        context: Path,
        *,
        tag: str,
        args: Mapping[str, str],
        labels: Mapping[str, str],
        progress: Progress,
        use_cache: bool = True,
    ) -> None:
        proxies = {name: os.environ[name] for name in _PROXIES if name in os.environ}
        building = self._engine.build_image(
            context=context,
            dockerfile="Dockerfile",
            tag=tag,
            build_args={**proxies, **args},
            labels=labels,
            use_cache=use_cache,
        )
        part, step = 0.0, ""
        async with aclosing(building) as lines:
            async for line in lines:
                text = _plain(line)
                if match := _STEP.match(text):
                    part, step = (int(match[1]) - 1) / int(match[2]), match[3]
                    progress.advance(part, step)
                elif text:
                    progress.advance(part, text)

    async def _finished(self, tag: str, *, source: str, seconds: float) -> BuiltImage:
        info = await self._engine.inspect_image(tag)
        if info is None:
            raise SourceUnavailable(f"the engine does not have {tag}")
        built = replace(_described(info, source=source), tag=tag, seconds=seconds)
        return await self.list_packages(built)

    @asynccontextmanager
    async def _context(self) -> AsyncIterator[Path]:
        self._settings.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        context = Path(tempfile.mkdtemp(dir=self._settings.directory))
        try:
            yield context
        finally:
            await run_to_end(asyncio.to_thread(shutil.rmtree, context, ignore_errors=True))


def _base_tag(suite: str) -> str:
    return f"sandboxd/base:{suite}"


def _pulled_tag(suite: str) -> str:
    return f"debian:{suite}-slim"


def _origin(base: ImageInfo | None, suite: str) -> str:
    """Where a Debian came from, as its names show."""
    return "registry" if base is not None and _pulled_tag(suite) in base.tags else "debian"


def _tag(definition: Definition, key: str) -> str:
    if definition.name == DEFAULT_ENVIRONMENT:
        return f"sandboxd/secure:{key}"
    return f"sandboxd/environment:{definition.name}-{key}"


def _key(*parts: str) -> str:
    """A name for what is made from these."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _plain(line: str) -> str:
    """A line of a program, without colours and control characters."""
    return "".join(letter for letter in re.sub(r"\x1b\[[0-9;]*m", "", line) if letter.isprintable())


def _described(info: ImageInfo, *, source: str) -> BuiltImage:
    """An image with what its label says of its build."""
    empty = BuiltImage(
        image_id=info.id,
        tag="",
        size_bytes=info.size_bytes,
        built_at=info.created_at,
        source=source,
    )
    try:
        fields = json.loads(info.labels[DETAILS_LABEL])
        packages = tuple(Package(*map(str, package)) for package in fields["packages"])
        return replace(
            empty,
            source=str(fields["source"]),
            skipped=tuple(map(str, fields["skipped"])),
            packages=packages,
        )
    except (KeyError, TypeError, ValueError):
        return empty


def _debian_packages(status: str) -> Iterator[Package]:
    for paragraph in status.split("\n\n"):
        fields = dict(
            line.split(": ", 1)
            for line in paragraph.splitlines()
            if re.match(r"[A-Z][\w-]*: ", line)
        )
        if fields.get("Status", "").endswith(" installed"):
            yield Package("debian", fields.get("Package", ""), fields.get("Version", ""))


async def _lines_of(*command: str) -> AsyncGenerator[str, None]:
    """The output of a program; SourceUnavailable if it fails."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    assert process.stdout is not None
    last = ""
    try:
        async for line in process.stdout:
            last = _plain(line.decode(errors="replace")) or last
            yield last
        if await process.wait() != 0:
            raise SourceUnavailable(f"mmdebstrap failed: {last[:200]}")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
