"""Files of real sandboxes outside of the workspace: what commands could do, and nothing more."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode, aio

from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import files_pb2
from tests.docker.commands import run
from tests.docker.daemon_process import Api
from tests.docker.test_file_worker import REPLACER, SWAPS, swapping
from tests.docker.test_lifecycle import eventually
from tests.service.client import refused
from tests.service.file_client import FileClient

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
NOT_PERMITTED = (StatusCode.FAILED_PRECONDITION, "FILE_NOT_PERMITTED")
PROTECTED = (StatusCode.FAILED_PRECONDITION, "PROTECTED_PATH")
NOT_A_FILE = (StatusCode.FAILED_PRECONDITION, "NOT_A_FILE")
NOT_FOUND = (StatusCode.NOT_FOUND, "FILE_NOT_FOUND")


@pytest.fixture
def files(api: Api, session_id: str) -> FileClient:
    return FileClient(api.files, session_id)


@pytest.fixture
def sh(api: Api, session_id: str) -> Callable[..., Any]:
    async def run_line(line: str, timeout: int = 60) -> str:
        done = await run(api, session_id, line, timeout=timeout)
        assert done.exit.code == 0, done.stderr.data
        return done.stdout.data.decode(errors="surrogateescape")

    return run_line


async def test_a_day_of_work_in_tmp(files: FileClient, sh: Any) -> None:
    """Every call does there what it does in the workspace, and commands see it."""
    await files.upload("/tmp/in/run", b"#!/bin/sh\necho hi\n", make_parents=True, mode=0o755)
    await files.upload("/tmp/in/run", b"#!/bin/sh\necho ho\n")
    assert await sh("/tmp/in/run") == "ho\n"
    await files.write_text("/tmp/in/t", "one\ntwo\n")
    assert await files.edit_text("/tmp/in/t", "two", "2") == 1
    assert await sh("cat /tmp/in/t; echo three >>/tmp/in/t") == "one\n2\n"
    assert (await files.read_text("/tmp/in/t")).text == "one\n2\nthree\n"
    assert await files.download("/tmp/in/t", offset=4, length=2) == b"2\n"
    assert await files.names("/tmp", recursive=True) == ["/tmp/in", "/tmp/in/run", "/tmp/in/t"]
    assert await files.glob("*.{x,y}", path="/tmp") == []
    assert await files.glob("{r*,t}", path="/tmp") == ["/tmp/in/run", "/tmp/in/t"]
    found = await files.grep("three", path="/tmp")
    assert [(match.path, match.line_number) for match in found.matches] == [("/tmp/in/t", 3)]
    archive, _ = await files.download_tar("/tmp/in")
    assert (await files.upload_tar("/tmp/copy", archive)).extracted == 2
    assert (await files.move("/tmp/copy/t", "/tmp/deep/er/t", make_parents=True)).path == (
        "/tmp/deep/er/t"
    )
    assert (
        await sh("cd /tmp; find . -type f | sort") == "./copy/run\n./deep/er/t\n./in/run\n./in/t\n"
    )
    assert await files.remove("/tmp/in", recursive=True) == 3
    with refused(*PROTECTED):
        await files.move("/tmp/deep/er/t", "t")
    assert await files.names() == ["agent_workspace", "outputs", "project_files"]


async def test_what_can_be_written_outside(files: FileClient, sh: Any) -> None:
    """The directories that errors name, to files of the size that a file may have there."""
    for directory in ("/tmp", "/var/tmp"):
        await files.upload(f"{directory}/d/f", b"x" * MIB, make_parents=True)
        assert await sh(f"stat -c %s {directory}/d/f") == f"{MIB}\n"
        assert await files.remove(f"{directory}/d", recursive=True) == 2
    with refused(StatusCode.FAILED_PRECONDITION, "FILE_TOO_LARGE"):
        await files.upload("/tmp/x", b"", size_bytes=1 << 40)
    await files.upload("/tmp/x", b"x")
    with refused(*PROTECTED) as refusal:
        await files.move("/tmp/x", "/var/tmp/x")
    assert "copy it with a command" in refusal.message


async def test_a_look_around(files: FileClient, sh: Any) -> None:
    """Directories and files of the image, the kernel's files, and the workspace by its path."""
    assert set(await files.names("/")) >= {"/etc", "/tmp", "/usr", "/workspace", "/proc", "/bin"}
    assert await files.download("/etc/passwd") == (await sh("cat /etc/passwd")).encode()
    assert (await files.stat("/etc")).type == files_pb2.FILE_TYPE_DIRECTORY
    assert (await files.stat("/bin")).type == files_pb2.FILE_TYPE_SYMLINK
    assert (await files.read_text("/proc/sys/kernel/ostype")).text == "Linux\n"
    assert await files.download("/proc/sys/kernel/ostype") == b"Linux\n"
    assert "/usr/bin/env" in await files.glob("env", path="/usr/bin")
    assert await files.names("/workspace") == ["agent_workspace", "outputs", "project_files"]
    await files.upload("x", b"needle-in-a-haystack")
    found = await files.grep("needle-in-a-haystack", path="/", glob="x", exclude_dirs=["usr"])
    assert {match.path for match in found.matches} == {"/workspace/x"}
    listed = await files.list("/", recursive=True, page_size=10_000)
    names = {entry.path for entry in listed.entries}
    assert "/.sandboxd" in names
    assert not any(name.startswith(("/proc/", "/sys/", "/dev/", "/.sandboxd/")) for name in names)


@pytest.mark.parametrize("path", ["/new", "/etc/passwd", "/etc/new", "/usr/bin/env", "/opt/a/b"])
async def test_the_image_is_read_only(path: str, files: FileClient, sh: Any) -> None:
    """Every write is refused with what can be written to."""
    before = await sh("ls -A / /etc /opt; cksum /etc/passwd /usr/bin/env")
    calls = [
        files.upload(path, b"x", make_parents=True),
        files.write_text(path, "x", make_parents=True),
        files.make_directory(f"{path}2/d", make_parents=True),
        files.upload_tar(f"{path}3", b"\0" * 1024),
    ]
    if path in ("/etc/passwd", "/usr/bin/env"):
        calls += [
            files.edit_text(path, "o", "x", replace_all=True),
            files.remove(path),
            files.move(path, f"{path}4"),
            files.upload(path, b"x"),
        ]
    for call in calls:
        with refused(*PROTECTED) as refusal:
            await call
        if path != "/usr/bin/env":
            assert "only /workspace, /tmp and /var/tmp can be written to" in refusal.message
    with refused(*PROTECTED):
        await files.remove("/etc", recursive=True)

    assert await sh("ls -A / /etc /opt; cksum /etc/passwd /usr/bin/env") == before


# --- P: paths that a command prepared, and what belongs to others ---

UNREADABLE = {
    "P05 a secret of the image": ("/etc/shadow", NOT_PERMITTED),
    "P06 through a directory": ("/root/.bashrc", NOT_PERMITTED),
    "P11 /dev/zero": ("/dev/zero", NOT_A_FILE),
    "P11 /dev/tty": ("/dev/tty", NOT_A_FILE),
    "P11 /dev/stdin": ("/dev/stdin", PROTECTED),
    "P11 the worker's memory": ("/proc/self/mem", PROTECTED),
    "P11 the worker's layout": ("/proc/thread-self/maps", PROTECTED),
    "P11 PID 1's root": ("/proc/1/root/etc/passwd", NOT_PERMITTED),
    "P11 PID 1's directory": ("/proc/1/cwd/x", NOT_PERMITTED),
    "P11 PID 1's environment": ("/proc/1/environ", NOT_PERMITTED),
    "P11 PID 1's memory": ("/proc/1/mem", NOT_PERMITTED),
    "P11 PID 1's layout": ("/proc/1/maps", NOT_PERMITTED),
    "P11 PID 1's descriptors": ("/proc/1/fd/3", NOT_PERMITTED),
    "the guest's program": ("/.sandboxd/guest/__main__.py", PROTECTED),
    "the guest's link": ("/.sandboxd/link/guest.sock", PROTECTED),
    "the guest's Python": ("/.sandboxd/bin/python3.11", PROTECTED),
}


@pytest.mark.parametrize(("path", "outcome"), UNREADABLE.values(), ids=UNREADABLE)
async def test_what_is_not_a_callers_to_read(
    path: str, outcome: tuple[StatusCode, str], files: FileClient, sh: Any
) -> None:
    """P05, P06, P11: by its name or through a link in /tmp, to read and to write; at once."""
    directory, _, name = path.rpartition("/")
    await sh(f"ln -s {path} /tmp/leak; ln -s {directory} /tmp/dir; ln -s leak /tmp/chain")
    async with asyncio.timeout(30):
        for asked in (path, "/tmp/leak", f"/tmp/dir/{name}", "/tmp/chain"):
            for call in (
                files.download(asked),
                files.read_text(asked),
                files.grep("x", path=asked),
            ):
                with refused(*outcome):
                    await call
            with pytest.raises(aio.AioRpcError):
                await files.upload(asked, b"x")
    assert await sh("readlink /tmp/leak") == f"{path}\n"


async def test_nothing_that_a_command_could_not_read(files: FileClient, sh: Any) -> None:
    """Of PID 1, of a worker and of the image, the API reads a file only if a command can."""
    line = (
        "find / -xdev -type f ! -readable 2>/dev/null; for f in /proc/1/*; do "
        '[ ! -f "$f" ] || head -c 1 "$f" >/dev/null 2>&1 || echo "$f"; done'
    )
    unreadable = (await sh(line)).split("\n")[:-1]
    assert {"/etc/shadow", "/proc/1/environ", "/proc/1/maps", "/proc/1/mem"} <= set(unreadable)
    for path in unreadable:
        with refused(*NOT_PERMITTED):
            await files.download(path)
    print(f"files that commands cannot read: {len(unreadable)}, 0 read by the API")


async def test_workers_are_closed_to_each_other(files: FileClient, sh: Any) -> None:
    """A caller cannot read the memory or the environment of a worker that serves another call."""
    await files.upload("f", bytes(48 * MIB))
    call = files.stub.DownloadFile(
        pb.DownloadFileRequest(session_id=files.session_id, path="f"), timeout=60
    )
    await call.read()
    line = "for p in /proc/[0-9]*; do read c <$p/comm && echo $c ${p#/proc/}; done 2>/dev/null"

    async def workers() -> list[str]:
        found = map(str.split, (await sh(line)).splitlines())
        return [pid for comm, pid in found if "python" in comm and pid != "1"]

    async def is_alone() -> bool:
        return len(await workers()) == 1

    await eventually(is_alone)  # one that waits for work may be there for a while
    (worker,) = await workers()
    for name in ("environ", "maps", "mem", "fd/0"):
        with refused(*NOT_PERMITTED):
            await files.download(f"/proc/{worker}/{name}")
    call.cancel()


async def test_commands_are_closed_to_callers(files: FileClient, sh: Any) -> None:
    """What processes are is seen as commands see it; what they hold is not, as between commands."""
    await sh("sleep 1000 >/dev/null 2>&1 & echo $! >pid")
    pid = (await files.read_text("pid")).text.strip()
    assert "sleep" in (await files.read_text(f"/proc/{pid}/status")).text
    assert await files.download(f"/proc/{pid}/comm") == b"sleep\n"
    for name in ("environ", "maps", "mem", "pagemap", "fd/0", "cwd/x", "root/etc/passwd"):
        with refused(*NOT_PERMITTED):
            await files.download(f"/proc/{pid}/{name}")
    descriptors = (await files.list(f"/proc/{pid}/fd")).entries
    assert [one.link_target for one in descriptors] == [""] * len(descriptors)
    found = await files.grep("SECRET", path=f"/proc/{pid}")
    assert not found.complete


async def test_special_files_are_refused_at_once(files: FileClient, sh: Any) -> None:
    """P10, P12: a pipe nobody writes to, a socket, and everything in /dev."""
    await sh(
        "cd /tmp; mkfifo pipe; mkdir d; "
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\""
    )
    types = {entry.path: entry.type for entry in (await files.list("/tmp")).entries}
    assert types["/tmp/pipe"] == files_pb2.FILE_TYPE_FIFO
    assert types["/tmp/sock"] == files_pb2.FILE_TYPE_SOCKET
    devices = [
        entry.path
        for entry in (await files.list("/dev")).entries
        if entry.type not in (files_pb2.FILE_TYPE_SYMLINK, files_pb2.FILE_TYPE_FILE)
    ]
    assert {"/dev/null", "/dev/zero"} <= set(devices)
    async with asyncio.timeout(60):
        for path in ("/tmp/pipe", "/tmp/sock", "/tmp/d", *devices):
            with refused(*NOT_A_FILE):
                await files.download(path)
            with refused(*NOT_A_FILE):
                await files.upload(path, b"x")


async def test_the_layout_stays_from_outside(files: FileClient, sh: Any) -> None:
    """P21: links in /tmp do not lead to the removal of the layout, or into project files."""
    await files.upload("project_files/p", b"p")
    await sh("cd /tmp; ln -s /workspace ws; ln -s /workspace/project_files/p p; echo x >f")
    for name in ("outputs", "project_files", "agent_workspace"):
        for call in (
            files.remove(f"/tmp/ws/{name}", recursive=True),
            files.move(f"/tmp/ws/{name}", "/tmp/ws/new"),
        ):
            with refused(*PROTECTED):
                await call
    for call in (
        files.upload("/tmp/p", b"q"),
        files.write_text("/tmp/ws/project_files/p", "q"),
        files.edit_text("/tmp/p", "p", "q"),
        files.make_directory("/tmp/ws/project_files/d"),
        files.remove("/tmp/ws/project_files/p"),
        files.upload_tar("/tmp/ws/project_files/d", b"\0" * 1024),
    ):
        with refused(*PROTECTED):
            await call
    assert await files.download("/tmp/p") == b"p"
    await files.upload("/tmp/ws/ok", b"ok")
    assert await sh("cat ok; ls project_files") == "okp\n"
    assert await files.names() == ["agent_workspace", "ok", "outputs", "project_files"]


async def test_the_host_has_other_files(files: FileClient, tmp_path: Path) -> None:
    """A path means what it means in the sandbox: the daemon opens nothing of that name."""
    (tmp_path / "secret").write_bytes(b"of the host")
    for path in (f"{tmp_path}/secret", f"/proc/{os.getpid()}/environ"):
        with refused(*NOT_FOUND):
            await files.download(path)
    path = f"/tmp/{tmp_path.name}"
    await files.upload(path, b"mine")

    assert await files.download(path) == b"mine"
    assert not await asyncio.to_thread(os.path.exists, path)


async def test_a_full_tmp_is_said(files: FileClient, sh: Any) -> None:
    """Before a byte is sent where the size is known, and it is not the workspace that is blamed."""
    fill = "i=0; while head -c 40M /dev/zero >/tmp/fill$i; do i=$((i + 1)); done 2>/dev/null; true"
    await sh(fill)
    call = files.stub.UploadFile(timeout=20)
    await call.write(files.header("/tmp/x", size_bytes=2 * MIB))
    with refused(StatusCode.FAILED_PRECONDITION, "WORKSPACE_FULL") as refusal:
        await call
    assert "The filesystem has no room for '/tmp/x'" in refusal.message
    with refused(StatusCode.FAILED_PRECONDITION, "WORKSPACE_FULL"):
        await files.upload("/tmp/x", bytes(2 * MIB))
    await sh("rm /tmp/fill*")
    await files.upload("/tmp/x", bytes(2 * MIB))


# --- swaps ---

TARGETS = {
    "unreadable": "/etc/shadow",
    "the worker": "/proc/self/maps",
    "the guest": "/.sandboxd/guest/__main__.py",
    "a device": "/dev/zero",
}


@pytest.mark.calm
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
async def test_a_file_swapped_for_a_link_under_a_download(
    target: str, files: FileClient, sh: Any
) -> None:
    """P07: what is sent is the file, or nothing."""
    await sh(f"echo mine >/tmp/f; ln -s {target} /tmp/l")

    async def attempt() -> None:
        assert await files.download("/tmp/f") == b"mine\n"

    swaps, answers, refusals = await swapping(files, sh, "/tmp/f", "/tmp/l", attempt)
    assert swaps >= SWAPS
    assert answers > 0
    print(
        f"swaps outside the workspace: {swaps}, {answers} sent, {refusals} refused, 0 of {target}"
    )


@pytest.mark.calm
async def test_a_directory_swapped_for_a_link_under_a_download(files: FileClient, sh: Any) -> None:
    """P08: also where a directory on the way is swapped."""
    await sh("mkdir /tmp/d; echo mine >/tmp/d/maps; ln -s /proc/self /tmp/l")

    async def attempt() -> None:
        assert await files.download("/tmp/d/maps") == b"mine\n"

    swaps, answers, refusals = await swapping(files, sh, "/tmp/d", "/tmp/l", attempt)
    assert swaps >= SWAPS
    assert answers > 0
    print(f"directory swaps outside: {swaps}, {answers} sent, {refusals} refused, 0 leaks")


@pytest.mark.calm
@pytest.mark.parametrize("target", ["/workspace/project_files", "/etc"])
async def test_a_directory_swapped_for_a_link_under_an_upload(
    target: str, files: FileClient, sh: Any
) -> None:
    """P06, P08: nothing is written where commands cannot write."""
    await sh(f"mkdir /tmp/d; ln -s {target} /tmp/l")
    before = await sh(f"ls -A {target}")
    written = []

    async def attempt() -> None:
        await files.upload(f"/tmp/d/f{len(written)}", b"x" * 1000)
        written.append(1)

    swaps, answers, refusals = await swapping(files, sh, "/tmp/d", "/tmp/l", attempt)
    assert swaps >= SWAPS
    assert await sh(f"ls -A {target}") == before
    real = "$([ -L /tmp/d ] && echo /tmp/l || echo /tmp/d)"
    assert len((await sh(f"ls {real}")).split()) == answers > 0
    print(f"upload swaps outside: {swaps}, {answers} written, {refusals} refused, 0 in {target}")


@pytest.mark.calm
async def test_a_file_swapped_for_a_link_under_an_upload(files: FileClient, sh: Any) -> None:
    """P07: project files stay, whatever the name is in between."""
    await files.upload("project_files/p", b"kept")
    await sh("echo old >/tmp/f")
    target = "/workspace/project_files/p"

    async def attempt() -> None:
        await files.upload("/tmp/f", b"new\n")

    swaps, answers, refusals = await swapping(files, sh, "/tmp/f", target, attempt, REPLACER)
    assert swaps >= SWAPS
    assert answers > 0
    assert refusals > 0
    assert await sh("cat project_files/p; ls project_files") == "keptp\n"
    print(f"name swaps outside: {swaps}, {answers} written, {refusals} refused, 0 in {target}")
