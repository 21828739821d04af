"""A container engine in memory that keeps the promises of `engine.contract`.

tests/docker/test_engine_contract.py runs against this and against Docker, so it cannot lie.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from sandboxd.engine.contract import (
    Container,
    ContainerId,
    ContainerSpec,
    EngineInfo,
    ImageId,
    ImageInfo,
    RegistrySilent,
)
from sandboxd.errors import EngineFailed, EngineUnreachable, ImageNotFound, SandboxdError

DEFAULT_IMAGE = "sandbox-secure:latest"

ContainerHook = Callable[[ContainerSpec, Container], Awaitable[None]]


class FakeEngine:
    """Containers that exist only as records; `on_start` may bring one to life.

    `delays`, `gates` and `failures` are keyed by method name and act before the method does
    anything. With `.answer` added to the name they act after it has done its work: the engine
    did what it was asked, and the caller never learns.
    """

    def __init__(
        self,
        *,
        on_start: ContainerHook | None = None,
        on_remove: ContainerHook | None = None,
    ) -> None:
        self.on_start = on_start
        self.on_remove = on_remove
        self.on_inspect: Callable[[Container], None] | None = None
        self.containers: dict[ContainerId, Container] = {}
        self.specs: dict[ContainerId, ContainerSpec] = {}
        """Also of containers that are gone."""
        self.images: dict[str, ImageId] = {DEFAULT_IMAGE: _image_id(0)}
        self.files: dict[str, bytes] = {"/etc/passwd": b"root:x:0:0:root:/root:/bin/bash\n"}
        """What every image holds."""
        self.image_volumes: Sequence[str] = ()
        self.exit_codes: dict[ContainerId, int] = {}
        """What containers ended with, if not 0."""
        self.image_labels: dict[ImageId, Mapping[str, str]] = {}
        self.registry: dict[str, ImageId] = {}
        """What can be pulled."""
        self.builds: list[tuple[str, Mapping[str, str]]] = []
        """Tags and arguments of the builds that began."""
        self._built = 0
        self.calls: Counter[str] = Counter()
        """How often each method was entered, whatever came of it."""
        self.delays: dict[str, float] = {}
        self.gates: dict[str, asyncio.Event] = {}
        """A call waits until its gate is set."""
        self.failures: dict[str, SandboxdError] = {}
        """Raised at every call until taken out."""
        self.is_reachable = True
        self._next_failures: dict[str, list[SandboxdError]] = {}
        self._waiters: set[asyncio.Future[None]] = set()
        self._created = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<FakeEngine live={len(self.live)} running={len(self.running)} calls={self.calls}>"

    @property
    def live(self) -> set[ContainerId]:
        """The containers that exist, running or not."""
        return set(self.containers)

    @property
    def running(self) -> set[ContainerId]:
        return {id_ for id_, container in self.containers.items() if container.is_running}

    def fail_once(self, step: str, error: SandboxdError) -> None:
        """Raise this at the next call only; several are raised one call each, in order."""
        self._next_failures.setdefault(step, []).append(error)

    def lose(self, container_id: ContainerId) -> None:
        """End a container as if by itself."""
        self.containers[container_id] = replace(
            self.containers[container_id], is_running=False, pid=0
        )
        self.notify()

    def go_away(self) -> None:
        """Be unreachable until `come_back`. Containers live on."""
        self.is_reachable = False
        self.notify()

    def come_back(self) -> None:
        self.is_reachable = True
        self.notify()

    def notify(self) -> None:
        """Make `wait_until` look again, after a change that the engine cannot know of."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_until(
        self, predicate: Callable[[], bool], *, timeout_seconds: float = 5.0
    ) -> None:
        """Return as soon as the predicate holds; it is asked again at every change here."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not predicate():
                    await self._next_change()
        except TimeoutError:
            raise AssertionError(
                f"The condition did not hold within {timeout_seconds:g} s: {self!r}"
            ) from None

    async def info(self) -> EngineInfo:
        async with self._call("info"):
            return EngineInfo(
                name="Fake Engine",
                version="1.0",
                api_version="1.41",
                cgroup_version="1",
                storage_driver="memory",
                default_runtime="fake",
                runtimes=("fake",),
                security_options=(),
                live_restore=True,
            )

    async def create(self, spec: ContainerSpec) -> ContainerId:
        async with self._call("create"):
            if spec.image not in self.images.values():
                raise ImageNotFound(spec.image)
            if any(container.name == spec.name for container in self.containers.values()):
                raise EngineFailed("The fake engine already has a container of this name.")
            container_id = self._new_id()
            self.specs[container_id] = spec
            self.containers[container_id] = Container(
                id=container_id,
                name=spec.name,
                labels=dict(spec.labels),
                is_running=False,
                pid=0,
            )
            self.notify()
        return container_id

    async def start(self, container_id: ContainerId) -> None:
        async with self._call("start"):
            container = self.containers.get(container_id)
            if container is None:
                raise EngineFailed("The fake engine has no such container.")
            if container.is_running:
                return
            started = replace(container, is_running=True, pid=os.getpid())
            self.containers[container_id] = started
            self.notify()
            if self.on_start is not None:
                await self.on_start(self.specs[container_id], started)

    async def inspect(self, container_id: ContainerId) -> Container | None:
        async with self._call("inspect"):
            container = self.containers.get(container_id)
            if container is not None and self.on_inspect is not None:
                self.on_inspect(container)
            return container

    async def wait(self, container_id: ContainerId, *, seconds: float) -> int:
        async with self._call("wait"):
            if container_id not in self.containers:
                raise EngineFailed("The fake engine has no such container.")
            try:
                async with asyncio.timeout(seconds):
                    while container_id in self.running:
                        await self._next_change()
            except TimeoutError:
                raise EngineFailed("The container of the fake engine did not end.") from None
            return self.exit_codes.get(container_id, 0)

    async def remove(self, container_id: ContainerId) -> None:
        async with self._call("remove"):
            if container_id not in self.containers:
                return
            self.lose(container_id)
            removed = self.containers.pop(container_id)
            self.notify()
            if self.on_remove is not None:
                await self.on_remove(self.specs[container_id], removed)

    async def list_containers(self, labels: Mapping[str, str]) -> Sequence[Container]:
        async with self._call("list_containers"):
            return [
                replace(container, pid=0)
                for container in self.containers.values()
                if labels.items() <= container.labels.items()
            ]

    async def image_id(self, reference: str) -> ImageId:
        async with self._call("image_id"):
            if reference in self.images:
                return self.images[reference]
            if reference in self.images.values():
                return ImageId(reference)
            raise ImageNotFound(reference)

    async def volumes(self, image: ImageId) -> Sequence[str]:
        async with self._call("volumes"):
            if image not in self.images.values():
                raise ImageNotFound(image)
            return self.image_volumes

    async def read_file(
        self, image: ImageId, path: str, *, name: str, labels: Mapping[str, str]
    ) -> bytes:
        try:
            async with self._call("read_file"):
                if image not in self.images.values():
                    raise ImageNotFound(image)
                return self.files.get(path, b"")
        except asyncio.CancelledError:
            # An engine makes the container that it was asked for, whoever went away meanwhile.
            left = self._new_id()
            self.containers[left] = Container(
                id=left, name=name, labels=dict(labels), is_running=False, pid=0
            )
            raise

    async def inspect_image(self, reference: str) -> ImageInfo | None:
        async with self._call("inspect_image"):
            found = self.images.get(reference)
            if found is None and reference in self.images.values():
                found = ImageId(reference)
            if found is None:
                return None
            return ImageInfo(
                id=found,
                size_bytes=1 << 20,
                created_at=1.0,
                labels=self.image_labels.get(found, {}),
                tags=[tag for tag, image in self.images.items() if image == found],
            )

    async def build_image(
        self,
        *,
        context: Path,
        dockerfile: str,
        tag: str,
        build_args: Mapping[str, str],
        labels: Mapping[str, str] | None = None,
        use_cache: bool = True,
    ) -> AsyncGenerator[str, None]:
        async with self._call("build_image"):
            if not (context / dockerfile).is_file():
                raise EngineFailed("The fake engine cannot read the Dockerfile.")
        self.builds.append((tag, dict(build_args)))
        yield f"Step 1/1 : {dockerfile}"
        await self._meet("build_image.step")
        self._built += 1
        self.images[tag] = _image_id(1000 + self._built)
        self.image_labels[self.images[tag]] = dict(labels or {})
        self.notify()
        yield f"Successfully tagged {tag}"

    async def pull_image(
        self, reference: str, *, first_sign_seconds: float
    ) -> AsyncGenerator[str, None]:
        async with self._call("pull_image"):
            if reference not in self.registry:
                raise RegistrySilent(f"no registry that the engine reaches has {reference}")
        yield f"Pulling from {reference}"
        self.images[reference] = self.registry[reference]
        self.notify()

    async def import_image(self, archive: Path, *, tag: str, command: str) -> None:
        async with self._call("import_image"):
            self._built += 1
            self.images[tag] = _image_id(1000 + self._built)
            self.notify()

    async def tag_image(self, image: str, *, tag: str) -> None:
        async with self._call("tag_image"):
            found = self.images.get(image, ImageId(image))
            if found not in self.images.values():
                raise ImageNotFound(image)
            self.images[tag] = found
            self.notify()

    async def remove_image(self, tag: str) -> None:
        async with self._call("remove_image"):
            self.images.pop(tag, None)
            self.notify()

    async def prune_images(self, labels: Mapping[str, str]) -> None:
        async with self._call("prune_images"):
            pass  # every image here has a name

    async def aclose(self) -> None:
        self._is_closed = True
        self.notify()

    @asynccontextmanager
    async def _call(self, method: str) -> AsyncIterator[None]:
        self.calls[method] += 1
        self.notify()
        await self._meet(method)
        yield
        await self._meet(f"{method}.answer")

    async def _meet(self, step: str) -> None:
        self._check_reachable()
        if step in self.delays:
            await asyncio.sleep(self.delays[step])
        if step in self.gates:
            await self.gates[step].wait()
        if self._next_failures.get(step):
            raise self._next_failures[step].pop(0)
        if step in self.failures:
            raise self.failures[step]
        self._check_reachable()

    def _check_reachable(self) -> None:
        if self._is_closed or not self.is_reachable:
            raise EngineUnreachable("The fake engine does not answer.", retry_after_seconds=2.0)

    async def _next_change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _new_id(self) -> ContainerId:
        self._created += 1
        return ContainerId(f"{self._created:064x}")


class LastingEngine(FakeEngine):
    """An engine that serves one daemon after the other."""

    async def aclose(self) -> None: ...


def _image_id(number: int) -> ImageId:
    return ImageId(f"sha256:{number:064x}")
