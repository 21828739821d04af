"""Making a sandbox: who is let in, what it is given, and what a failure leaves behind."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.engine.contract import Container, ContainerId, ContainerSpec, ImageId
from sandboxd.environments.environment import Environment
from sandboxd.errors import (
    DiskSpaceLow,
    EngineFailed,
    ImageNotFound,
    OpenFilesExhausted,
    PoolExhausted,
)
from sandboxd.guest import frames
from sandboxd.guest.frames import Kind
from sandboxd.isolation.uids import UidRange
from sandboxd.sandboxes import container
from sandboxd.sandboxes.container import (
    GUEST_MEMORY,
    GUEST_PROCESSES,
    VOLUME_BYTES,
    Image,
    SandboxParts,
)
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.workspaces.disks import AttachedDisk, TemporaryDisk
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import LINK_TARGET, FakeGuest, FakeGuests
from tests.fakes.settings import MIB, of_environment, of_sandboxes
from tests.fakes.waiting import eventually


def free_uids(uids: UidRange) -> int:
    """How many are left; takes them all."""
    count = 0
    while True:
        try:
            uids.take()
        except PoolExhausted:
            return count
        count += 1


def open_sockets() -> set[str]:
    directory = Path("/proc/self/fd")
    # The listing itself has a descriptor, which is gone when it is asked about.
    links = [os.readlink(one) for one in directory.iterdir() if one.is_symlink()]
    return {link for link in links if link.startswith("socket:")}


def link_dir(spec: ContainerSpec) -> Path:
    return next(bind.source for bind in spec.binds if bind.target == LINK_TARGET)


async def test_made_sandbox_answers_and_knows_its_workspace(
    maker: SandboxMaker, guests: FakeGuests, environment: Environment
) -> None:
    """A made sandbox has a guest that takes commands, told where to run them."""
    sandbox = await maker.make(environment)
    guest = guests.by_container[sandbox.container_id]

    assert guest.settings == {
        "workspace": "/workspace",
        "start_dir": "/workspace",
        "directories": ["outputs"],
        "links": {"agent_workspace": "."},
        "env": {"HOME": "/workspace", "USER": "sandboxuser", "LOGNAME": "sandboxuser"},
        "asks_to_place": False,
        "is_first_victim": False,
        "worker_share": 0.0,
        "grace_seconds": 0.0,
        "takes_remarks": True,
    }
    await sandbox.link.ping()
    await maker.destroy(sandbox)


async def test_container_is_asked_for_hardened(
    maker: SandboxMaker, engine: FakeEngine, environment: Environment
) -> None:
    """No network, limits set, a uid of its own, and host details masked."""
    first, second = await maker.make(environment), await maker.make(environment)
    one, two = engine.specs.values()

    assert one.network_mode == "none"
    assert one.uid != two.uid
    assert one.name != two.name
    assert (one.memory_bytes, one.pids) == ((64 << 20) + GUEST_MEMORY, 16 + GUEST_PROCESSES)
    assert (one.nofile, one.max_file_bytes, one.seccomp) == (64, 1 << 20, "{}")
    assert "/proc/kcore" in one.masked_paths
    assert "/proc/sys" in one.readonly_paths
    assert {mount.target for mount in one.tmpfs} == {"/workspace", "/tmp", "/var/tmp"}
    for sandbox in (first, second):
        await maker.destroy(sandbox)


async def test_volumes_of_an_image_are_small_areas_in_memory(
    maker: SandboxMaker, engine: FakeEngine, environment: Environment
) -> None:
    """An image that declares volumes does not get unlimited disk space by that."""
    engine.image_volumes = ["/var/data", "/workspace"]
    sandbox = await maker.make(environment)
    (spec,) = engine.specs.values()

    sizes = {mount.target: mount.size_bytes for mount in spec.tmpfs}
    assert sorted(sizes) == ["/tmp", "/var/data", "/var/tmp", "/workspace"]
    assert (sizes["/var/data"], sizes["/workspace"]) == (VOLUME_BYTES, environment.workspace_bytes)
    await maker.destroy(sandbox)


async def test_temporary_files_in_memory_have_half_of_the_size_each(
    maker: SandboxMaker, engine: FakeEngine, environment: Environment
) -> None:
    """Together /tmp and /var/tmp hold what the limit says; the kernel counts the root as a file."""
    sandbox = await maker.make(environment)
    (spec,) = engine.specs.values()

    areas = {mount.target: mount for mount in spec.tmpfs if mount.target != "/workspace"}
    assert {area.size_bytes for area in areas.values()} == {environment.tmp_bytes // 2}
    assert {area.max_files - 1 for area in areas.values()} == {environment.tmp_files // 2}
    assert {area.mode for area in areas.values()} == {0o1777}
    await maker.destroy(sandbox)


@pytest.mark.parametrize("workspace", ["/workspace", "/tmp", "/var/tmp", "/tmp/work"])
@pytest.mark.parametrize("on_disk", [True, False])
def test_each_area_is_mounted_once(workspace: str, on_disk: bool, tmp_path: Path) -> None:
    """Whatever the workspace's directory is, and whatever volumes the image declares."""
    settings = replace(of_sandboxes(tmp_path), workspace_dir=workspace)
    environment = of_environment(write_bytes_per_second=MIB)
    image = Image(id=ImageId("i"), passwd="", group="", volumes=["/tmp", "/data", workspace])
    disk = AttachedDisk(path=Path("/m/w"), device="/dev/loop1")
    temporary = TemporaryDisk(tmp=Path("/m/t"), var_tmp=Path("/m/v"), device="/dev/loop2")
    parts = SandboxParts(
        sandbox_id="s",
        uid=1,
        link_dir=tmp_path,
        etc_files=[],
        project_dir=tmp_path,
        disk=disk if on_disk else None,
        temporary=temporary if on_disk else None,
    )
    spec = container.spec(settings, environment, image, parts, limits_cpu=False)

    writable = {bind.target: bind.source for bind in spec.binds if bind.writable}
    in_memory = [mount.target for mount in spec.tmpfs]
    assert sorted([*writable, *in_memory]) == sorted({workspace, "/tmp", "/var/tmp", "/data"})
    assert writable.get(workspace, disk.path) == disk.path
    assert spec.write_bytes_per_second == (
        {disk.device: MIB, temporary.device: MIB} if on_disk else {}
    )
    paths = [area.path for area in container.areas(settings, environment, on_disk=on_disk)]
    assert paths[0] == workspace
    assert set(paths) <= {*writable, *in_memory}


async def test_accounts_of_the_image_are_shown_with_the_sandbox_user(
    maker: SandboxMaker,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    environment: Environment,
) -> None:
    """Commands find their own name and those of the image."""
    shown: dict[str, str] = {}
    create = engine.create

    async def look(spec: ContainerSpec) -> ContainerId:
        for bind in spec.binds:
            if bind.target.startswith("/etc/"):
                assert not bind.writable
                shown[bind.target] = bind.source.read_text()
        return await create(spec)

    monkeypatch.setattr(engine, "create", look)
    sandbox = await maker.make(environment)

    assert shown["/etc/passwd"].splitlines() == [
        f"sandboxuser:x:{sandbox.uid}:{sandbox.uid}::/workspace:/bin/bash",
        "root:x:0:0:root:/root:/bin/bash",
    ]
    assert shown["/etc/group"] == f"sandboxuser:x:{sandbox.uid}:\n"
    await maker.destroy(sandbox)


async def test_socket_is_gone_once_the_guest_has_connected(
    maker: SandboxMaker, engine: FakeEngine, environment: Environment
) -> None:
    """Nobody can connect a second time; its directory is there as long as the sandbox."""
    sandbox = await maker.make(environment)
    (spec,) = engine.specs.values()

    assert link_dir(spec).exists()
    assert not (link_dir(spec) / "guest.sock").exists()
    await maker.destroy(sandbox)
    assert not link_dir(spec).exists()


def says(data: bytes) -> Callable[[FakeGuest], None]:
    return lambda guest: guest.say(data)


@pytest.mark.parametrize(
    "greet",
    [
        pytest.param(lambda _: None, id="silent"),
        pytest.param(FakeGuest.drop, id="gone at once"),
        pytest.param(says(frames.encode_hello(7)), id="not PID 1"),
        pytest.param(says(struct.pack("!IBIHI", 6, Kind.HELLO, 0, 99, 1)), id="other version"),
        pytest.param(says(b"\xff" * 100), id="garbage"),
        pytest.param(says(frames.encode_hello(1)[:3]), id="half a hello"),
        pytest.param(says(2 * frames.encode_hello(1)), id="two hellos"),
        pytest.param(says(frames.encode_hello(1) + b"\0" * 9), id="nonsense after hello"),
    ],
)
async def test_guest_that_does_not_greet_right_is_destroyed(
    greet: Callable[[FakeGuest], None],
    guests: FakeGuests,
    engine: FakeEngine,
    sandbox_settings: SandboxSettings,
    uids: UidRange,
    environment: Environment,
) -> None:
    """The start fails in time with a typed error, and nothing of it stays."""
    guests.greet = greet
    guests.welcome = lambda _: None
    guests.start_seconds = 0.1
    maker = guests.maker(engine, sandbox_settings, Host(uids=uids))
    with pytest.raises(EngineFailed, match="guest did not answer"):
        await maker.make(environment)

    assert engine.live == set()
    assert list(sandbox_settings.links_dir.iterdir()) == []
    (guest,) = guests.by_container.values()
    assert guest.process is not None
    assert (guest.process.kills > 0, guest.process.is_closed) == (True, True)
    assert free_uids(uids) == 64


async def test_guest_that_is_never_ready_is_destroyed(
    guests: FakeGuests,
    engine: FakeEngine,
    sandbox_settings: SandboxSettings,
    uids: UidRange,
    environment: Environment,
) -> None:
    """A greeting that does not come to its end has a deadline."""
    guests.welcome = lambda _: None
    guests.start_seconds = 0.1
    with pytest.raises(EngineFailed):
        await guests.maker(engine, sandbox_settings, Host(uids=uids)).make(environment)

    assert engine.live == set()


async def test_container_that_dies_before_it_is_pinned_is_a_failed_start(
    guests: FakeGuests,
    engine: FakeEngine,
    sandbox_settings: SandboxSettings,
    uids: UidRange,
    environment: Environment,
) -> None:
    """A first process that is gone already is told as any other failed start."""

    def gone(pid: int) -> object:
        raise ProcessLookupError(3, "No such process")

    maker = SandboxMaker(engine, sandbox_settings, Host(uids=uids, pin=gone))  # type: ignore[arg-type]
    with pytest.raises(EngineFailed):
        await maker.make(environment)
    assert engine.live == set()
    assert free_uids(uids) == 64


async def test_link_directory_that_cannot_be_made_is_a_failed_start(
    maker: SandboxMaker, sandbox_settings: SandboxSettings, uids: UidRange, environment: Environment
) -> None:
    """A fault of the host's disk is told as a failed start, and takes no uid."""
    before = open_sockets()
    sandbox_settings.links_dir.touch()
    with pytest.raises(EngineFailed):
        await maker.make(environment)

    assert free_uids(uids) == 64
    assert open_sockets() == before


async def test_full_disk_of_the_host_is_reported_without_figures(
    maker: SandboxMaker, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is free on which disk is not known then, so nothing is claimed about it."""

    def full(path: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(DiskSpaceLow, match="is full; close sessions") as refusal:
        await maker.make(environment)

    assert refusal.value.retry_after_seconds
    assert "MiB" not in str(refusal.value)


@pytest.mark.parametrize("step", ["create", "start", "inspect"])
async def test_failed_start_leaves_no_socket_open(
    step: str, maker: SandboxMaker, engine: FakeEngine, environment: Environment
) -> None:
    """Neither listener nor connection of a failed start stays, whoever keeps the error."""
    before = open_sockets()
    engine.fail_once(step, EngineFailed("Broken.", retry_after_seconds=1.0))
    with pytest.raises(EngineFailed) as caught:
        await maker.make(environment)

    await eventually(lambda: open_sockets() == before)
    assert caught.value.message == "Broken."


async def test_stranger_is_turned_away(
    maker: SandboxMaker, guests: FakeGuests, engine: FakeEngine, environment: Environment
) -> None:
    """A process that is not the container's first does not become its guest."""
    real_start = engine.on_start
    assert real_start is not None
    strangers: list[asyncio.subprocess.Process] = []

    async def stranger_first(spec: ContainerSpec, container: Container) -> None:
        code = (
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
            "print(flush=True); sys.exit(s.recv(1) != b'')"
        )
        stranger = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", code, link_dir(spec) / "guest.sock"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert stranger.stdout is not None
        await stranger.stdout.readline()
        strangers.append(stranger)
        await real_start(spec, container)

    engine.on_start = stranger_first
    sandbox = await maker.make(environment)

    await sandbox.link.ping()
    assert await strangers[0].wait() == 0
    await maker.destroy(sandbox)


async def test_descriptors_sent_by_a_guest_are_discarded(
    maker: SandboxMaker, guests: FakeGuests, environment: Environment
) -> None:
    """A guest cannot fill the daemon's table of open files."""
    ours, theirs = os.pipe2(os.O_NONBLOCK)

    def hello_with_descriptor(guest: FakeGuest) -> None:
        with socket.socket(fileno=os.dup(guest.fileno())) as raw:
            try:
                socket.send_fds(raw, [frames.encode_hello(1)], [theirs])
            except PermissionError:  # a kernel that refuses them for the daemon
                raw.send(frames.encode_hello(1))

    guests.greet = hello_with_descriptor
    sandbox = await maker.make(environment)
    os.close(theirs)

    assert os.read(ours, 1) == b"", "somebody still holds the other end"
    os.close(ours)
    await maker.destroy(sandbox)


async def test_image_that_was_removed_is_looked_up_anew(
    maker: SandboxMaker,
    engine: FakeEngine,
    sandbox_settings: SandboxSettings,
    environment: Environment,
) -> None:
    """A start without its image names it as the settings do; one built anew is taken."""
    await maker.destroy(await maker.make(environment))
    engine.images.clear()
    for _ in range(2):
        with pytest.raises(ImageNotFound) as refusal:
            await maker.make(environment)
        assert refusal.value.metadata["image"] == environment.image
    engine.images[environment.image] = ImageId("sha256:" + "b" * 64)
    sandbox = await maker.make(environment)

    assert maker.image_id(environment) == ImageId("sha256:" + "b" * 64)
    await maker.destroy(sandbox)


async def test_start_is_refused_while_few_files_can_be_opened(
    maker: SandboxMaker, engine: FakeEngine, environment: Environment
) -> None:
    """Some are kept for what runs already."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, before[1]))
    try:
        with pytest.raises(OpenFilesExhausted) as refusal:
            await maker.make(environment)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert refusal.value.metadata["limit"] == str(used + 8)
    assert engine.calls["create"] == 0

    await maker.destroy(await maker.make(environment))


async def test_lost_is_told_to_late_listeners_too(
    maker: SandboxMaker, environment: Environment
) -> None:
    """Each listener hears of a loss exactly once, whenever it asks."""
    sandbox = await maker.make(environment)
    heard: list[str] = []
    sandbox.when_lost(heard.append)
    sandbox.cut_off("it lied")
    sandbox.cut_off("again")
    sandbox.when_lost(heard.append)

    assert heard == ["it lied", "it lied"]
    await maker.destroy(sandbox)


def test_uids_rotate() -> None:
    """The uid that was free longest comes next, and an empty range is told."""
    uids = UidRange(start=100, count=3)
    taken = [uids.take() for _ in range(3)]
    with pytest.raises(PoolExhausted, match="UID_COUNT"):
        uids.take()
    uids.give_back(102)
    uids.give_back(100)

    assert taken == [100, 101, 102]
    assert [uids.take(), uids.take()] == [102, 100]


class FrozenGroups:
    """Cgroups of containers that somebody has stopped."""

    def __init__(self, found: dict[str, set[int]]) -> None:
        self.found = found
        self.killed: list[str] = []

    def frozen(self) -> dict[str, set[int]]:
        return self.found

    def thaw(self, container_id: str, *, kills: bool = False) -> bool:
        assert kills
        self.killed.append(container_id)
        return True


async def test_sweep_ends_what_the_engine_has_forgotten(
    maker: SandboxMaker, environment: Environment
) -> None:
    """Stopped commands of a container that is removed would keep their disk for ever; those of
    containers that exist, and of other daemons, are let alone."""
    sandbox = await maker.make(environment)
    own, foreign = sandbox.uid, 5
    groups = FrozenGroups(
        {sandbox.container_id: {own}, "gone": {own}, "other": {foreign}, "empty": set()}
    )
    maker._host = replace(maker._host, cgroups=groups)  # type: ignore[arg-type]
    await maker.sweep()
    maker._host = replace(maker._host, cgroups=None)
    await maker.destroy(sandbox)
    assert groups.killed == ["gone"]
