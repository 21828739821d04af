"""Directories of the host that are attached to a warm sandbox, and what its commands can do."""

from __future__ import annotations

import errno
import json
import os
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxd.errors import EngineFailed
from sandboxd.execs.exec import Exec, ExecDetails, KillCounts
from sandboxd.execs.spec import ExecSpec, new_exec_id
from sandboxd.guest.frames import Stream
from sandboxd.isolation.attachment import Attachment
from sandboxd.protections import probe
from sandboxd.sandboxes.sandbox import Sandbox
from tests.docker.test_doctor import IMAGES, Parts, parts_of_a_daemon

TARGET = "/workspace/project_files"
SECOND_TARGET = "/tmp"
TIMES = 30


@pytest.fixture
async def parts(short_dir: Path) -> AsyncIterator[Parts]:
    async with parts_of_a_daemon(short_dir, IMAGES[0]) as parts:
        yield parts


@pytest.fixture
async def sandbox(parts: Parts) -> AsyncIterator[Sandbox]:
    """One that has run nothing."""
    made = await parts.maker.make(parts.environment)
    yield made
    await parts.maker.destroy(made)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory as the daemon makes them: for everybody to read."""
    directory = tmp_path / "attached"
    directory.mkdir()
    (directory / "file").write_text("from the host")
    (directory / "file").chmod(0o666)  # so that only the mount forbids to write to it
    return directory


async def output(sandbox: Sandbox, *argv: str) -> str:
    spec = ExecSpec(
        exec_id=new_exec_id(),
        shell=None,
        argv=argv,
        cwd="/workspace",
        env={},
        timeout_seconds=30.0,
        is_kept=False,
    )
    execution = Exec(
        ExecDetails.from_spec(spec),
        sandbox,
        on_ended=lambda _: None,
        kill_counts=KillCounts(),
        spool=None,
        excerpt_bytes=1 << 16,
    )
    execution.start(spec.encode(label=""))
    await execution.wait()
    return b"".join(
        execution.output.excerpt(stream, 1 << 16).data for stream in (Stream.STDOUT, Stream.STDERR)
    ).decode()


def is_mounted_on_the_host(directory: Path) -> bool:
    return str(directory) in Path("/proc/self/mountinfo").read_text()


ATTEMPTS = f"""
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
place = {TARGET!r}

def failed(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")

attempts = dict(
    create=lambda: open(place + "/new", "w"),
    write=lambda: open(place + "/file", "r+"),
    remove=lambda: os.unlink(place + "/file"),
    chmod=lambda: os.chmod(place + "/file", 0o777),
    rename=lambda: os.rename(place + "/file", place + "/other"),
    link=lambda: os.link(place + "/file", "/workspace/linked"),
    move_away=lambda: os.rename(place, "/workspace/elsewhere"),
    unmount=lambda: failed(libc.umount2(place.encode(), 2)),
    remount=lambda: failed(libc.mount(b"none", place.encode(), None, 32 | 4096, None)),
    cover=lambda: failed(libc.mount(b"/tmp", place.encode(), None, 4096, None)),
    set_attributes=lambda: failed(
        libc.syscall(442, -100, place.encode(), 0, bytes(8) + bytes([1]) + bytes(23), 32)
    ),
)
seen = {{}}
for name, attempt in attempts.items():
    try:
        attempt()
        seen[name] = "done"
    except OSError as error:
        seen[name] = os.strerror(error.errno)
print(json.dumps(seen))
"""


async def test_commands_can_read_an_attached_directory_and_nothing_else(
    sandbox: Sandbox, source: Path
) -> None:
    """Every way to change it, to leave it by a link or to get it out of the way is refused by the
    kernel, and the host has no mount of it."""
    await sandbox.attach([Attachment(source, TARGET)])

    assert await output(sandbox, "cat", f"{TARGET}/file") == "from the host"
    (source / "later").write_text("added")
    assert await output(sandbox, "cat", f"{TARGET}/later") == "added"

    seen = json.loads(await output(sandbox, probe.PYTHON, "-I", "-S", "-c", ATTEMPTS))
    read_only, not_permitted = os.strerror(errno.EROFS), os.strerror(errno.EPERM)
    assert seen == {
        "create": read_only,
        "write": read_only,
        "remove": read_only,
        "chmod": read_only,
        "rename": read_only,
        "link": os.strerror(errno.EXDEV),
        "move_away": not_permitted,
        "unmount": not_permitted,
        "remount": not_permitted,
        "cover": not_permitted,
        "set_attributes": not_permitted,
    }
    assert sorted(os.listdir(source)) == ["file", "later"]
    assert not is_mounted_on_the_host(source)


async def test_several_directories_in_one_sandbox(
    parts: Parts, sandbox: Sandbox, source: Path, tmp_path: Path
) -> None:
    """Each is at its place, and another sandbox has neither."""
    other_source = tmp_path / "other"
    other_source.mkdir()
    (other_source / "second").touch()

    await sandbox.attach([Attachment(source, TARGET)])
    await sandbox.attach([Attachment(other_source, SECOND_TARGET)])

    assert await output(sandbox, "ls", TARGET, SECOND_TARGET) == (
        f"{SECOND_TARGET}:\nsecond\n\n{TARGET}:\nfile\n"
    )
    neighbour = await parts.maker.make(parts.environment)
    try:
        assert await output(neighbour, "ls", TARGET, SECOND_TARGET) == (
            f"{SECOND_TARGET}:\n\n{TARGET}:\n"
        )
    finally:
        await parts.maker.destroy(neighbour)


async def test_a_place_behind_a_link_is_refused(sandbox: Sandbox, source: Path) -> None:
    """Should a command ever run before an attachment, a link of its making leads nowhere."""
    await output(sandbox, "ln", "-s", "/tmp", "/workspace/bent")

    with pytest.raises(EngineFailed, match="doctor"):
        await sandbox.attach([Attachment(source, "/workspace/bent")])

    assert await output(sandbox, "ls", "/tmp") == ""


async def test_a_lost_sandbox_gets_nothing(parts: Parts, sandbox: Sandbox, source: Path) -> None:
    """An attachment to a sandbox that has ended fails, and is not made somewhere else."""
    assert sandbox.process is not None
    sandbox.cut_off("the test ends it")
    assert await sandbox.process.gone(10)

    with pytest.raises(EngineFailed):
        await sandbox.attach([Attachment(source, TARGET)])


async def test_the_time_to_attach(sandbox: Sandbox, source: Path) -> None:
    """Printed, not asserted."""
    seconds = []
    for _ in range(TIMES):
        began = time.perf_counter()
        await sandbox.attach([Attachment(source, TARGET)])
        seconds.append(time.perf_counter() - began)
    print(
        f"attach a directory to a sandbox: p50 {statistics.median(seconds) * 1000:.2f} ms, "
        f"most {max(seconds) * 1000:.2f} ms of {TIMES}"
    )
    assert await output(sandbox, "ls", TARGET) == "file\n"
