"""What sandboxd requires of a container engine.

Every call is bounded by a deadline of the implementation and raises only errors of
`sandboxd.errors`: EngineUnreachable, EngineFailed, ImageNotFound.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NewType, Protocol

ContainerId = NewType("ContainerId", str)
ImageId = NewType("ImageId", str)


@dataclass(frozen=True, kw_only=True)
class BindMount:
    """A host directory or file that is mounted into the container, read-only by default."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, kw_only=True)
class TmpfsMount:
    """A writable area in memory with limits on bytes and files."""

    target: str
    size_bytes: int
    max_files: int
    uid: int
    mode: int
    executable: bool


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """One hardened container. Everything that is not listed here is switched off."""

    name: str
    image: ImageId
    argv: Sequence[str]
    labels: Mapping[str, str]
    uid: int
    hostname: str
    memory_bytes: int
    pids: int
    cpu_quota_us: int
    """CPU time per 100 ms period, in microseconds; 0 means no quota."""
    nofile: int
    max_file_bytes: int
    """Largest file that a process may write."""
    network_mode: str
    runtime: str | None
    """Name of an OCI runtime of the engine; None means its default."""
    seccomp: str | None = None
    """Filter of system calls as JSON; None means the engine's default."""
    write_bytes_per_second: Mapping[str, int] = field(default_factory=dict)
    """Write limits by block device of the host."""
    binds: Sequence[BindMount] = ()
    tmpfs: Sequence[TmpfsMount] = ()
    masked_paths: Sequence[str] = ()
    readonly_paths: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Container:
    """What the engine reports about one container."""

    id: ContainerId
    name: str
    labels: Mapping[str, str]
    is_running: bool
    pid: int
    """Host pid of the container's first process; 0 if it does not run."""


@dataclass(frozen=True, kw_only=True)
class ImageInfo:
    """What the engine reports about one image."""

    id: ImageId
    size_bytes: int
    """Size with the layers that it shares with others."""
    created_at: float
    """Seconds since the epoch."""
    labels: Mapping[str, str]
    tags: Sequence[str]


class RegistrySilent(Exception):
    """No image registry gave the image; the text says why, for operators."""


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """Facts about the engine, for the status report."""

    name: str
    version: str
    api_version: str
    cgroup_version: str
    storage_driver: str
    default_runtime: str
    runtimes: Sequence[str]
    security_options: Sequence[str]
    live_restore: bool
    runc_version: str = ""
    """Empty if the engine does not report it, like `runc_package`."""
    runc_package: str = ""
    """Version of the distribution's package, or a commit."""


class Engine(Protocol):
    """Creates, inspects and destroys containers."""

    async def info(self) -> EngineInfo: ...

    async def create(self, spec: ContainerSpec) -> ContainerId:
        """Create a container without starting it.

        A cancelled call may leave the container behind; the sweep by label finds it.
        """
        ...

    async def start(self, container_id: ContainerId) -> None: ...

    async def inspect(self, container_id: ContainerId) -> Container | None:
        """The state of the container; None if it does not exist."""
        ...

    async def wait(self, container_id: ContainerId, *, seconds: float) -> int:
        """Wait for the end of a container; returns its exit code, as a shell counts it.

        EngineFailed if it does not end within that time.
        """
        ...

    async def remove(self, container_id: ContainerId) -> None:
        """Kill and remove; not an error if the container is already gone."""
        ...

    async def list_containers(self, labels: Mapping[str, str]) -> Sequence[Container]:
        """All containers with these labels, running or not. `pid` is always 0."""
        ...

    async def image_id(self, reference: str) -> ImageId:
        """The id of an image, so that a later retag has no effect. Never pulls."""
        ...

    async def volumes(self, image: ImageId) -> Sequence[str]:
        """Directories that the image declares as volumes, which would have no size limit."""
        ...

    async def read_file(
        self, image: ImageId, path: str, *, name: str, labels: Mapping[str, str]
    ) -> bytes:
        """Read a small file of an image; empty if it does not exist.

        May create a container of this name for a moment; a cancelled call may leave it behind.
        """
        ...

    async def inspect_image(self, reference: str) -> ImageInfo | None:
        """The image of a name or an id; None if the engine does not have it."""
        ...

    def build_image(
        self,
        *,
        context: Path,
        dockerfile: str,
        tag: str,
        build_args: Mapping[str, str],
        labels: Mapping[str, str] | None = None,
        use_cache: bool = True,
    ) -> AsyncGenerator[str, None]:
        """Build an image and yield the engine's progress lines; EngineFailed if a step fails.

        A generator that is closed early ends the build.
        """
        ...

    def pull_image(self, reference: str, *, first_sign_seconds: float) -> AsyncGenerator[str, None]:
        """Pull an image and yield the engine's progress lines.

        RegistrySilent if no registry begins to answer within `first_sign_seconds`, or none has the
        image.
        """
        ...

    async def import_image(self, archive: Path, *, tag: str, command: str) -> None:
        """Make an image of a root filesystem in a tar file, with the command that it runs."""
        ...

    async def tag_image(self, image: str, *, tag: str) -> None: ...

    async def remove_image(self, tag: str) -> None:
        """Remove a name of an image, and the image if nothing else uses it; not an error if there
        is none."""
        ...

    async def prune_images(self, labels: Mapping[str, str]) -> None:
        """Remove images with these labels that have no name and that nothing uses."""
        ...

    async def aclose(self) -> None: ...
