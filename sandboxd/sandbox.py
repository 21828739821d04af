"""A sandbox: a container with a guest that answers, used by one session and then destroyed."""

from __future__ import annotations

import asyncio
import errno
import secrets
import shutil
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import structlog

from sandboxd.engine.contract import (
    BindMount,
    ContainerId,
    ContainerSpec,
    Engine,
    ImageId,
    TmpfsMount,
)
from sandboxd.errors import DiskSpaceLow, EngineFailed, ImageNotFound, SandboxdError
from sandboxd.guest.frames import ExecState
from sandboxd.isolation import accounts, open_files, terminals
from sandboxd.isolation.cgroups import CommandGroup, CommandLimits
from sandboxd.isolation.disks import AttachedDisk, Disk, DiskDamaged
from sandboxd.isolation.host import Host
from sandboxd.isolation.host_process import Pinned
from sandboxd.isolation.layout import AGENT_WORKSPACE, OUTPUTS, PROJECT_FILES, Layout
from sandboxd.isolation.meter import Meter, WorkspaceGauge
from sandboxd.isolation.project_directories import ProjectDirectories
from sandboxd.isolation.quota import Quota
from sandboxd.isolation.visibility import MASKED_PATHS, READONLY_PATHS
from sandboxd.link import GuestLink, GuestListener, LinkClosed, peer_pid

log = structlog.get_logger()

T = TypeVar("T")

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
"""What the container may use beyond its commands: the guest, and what works on files for it."""
GUEST_PROCESSES = 32
ADOPT_SECONDS = 3.0
"""How long the guest of an earlier daemon gets to dial again, which it tries all the time."""
GONE_SECONDS = 5.0
"""How long the processes of a removed sandbox get to be gone."""
_ACCOUNT_FILES = ("/etc/passwd", "/etc/group")


@dataclass(frozen=True, kw_only=True)
class SandboxSettings:
    """What every sandbox of this daemon looks like."""

    instance: str
    image: str
    runtime: str | None
    network_mode: str
    runtime_dir: Path
    guest_dir: Path
    links_dir: Path
    projects_dir: Path
    user: str
    """Name that commands see themselves under."""
    workspace_dir: str
    workspace_bytes: int
    workspace_files: int
    max_file_bytes: int
    """Of a single file, in the workspace or elsewhere."""
    write_bytes_per_second: int
    """To the workspace's disk; 0 means no limit."""
    memory_bytes: int
    """For all commands together, like the limits below."""
    cpu_quota_us: int
    max_processes: int
    max_open_files: int
    seccomp: str
    """Filter of system calls, as JSON."""
    layout: Layout = Layout.SHARED
    grace_seconds: float = 0.0
    """How long a guest goes on without its daemon."""
    start_seconds: float = 30.0
    """From the engine's start to a guest that takes commands."""
    tmp_bytes: int = 16 << 20
    tmp_files: int = 4096

    @property
    def command_limits(self) -> CommandLimits:
        return CommandLimits(
            memory_bytes=self.memory_bytes,
            processes=self.max_processes,
            cpu_quota_us=self.cpu_quota_us,
        )

    @property
    def start_dir(self) -> str:
        """Where commands start."""
        if self.layout == Layout.SEPARATE:
            return f"{self.workspace_dir}/{AGENT_WORKSPACE}"
        return self.workspace_dir


@dataclass(frozen=True, kw_only=True)
class Belongings:
    """What outlives a sandbox for the next one of its session; without files, nothing."""

    disk: Disk | None = None
    """With its workspace."""
    project_id: str = ""
    """Directory of its project files; empty if there is none."""


class Sandbox:
    """A running sandbox. Lost at the first sign that its guest is gone or lies."""

    def __init__(
        self, sandbox_id: str, container_id: ContainerId, uid: int, belongings: Belongings
    ) -> None:
        self.id = sandbox_id
        self.container_id = container_id
        self.uid = uid
        self.belongings = belongings
        self.link = GuestLink(on_closed=self._on_link_closed, on_place=self._on_place)
        self.process: Pinned | None = None
        self.meter: Meter | None = None
        self._group: CommandGroup | None = None
        self._placing: asyncio.Task[None] | None = None
        self._lost_callbacks: list[Callable[[str], None]] = []

    def __repr__(self) -> str:
        return f"<Sandbox {self.id} {'lost' if self.is_lost else 'ready'}>"

    @property
    def disk(self) -> Disk | None:
        return self.belongings.disk

    @property
    def is_lost(self) -> bool:
        return not self.link.is_open

    @property
    def lost_because(self) -> str | None:
        return self.link.closed_because

    def when_lost(self, callback: Callable[[str], None]) -> None:
        """Call back once, when the guest is gone; at once if it is already."""
        if self.link.closed_because is not None:
            callback(self.link.closed_because)
        else:
            self._lost_callbacks.append(callback)

    def measure(
        self, group: CommandGroup, workspace: WorkspaceGauge | None, quota: Quota | None
    ) -> None:
        """From here on use is counted, and shells are placed as the guest asks."""
        self._group = group
        self.meter = Meter(group, workspace, quota)

    def cut_off(self, why: str) -> bool:
        """Stop trusting this sandbox: kill its first process and drop the link.

        False if the process could not be killed from here.
        """
        if self.meter is not None:
            self.meter.hurry()
        is_killed = self.process is not None and self.process.kill()
        self.link.close(why)
        return is_killed

    def let_go(self) -> None:
        """Stop looking after it and leave it running, for the next daemon."""
        self.link.let_go()
        self.close()

    def close(self) -> None:
        """Close what the host holds open for it."""
        if self.meter is not None:
            self.meter.close()
        if self.process is not None:
            self.process.close()

    def _on_place(self) -> None:
        self._placing = asyncio.get_running_loop().create_task(self._place())

    async def _place(self) -> None:
        """Move new shells to where commands belong. A sandbox where that fails is of no use."""
        try:
            if self._group is not None:
                await asyncio.to_thread(self._group.admit)
            self.link.placed()
        except Exception as error:
            log.error("sandbox.not_placed", sandbox_id=self.id, exc_info=error)
            self.cut_off("its commands could not be given their limits")

    def _on_link_closed(self, why: str) -> None:
        callbacks, self._lost_callbacks = self._lost_callbacks, []
        for callback in callbacks:
            callback(why)


class SandboxMaker:
    """Starts sandboxes and destroys them. Whatever fails half-way is cleaned up."""

    def __init__(self, engine: Engine, settings: SandboxSettings, host: Host) -> None:
        self._engine = engine
        self._settings = settings
        self._host = host
        self.projects = ProjectDirectories(settings.projects_dir)
        self._image: _Image | None = None
        self._looking = asyncio.Lock()
        self._held: dict[ContainerId, str] = {}
        """Containers that a sandbox object stands for, with its id; the sweep leaves them alone."""
        self._making: set[str] = set()
        """Names of containers that are being made, or looked into."""
        self._lingering: list[tuple[Sandbox, bool]] = []
        """Destroyed, but not seen to be gone; and whether its belongings are kept."""
        self.left_behind = asyncio.Event()
        """Set while there is something for the sweep that need not wait for its time."""
        self._busy_disks: dict[str, asyncio.Event] = {}
        """Disks that a sandbox uses; the event is set when it is gone."""
        self._unwanted_disks: set[str] = set()
        """Of those, the ones that are not to outlive it any more."""

    @property
    def image_id(self) -> ImageId | None:
        """Pinned at the first start, so that a retag does not change what sessions get; until it is
        removed from the engine."""
        return self._image.id if self._image else None

    async def make(self, kept: Belongings | None = None) -> Sandbox:
        """Start a sandbox and wait until its guest takes commands.

        With a disk and project files of its own, or with those that an earlier sandbox left, which
        stay if this fails.
        """
        sandbox_id = secrets.token_hex(8)
        with self._being_made(self._name(sandbox_id)):
            return await self._make(sandbox_id, kept)

    @contextmanager
    def _being_made(self, name: str) -> Iterator[None]:
        """Keep the sweep away from a container that is not held yet."""
        self._making.add(name)
        try:
            yield
        finally:
            self._making.discard(name)

    async def _make(self, sandbox_id: str, kept: Belongings | None) -> Sandbox:
        await open_files.check_room()
        image = await self._look_at_image()
        directory = self._settings.links_dir / sandbox_id
        uid = kept.disk.uid if kept and kept.disk else self._host.uids.take()
        sandbox: Sandbox | None = None
        owned = Belongings()
        try:
            owned = Belongings(project_id=self.projects.make(kept.project_id if kept else ""))
            owned = replace(owned, disk=await self._disk(uid, kept))
            async with self._attached(owned.disk) as attached:
                with GuestListener(directory, uid) as listener:
                    spec = self._spec(_Place(sandbox_id, directory, uid, owned), image, attached)
                    container_id = await self._create(spec)
                    sandbox = Sandbox(sandbox_id, container_id, uid, owned)
                    self._held[container_id] = sandbox_id
                    if owned.disk is not None:
                        self._busy_disks[owned.disk.id] = asyncio.Event()
                    async with asyncio.timeout(self._settings.start_seconds):
                        await self._engine.start(container_id)
                        await self._connect(sandbox, listener)
            return sandbox
        except BaseException as error:
            # Shielded: a cancel must not stop the clean-up of what it interrupted.
            if sandbox is not None:
                await asyncio.shield(self.destroy(sandbox, keep=kept is not None))
            else:
                shutil.rmtree(directory, ignore_errors=True)
                if kept is None:
                    await asyncio.shield(self._discard(uid, owned))
            if isinstance(error, DiskDamaged):
                raise
            if isinstance(error, ImageNotFound):
                self._image = None  # the next start takes what has the name by then
                raise ImageNotFound(self._settings.image) from error
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise DiskSpaceLow(0, 0) from error
            if isinstance(error, OSError | LinkClosed):  # a TimeoutError is an OSError
                raise EngineFailed(
                    "A sandbox was started but its guest did not answer; see the daemon's log.",
                    retry_after_seconds=2.0,
                ) from error
            raise

    async def _disk(self, uid: int, kept: Belongings | None) -> Disk | None:
        if self._host.disks is None:
            return None
        return (kept.disk if kept else None) or await self._host.disks.make(uid)

    @asynccontextmanager
    async def _attached(self, disk: Disk | None) -> AsyncIterator[AttachedDisk | None]:
        """The disk, mounted on the host until the container has it."""
        if disk is None or self._host.disks is None:
            yield None
            return
        # Two mounts of one image would destroy it.
        async with asyncio.timeout(self._settings.start_seconds):
            await self._until_free(disk.id)
        async with self._host.disks.attached(disk) as attached:
            yield attached

    async def _look_at_image(self) -> _Image:
        async with self._looking:
            if self._image is None:
                image_id = await self._engine.image_id(self._settings.image)
                passwd, group = [await self._read(image_id, path) for path in _ACCOUNT_FILES]
                volumes = await self._engine.volumes(image_id)
                self._image = _Image(image_id, passwd, group, tuple(volumes))
            return self._image

    async def _read(self, image: ImageId, path: str) -> str:
        name = self._name(secrets.token_hex(8))
        with self._being_made(name):
            # It makes a container, and removes it if it is let.
            reading = self._engine.read_file(image, path, name=name, labels=self._labels)
            data = await _to_its_end(reading)
        return data.decode(errors="replace")

    def _name(self, sandbox_id: str) -> str:
        return f"sandboxd-{self._settings.instance}-{sandbox_id}"

    @property
    def _labels(self) -> Mapping[str, str]:
        return {INSTANCE_LABEL: self._settings.instance}

    async def _create(self, spec: ContainerSpec) -> ContainerId:
        return await _to_its_end(self._engine.create(spec), undo=self._engine.remove)

    async def _connect(self, sandbox: Sandbox, listener: GuestListener) -> Mapping[int, ExecState]:
        """Take the one connection that comes from the container's first process, and greet it."""
        loop = asyncio.get_running_loop()
        expected = 0
        while True:
            peer = await listener.accept()
            try:
                if not expected:
                    container = await self._engine.inspect(sandbox.container_id)
                    expected = container.pid if container else 0
                if expected and peer_pid(peer) == expected:
                    sandbox.process = self._host.pin(expected)
                    await loop.connect_accepted_socket(lambda: sandbox.link, peer)
                    break
            except BaseException:
                peer.close()
                raise
            peer.close()
        return await sandbox.link.greet(lambda: self._set_up(sandbox, expected))

    async def adopt(
        self, sandbox_id: str, *, uid: int, belongings: Belongings
    ) -> tuple[Sandbox, Mapping[int, ExecState]] | None:
        """Go on with a sandbox that an earlier daemon started: its guest dials again.

        None if it is gone or does not come back in time; then the sweep removes what is left.
        """
        name = self._name(sandbox_id)
        found = await self._engine.list_containers(self._labels)
        container = next((one for one in found if one.name == name and one.is_running), None)
        if container is None:
            return None
        self._host.uids.reserve(uid)
        sandbox = Sandbox(sandbox_id, container.id, uid, belongings)
        if belongings.disk is not None:
            self._busy_disks[belongings.disk.id] = asyncio.Event()
        try:
            with GuestListener(self._settings.links_dir / sandbox_id, uid) as listener:
                async with asyncio.timeout(ADOPT_SECONDS):
                    states = await self._connect(sandbox, listener)
        except (OSError, LinkClosed, SandboxdError) as error:  # a TimeoutError is an OSError
            log.warning("sandbox.not_adopted", sandbox_id=sandbox_id, error=repr(error))
            sandbox.cut_off("it could not be adopted")
            self._lingering.append((sandbox, True))  # the sweep sees the end of it
            return None
        self._held[container.id] = sandbox_id
        return sandbox, states

    async def _set_up(self, sandbox: Sandbox, pid: int) -> Mapping[str, object]:
        """Give commands their limits, before there is one; returns the guest's settings."""
        settings, cgroups = self._settings, self._host.cgroups
        group: CommandGroup | None = None
        if cgroups is not None:
            # In a thread: the kernel may take 20 ms for a move.
            group = await asyncio.to_thread(cgroups.open, pid, settings.command_limits)
            has_quota = settings.cpu_quota_us > 0 and cgroups.separates
            quota = Quota(group, settings.cpu_quota_us) if has_quota else None
            sandbox.measure(group, self._gauge(pid), quota)
            await asyncio.to_thread(group.admit)
            if cgroups.separates:
                self._limit_terminals(pid)
        home = settings.workspace_dir
        return {
            "workspace": home,
            "start_dir": settings.start_dir,
            **self._layout(sandbox),
            "env": {"HOME": home, "USER": settings.user, "LOGNAME": settings.user},
            "asks_to_place": group is not None and group.asks,
            "is_first_victim": cgroups is not None and not cgroups.separates,
            "grace_seconds": settings.grace_seconds,
        }

    def _layout(self, sandbox: Sandbox) -> Mapping[str, object]:
        """What the guest has to make: a workspace on a disk has it all."""
        if sandbox.disk is not None:
            return {"directories": [], "links": {}}
        if self._settings.layout == Layout.SEPARATE:
            return {"directories": [AGENT_WORKSPACE, OUTPUTS], "links": {}}
        return {"directories": [OUTPUTS], "links": {AGENT_WORKSPACE: "."}}

    def _limit_terminals(self, pid: int) -> None:
        try:
            terminals.limit(pid)
        except OSError as error:  # a kernel before 5.2, or a runtime with another /dev
            log.warning("sandbox.terminals_unlimited", error=str(error))

    def _gauge(self, pid: int) -> WorkspaceGauge | None:
        try:
            return WorkspaceGauge(pid=pid, workspace_dir=self._settings.workspace_dir)
        except PermissionError:  # only root may look into a sandbox
            return None

    # --- ends ---

    async def destroy(self, sandbox: Sandbox, *, keep: bool = False) -> None:
        """Remove the container, and its belongings unless they are to be kept; what the engine does
        not remove now, the sweep does later."""
        sandbox.cut_off("the sandbox was destroyed")
        if sandbox.meter is not None:
            sandbox.meter.close()  # it holds the workspace's filesystem
        is_removed = await self._remove(sandbox)
        self._held.pop(sandbox.container_id, None)
        await self._settle(sandbox, keep, is_removed)

    async def _remove(self, sandbox: Sandbox) -> bool:
        try:
            await self._engine.remove(sandbox.container_id)
        except SandboxdError as error:
            log.warning("sandbox.left_behind", sandbox_id=sandbox.id, error=str(error))
            self.left_behind.set()
            return False
        return True

    async def _settle(self, sandbox: Sandbox, keep: bool, is_removed: bool) -> None:
        """Free its uid and its disk once no process of it is left: another would be mistaken for
        it, or share its limits."""
        if sandbox.process is not None:
            is_removed = await sandbox.process.gone(GONE_SECONDS)
        if not is_removed:
            self._lingering.append((sandbox, keep))
            return
        sandbox.close()
        shutil.rmtree(self._settings.links_dir / sandbox.id, ignore_errors=True)
        if sandbox.disk is not None:
            self._busy_disks.pop(sandbox.disk.id).set()
            keep = keep and sandbox.disk.id not in self._unwanted_disks
            self._unwanted_disks.discard(sandbox.disk.id)
        if not keep:
            await self._discard(sandbox.uid, sandbox.belongings)
        elif sandbox.disk is None:
            self._host.uids.give_back(sandbox.uid)  # project files belong to no uid of a sandbox

    def has(self, disk: Disk) -> bool:
        """Whether there is still such a disk."""
        return self._host.disks is not None and self._host.disks.has(disk.id)

    async def discard(self, kept: Belongings) -> None:
        """Delete what was kept; a disk that a sandbox still has goes with that."""
        if kept.project_id:
            await self.projects.delete(kept.project_id)
        if kept.disk is None:
            return
        if kept.disk.id in self._busy_disks:
            self._unwanted_disks.add(kept.disk.id)
        else:
            await self._discard(kept.disk.uid, Belongings(disk=kept.disk))

    async def _until_free(self, disk_id: str) -> None:
        """Wait until the last sandbox on this disk is gone."""
        if (busy := self._busy_disks.get(disk_id)) is not None:
            await busy.wait()

    async def _discard(self, uid: int, owned: Belongings) -> None:
        if owned.disk is not None and self._host.disks is not None:
            await self._host.disks.delete(owned.disk.id)
        if owned.project_id:
            await self.projects.delete(owned.project_id)
        self._host.uids.give_back(uid)

    async def keep(self, kept: Sequence[Belongings]) -> None:
        """At the start of the daemon: this of earlier sandboxes stays, all else goes."""
        disks = [one.disk for one in kept if one.disk is not None]
        for disk in disks:
            self._host.uids.reserve(disk.uid)
        if self._host.disks is not None:
            await self._host.disks.sweep([disk.id for disk in disks])
        await self.projects.sweep([one.project_id for one in kept])

    async def sweep(self) -> int:
        """Remove containers of this daemon that nobody holds; returns how many."""
        self.left_behind.clear()
        found = await self._engine.list_containers(self._labels)
        orphans = [
            container
            for container in found
            if container.id not in self._held and container.name not in self._making
        ]
        for orphan in orphans:
            await self._engine.remove(orphan.id)
        lingering, self._lingering = self._lingering, []
        for sandbox, keep in lingering:
            await self._settle(sandbox, keep, is_removed=True)
        self._sweep_links()
        return len(orphans)

    def _sweep_links(self) -> None:
        """Remove the directories of sandboxes that a killed daemon had."""
        used = {*self._held.values(), *(sandbox.id for sandbox, _ in self._lingering)}
        for directory in self._settings.links_dir.glob("*"):
            if directory.name not in used and self._name(directory.name) not in self._making:
                shutil.rmtree(directory, ignore_errors=True)

    # --- what it looks like ---

    def _spec(self, place: _Place, image: _Image, attached: AttachedDisk | None) -> ContainerSpec:
        settings = self._settings
        cgroups = self._host.cgroups
        is_separate = cgroups is not None and cgroups.separates
        workspace = (
            [BindMount(source=attached.path, target=settings.workspace_dir, writable=True)]
            if attached
            else []
        )
        is_limited = attached is not None and settings.write_bytes_per_second > 0
        return ContainerSpec(
            name=self._name(place.sandbox_id),
            image=image.id,
            argv=GUEST_ARGV,
            labels=self._labels,
            uid=place.uid,
            hostname=HOSTNAME,
            memory_bytes=settings.memory_bytes + GUEST_MEMORY,
            pids=settings.max_processes + GUEST_PROCESSES,
            # On the container it would slow the guest down as well, so only where it has to be.
            cpu_quota_us=0 if is_separate else settings.cpu_quota_us,
            nofile=settings.max_open_files,
            max_file_bytes=settings.max_file_bytes,
            network_mode=settings.network_mode,
            runtime=settings.runtime,
            seccomp=settings.seccomp,
            write_bytes_per_second=(
                {attached.device: settings.write_bytes_per_second}
                if attached and is_limited
                else {}
            ),
            binds=(
                BindMount(source=settings.runtime_dir, target="/.sandboxd"),
                BindMount(source=settings.guest_dir, target="/.sandboxd/guest"),
                BindMount(source=place.directory, target="/.sandboxd/link"),
                *self._write_etc(place.directory, place.uid, image),
                *workspace,
                BindMount(
                    source=self.projects.path(place.owned.project_id),
                    target=f"{settings.workspace_dir}/{PROJECT_FILES}",
                ),
            ),
            tmpfs=self._tmpfs(place.uid, image, has_workspace=attached is None),
            masked_paths=MASKED_PATHS,
            readonly_paths=READONLY_PATHS,
        )

    def _write_etc(self, directory: Path, uid: int, image: _Image) -> Sequence[BindMount]:
        name, home = self._settings.user, self._settings.workspace_dir
        files = {
            "passwd": accounts.passwd(image.passwd, name=name, uid=uid, home=home),
            "group": accounts.group(image.group, name=name, gid=uid),
            # The engine's own would show the container's id, as part of where they come from.
            "hostname": f"{HOSTNAME}\n",
            "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
            "resolv.conf": "",
        }
        for file, text in files.items():
            (directory / file).write_text(text)
        return [BindMount(source=directory / file, target=f"/etc/{file}") for file in files]

    def _tmpfs(self, uid: int, image: _Image, *, has_workspace: bool) -> Sequence[TmpfsMount]:
        settings = self._settings
        small = {"/tmp", *image.volumes} - {settings.workspace_dir}
        areas = [
            (target, settings.tmp_bytes, settings.tmp_files, 0o1777) for target in sorted(small)
        ]
        if has_workspace:
            size, files = settings.workspace_bytes, settings.workspace_files
            areas.append((settings.workspace_dir, size, files, 0o755))
        return [
            TmpfsMount(
                target=target,
                size_bytes=size_bytes,
                max_files=max_files,
                uid=uid,
                mode=mode,
                executable=True,
            )
            for target, size_bytes, max_files, mode in areas
        ]


@dataclass(frozen=True)
class _Place:
    """What a sandbox has of its own before there is a container."""

    sandbox_id: str
    directory: Path
    """Of its link."""
    uid: int
    owned: Belongings


@dataclass(frozen=True)
class _Image:
    """What is known of the image of all sandboxes."""

    id: ImageId
    passwd: str
    group: str
    volumes: tuple[str, ...]
    """Directories that would be volumes without a limit, if nothing else were mounted there."""


async def _to_its_end(
    work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[None]] | None = None
) -> T:
    """What it returns. A cancel comes through when it is over and undone: a container whose answer
    is lost would be lost itself."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(SandboxdError):
            result = await task
            if undo is not None:
                await undo(result)
        raise
