"""Programs of the daemon that run in a container of an environment, without a guest.

They are confined like a sandbox, and write to nothing but the directories that they are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandboxd.engine.contract import BindMount, ContainerSpec, TmpfsMount
from sandboxd.isolation.visibility import READONLY_PATHS, masked_paths
from sandboxd.sandboxes import container
from sandboxd.sandboxes.container import Image
from sandboxd.sandboxes.settings import SandboxSettings

_TMP_BYTES, _TMP_FILES = 16 << 20, 1024
_OPEN_FILES = 256


@dataclass(frozen=True, kw_only=True)
class Program:
    argv: Sequence[str]
    uid: int
    directory: Path
    """A directory of the host that it may write to, if its uid may."""
    target: str
    """Where it sees that directory."""
    seconds: float
    memory_bytes: int = 512 << 20
    processes: int = 16
    cpu_quota_us: int = 100_000
    """Processor microseconds per 100 ms."""
    max_file_bytes: int = 64 << 20


def spec(settings: SandboxSettings, image: Image, program: Program, *, name: str) -> ContainerSpec:
    small = sorted({"/tmp", *image.volumes} - {program.target})
    return ContainerSpec(
        name=name,
        image=image.id,
        argv=program.argv,
        labels=container.labels(settings.instance),
        uid=program.uid,
        hostname=container.HOSTNAME,
        memory_bytes=program.memory_bytes,
        pids=program.processes,
        cpu_quota_us=program.cpu_quota_us,
        nofile=_OPEN_FILES,
        max_file_bytes=program.max_file_bytes,
        network_mode=settings.network_mode,
        runtime=settings.runtime,
        seccomp=settings.seccomp,
        binds=[BindMount(source=program.directory, target=program.target, writable=True)],
        tmpfs=[
            TmpfsMount(
                target=target,
                size_bytes=_TMP_BYTES,
                max_files=_TMP_FILES,
                uid=program.uid,
                mode=0o700,
                executable=False,
            )
            for target in small
        ],
        masked_paths=masked_paths(),
        readonly_paths=READONLY_PATHS,
    )
