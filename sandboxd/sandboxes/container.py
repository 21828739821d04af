"""The container of a sandbox: what the engine is asked for, and what the guest is told."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sandboxd.engine.contract import BindMount, ContainerSpec, ImageId, TmpfsMount
from sandboxd.environments.environment import Environment
from sandboxd.isolation import accounts
from sandboxd.isolation.attachment import Attachment
from sandboxd.isolation.visibility import READONLY_PATHS, masked_paths
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.workspaces.disk_template import SLACK_BYTES
from sandboxd.workspaces.disks import AttachedDisk, TemporaryDisk
from sandboxd.workspaces.layout import AGENT_WORKSPACE, OUTPUTS, PROJECT_FILES, Layout

INSTANCE_LABEL = "sandboxd.instance"
GUEST_ARGV = (
    "/.sandboxd/bin/python3.11",
    "-I",
    "-S",
    "-c",
    "import sys; sys.path.insert(0, '/.sandboxd'); from guest.pid1 import main; main()",
)
HOSTNAME = "sandbox"
GUEST_MEMORY = 64 << 20
"""Memory of a container beyond that of its commands, for the guest and its file workers."""
GUEST_PROCESSES = 32
TMP, VAR_TMP = "/tmp", "/var/tmp"
VOLUME_BYTES, VOLUME_FILES = 16 << 20, 4096
"""Size of each volume that the image declares."""
LAYOUT_FILES = len((AGENT_WORKSPACE, OUTPUTS, PROJECT_FILES))


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image as the engine describes it."""

    id: ImageId
    passwd: str
    group: str
    volumes: Sequence[str]
    """Directories that the engine would give volumes without a limit, unless something else is
    mounted there."""


@dataclass(frozen=True, kw_only=True)
class SandboxParts:
    """What a sandbox has before there is a container."""

    sandbox_id: str
    uid: int
    link_dir: Path
    etc_files: Collection[str]
    """Names of the files in the link's directory that are shown in /etc."""
    project_dir: Path
    disk: AttachedDisk | None
    """Absent where workspaces are in memory; `temporary` likewise."""
    temporary: TemporaryDisk | None
    bound: Sequence[Attachment] = ()
    """Directories to bind, where the host cannot attach them."""


class Area(NamedTuple):
    """A filesystem of a sandbox that commands write to."""

    path: str
    size_bytes: int
    max_files: int
    """Files that users can make, beyond those of an empty one."""
    slack_bytes: int = 0
    """Free bytes of an empty one beyond its size."""


def areas(settings: SandboxSettings, environment: Environment, *, on_disk: bool) -> Sequence[Area]:
    """The workspace, then /tmp and /var/tmp, which share a disk where there are disks."""
    workspace, tmp_bytes = environment.workspace_bytes, environment.tmp_bytes
    paths = [path for path in (TMP, VAR_TMP) if path != settings.workspace_dir]
    if on_disk:
        return [
            Area(settings.workspace_dir, workspace, environment.workspace_files, SLACK_BYTES),
            Area(paths[0], tmp_bytes, environment.tmp_files, SLACK_BYTES),
        ]
    return [
        Area(settings.workspace_dir, workspace, environment.workspace_files),
        *(Area(path, tmp_bytes // 2, environment.tmp_files // 2) for path in paths),
    ]


def name(instance: str, sandbox_id: str) -> str:
    return f"sandboxd-{instance}-{sandbox_id}"


def labels(instance: str) -> Mapping[str, str]:
    return {INSTANCE_LABEL: instance}


def spec(
    settings: SandboxSettings,
    environment: Environment,
    image: Image,
    parts: SandboxParts,
    *,
    limits_cpu: bool,
) -> ContainerSpec:
    """What the engine is asked for.

    With `limits_cpu` the quota holds for the guest as well, which it slows down: only for hosts
    that cannot limit commands alone.
    """
    return ContainerSpec(
        name=name(settings.instance, parts.sandbox_id),
        image=image.id,
        argv=GUEST_ARGV,
        labels=labels(settings.instance),
        uid=parts.uid,
        hostname=HOSTNAME,
        memory_bytes=environment.memory_bytes + GUEST_MEMORY,
        pids=environment.max_processes + GUEST_PROCESSES,
        cpu_quota_us=environment.cpu_quota_us if limits_cpu else 0,
        nofile=environment.max_open_files,
        max_file_bytes=environment.max_file_bytes,
        network_mode=settings.network_mode,
        runtime=settings.runtime,
        seccomp=settings.seccomp,
        write_bytes_per_second=_write_limits(environment, parts),
        binds=_binds(settings, parts),
        tmpfs=_tmpfs(settings, environment, image, parts),
        masked_paths=masked_paths(),
        readonly_paths=READONLY_PATHS,
    )


def etc_files(settings: SandboxSettings, image: Image, uid: int) -> Mapping[str, str]:
    """Files of /etc that a sandbox gets in place of the image's, with their text."""
    user, home = settings.user, settings.workspace_dir
    return {
        "passwd": accounts.passwd(image.passwd, name=user, uid=uid, home=home),
        "group": accounts.group(image.group, name=user, gid=uid),
        # The engine's own files would show the container's id in the paths they are mounted from.
        "hostname": f"{HOSTNAME}\n",
        "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
        "resolv.conf": "",
    }


def guest_settings(settings: SandboxSettings, *, has_disk: bool) -> Mapping[str, object]:
    """What the guest is told about its workspace and the environment of commands."""
    home = settings.workspace_dir
    return {
        "workspace": home,
        "start_dir": settings.start_dir,
        **_missing_layout(settings.layout, has_disk=has_disk),
        "env": {"HOME": home, "USER": settings.user, "LOGNAME": settings.user},
        "grace_seconds": settings.grace_seconds,
    }


def _missing_layout(layout: Layout, *, has_disk: bool) -> Mapping[str, object]:
    """Directories and links that the guest has to make; a disk has them already."""
    if has_disk:
        return {"directories": [], "links": {}}
    if layout == Layout.SEPARATE:
        return {"directories": [AGENT_WORKSPACE, OUTPUTS], "links": {}}
    return {"directories": [OUTPUTS], "links": {AGENT_WORKSPACE: "."}}


def _write_limits(environment: Environment, parts: SandboxParts) -> Mapping[str, int]:
    if environment.write_bytes_per_second == 0:
        return {}
    disks = [disk for disk in (parts.disk, parts.temporary) if disk is not None]
    return {disk.device: environment.write_bytes_per_second for disk in disks}


def _binds(settings: SandboxSettings, parts: SandboxParts) -> Sequence[BindMount]:
    workspace, link = settings.workspace_dir, parts.link_dir
    writable: dict[str, Path] = {}
    if parts.temporary is not None:
        writable |= {TMP: parts.temporary.tmp, VAR_TMP: parts.temporary.var_tmp}
    if parts.disk is not None:
        writable[workspace] = parts.disk.path
    binds = (
        BindMount(source=settings.runtime_dir, target="/.sandboxd"),
        BindMount(source=settings.guest_dir, target="/.sandboxd/guest"),
        BindMount(source=link, target="/.sandboxd/link"),
        *(BindMount(source=link / file, target=f"/etc/{file}") for file in parts.etc_files),
        *(
            BindMount(source=source, target=target, writable=True)
            for target, source in writable.items()
        ),
        BindMount(source=parts.project_dir, target=f"{workspace}/{PROJECT_FILES}"),
        *(BindMount(source=one.source, target=one.target) for one in parts.bound),
    )
    # An engine refuses two at one target; an attachment would cover what is there.
    return tuple({bind.target: bind for bind in binds}.values())


def _tmpfs(
    settings: SandboxSettings, environment: Environment, image: Image, parts: SandboxParts
) -> Sequence[TmpfsMount]:
    """Areas in memory. The kernel counts the root of each as a file."""
    workspace = settings.workspace_dir
    elsewhere = {bind.target for bind in _binds(settings, parts)}
    found = {path: Area(path, VOLUME_BYTES, VOLUME_FILES) for path in sorted(image.volumes)}
    found |= {area.path: area for area in areas(settings, environment, on_disk=False)}
    return [
        TmpfsMount(
            target=area.path,
            size_bytes=area.size_bytes,
            max_files=area.max_files + 1 + (LAYOUT_FILES if area.path == workspace else 0),
            uid=parts.uid,
            mode=0o755 if area.path == workspace else 0o1777,
            executable=True,
        )
        for area in found.values()
        if area.path not in elsewhere
    ]
