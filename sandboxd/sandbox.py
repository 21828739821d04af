"""A sandbox: a container with a guest that answers, used by one session and then destroyed."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from sandboxd.engine.contract import (
    BindMount,
    ContainerId,
    ContainerSpec,
    Engine,
    ImageId,
    TmpfsMount,
)
from sandboxd.errors import EngineFailed, SandboxdError
from sandboxd.isolation.host_process import HostProcess, Pinned
from sandboxd.isolation.uids import UidRange
from sandboxd.isolation.visibility import MASKED_PATHS, READONLY_PATHS
from sandboxd.link import GuestLink, LinkClosed

log = structlog.get_logger()

INSTANCE_LABEL = "sandboxd.instance"
GUEST_ARGV = (
    "/.sandboxd/bin/python3.11",
    "-I",
    "-S",
    "-c",
    "import sys; sys.path.insert(0, '/.sandboxd'); from guest.pid1 import main; main()",
)
_PEER_CREDENTIALS = struct.Struct("3i")


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
    workspace_dir: str
    workspace_bytes: int
    workspace_files: int
    memory_bytes: int
    cpu_quota_us: int
    max_processes: int
    max_open_files: int
    start_seconds: float = 30.0
    """From the engine's start to a guest that takes commands."""
    tmp_bytes: int = 16 << 20
    tmp_files: int = 4096


class Sandbox:
    """A running sandbox. Lost at the first sign that its guest is gone or lies."""

    def __init__(self, sandbox_id: str, container_id: ContainerId, uid: int) -> None:
        self.id = sandbox_id
        self.container_id = container_id
        self.uid = uid
        self.link = GuestLink(on_closed=self._on_link_closed)
        self.process: Pinned | None = None
        self._lost_callbacks: list[Callable[[str], None]] = []

    def __repr__(self) -> str:
        return f"<Sandbox {self.id} {'lost' if self.is_lost else 'ready'}>"

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

    def cut_off(self, why: str) -> None:
        """Stop trusting this sandbox: kill its first process and drop the link."""
        if self.process is not None:
            self.process.kill()
        self.link.close(why)

    def _on_link_closed(self, why: str) -> None:
        callbacks, self._lost_callbacks = self._lost_callbacks, []
        for callback in callbacks:
            callback(why)


class SandboxMaker:
    """Starts sandboxes and destroys them. Whatever fails half-way is cleaned up."""

    def __init__(
        self,
        engine: Engine,
        settings: SandboxSettings,
        uids: UidRange,
        *,
        pin: Callable[[int], Pinned] = HostProcess,
    ) -> None:
        self._engine = engine
        self._pin = pin
        self._settings = settings
        self._uids = uids
        self._image_id: ImageId | None = None
        self._held: set[ContainerId] = set()
        """Containers that a sandbox object stands for; the sweep leaves them alone."""
        self._starting = 0

    @property
    def image_id(self) -> ImageId | None:
        """Pinned at the first start, so that a retag does not change what sessions get."""
        return self._image_id

    async def make(self) -> Sandbox:
        """Start a sandbox and wait until its guest takes commands."""
        self._starting += 1
        try:
            return await self._make()
        finally:
            self._starting -= 1

    async def _make(self) -> Sandbox:
        if self._image_id is None:
            self._image_id = await self._engine.image_id(self._settings.image)
        sandbox_id = secrets.token_hex(8)
        directory = self._settings.links_dir / sandbox_id
        uid = self._uids.take()
        sandbox: Sandbox | None = None
        try:
            with _Listener(directory, uid) as listener:
                spec = self._spec(sandbox_id, directory, uid, self._image_id)
                container_id = await self._create(spec)
                sandbox = Sandbox(sandbox_id, container_id, uid)
                self._held.add(container_id)
                async with asyncio.timeout(self._settings.start_seconds):
                    await self._engine.start(container_id)
                    await self._connect(sandbox, listener)
            return sandbox
        except BaseException as error:
            if sandbox is None:
                self._uids.give_back(uid)
            else:
                # Shielded: a cancel must not stop the clean-up of what it interrupted.
                await asyncio.shield(self.destroy(sandbox))
            if isinstance(error, OSError | LinkClosed):  # a TimeoutError is an OSError
                raise EngineFailed(
                    "A sandbox was started but its guest did not answer; see the daemon's log.",
                    retry_after_seconds=2.0,
                ) from error
            raise
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    async def _create(self, spec: ContainerSpec) -> ContainerId:
        """Create, also through a cancel: a lost answer would be a lost container."""
        creating = asyncio.ensure_future(self._engine.create(spec))
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            with suppress(SandboxdError):
                await self._engine.remove(await creating)
            raise

    async def _connect(self, sandbox: Sandbox, listener: socket.socket) -> None:
        """Take the one connection that comes from the container's first process, and greet it."""
        loop = asyncio.get_running_loop()
        expected = 0
        while True:
            peer = await _accept(listener)
            try:
                if not expected:
                    container = await self._engine.inspect(sandbox.container_id)
                    expected = container.pid if container else 0
                if expected and _peer_pid(peer) == expected:
                    sandbox.process = self._pin(expected)
                    await loop.connect_accepted_socket(lambda: sandbox.link, peer)
                    break
            except BaseException:
                peer.close()
                raise
            peer.close()
        await sandbox.link.greet(
            workspace=self._settings.workspace_dir, env={"HOME": self._settings.workspace_dir}
        )

    async def destroy(self, sandbox: Sandbox) -> None:
        """Remove the container; what the engine does not remove now, the sweep does later."""
        sandbox.cut_off("the sandbox was destroyed")
        try:
            await self._engine.remove(sandbox.container_id)
        except SandboxdError as error:
            log.warning("sandbox.left_behind", sandbox_id=sandbox.id, error=str(error))
        finally:
            self._held.discard(sandbox.container_id)
            self._uids.give_back(sandbox.uid)
            if sandbox.process is not None:
                sandbox.process.close()

    async def sweep(self) -> int:
        """Remove containers of this daemon that nobody holds; returns how many."""
        found = await self._engine.list_containers({INSTANCE_LABEL: self._settings.instance})
        orphans = [container for container in found if container.id not in self._held]
        if self._starting:
            # Created but not yet known to us: its maker will hold it in a moment.
            orphans = [
                container for container in orphans if not self._is_being_made(container.name)
            ]
        for orphan in orphans:
            await self._engine.remove(orphan.id)
        return len(orphans)

    def _is_being_made(self, name: str) -> bool:
        return (self._settings.links_dir / name.rpartition("-")[2]).exists()

    def _spec(self, sandbox_id: str, directory: Path, uid: int, image: ImageId) -> ContainerSpec:
        settings = self._settings
        return ContainerSpec(
            name=f"sandboxd-{settings.instance}-{sandbox_id}",
            image=image,
            argv=GUEST_ARGV,
            labels={INSTANCE_LABEL: settings.instance},
            uid=uid,
            hostname="sandbox",
            memory_bytes=settings.memory_bytes,
            pids=settings.max_processes,
            cpu_quota_us=settings.cpu_quota_us,
            nofile=settings.max_open_files,
            network_mode=settings.network_mode,
            runtime=settings.runtime,
            binds=(
                BindMount(source=settings.runtime_dir, target="/.sandboxd"),
                BindMount(source=settings.guest_dir, target="/.sandboxd/guest"),
                BindMount(source=directory, target="/.sandboxd/link"),
            ),
            tmpfs=(
                TmpfsMount(
                    target=settings.workspace_dir,
                    size_bytes=settings.workspace_bytes,
                    max_files=settings.workspace_files,
                    uid=uid,
                    mode=0o755,
                    executable=True,
                ),
                TmpfsMount(
                    target="/tmp",
                    size_bytes=settings.tmp_bytes,
                    max_files=settings.tmp_files,
                    uid=uid,
                    mode=0o1777,
                    executable=True,
                ),
            ),
            masked_paths=MASKED_PATHS,
            readonly_paths=READONLY_PATHS,
        )


async def _accept(listener: socket.socket) -> socket.socket:
    """The next connection. Not loop.sock_accept: a cancel in the right moment would lose one."""
    loop = asyncio.get_running_loop()
    while True:
        with suppress(BlockingIOError):
            return listener.accept()[0]
        readable = asyncio.Event()
        loop.add_reader(listener, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(listener)


def _peer_pid(peer: socket.socket) -> int:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    return int(_PEER_CREDENTIALS.unpack(credentials)[0])


class _Listener:
    """A listening socket in a directory of its own, for as long as the block lasts.

    Unlinked and closed afterwards: a read-only bind does not stop a command from connecting to a
    socket, its absence does.
    """

    def __init__(self, directory: Path, uid: int) -> None:
        self._directory = directory
        self._uid = uid
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> socket.socket:
        try:
            self._listen()
        except BaseException:
            self._socket.close()
            raise
        return self._socket

    def _listen(self) -> None:
        self._directory.mkdir(mode=0o711, parents=True)
        path = self._directory / "guest.sock"
        self._socket.bind(str(path))
        # Root gives the socket to the sandbox; others can only open it to all, and the check of the
        # peer's pid keeps strangers out.
        if os.geteuid() == 0:
            os.chown(path, self._uid, self._uid)
            path.chmod(0o600)
        else:
            path.chmod(0o666)
        self._socket.listen(8)
        self._socket.setblocking(False)

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        (self._directory / "guest.sock").unlink(missing_ok=True)
