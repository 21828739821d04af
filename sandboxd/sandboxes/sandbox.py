"""A sandbox: a container with a guest that answers, used by one session and then destroyed."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from sandboxd.doors.sandbox_doors import DoorFailed, SandboxDoors
from sandboxd.engine.contract import ContainerId
from sandboxd.environments.environment import Environment
from sandboxd.errors import EngineFailed, SandboxLost
from sandboxd.isolation.attachment import AttachFailed, Attachment
from sandboxd.isolation.cgroups import CodeLimits, CommandGroup
from sandboxd.isolation.host_process import Pinned
from sandboxd.isolation.meter import DiskGauges, Meter
from sandboxd.isolation.namespaces import EnterFailed
from sandboxd.isolation.quota import Quota
from sandboxd.link import GuestLink
from sandboxd.sandboxes.kept_files import Claim, KeptFiles
from sandboxd.snapshots.keeper import thaw
from sandboxd.workspaces.disks import Disk
from sandboxd.workspaces.thread_work import run_in_thread

log = structlog.get_logger()

ATTACH_SECONDS = 10.0
"""How long the kernel may take to attach directories; it takes about a millisecond."""

ENTER_SECONDS = 10.0
"""How long the kernel may take to make a socket inside; it takes well under a millisecond."""


class Sandbox:
    """A running sandbox. It is lost at the first sign that its guest is gone or lies."""

    def __init__(self, environment: Environment, claim: Claim, container_id: ContainerId) -> None:
        self.environment = environment
        self.claim = claim
        self.container_id = container_id
        self.link = GuestLink(
            on_closed=self._on_link_closed,
            on_place=self._on_place,
            on_code_parent=self._on_code_parent,
        )
        self.code_limits: CodeLimits | None = None
        """Limits of contexts, from their first use on."""
        self.process: Pinned | None = None
        self.pid = 0
        """Of its first process, on the host; 0 before there is one."""
        self.meter: Meter | None = None
        self.is_untouched = True
        """Whether no session has used it: no command ran, so its workspace is as we made it."""
        self.doors = SandboxDoors(self._make_inside)
        self._group: CommandGroup | None = None
        self._placing: asyncio.Task[None] | None = None
        self._code_placing: asyncio.Task[None] | None = None
        self._lost_callbacks: list[Callable[[str], None]] = []
        self._is_to_be_frozen = False
        self._freezing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Sandbox {self.id} {'lost' if self.is_lost else 'ready'}>"

    @property
    def id(self) -> str:
        return self.claim.sandbox_id

    @property
    def uid(self) -> int:
        return self.claim.uid

    @property
    def kept_files(self) -> KeptFiles:
        return self.claim.files

    @property
    def disk(self) -> Disk | None:
        return self.kept_files.disk

    @property
    def is_lost(self) -> bool:
        return not self.link.is_open

    @property
    def lost_because(self) -> str | None:
        return self.link.closed_because

    def when_lost(self, callback: Callable[[str], None]) -> None:
        """Call back once, with the reason, when the guest is gone, or at once if it is."""
        if self.link.closed_because is not None:
            callback(self.link.closed_because)
        else:
            self._lost_callbacks.append(callback)

    def measure(self, group: CommandGroup, disks: DiskGauges | None, quota: Quota | None) -> None:
        """Start to count use, and to move shells into the group when the guest asks for it."""
        self._group = group
        self.meter = Meter(group, disks, quota)

    def limit_writes(self, device: int, bytes_per_second: int) -> None:
        """Limit what it writes to a device; OSError if that fails."""
        if self._group is None:
            raise OSError(errno.ENOTSUP, "its commands are not in cgroups")
        self._group.limit_writes(device, bytes_per_second)

    async def attach(self, attachments: Sequence[Attachment]) -> None:
        """Show directories of the host in it, before its first command.

        If that fails the sandbox may have some of them: destroy it.
        """
        if not attachments:
            return
        if self.process is None:
            raise SandboxLost("it has no process")
        try:
            await run_in_thread(partial(self.process.attach, attachments), seconds=ATTACH_SECONDS)
        except (AttachFailed, TimeoutError) as error:
            log.error("sandbox.not_attached", sandbox_id=self.id, error=str(error))
            raise EngineFailed(
                "The host could not show directories in a sandbox; see the daemon's log and "
                "`sandboxd doctor`.",
                retry_after_seconds=2.0,
            ) from error

    async def _make_inside(self, make: Callable[[], socket.socket]) -> socket.socket:
        """See Inside."""
        if self.process is None:
            raise DoorFailed("the sandbox has no process")
        work = partial(self.process.in_network, make)
        try:
            return await run_in_thread(work, seconds=ENTER_SECONDS, undo=socket.socket.close)
        except (EnterFailed, ProcessLookupError) as error:
            raise DoorFailed(f"{error}; `sandboxd doctor` reports what the daemon lacks") from error

    async def thaw(self, workspace_dir: str) -> None:
        """Let its commands write again, should an earlier daemon have been killed, together with
        the process that would have done this, while it had stopped them for a snapshot."""
        if self.disk is None or self.process is None:
            return
        try:
            directory = self.process.open_directory(workspace_dir)
        except OSError:  # it is gone, which is noticed elsewhere
            return
        try:
            if await run_in_thread(partial(thaw, directory), seconds=ATTACH_SECONDS):
                log.warning("sandbox.thawed", sandbox_id=self.id)
        finally:
            os.close(directory)

    @property
    def is_frozen(self) -> bool:
        """Whether its commands are stopped, are about to be, or are about to go on."""
        return self._is_to_be_frozen or self._freezing is not None

    def freeze_commands(self, *, is_frozen: bool) -> None:
        """Stop its commands where they are, soon, or let them go on. The guest lives meanwhile."""
        self._is_to_be_frozen = is_frozen
        if self._freezing is None and self._group is not None and not self.is_lost:
            self._freezing = asyncio.get_running_loop().create_task(self._keep_as_wanted())

    async def _keep_as_wanted(self) -> None:
        """In a thread: the kernel may take milliseconds for each process."""
        assert self._group is not None
        group, is_frozen = self._group, None
        try:
            while is_frozen is not self._is_to_be_frozen:
                is_frozen = self._is_to_be_frozen
                await asyncio.to_thread(self._freeze if is_frozen else group.thaw)
        except OSError as error:
            if not self.is_lost:
                log.error("sandbox.not_frozen", sandbox_id=self.id, error=str(error))
        finally:
            self._freezing = None
            if self.is_lost:
                group.kill_frozen()

    def _freeze(self) -> None:
        """In a thread, which may have waited for its turn while the sandbox was given up."""
        assert self._group is not None
        if self.is_lost or not self._is_to_be_frozen:
            return
        try:
            self._group.freeze()
        finally:
            if self.is_lost:
                self._group.kill_frozen()

    def cut_off(self, why: str) -> bool:
        """Stop trusting this sandbox: close its doors, kill its first process, close the link.

        Returns whether the process was killed.
        """
        self.doors.close()
        if self.meter is not None:
            self.meter.lift_quota()
        is_killed = self.process is not None and self.process.kill()
        if self.is_frozen and self._group is not None:
            self._is_to_be_frozen = False
            self._group.kill_frozen()
        self.link.close(why)
        return is_killed

    def leave_running(self) -> None:
        """Disconnect and leave it running, for the next daemon."""
        self.link.detach()
        self.close()

    def close(self) -> None:
        """Close the files that the daemon holds open for it."""
        self.doors.close()
        if self.meter is not None:
            self.meter.close()
        if self.process is not None:
            self.process.close()

    def _on_place(self) -> None:
        self._placing = asyncio.get_running_loop().create_task(self._place())

    async def _place(self) -> None:
        """Move new shells into the commands' cgroup; a sandbox where that fails is cut off."""
        try:
            if self._group is not None:
                await asyncio.to_thread(self._group.admit)
            self.link.placed()
        except Exception as error:
            log.error("sandbox.not_placed", sandbox_id=self.id, exc_info=error)
            self.cut_off("its commands could not be given their limits")

    def limit_code(self, limits: CodeLimits) -> None:
        """Set the limits of contexts, now if there are any."""
        self.code_limits = limits
        if self._group is not None and self._group.has_code:
            try:
                self._group.limit_code(limits)
            except OSError as error:
                log.warning("sandbox.code_not_limited", sandbox_id=self.id, error=str(error))

    def _on_code_parent(self, inner_pid: int) -> None:
        task = asyncio.get_running_loop().create_task(self._place_code_parent(inner_pid))
        self._code_placing = task

    async def _place_code_parent(self, inner_pid: int) -> None:
        """Give contexts their limits before there is one; a sandbox where that fails is cut off."""
        try:
            if self._group is not None and self.code_limits is not None:
                await asyncio.to_thread(self._group.limit_code, self.code_limits)
                await asyncio.to_thread(self._group.place_code_parent, inner_pid)
            self.link.code_parent_placed()
        except Exception as error:
            log.error("sandbox.code_not_placed", sandbox_id=self.id, exc_info=error)
            self.cut_off("its contexts could not be given their limits")

    def _on_link_closed(self, why: str) -> None:
        callbacks, self._lost_callbacks = self._lost_callbacks, []
        for callback in callbacks:
            callback(why)
