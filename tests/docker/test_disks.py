"""Workspace disks on the real thing: loop devices, mounts, and containers that have them."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiodocker
import pytest
from aiodocker.containers import DockerContainer

from sandboxd.errors import DiskSpaceLow
from sandboxd.workspaces import disk_template, loop_mount
from sandboxd.workspaces.disk_template import SLACK_BYTES
from sandboxd.workspaces.disks import (
    Disk,
    DiskBusy,
    DiskDamaged,
    Disks,
    DiskSettings,
    DiskSize,
    DisksUnusable,
)
from sandboxd.workspaces.image_file import is_fully_allocated
from sandboxd.workspaces.layout import Layout
from tests.fakes.waiting import eventually

MIB = 1 << 20
UID = 210_777
IMAGE = "sandbox-secure:latest"
REPOSITORY = Path(__file__).parents[2]
PATIENCE_SECONDS = 30.0

FILL_WITH_FILES = """
import errno, os, sys
count = 0
try:
    while True:
        open(f"{sys.argv[1]}/{count}", "x").close()
        count += 1
except OSError as error:
    print(count, errno.errorcode[error.errno])
for number in range(count):
    os.unlink(f"{sys.argv[1]}/{number}")
"""
FILL_WITH_BYTES = """
import errno, os, sys
file = os.open(f"{sys.argv[1]}/bytes", os.O_CREAT | os.O_WRONLY)
try:
    while True:
        os.write(file, b"x" * 4096)
except OSError as error:
    os.fsync(file)
    print(os.fstat(file).st_size, errno.errorcode[error.errno])
os.unlink(f"{sys.argv[1]}/bytes")
"""


@dataclass(frozen=True)
class Traces:
    """What there is of the disks below a directory."""

    devices: list[str] = field(default_factory=list)
    mounts: list[Path] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    @classmethod
    def of(cls, root: Path) -> Traces:
        mounts = list(loop_mount.mounts_under(root))
        return cls(
            devices=devices_below(root),
            mounts=mounts,
            files=[
                path
                for path in root.rglob("*")
                if not path.is_dir()
                and not path.name.startswith("template-")
                and not any(point in path.parents for point in mounts)
            ],
        )


NOTHING = Traces()


def devices_below(root: Path) -> list[str]:
    """Loop devices whose image is, or was, below a directory."""
    found = []
    for attribute in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # gone meanwhile
            if attribute.read_text().startswith(f"{root}/"):
                found.append(f"/dev/{attribute.parts[3]}")
    return found


async def nothing_is_left(root: Path) -> None:
    try:
        await eventually(lambda: Traces.of(root) == NOTHING, timeout_seconds=PATIENCE_SECONDS)
    except AssertionError:
        assert Traces.of(root) == NOTHING


@pytest.fixture(scope="module", autouse=True)
def root() -> Iterator[Path]:
    """Everything of these tests is below it, and nothing is left of that in the end."""
    root = Path(tempfile.mkdtemp(prefix="sbx-disks-")).resolve()
    yield root
    asyncio.run(nothing_is_left(root))
    root.rmdir()


@pytest.fixture
async def settings(root: Path) -> AsyncIterator[DiskSettings]:
    directory = Path(tempfile.mkdtemp(dir=root))
    settings = DiskSettings(
        directory=directory / "disks",
        mounts=directory / "mounts",
        size_bytes=8 * MIB,
        max_files=100,
        reserve_bytes=64 * MIB,
    )
    yield settings
    await Disks(settings).sweep([])
    shutil.rmtree(directory)


@pytest.fixture
def disks(settings: DiskSettings) -> Disks:
    return Disks(settings)


class Box:
    """A container that has a disk."""

    def __init__(self, container: DockerContainer) -> None:
        self._container = container

    async def run(self, *argv: str) -> str:
        """Run a command; returns what it prints."""
        execution = await self._container.exec(list(argv), stdout=True, stderr=True)
        output = b""
        async with asyncio.timeout(PATIENCE_SECONDS), execution.start(detach=False) as stream:
            while (message := await stream.read_out()) is not None:
                output += message.data
        return output.decode().strip()

    async def remove(self) -> None:
        await self._container.delete(force=True, v=True)


StartBox = Callable[[Path], Awaitable[Box]]


@pytest.fixture
async def start_box(docker: aiodocker.Docker) -> AsyncIterator[StartBox]:
    """Starts a container with a workspace; it is removed after the test."""
    async with AsyncExitStack() as stack:

        async def start(workspace: Path) -> Box:
            container = await docker.containers.create(box_config(workspace))
            stack.push_async_callback(remove_if_there, container)
            await container.start()
            return Box(container)

        yield start


def box_config(workspace: Path) -> dict[str, Any]:
    return {
        "Image": IMAGE,
        "Entrypoint": ["/bin/sleep", "infinity"],
        "User": f"{UID}:{UID}",
        "NetworkDisabled": True,
        "Labels": {"sandboxd.instance": f"test-disks-{secrets.token_hex(4)}"},
        "HostConfig": {
            "Binds": [f"{workspace}:/workspace"],
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
        },
    }


async def remove_if_there(container: DockerContainer) -> None:
    with suppress(aiodocker.DockerError):
        await container.delete(force=True, v=True)


def run_on_host(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return (done.stdout + done.stderr).strip()


def image_of(disk: Disk, settings: DiskSettings) -> Path:
    return settings.directory / f"{disk.id}.img"


def forget_cached(image: Path) -> None:
    """So that the next reader gets what is on the disk below."""
    with image.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copy_mounted(image: Path, mounted: Path, copy: Path) -> None:
    subprocess.run(["sync", "-f", str(mounted)], check=True, timeout=PATIENCE_SECONDS)
    shutil.copyfile(image, copy)


def lose_track_of(path: str, image: Path) -> None:
    """Have the filesystem believe that the inode of a file is free."""
    command = ["debugfs", "-w", "-R", f"freei {path}", str(image)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_SECONDS)


def free_bytes(settings: DiskSettings) -> int:
    found = os.statvfs(settings.directory)
    return found.f_bavail * found.f_frsize


def assert_full_at(size_bytes: int, said: str) -> None:
    written, reason = said.split()
    assert reason == "ENOSPC"
    assert size_bytes <= int(written) <= size_bytes + SLACK_BYTES


# --- temporary disks ---


async def test_a_temporary_disk_has_exact_limits(disks: Disks, settings: DiskSettings) -> None:
    """Both of its directories share them, and everyone may write to them."""
    size = DiskSize(size_bytes=8 * MIB, max_files=50)
    async with disks.temporary(size) as temporary:
        for path in map(str, (temporary.tmp, temporary.var_tmp)):
            assert_full_at(size.size_bytes, run_on_host(FILL_WITH_BYTES, path))
            assert run_on_host(FILL_WITH_FILES, path) == "50 ENOSPC"
        modes = {oct(path.stat().st_mode & 0o7777) for path in (temporary.tmp, temporary.var_tmp)}
        assert modes == {"0o1777"}
    await nothing_is_left(settings.directory.parent)


async def test_a_temporary_disk_lives_as_long_as_its_sandbox(
    disks: Disks, settings: DiskSettings, start_box: StartBox
) -> None:
    """It has no name from the start, and its space is allocated all the same."""
    async with disks.temporary(DiskSize(size_bytes=64 * MIB, max_files=50)) as temporary:
        box = await start_box(temporary.tmp)
    assert await box.run("sh", "-c", "echo x >/workspace/f; cat /workspace/f") == "x"
    root = settings.directory.parent
    found = Traces.of(root)
    assert (len(found.devices), found.mounts, found.files) == (1, [], [])
    await box.remove()
    await nothing_is_left(root)


async def test_a_host_without_space_gets_no_temporary_disk(settings: DiskSettings) -> None:
    """The reserve holds for temporary disks too, and nothing of one is left."""
    settings.directory.mkdir(parents=True)
    whole = shutil.disk_usage(settings.directory).total
    disks = Disks(replace(settings, reserve_bytes=whole))
    with pytest.raises(DiskSpaceLow):
        await disks.temporary(DiskSize(size_bytes=8 * MIB, max_files=50)).__aenter__()
    await nothing_is_left(settings.directory.parent)


async def test_a_damaged_template_is_made_again(disks: Disks, settings: DiskSettings) -> None:
    """One temporary disk fails, and the next is whole."""
    size = DiskSize(size_bytes=8 * MIB, max_files=50)
    async with disks.temporary(size):
        (template,) = settings.directory.glob("template-*-temporary-*")
    with template.open("r+b") as file:
        file.write(bytes(64 << 10))
    with pytest.raises(OSError, match="template"):
        await disks.temporary(size).__aenter__()
    async with disks.temporary(size) as temporary:
        (temporary.tmp / "f").touch()
    await nothing_is_left(settings.directory.parent)


@pytest.mark.parametrize("milliseconds", range(0, 12, 2))
async def test_a_cancelled_temporary_disk_leaves_nothing(
    milliseconds: int, disks: Disks, settings: DiskSettings
) -> None:
    """Whenever it happens."""
    size = DiskSize(size_bytes=8 * MIB, max_files=50)

    async def use() -> None:
        async with disks.temporary(size):
            await asyncio.sleep(60)

    using = asyncio.create_task(use())
    await asyncio.sleep(milliseconds / 1000)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    await nothing_is_left(settings.directory.parent)


# --- limits ---


@pytest.mark.parametrize(("size_mib", "files"), [(1, 1), (8, 1000), (160, 20)])
async def test_the_kernel_refuses_exactly_what_is_beyond_the_limits(
    settings: DiskSettings, size_mib: int, files: int
) -> None:
    """The last file and byte within the limits works, the next is refused, again after deletes."""
    settings = replace(settings, size_bytes=size_mib * MIB, max_files=files)
    disks = Disks(settings)
    async with disks.attached(await disks.make(UID)) as attached:
        workspace = str(attached.path / "agent_workspace")
        for _ in range(2):
            assert run_on_host(FILL_WITH_FILES, workspace) == f"{files} ENOSPC"
            assert_full_at(settings.size_bytes, run_on_host(FILL_WITH_BYTES, workspace))


async def test_a_sandbox_meets_exactly_the_same_limits(
    settings: DiskSettings, start_box: StartBox
) -> None:
    """What a command can write is the same as on the host, also outside of the layout."""
    settings = replace(settings, max_files=1000)
    disks = Disks(settings)
    async with disks.attached(await disks.make(UID)) as attached:
        box = await start_box(attached.path)

    for directory in ("/workspace", "/workspace/outputs"):
        for _ in range(2):
            said = await box.run("python3", "-c", FILL_WITH_FILES, directory)
            assert said == "1000 ENOSPC"
            said = await box.run("python3", "-c", FILL_WITH_BYTES, directory)
            assert_full_at(settings.size_bytes, said)


@pytest.mark.parametrize(
    ("layout", "shown"), [(Layout.SHARED, "0 777"), (Layout.SEPARATE, "0 1777")]
)
async def test_the_layout_of_a_new_disk(
    layout: Layout, shown: str, settings: DiskSettings, start_box: StartBox
) -> None:
    """Project files are there to read and to stay; the rest is the sandbox's own to use, but not
    to remove, and `agent_workspace` is a link or a directory."""
    disks = Disks(replace(settings, layout=layout))
    async with disks.attached(await disks.make(UID)) as attached:
        (attached.path / "project_files" / "read.me").write_text("read")
        box = await start_box(attached.path)

    assert await box.run("ls", "-A", "/workspace") == "agent_workspace\noutputs\nproject_files"
    listed = await box.run("bash", "-c", "cd /workspace && stat -c '%n %u %a' . *")
    assert listed.splitlines() == [
        ". 0 1777",
        f"agent_workspace {shown}",
        f"outputs {UID} 755",
        "project_files 0 755",
    ]
    assert await box.run("cat", "/workspace/project_files/read.me") == "read"
    for refused in (
        "touch project_files/x",
        "mv project_files other",
        "rm -r project_files",
        "chmod 777 project_files",
        "rm project_files/read.me",
        "rm -r agent_workspace",
        "mv agent_workspace other",
    ):
        said = await box.run("bash", "-c", f"cd /workspace; {refused} 2>&1 || echo refused")
        assert said.endswith("\nrefused"), refused
    own = (
        "cd /workspace && echo 1 > own && echo 2 > outputs/a && mkdir agent_workspace/b && echo ok"
    )
    assert await box.run("bash", "-c", own) == "ok"
    is_shared = layout == Layout.SHARED
    assert await box.run("bash", "-c", "[ -d /workspace/b ] && echo shared || echo separate") == (
        "shared" if is_shared else "separate"
    )


async def test_mount_options_and_names_a_sandbox_sees(
    disks: Disks, settings: DiskSettings, start_box: StartBox
) -> None:
    """Programs run from the workspace, set-id bits and devices do nothing, no path is told."""
    disk = await disks.make(UID)
    async with disks.attached(disk) as attached:
        box = await start_box(attached.path)
        device = attached.device

    mounts = (await box.run("cat", "/proc/self/mountinfo")).splitlines()
    (line,) = [line for line in mounts if line.split()[4] == "/workspace"]
    options = line.split()[5].split(",")
    assert {"rw", "nosuid", "nodev", "noatime"} <= set(options)
    assert "noexec" not in options
    assert line.split()[3] == "/workspace"
    assert device in line
    assert disk.id not in line
    assert str(settings.mounts) not in line
    program = "cd /workspace/outputs && printf '#!/bin/sh\necho ran' > p && chmod +x p && ./p"
    assert await box.run("bash", "-c", program) == "ran"


# --- life ---


async def test_a_disk_lives_on_in_its_sandbox_alone(
    disks: Disks, settings: DiskSettings, start_box: StartBox
) -> None:
    """The host unmounts while the sandbox goes on; the device goes when the sandbox is removed."""
    async with disks.attached(await disks.make(UID)) as attached:
        box = await start_box(attached.path)
        assert attached.path.is_dir()
    assert loop_mount.mounts_under(settings.mounts) == []
    assert list(settings.mounts.iterdir()) == []
    assert devices_below(settings.directory) == [attached.device]

    write = "cd /workspace/outputs && head -c 3000000 /dev/zero > zeros && sync -f . && wc -c zeros"
    assert await box.run("bash", "-c", write) == "3000000 zeros"

    await box.remove()
    await eventually(
        lambda: devices_below(settings.directory) == [], timeout_seconds=PATIENCE_SECONDS
    )


async def test_files_outlive_the_sandbox(
    disks: Disks, settings: DiskSettings, start_box: StartBox
) -> None:
    """A second sandbox on the disk finds what the first has written, killed as it was."""
    disk = await disks.make(UID)
    async with disks.attached(disk) as attached:
        first = await start_box(attached.path)
    await first.run("bash", "-c", "echo kept > /workspace/agent_workspace/file")
    await first.remove()

    async with disks.attached(disk) as attached:
        second = await start_box(attached.path)

    assert await second.run("cat", "/workspace/agent_workspace/file") == "kept"
    assert_full_at(
        settings.size_bytes - 4096,
        await second.run("python3", "-c", FILL_WITH_BYTES, "/workspace/outputs"),
    )


async def test_a_disk_is_never_in_two_sandboxes(
    settings: DiskSettings, start_box: StartBox
) -> None:
    """While a sandbox has the disk nobody else gets it; waiting for its end is enough."""
    disks = Disks(replace(settings, busy_seconds=0.1))
    disk = await disks.make(UID)
    async with disks.attached(disk) as attached:
        box = await start_box(attached.path)
        with pytest.raises(DiskBusy):
            await disks.attached(disk).__aenter__()
    with pytest.raises(DiskBusy):
        await disks.attached(disk).__aenter__()

    removing = asyncio.ensure_future(box.remove())
    async with Disks(settings).attached(disk) as attached:
        assert sorted(os.listdir(attached.path)) == ["agent_workspace", "outputs", "project_files"]
    await removing


async def test_a_disk_can_be_deleted_under_its_sandbox(
    disks: Disks, settings: DiskSettings, start_box: StartBox
) -> None:
    """The sandbox keeps what it has; the host gets the space back when the sandbox ends."""
    disk = await disks.make(UID)
    async with disks.attached(disk) as attached:
        box = await start_box(attached.path)
    await disks.delete(disk.id)

    assert disks.ids() == []
    assert await box.run("bash", "-c", "echo 1 > /workspace/own && cat /workspace/own") == "1"
    await box.remove()
    await nothing_is_left(settings.directory.parent)


async def test_a_mount_in_use_does_not_hold_up_the_host(
    disks: Disks, settings: DiskSettings
) -> None:
    """Who is still in there keeps it to himself; it is gone from the host all the same."""
    disk = await disks.make(UID)
    async with disks.attached(disk) as attached:
        visitor = await asyncio.create_subprocess_exec("sleep", "infinity", cwd=attached.path)
    try:
        assert loop_mount.mounts_under(settings.mounts) == []
        assert list(settings.mounts.iterdir()) == []
        assert devices_below(settings.directory) == [attached.device]
    finally:
        visitor.kill()
        await visitor.wait()
    await disks.delete(disk.id)
    await nothing_is_left(settings.directory.parent)


async def test_disks_made_at_once_are_whole_and_different(
    disks: Disks, settings: DiskSettings
) -> None:
    made = await asyncio.gather(*(disks.make(UID + number) for number in range(6)))

    assert disks.ids() == sorted(disk.id for disk in made)
    assert len(set(disks.ids())) == 6
    assert all(is_fully_allocated(image_of(disk, settings)) for disk in made)
    async with AsyncExitStack() as stack:
        attached = [await stack.enter_async_context(disks.attached(disk)) for disk in made]
        assert len({disk.device for disk in attached}) == 6
        owners = [(disk.path / "outputs").stat().st_uid for disk in attached]
        assert owners == [disk.uid for disk in made]
        assert {os.statvfs(disk.path).f_ffree for disk in attached} == {settings.max_files}


# --- what is left behind ---


async def cancelled_after(seconds: float, work: Coroutine[Any, Any, Any], *, cancels: int) -> Any:
    """Cancel `work` some time into it, perhaps again a little later; its result if it has one."""
    loop = asyncio.get_running_loop()
    running = asyncio.ensure_future(work)
    for nth in range(cancels):
        loop.call_later(seconds + nth * 0.0003, running.cancel)
    await asyncio.wait([running], timeout=PATIENCE_SECONDS)
    return None if running.cancelled() else running.result()


@pytest.mark.parametrize("cancels", [1, 2])
async def test_a_cancelled_make_leaves_nothing(settings: DiskSettings, cancels: int) -> None:
    """Wherever the making of a disk is cancelled, there is no device, mount or file of it."""
    was_cancelled = set()
    for step in range(30):
        disks = Disks(settings)
        disk = await cancelled_after(step * 0.0004, disks.make(UID), cancels=cancels)
        was_cancelled.add(disk is None)
        if disk is not None:
            await disks.delete(disk.id)
        await nothing_is_left(settings.directory.parent)
    assert True in was_cancelled


@pytest.mark.parametrize("cancels", [1, 2])
async def test_a_cancelled_attach_leaves_nothing(
    disks: Disks, settings: DiskSettings, cancels: int
) -> None:
    """Wherever a user of an attached disk is cancelled, it is no longer attached."""
    disk = await disks.make(UID)

    async def use() -> None:
        async with disks.attached(disk):
            await asyncio.sleep(0)

    for step in range(30):
        await cancelled_after(step * 0.0002, use(), cancels=cancels)
        assert loop_mount.mounts_under(settings.mounts) == []
        assert list(settings.mounts.iterdir()) == []
        await eventually(
            lambda: devices_below(settings.directory) == [], timeout_seconds=PATIENCE_SECONDS
        )
    await disks.delete(disk.id)


KILLED = """
import asyncio, sys
from pathlib import Path
from sandboxd.workspaces.disks import Disks, DiskSettings

async def use(disks):
    while True:
        async with disks.attached(await disks.make(210_777)):
            print("attached", flush=True)

async def main():
    root, size_bytes, max_files = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    disks = Disks(
        DiskSettings(
            directory=root / "disks", mounts=root / "mounts",
            size_bytes=size_bytes, max_files=max_files, reserve_bytes=0,
        )
    )
    await asyncio.gather(*(use(disks) for _ in range(3)))

asyncio.run(main())
"""


@pytest.mark.parametrize("uses", [1, 2, 5, 11, 20])
async def test_a_kill_leaves_nothing_that_a_sweep_does_not_find(
    settings: DiskSettings, uses: int
) -> None:
    """After kill -9 in the middle of it, a sweep leaves no mount, device or file but those kept."""
    root = settings.directory.parent
    arguments = (str(root), str(settings.size_bytes), str(settings.max_files))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, *arguments), cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(uses):
            assert await process.stdout.readline() == b"attached\n"
        process.kill()
        await process.communicate()

    disks = Disks(settings)
    kept = disks.ids()[0]
    left = Traces.of(root)
    assert await disks.sweep([kept]) == len(left.mounts) + len(left.files) - 1
    assert disks.ids() == [kept]
    async with disks.attached(Disk(id=kept, uid=UID)) as attached:
        assert (attached.path / "outputs").stat().st_uid == UID
    assert await disks.sweep([]) == 1
    await nothing_is_left(root)


# --- the host's own disk ---


@pytest.fixture
def small_filesystem(root: Path) -> Iterator[Path]:
    """A filesystem of 40 MB that stands for the host's."""
    image, point = root / "small.img", root / "small"
    make = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-b", "4096", str(image), "40M"]
    with ExitStack() as stack:
        stack.callback(image.unlink, missing_ok=True)
        subprocess.run(make, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
        stack.enter_context(loop_mount.attached(image, point))
        yield point


@pytest.fixture
def crowded(settings: DiskSettings, small_filesystem: Path) -> DiskSettings:
    return replace(
        settings, directory=small_filesystem / "disks", size_bytes=10 * MIB, reserve_bytes=0
    )


async def test_no_disk_is_made_that_the_host_has_no_space_for(crowded: DiskSettings) -> None:
    """Refused before the reserve is touched, also when many ask at once, with nothing half-made."""
    settings = replace(crowded, reserve_bytes=8 * MIB)
    disks = Disks(settings)
    outcomes = await asyncio.gather(*(disks.make(UID) for _ in range(8)), return_exceptions=True)

    made = [outcome for outcome in outcomes if isinstance(outcome, Disk)]
    refusals = [outcome for outcome in outcomes if isinstance(outcome, DiskSpaceLow)]
    assert (len(made), len(refusals)) == (2, 6)
    assert free_bytes(settings) >= settings.reserve_bytes
    assert disks.ids() == sorted(disk.id for disk in made)
    assert len(list(settings.directory.iterdir())) == 2 + 1  # the template

    without_reserve = Disks(crowded)
    await without_reserve.make(UID)
    with pytest.raises(DiskSpaceLow) as refusal:
        await without_reserve.make(UID)
    assert int(refusal.value.metadata["freeBytes"]) == free_bytes(settings)
    await disks.delete(made[0].id)
    await without_reserve.make(UID)


async def test_disks_of_several_sizes_have_each_its_own_limits(
    disks: Disks, settings: DiskSettings
) -> None:
    """A disk of another size has exactly that size, and the next one the usual size again."""
    usual = DiskSize(size_bytes=settings.size_bytes, max_files=settings.max_files)
    other = DiskSize(size_bytes=3 * MIB, max_files=9)
    made = [(other, await disks.make(UID, other)), (usual, await disks.make(UID))]

    for size, disk in made:
        async with disks.attached(disk) as attached:
            assert disk_template.is_fresh(
                attached.path.parent, size_bytes=size.size_bytes, max_files=size.max_files
            )


async def test_a_disk_can_be_filled_when_the_host_is_full(crowded: DiskSettings) -> None:
    """Every byte that was accepted is there later, though the host had none left."""
    disks = Disks(crowded)
    disk = await disks.make(UID)
    with suppress(OSError), (crowded.directory / "rest").open("wb", buffering=0) as rest:
        while True:
            rest.write(bytes(4096))
    assert free_bytes(crowded) == 0
    data = secrets.token_bytes(crowded.size_bytes)

    async with disks.attached(disk) as attached:
        (attached.path / "outputs" / "data").write_bytes(data)
    forget_cached(image_of(disk, crowded))

    async with disks.attached(disk) as attached:
        assert (attached.path / "outputs" / "data").read_bytes() == data


async def test_nothing_that_is_written_makes_holes_in_the_image(
    disks: Disks, settings: DiskSettings
) -> None:
    """Space given to a disk stays with it, also where its files get space before bytes."""
    disk = await disks.make(UID)
    async with disks.attached(disk) as attached:
        for number in range(64):
            with (attached.path / str(number)).open("wb", buffering=0) as file:
                os.posix_fallocate(file.fileno(), 0, 32 << 10)
                os.pwrite(file.fileno(), b"x", 16 << 10)
                os.fsync(file.fileno())
        for number in range(0, 64, 2):
            (attached.path / str(number)).unlink()

    assert is_fully_allocated(image_of(disk, settings))


async def test_a_disk_is_repaired_after_a_power_cut(disks: Disks, settings: DiskSettings) -> None:
    """An image that was never unmounted, and does not add up, is mended when it is attached."""
    disk, cut = await disks.make(UID), Disk(id="c" * 16, uid=UID)
    async with disks.attached(disk) as attached:
        (attached.path / "outputs" / "file").write_text("there")
        copy_mounted(image_of(disk, settings), attached.path, image_of(cut, settings))
    lose_track_of("/workspace/outputs/file", image_of(cut, settings))

    async with disks.attached(cut) as attached:
        file, other = attached.path / "outputs" / "file", attached.path / "outputs" / "other"
        other.write_text("new")
        assert file.read_text() == "there"
        assert file.stat().st_ino != other.stat().st_ino


@pytest.mark.parametrize("offset", [0, 4096], ids=["superblock", "beyond the superblock"])
async def test_a_disk_beyond_repair_is_told_apart(
    disks: Disks, settings: DiskSettings, offset: int
) -> None:
    """Whether the filesystem knows of the damage or not."""
    disk = await disks.make(UID)
    with image_of(disk, settings).open("r+b") as image:
        image.seek(offset)
        image.write(b"\xff" * 4096)

    with pytest.raises(DiskDamaged):
        await disks.attached(disk).__aenter__()

    assert list(settings.mounts.iterdir()) == []


async def test_a_damaged_template_is_replaced(disks: Disks, settings: DiskSettings) -> None:
    """One disk fails for it, the next does not."""
    await disks.make(UID)
    (template,) = settings.directory.glob("template-*")
    template.write_bytes(secrets.token_bytes(MIB))

    with pytest.raises(OSError, match="template"):
        await disks.make(UID)
    async with disks.attached(await disks.make(UID)) as attached:
        assert os.statvfs(attached.path).f_ffree == settings.max_files
    assert len(disks.ids()) == 2


async def test_a_disk_that_is_gone_cannot_be_attached(disks: Disks, settings: DiskSettings) -> None:
    disk = await disks.make(UID)
    await disks.delete(disk.id)

    with pytest.raises(FileNotFoundError):
        await disks.attached(disk).__aenter__()

    assert list(settings.mounts.iterdir()) == []


# --- the proof ---


async def test_the_proof_says_what_is_in_force(disks: Disks, settings: DiskSettings) -> None:
    """It fills a scratch disk to its limits and leaves nothing but the template."""
    said = await disks.prove()

    assert "8 MiB and 100 files" in said
    assert "proved" in said
    (template,) = settings.directory.iterdir()
    assert template.name.startswith("template-")
    await nothing_is_left(settings.directory.parent)


PROVE = """
import asyncio, os, sys
from pathlib import Path
from sandboxd.workspaces.disks import Disks, DiskSettings, DisksUnusable

if uid := int(sys.argv[2]):
    os.setuid(uid)
root = Path(sys.argv[1])
settings = DiskSettings(
    directory=root / "disks", mounts=root / "mounts",
    size_bytes=8 << 20, max_files=100, reserve_bytes=0,
)
try:
    print(asyncio.run(Disks(settings).prove()))
except DisksUnusable as error:
    print("unusable:", error)
"""


def test_the_proof_says_that_only_root_can(root: Path) -> None:
    assert "the daemon is not root" in run_on_host(PROVE, str(root), "65534")


async def test_the_proof_says_which_tool_is_missing(
    disks: Disks, settings: DiskSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(settings.mounts))

    with pytest.raises(DisksUnusable, match="mke2fs is not installed"):
        await disks.prove()

    await nothing_is_left(settings.directory.parent)


@pytest.mark.parametrize(
    ("breaking", "told"),
    [
        ("mount --bind /dev/null /dev/loop-control && exec", "cannot get a loop device"),
        ("exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin", "cannot mount"),
    ],
)
def test_the_proof_says_what_the_host_lacks(
    settings: DiskSettings, breaking: str, told: str
) -> None:
    """In a mount namespace of its own the host is broken; the proof fails in words."""
    script = f'{breaking} "$@"'
    proof = (sys.executable, "-c", PROVE, str(settings.directory.parent), "0")
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *proof],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert done.stdout.startswith(f"unusable: {told}"), done.stderr


async def test_a_limit_that_does_not_hold_fails_the_proof(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filesystem with more free than it should have is not taken for a workspace."""
    monkeypatch.setattr(disk_template, "_leave_free", lambda root, *, blocks, files: None)

    with pytest.raises(DisksUnusable, match="template"):
        await disks.prove()


async def test_limits_that_no_filesystem_can_have_are_told(settings: DiskSettings) -> None:
    impossible = replace(settings, max_files=5_000_000_000)

    with pytest.raises(DisksUnusable, match="mke2fs failed"):
        await Disks(impossible).prove()
