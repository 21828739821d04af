"""Makes, adopts and destroys sandboxes, and sweeps the containers that no sandbox holds."""

from __future__ import annotations

import asyncio
import errno
import secrets
import shutil
from collections import defaultdict
from collections.abc import (
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import structlog

from sandboxd.engine.contract import ContainerId, Engine, ImageId
from sandboxd.environments.environment import Environment
from sandboxd.errors import DiskSpaceLow, EngineFailed, ImageNotFound, SandboxdError
from sandboxd.guest.frames import ExecState
from sandboxd.isolation import terminals
from sandboxd.isolation.attachment import Attachment, Owner, Way
from sandboxd.isolation.cgroups import CPU_PERIOD_US, CommandGroup
from sandboxd.isolation.kernel_memory import KernelMemoryWatch
from sandboxd.isolation.meter import DiskGauge, DiskGauges
from sandboxd.isolation.quota import Quota
from sandboxd.link import GuestListener, LinkClosed, patient_timeout, peer_pid
from sandboxd.sandboxes import container, open_files, programs
from sandboxd.sandboxes.container import Image, SandboxParts
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.kept_files import Claim, KeptFiles, KeptFilesStore
from sandboxd.sandboxes.programs import Program
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.tasks import run_to_end
from sandboxd.workspaces.disks import AttachedDisk, DiskDamaged, TemporaryDisk
from sandboxd.workspaces.layout import PROJECT_FILES

log = structlog.get_logger()

T = TypeVar("T")

ADOPT_SECONDS = 10.0
"""How long the greeting of an earlier daemon's guest may take; it dials again after that."""
ADOPTIONS_AT_ONCE = 16
"""Guests that are greeted at the same time; those that have not dialled yet do not count."""
REMOVALS_AT_ONCE = 8
"""Containers that the engine removes at the same time: more make each slower, and none earlier."""
GONE_SECONDS = 5.0
"""How long to wait for the last process of a removed sandbox to end."""
_ACCOUNT_FILES = ("/etc/passwd", "/etc/group")


class Adopted(NamedTuple):
    """A sandbox that outlived its daemon, with the execs that its guest has."""

    sandbox: Sandbox
    states: Mapping[int, ExecState]


class NotMoved(Exception):
    """A kept disk could not be moved into a sandbox; the text says why."""


class SandboxMaker:
    """Makes sandboxes and destroys them. A make that fails half-way is cleaned up."""

    def __init__(self, engine: Engine, settings: SandboxSettings, host: Host) -> None:
        self._engine = engine
        self.settings = settings
        self._host = host
        self.kept_files = KeptFilesStore(
            settings.projects_dir,
            host.uids,
            host.disks,
            wait_seconds=settings.start_seconds,
            unknown_seconds=settings.unknown_seconds,
        )
        self._images: dict[str, Image] = {}
        """Images by the name that environments have for them, pinned at the first start so that a
        retag does not change what sessions get, until the engine no longer has them."""
        self._image_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._held: dict[ContainerId, str] = {}
        """Containers of sandboxes, with the sandbox's id; the sweep leaves them alone."""
        self._making: set[str] = set()
        """Names of containers that are being made, or only read from."""
        self._awaited: set[str] = set()
        """Ids of sandboxes of an earlier daemon that may still be adopted; the sweep leaves them
        alone."""
        self._adoptions = asyncio.Semaphore(ADOPTIONS_AT_ONCE)
        self._removals = asyncio.Semaphore(REMOVALS_AT_ONCE)
        self._lingering: list[tuple[Sandbox, bool]] = []
        """Destroyed sandboxes whose last process may still run, and whether to keep their files."""
        self.left_behind = asyncio.Event()
        """Set while there is work for the sweep that should not wait for its interval."""

    def image_id(self, environment: Environment) -> ImageId | None:
        """The image that sandboxes of an environment get; None before the first of them."""
        image = self._images.get(environment.image)
        return image.id if image else None

    @property
    def kernel_memory(self) -> KernelMemoryWatch | None:
        """Ends sandboxes that hold too much of the kernel's memory, if the daemon may."""
        return self._host.kernel_memory

    @property
    def can_attach(self) -> bool:
        """Whether directories of the host can be attached to a sandbox that runs."""
        return self._host.attaching.way is Way.ATTACHED

    @property
    def can_move_disks(self) -> bool:
        """Whether a kept disk can take the place of the one that a warm sandbox has."""
        has_disks = self._host.disks is not None
        return has_disks and self.can_attach and not self._host.moving_problem

    async def make(
        self,
        environment: Environment,
        kept: KeptFiles | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> Sandbox:
        """Start a sandbox that shows these directories, and wait until its guest takes commands.

        With new files, or with those that an earlier sandbox left, which stay if this fails.
        """
        sandbox_id = secrets.token_hex(8)
        with self._being_made(self._name(sandbox_id)):
            await open_files.check_room()
            image = await self._find_image(environment)
            try:
                return await self._start(sandbox_id, environment, image, kept, attachments)
            except ImageNotFound as error:
                # The next start takes the image that has the name by then.
                self._images.pop(environment.image, None)
                raise ImageNotFound(environment.image) from error
            except DiskDamaged:
                raise
            except (OSError, LinkClosed) as error:  # a TimeoutError is an OSError
                raise _start_error(error) from error

    async def run(self, environment: Environment, program: Program) -> int:
        """Run one program in a container of an environment and wait for its end; returns its exit
        code. EngineFailed if it takes too long."""
        name = self._name(secrets.token_hex(8))
        with self._being_made(name):
            image = await self._find_image(environment)
            spec = programs.spec(self.settings, image, program, name=name)
            container_id = await run_to_end(self._engine.create(spec), undo=self._engine.remove)
            try:
                await self._engine.start(container_id)
                return await self._engine.wait(container_id, seconds=program.seconds)
            finally:
                await run_to_end(self._remove_program(container_id))

    async def _remove_program(self, container_id: ContainerId) -> None:
        try:
            await self._engine.remove(container_id)
        except SandboxdError as error:
            log.warning("program.left_behind", container_id=container_id, error=str(error))
            self.left_behind.set()

    @contextmanager
    def _being_made(self, name: str) -> Iterator[None]:
        """Keep the sweep away from a container that belongs to no sandbox yet."""
        self._making.add(name)
        try:
            yield
        finally:
            self._making.discard(name)

    async def _start(
        self,
        sandbox_id: str,
        environment: Environment,
        image: Image,
        kept: KeptFiles | None,
        attachments: Sequence[Attachment],
    ) -> Sandbox:
        bound = () if self.can_attach else attachments
        claim = await self.kept_files.claim(sandbox_id, environment.disk_size, kept)
        sandbox: Sandbox | None = None
        try:
            async with (
                self.kept_files.attached(claim.files) as disk,
                self._temporary_disk(environment) as temporary,
            ):
                with GuestListener(self._link_dir(sandbox_id), claim.uid) as listener:
                    container_id = await self._create(
                        environment, image, claim, disk, temporary, bound
                    )
                    sandbox = Sandbox(environment, claim, container_id)
                    self._held[container_id] = sandbox_id
                    async with patient_timeout(self.settings.start_seconds):
                        await self._engine.start(container_id)
                        await self._connect(sandbox, listener)
            if not bound:
                await sandbox.attach(attachments)
            return sandbox
        except BaseException:
            # Shielded: a cancel must not stop the clean-up of what it interrupted.
            await asyncio.shield(self._clean_up(claim, sandbox, keep=kept is not None))
            raise

    async def move_in(self, sandbox: Sandbox, kept: KeptFiles) -> None:
        """Give kept files on a disk to a warm sandbox, in place of its own, which are deleted.

        DiskDamaged, with nothing changed, if the disk is. NotMoved, or a cancel, may leave it with
        either: destroy it, and keep the files if they are the kept ones.
        """
        if not sandbox.is_untouched:
            raise AssertionError("a disk is moved only before the first command")
        try:
            own = sandbox.claim
            moved = await self.kept_files.claim_instead(own, kept)
            try:
                async with self.kept_files.attached(moved.files) as disk:
                    assert disk is not None
                    # The kernel may show it from here on, whatever else happens: it is handed back
                    # when the sandbox is gone.
                    sandbox.claim = moved
                    await self._show_disk(sandbox, disk)
            finally:
                is_moved = sandbox.claim is moved
                self.kept_files.let_go(own if is_moved else moved, keep=not is_moved)
            if sandbox.meter is not None:
                sandbox.meter.look_at(self._gauges(sandbox))
            sandbox.link.workspace_moved()
        except DiskDamaged:
            raise
        except (OSError, LinkClosed, SandboxdError) as error:  # a TimeoutError is an OSError
            raise NotMoved(str(error)) from error

    async def _show_disk(self, sandbox: Sandbox, disk: AttachedDisk) -> None:
        """Mount a disk as the workspace, and the project files in it."""
        bytes_per_second = sandbox.environment.write_bytes_per_second
        if bytes_per_second:
            sandbox.limit_writes(disk.path.stat().st_dev, bytes_per_second)
        files, workspace = sandbox.kept_files, self.settings.workspace_dir
        assert files.disk is not None
        owner = Owner(on_disk=files.disk.uid, inside=sandbox.uid)
        project = self.kept_files.project_dir(files)
        await sandbox.attach(
            [
                Attachment(disk.path, workspace, owner),
                Attachment(project, f"{workspace}/{PROJECT_FILES}"),
            ]
        )

    def _temporary_disk(
        self, environment: Environment
    ) -> AbstractAsyncContextManager[TemporaryDisk | None]:
        if self._host.disks is None:
            return nullcontext()
        return self._host.disks.temporary(environment.temporary_disk_size)

    async def _create(
        self,
        environment: Environment,
        image: Image,
        claim: Claim,
        disk: AttachedDisk | None,
        temporary: TemporaryDisk | None,
        bound: Sequence[Attachment],
    ) -> ContainerId:
        link_dir = self._link_dir(claim.sandbox_id)
        parts = SandboxParts(
            sandbox_id=claim.sandbox_id,
            uid=claim.uid,
            link_dir=link_dir,
            etc_files=self._write_etc(link_dir, image, claim.uid),
            project_dir=self.kept_files.project_dir(claim.files),
            disk=disk,
            temporary=temporary,
            bound=bound,
        )
        spec = container.spec(self.settings, environment, image, parts, limits_cpu=self._limits_cpu)
        return await run_to_end(self._engine.create(spec), undo=self._engine.remove)

    async def _clean_up(self, claim: Claim, sandbox: Sandbox | None, *, keep: bool) -> None:
        """Remove what a failed start has left."""
        if sandbox is not None:
            await self.destroy(sandbox, keep=keep)
        else:
            shutil.rmtree(self._link_dir(claim.sandbox_id), ignore_errors=True)
            await self.kept_files.hand_back(claim, keep=keep)

    async def _find_image(self, environment: Environment) -> Image:
        async with self._image_locks[environment.image]:
            if (known := self._images.get(environment.image)) is not None:
                return known
            image_id = await self._engine.image_id(environment.image)
            passwd, group = [await self.read_file(image_id, path) for path in _ACCOUNT_FILES]
            volumes = await self._engine.volumes(image_id)
            image = Image(id=image_id, passwd=passwd, group=group, volumes=volumes)
            self._images[environment.image] = image
            return image

    async def read_file(self, image: ImageId, path: str) -> str:
        """A small text file of an image; empty if it has none."""
        name = self._name(secrets.token_hex(8))
        with self._being_made(name):
            # To the end: it makes a container, and removes it afterwards.
            data = await run_to_end(
                self._engine.read_file(image, path, name=name, labels=self._labels)
            )
        return data.decode(errors="replace")

    def _name(self, sandbox_id: str) -> str:
        return container.name(self.settings.instance, sandbox_id)

    def _link_dir(self, sandbox_id: str) -> Path:
        return self.settings.links_dir / sandbox_id

    @property
    def _labels(self) -> Mapping[str, str]:
        return container.labels(self.settings.instance)

    async def _connect(self, sandbox: Sandbox, listener: GuestListener) -> Mapping[int, ExecState]:
        """Accept the one connection that comes from the container's first process, and greet it."""
        loop = asyncio.get_running_loop()
        expected = 0
        while True:
            peer = await listener.accept()
            try:
                if not expected:
                    found = await self._engine.inspect(sandbox.container_id)
                    expected = found.pid if found else 0
                if expected and peer_pid(peer) == expected:
                    sandbox.process, sandbox.pid = self._host.pin(expected), expected
                    await loop.connect_accepted_socket(lambda: sandbox.link, peer)
                    break
            except BaseException:
                peer.close()
                raise
            peer.close()
        return await sandbox.link.greet(lambda: self._set_up(sandbox, expected))

    # --- sandboxes of an earlier daemon ---

    async def find_running(self) -> Mapping[str, ContainerId]:
        """The running containers of this daemon, and of one before it, by their sandbox's id."""
        prefix = self._name("")
        found = await self._engine.list_containers(self._labels)
        return {
            listed.name.removeprefix(prefix): listed.id for listed in found if listed.is_running
        }

    def expect(self, claim: Claim) -> None:
        """Reserve uid and files of an earlier daemon's sandbox until it is adopted or given up."""
        self.kept_files.restore(claim)
        self._awaited.add(claim.sandbox_id)

    async def adopt(
        self, environment: Environment, claim: Claim, container_id: ContainerId
    ) -> Adopted:
        """Take over an expected sandbox once its guest dials; LinkClosed if that breaks off.

        What fails because the host or the engine is busy is repeated: the guest dials again.
        """
        with GuestListener(self._link_dir(claim.sandbox_id), claim.uid) as listener:
            while True:
                await listener.dialled()
                async with self._adoptions:
                    try:
                        return await self._adopt(environment, claim, container_id, listener)
                    except (OSError, SandboxdError) as error:  # a TimeoutError is an OSError
                        log.warning(
                            "sandbox.not_adopted_yet",
                            sandbox_id=claim.sandbox_id,
                            error=repr(error),
                        )

    async def _adopt(
        self,
        environment: Environment,
        claim: Claim,
        container_id: ContainerId,
        listener: GuestListener,
    ) -> Adopted:
        sandbox = Sandbox(environment, claim, container_id)
        try:
            async with patient_timeout(ADOPT_SECONDS):
                states = await self._connect(sandbox, listener)
                await sandbox.thaw(self.settings.workspace_dir)
                await self._thaw(container_id)
        except BaseException:
            sandbox.leave_running()
            raise
        self._held[container_id] = sandbox.id
        self._awaited.discard(sandbox.id)
        return Adopted(sandbox, states)

    async def give_up(
        self, environment: Environment, claim: Claim, container_id: ContainerId | None
    ) -> None:
        """Remove what is left of an expected sandbox, but keep its files."""
        sandbox = Sandbox(environment, claim, container_id or ContainerId(""))
        if container_id is not None:
            await self._thaw(container_id, kills=True)
        is_removed = container_id is None or await self._remove(sandbox)
        self._awaited.discard(sandbox.id)
        await self._hand_back(sandbox, keep=True, is_removed=is_removed)

    async def _thaw(self, container_id: ContainerId, *, kills: bool = False) -> None:
        """An earlier daemon that was cut off from its cluster may have stopped its commands."""
        if self._host.cgroups is None:
            return
        thaw = partial(self._host.cgroups.thaw, container_id, kills=kills)
        if await asyncio.to_thread(thaw):
            log.warning("sandbox.commands_thawed", container_id=container_id[:12], killed=kills)

    def stop_expecting(self) -> None:
        """Leave the sandboxes that are still expected to the sweep."""
        self._awaited.clear()

    async def _set_up(self, sandbox: Sandbox, pid: int) -> Mapping[str, object]:
        """Set the limits of commands, before there is one; returns the guest's settings."""
        environment, cgroups = sandbox.environment, self._host.cgroups
        group: CommandGroup | None = None
        has_quota = False
        if cgroups is not None:
            # In a thread: the kernel may take 20 ms for a move.
            group = await asyncio.to_thread(cgroups.open, pid, environment.command_limits)
            has_quota = environment.cpu_quota_us > 0 and cgroups.separates
            quota = Quota(group, environment.cpu_quota_us) if has_quota else None
            sandbox.measure(group, self._gauges(sandbox), quota)
            await asyncio.to_thread(group.admit)
            if cgroups.separates:
                self._limit_terminals(pid)
            if self._host.kernel_memory is not None:
                self._host.kernel_memory.add(pid, sandbox, group)
        return {
            **container.guest_settings(
                self.settings, environment, has_disk=sandbox.disk is not None
            ),
            "asks_to_place": group is not None and group.asks,
            "is_first_victim": cgroups is not None and not cgroups.separates,
            # As much as commands have, beside them.
            "worker_share": environment.cpu_quota_us / CPU_PERIOD_US if has_quota else 0.0,
        }

    @property
    def _limits_cpu(self) -> bool:
        """Whether only the container as a whole can have a quota of processor time."""
        return self._host.cgroups is None or not self._host.cgroups.separates

    def _write_etc(self, directory: Path, image: Image, uid: int) -> Collection[str]:
        files = container.etc_files(self.settings, image, uid)
        for file, text in files.items():
            (directory / file).write_text(text)
        return files.keys()

    def _limit_terminals(self, pid: int) -> None:
        try:
            terminals.limit(pid)
        except OSError as error:  # a kernel before 5.2, or a runtime with another /dev
            log.warning("sandbox.terminals_unlimited", error=str(error))

    def _gauges(self, sandbox: Sandbox) -> DiskGauges | None:
        areas = container.areas(
            self.settings, sandbox.environment, on_disk=sandbox.disk is not None
        )
        with ExitStack() as opened:
            gauges: list[DiskGauge] = []
            for area in areas:
                try:
                    gauges.append(DiskGauge(pid=sandbox.pid, **area._asdict()))
                except FileNotFoundError:  # of a sandbox that an earlier release made
                    continue
                except PermissionError:  # only root may look into a sandbox
                    return None
                opened.callback(gauges[-1].close)
            opened.pop_all()
        return DiskGauges(gauges[0], gauges[1:])

    # --- ends ---

    async def destroy(self, sandbox: Sandbox, *, keep: bool = False) -> None:
        """Remove the container, and its files unless they are to be kept.

        A container that the engine does not remove now is left to the sweep.
        """
        sandbox.cut_off("the sandbox was destroyed")
        if sandbox.meter is not None:
            sandbox.meter.close()  # it holds the workspace's filesystem
        is_removed = await self._remove(sandbox)
        self._held.pop(sandbox.container_id, None)
        await self._hand_back(sandbox, keep, is_removed)

    async def _remove(self, sandbox: Sandbox) -> bool:
        try:
            async with self._removals:
                await self._engine.remove(sandbox.container_id)
        except SandboxdError as error:
            log.warning("sandbox.left_behind", sandbox_id=sandbox.id, error=str(error))
            self.left_behind.set()
            return False
        return True

    async def _hand_back(self, sandbox: Sandbox, keep: bool, is_removed: bool) -> None:
        """Free its uid and its files once it has no process left: the next user of the uid would be
        mistaken for it, or share its limits."""
        if sandbox.process is not None:
            is_removed = await sandbox.process.gone(GONE_SECONDS)
        if not is_removed:
            self._lingering.append((sandbox, keep))
            return
        sandbox.close()
        shutil.rmtree(self._link_dir(sandbox.id), ignore_errors=True)
        await self.kept_files.hand_back(sandbox.claim, keep=keep)

    async def sweep(self) -> int:
        """Remove containers of this daemon that no sandbox has; returns how many."""
        self.left_behind.clear()
        await self._release_forgotten()
        found = await self._engine.list_containers(self._labels)
        spared = self._making | {self._name(sandbox_id) for sandbox_id in self._awaited}
        orphans = [
            listed.id
            for listed in found
            if listed.id not in self._held and listed.name not in spared
        ]
        await self._remove_orphans(orphans)
        lingering, self._lingering = self._lingering, []
        for sandbox, keep in lingering:
            await self._hand_back(sandbox, keep, is_removed=True)
        self._sweep_links()
        return len(orphans)

    async def _release_forgotten(self) -> None:
        """Let commands die that were stopped in containers which the engine has removed since: they
        would keep their disks. They are known as this daemon's own by their uids."""
        if self._host.cgroups is None:
            return
        found = await asyncio.to_thread(self._host.cgroups.frozen)
        frozen = {
            one for one, uids in found.items() if uids and all(map(self._host.uids.has, uids))
        }
        if frozen:
            known = {listed.id for listed in await self._engine.list_containers({})}
            for container_id in frozen - known:
                await self._thaw(ContainerId(container_id), kills=True)

    async def _remove_orphans(self, orphans: Sequence[ContainerId]) -> None:
        """Remove all that can be removed; then the first error is raised."""

        async def remove(container_id: ContainerId) -> None:
            async with self._removals:
                await self._thaw(container_id, kills=True)
                await self._engine.remove(container_id)

        results = await asyncio.gather(*map(remove, orphans), return_exceptions=True)
        for error in filter(None, results):
            raise error

    def _sweep_links(self) -> None:
        """Remove link directories that a killed daemon left."""
        lingering = {sandbox.id for sandbox, _ in self._lingering}
        used = {*self._held.values(), *self._awaited, *lingering}
        for directory in self.settings.links_dir.glob("*"):
            if directory.name not in used and self._name(directory.name) not in self._making:
                shutil.rmtree(directory, ignore_errors=True)


def _start_error(error: OSError | LinkClosed) -> SandboxdError:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return DiskSpaceLow()
    return EngineFailed(
        "A sandbox was started but its guest did not answer; see the daemon's log.",
        retry_after_seconds=2.0,
    )
