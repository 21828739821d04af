"""Files of real sandboxes over the API: what commands find, attackers get and limits hold."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import signal
import sys
import tarfile
import time
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from grpc import StatusCode, aio

from sandboxd.workspaces.disk_template import SLACK_BYTES
from sandboxd_proto.v1 import exec_pb2, files_pb2, session_service_pb2
from sandboxd_proto.v1 import file_service_pb2 as pb
from tests.docker.commands import close_session, run
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.docker.test_lifecycle import eventually
from tests.service.client import refused
from tests.service.file_client import FileClient

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
UPLOADS = 112
AT_ONCE = 8
"""Calls that one session takes at a time."""
SMALL_FILES = 900
ONE_BY_ONE = 150
CHANGES = 500
LINKS = 65_100
"""More than ext4 allows of one file."""


@pytest.fixture
def files(api: Api, session_id: str) -> FileClient:
    return FileClient(api.files, session_id)


@pytest.fixture
def sh(api: Api, session_id: str) -> Callable[..., Any]:
    """Runs a line that has to succeed; returns its output."""

    async def run_line(line: str) -> str:
        done = await run(api, session_id, line, timeout=30)
        assert done.exit.code == 0, done.stderr.data
        return done.stdout.data.decode(errors="surrogateescape")

    return run_line


# --- habits ---


async def test_an_uploaded_file_is_found_by_all_its_names(files: FileClient, sh: Any) -> None:
    """`cat data.json`, `/workspace/data.json` and `agent_workspace/data.json` are one file, for
    commands and for the API."""
    await files.upload("data.json", b'{"a": 1}\n')

    for name in ("data.json", "/workspace/data.json", "agent_workspace/data.json"):
        assert await sh(f"cat {name}") == '{"a": 1}\n'
        assert await files.download(name) == b'{"a": 1}\n'
    await sh("echo '{}' >report.json; echo x >outputs/y")
    assert await files.download("agent_workspace/report.json") == b"{}\n"
    assert await files.names() == [
        "agent_workspace",
        "data.json",
        "outputs",
        "project_files",
        "report.json",
    ]


async def test_large_files_come_back_as_they_were(files: FileClient, sh: Any) -> None:
    """Up, seen by a command, down, whole and in ranges, with the same checksum everywhere."""
    data = os.urandom(9 * MIB + 12345)
    digest = hashlib.sha256(data)
    done = await files.upload("big", data, size_bytes=len(data), sha256=digest.digest(), mode=0o600)

    assert done.sha256 == digest.digest()
    assert (await sh("sha256sum big; stat -c %a big")).split() == [digest.hexdigest(), "big", "600"]
    assert await files.download("big") == data
    assert await files.download("big", offset=MIB - 5, length=10) == data[MIB - 5 : MIB + 5]
    assert await files.download("big", offset=len(data) + 5) == b""


async def test_a_day_of_work_with_files(files: FileClient, sh: Any) -> None:
    """Directories, moves, removals, text by lines, edits and searches, each seen by commands."""
    assert (await files.make_directory("src/app", make_parents=True)).created
    assert not (await files.make_directory("src/app")).created
    await files.write_text("src/app/main.py", "import os\nprint('one')\nprint('two')\n")
    await files.write_text("src/app/main.py", "print('new')\n", first_line=2, line_count=1)
    assert await files.edit_text("src/app/main.py", "two", "three") == 1
    assert await sh("python3 src/app/main.py") == "new\nthree\n"
    read = await files.read_text("src/app/main.py", first_line=2, max_lines=1)
    assert (read.text, read.total_lines, read.truncated) == ("print('new')\n", 3, True)
    found = await files.grep(r"print\('t", regex=True, glob="*.py")
    assert [(m.path, m.line_number) for m in found.matches] == [("src/app/main.py", 3)]
    assert await files.glob("**/*.py") == ["src/app/main.py"]
    await files.move("src/app/main.py", "src/run.py")
    assert await sh("ls src src/app") == "src:\napp\nrun.py\n\nsrc/app:\n"
    assert await files.remove("src", recursive=True) == 3
    with refused(StatusCode.NOT_FOUND, "FILE_NOT_FOUND"):
        await files.stat("src")


# --- P: paths ---

NO_PATHS = {
    "P01 above": "../../etc/passwd",
    "P01 above the root": "/..",
    "P02 absolute": "/workspace/../etc/passwd",
    "P02 beside": "/tmp/../etc/passwd",
    "P03 up and down": "a/../../b",
    "P04 empty": "",
    "P04 dot": ".",
    "P04 root": "/",
    "P04 workspace": "/workspace",
    "P04 NUL": "a\0b",
    "P04 long": "x/" * 2500,
    "P04 long name": "x" * 256,
}


@pytest.mark.parametrize("path", NO_PATHS.values(), ids=NO_PATHS)
async def test_what_is_no_path_is_refused(path: str, files: FileClient) -> None:
    """P01 to P04: by every call, before anything is done."""
    calls = [
        files.upload(path, b"x"),
        files.download(path),
        files.make_directory(path),
        files.remove(path, recursive=True),
        files.move(path, "b"),
        files.move("outputs", path),
        files.read_text(path),
        files.write_text(path, "x"),
        files.edit_text(path, "x", "y"),
    ]
    if path not in ("", ".", "/", "/workspace"):
        calls += [files.list(path), files.stat(path), files.upload_tar(path, b"")]
    for call in calls:
        with refused(StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"):
            await call
    assert await files.names() == ["agent_workspace", "outputs", "project_files"]


OUTSIDE = {
    "P05 a file of the image": ("ln -s /etc/passwd leak", "leak"),
    "P05 through a chain": ("ln -s leak2 leak; ln -s ../etc/hostname leak2", "leak"),
    "P06 a directory": ("ln -s / dir", "dir/etc/passwd"),
    "P11 /dev/zero": ("ln -s /dev/zero leak", "leak"),
    "P11 /proc/kmsg": ("ln -s /proc/kmsg leak", "leak"),
    "P11 /proc/self/mem": ("ln -s /proc/self/mem leak", "leak"),
    "P11 /proc/1/root": ("ln -s /proc/1/root leak", "leak/etc/passwd"),
    "P05 in circles": ("ln -s b a; ln -s a b", "a"),
}


@pytest.mark.parametrize(("line", "path"), OUTSIDE.values(), ids=OUTSIDE)
async def test_links_that_leave_the_workspace_are_not_followed(
    line: str, path: str, files: FileClient, sh: Any
) -> None:
    """P05, P06, P11: neither to read nor to write nor to list; the link itself can be removed."""
    await sh(line)
    outside = (StatusCode.FAILED_PRECONDITION, "OUTSIDE_WORKSPACE")
    for call in (files.download, files.read_text):
        with refused(*outside):
            await call(path)
    with refused(*outside):
        await files.stat(path, follow_links=True)
    below = f"{path}/new" if path != "a" else "a/new"
    with refused(*outside):
        await files.upload(below, b"x")
    with refused(*outside):
        await files.upload_tar(f"{path}/dir", b"\0" * 1024)
    name = path.partition("/")[0]
    assert (await files.stat(name)).type == files_pb2.FILE_TYPE_SYMLINK
    assert await files.remove(name) == 1


async def test_links_within_the_workspace_are_followed(files: FileClient, sh: Any) -> None:
    """Relative or absolute, to files and directories; into project_files for reads only."""
    await files.upload("project_files/p", b"p")
    await sh(
        "mkdir d; ln -s /workspace/d abs; ln -s d/../d rel; echo x >d/f; ln -s project_files pf"
    )

    assert await files.download("abs/f") == await files.download("rel/f") == b"x\n"
    await files.upload("abs/g", b"y")
    assert await sh("cat d/g") == "y"
    assert await files.download("pf/p") == b"p"
    protected = (StatusCode.FAILED_PRECONDITION, "PROTECTED_PATH")
    for call in (
        files.upload("pf/q", b"q"),
        files.write_text("pf/p", "q"),
        files.edit_text("pf/p", "p", "q"),
        files.make_directory("pf/d"),
        files.move("pf/p", "pf/q"),
        files.remove("pf/p"),
        files.upload_tar("pf", b"\0" * 1024),
    ):
        with refused(*protected):
            await call
    await files.upload("agent_workspace/project_files/q", b"q")
    assert await sh("ls project_files; cat project_files/*") == "p\nq\npq"


async def test_upload_never_writes_into_an_inode_that_is_there(files: FileClient, sh: Any) -> None:
    """P09: another name of the same file keeps the old content."""
    await sh("echo old >a; ln a b")
    await files.upload("a", b"new\n")

    assert await sh("cat a b; stat -c %h a b") == "new\nold\n1\n1\n"


async def test_upload_writes_through_a_link_of_the_workspace(files: FileClient, sh: Any) -> None:
    """P06: the target is written, atomically, and stays what it was; a link out of the workspace
    is refused, and neither it nor its target changes."""
    await sh("echo old >t; chmod 750 t; ln t other; ln -s t in; ln -s /workspace/in chain")
    await sh("echo before >/tmp/target; ln -s /tmp/target out")
    await files.upload("chain", b"#!/bin/sh\necho new\n")
    with refused(StatusCode.FAILED_PRECONDITION, "OUTSIDE_WORKSPACE"):
        await files.upload("out", b"mine\n")
    with refused(StatusCode.ALREADY_EXISTS, "FILE_EXISTS"):
        await files.upload("in", b"mine\n", overwrite=pb.OVERWRITE_POLICY_FAIL)

    assert await sh("./in; cat other; stat -c %a t") == "new\nold\n750\n"
    assert await sh("cat /tmp/target; readlink in chain out") == (
        "before\nt\n/workspace/in\n/tmp/target\n"
    )


async def test_upload_honours_a_removed_write_bit(files: FileClient, sh: Any) -> None:
    """What commands may not write to is not replaced either, directly or through a link."""
    await sh("echo kept >f; chmod 444 f; ln -s f l")
    for path in ("f", "l"):
        for call in (
            files.upload(path, b"x"),
            files.upload(path, b"x", mode=0o644),
            files.write_text(path, "x"),
            files.edit_text(path, "kept", "x"),
        ):
            with refused(StatusCode.FAILED_PRECONDITION, "FILE_NOT_PERMITTED"):
                await call
    assert await sh("cat f; ls -A") == "kept\nagent_workspace\nf\nl\noutputs\nproject_files\n"
    await sh("chmod 644 f")
    await files.upload("l", b"x")
    assert await sh("cat f") == "x"
    await files.upload("project_files/p", b"1", mode=0o444)
    await files.upload("project_files/p", b"2")
    assert await sh("cat project_files/p; stat -c %a project_files/p") == "2444\n"


async def test_special_files_are_named_and_never_opened(files: FileClient, sh: Any) -> None:
    """P10, P12: a pipe nobody writes to and a socket are typed entries, refused at once."""
    await sh(
        "mkfifo pipe; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\""
    )
    found = {entry.path: entry.type for entry in (await files.list()).entries}

    assert found["pipe"] == files_pb2.FILE_TYPE_FIFO
    assert found["sock"] == files_pb2.FILE_TYPE_SOCKET
    for name in ("pipe", "sock", "outputs"):
        for call in (files.download, files.read_text):
            with refused(StatusCode.FAILED_PRECONDITION, "NOT_A_FILE"):
                await call(name)
    _, end = await files.download_tar()
    assert {one.name for one in end.skipped} >= {"sock"}
    assert await sh("ls pipe sock") == "pipe\nsock\n"


async def test_a_file_that_shrinks_while_it_is_read_is_told(files: FileClient, sh: Any) -> None:
    """P13: the reader does not take a part for the whole."""
    await sh("head -c 48M /dev/zero >f")
    call = files.stub.DownloadFile(
        pb.DownloadFileRequest(session_id=files.session_id, path="f"), timeout=60
    )
    assert (await call.read()).entry.size_bytes == 48 * MIB
    await sh("truncate -s 1M f")
    with refused(StatusCode.ABORTED, "FILE_CHANGED"):
        while await call.read():
            pass


async def test_a_file_that_grows_while_it_is_read_is_sent_as_it_was(
    files: FileClient, sh: Any
) -> None:
    """P13: up to the size that it had, however fast it grows."""
    await sh("head -c 24M /dev/zero >f")
    call = files.stub.DownloadFile(
        pb.DownloadFileRequest(session_id=files.session_id, path="f"), timeout=60
    )
    await call.read()
    await sh("head -c 8M /dev/urandom >>f")
    size = 0
    while (part := await call.read()).WhichOneof("part") == "chunk":
        size += len(part.chunk)

    assert size == part.end.sent_bytes == 24 * MIB


async def test_upload_over_a_directory_or_below_a_file_is_refused(
    files: FileClient, sh: Any
) -> None:
    """P14: nothing is replaced by something of another kind."""
    await sh("mkdir d; echo x >f")
    with refused(StatusCode.FAILED_PRECONDITION, "NOT_A_FILE"):
        await files.upload("d", b"x")
    with refused(StatusCode.FAILED_PRECONDITION, "NOT_A_DIRECTORY"):
        await files.upload("f/child", b"x", make_parents=True)
    with refused(StatusCode.NOT_FOUND, "FILE_NOT_FOUND"):
        await files.upload("none/child", b"x")
    with refused(StatusCode.ALREADY_EXISTS, "FILE_EXISTS"):
        await files.upload("f", b"y", overwrite=pb.OVERWRITE_POLICY_FAIL)

    assert await sh("cat f; ls d") == "x\n"


@pytest.mark.parametrize(("asked", "got"), [(0o4755, "755"), (0o7777, "777"), (0, "644")])
async def test_set_id_bits_are_dropped(asked: int, got: str, files: FileClient, sh: Any) -> None:
    """P15: an upload makes nothing that runs as someone else."""
    for path in ("x", "project_files/x"):
        await files.upload(path, b"#!/bin/sh\n", mode=asked)
        assert (await sh(f"stat -c %a {path}")).strip() == got


# --- P: archives ---


def archive_of(*members: tuple[str, dict[str, Any], bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, fields, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in fields.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


HOSTILE_MEMBERS: dict[str, list[tuple[str, dict[str, Any], bytes]]] = {
    "above": [("../up", {}, b"x")],
    "far above": [("a/../../../up", {}, b"x")],
    "absolute": [("/etc/up", {}, b"x")],
    "through a link to outside": [
        ("l", {"type": tarfile.SYMTYPE, "linkname": "/tmp"}, b""),
        ("l/up", {}, b"x"),
    ],
    "through a link upwards": [
        ("l", {"type": tarfile.SYMTYPE, "linkname": "../.."}, b""),
        ("l/up", {}, b"x"),
    ],
    "through links in a chain": [
        ("d/e/f", {"type": tarfile.DIRTYPE}, b""),
        ("d/e/f/l", {"type": tarfile.SYMTYPE, "linkname": "../../../.."}, b""),
        ("m", {"type": tarfile.SYMTYPE, "linkname": "d/e/f/l/.."}, b""),
        ("m/up", {}, b"x"),
    ],
    "hard link to outside": [("l", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}, b"")],
    "hard link upwards": [("l", {"type": tarfile.LNKTYPE, "linkname": "../secret"}, b"")],
    "character device": [("dev", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5}, b"")],
    "block device": [("dev", {"type": tarfile.BLKTYPE, "devmajor": 7}, b"")],
    "pipe": [("pipe", {"type": tarfile.FIFOTYPE}, b"")],
    "name beyond PATH_MAX": [("n/" * 3000 + "x", {}, b"x")],
}


@pytest.mark.parametrize("members", HOSTILE_MEMBERS.values(), ids=HOSTILE_MEMBERS)
async def test_hostile_members_are_refused_one_by_one(
    members: list[tuple[str, dict[str, Any], bytes]], files: FileClient, sh: Any
) -> None:
    """P16, P17: each is reported, nothing appears elsewhere, the others are there."""
    await sh("mkdir in; echo secret >secret")
    archive = archive_of(("first", {}, b"1"), *members, ("last", {}, b"2"))
    done = await files.upload_tar("in/here", archive)

    assert done.refused_count == len(done.refused) == 1
    assert done.refused[0].name == members[-1][0][: len(done.refused[0].name)]
    assert done.refused[0].why
    assert await sh("cat in/here/first in/here/last secret") == "12secret\n"
    assert await sh("ls -A /tmp; ls in; ls -d up in/up 2>/dev/null || true") == "here\n"
    assert await sh("find . -type b -o -type c -o -type p") == ""


async def test_duplicate_members_are_as_the_last_one_says(files: FileClient, sh: Any) -> None:
    """P16: a name twice is replaced; with the policy FAIL the second is refused."""
    archive = archive_of(("a", {}, b"one"), ("a", {}, b"two"))
    assert (await files.upload_tar("x", archive)).extracted == 2
    done = await files.upload_tar("y", archive, overwrite=pb.OVERWRITE_POLICY_FAIL)

    assert (done.extracted, done.refused_count) == (1, 1)
    assert await sh("cat x/a y/a") == "twoone"


NO_ARCHIVES = {
    "text": b"this is no archive" * 100,
    "cut off": archive_of(("a", {}, b"x" * 5000))[:3000],
    "a size that lies": archive_of(("a", {"pax_headers": {"size": "999999999999"}}, b"x")),
}


@pytest.mark.parametrize("data", NO_ARCHIVES.values(), ids=NO_ARCHIVES)
async def test_what_is_no_archive_is_told(data: bytes, files: FileClient) -> None:
    """P16: a typed error, whatever it is, and nothing that claims to be whole."""
    with pytest.raises(aio.AioRpcError) as caught:
        await files.upload_tar("x", data)
    assert caught.value.code() in (StatusCode.INVALID_ARGUMENT, StatusCode.FAILED_PRECONDITION)


async def test_an_archive_of_many_tiny_members_ends_at_the_limit(
    files: FileClient, sh: Any
) -> None:
    """P16, R34: the kernel's limit of files holds, and is told with its figure."""
    archive = archive_of(*((f"f{number}", {}, b"") for number in range(3000)))
    with refused(StatusCode.FAILED_PRECONDITION, "WORKSPACE_FULL") as refusal:
        await files.upload_tar("x", archive)

    assert refusal.info.metadata["limitFiles"] == "1000"
    assert int(await sh("ls x | wc -l")) <= 1000
    assert await files.remove("x", recursive=True) > 900


async def test_a_bomb_of_zeros_ends_at_the_limit(files: FileClient, daemon_rss: Any) -> None:
    """R34: what is 1 MB packed and 1 GB unpacked is stopped by the workspace."""
    info = tarfile.TarInfo("zeros")
    info.size = 1 << 30
    head = info.tobuf(tarfile.GNU_FORMAT)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(head)
    for _ in range(256):
        packed += packer.compress(b"\0" * (4 * MIB))
    packed += packer.flush()
    before = daemon_rss()
    with refused(StatusCode.FAILED_PRECONDITION, "WORKSPACE_FULL"):
        await files.upload_tar("x", packed, compression=files_pb2.TAR_COMPRESSION_GZIP)

    assert daemon_rss() - before < 64 * MIB
    assert (await files.list()).usage.used_bytes < 64 * MIB


@pytest.fixture
def daemon_rss(shared_daemon: DaemonProcess) -> Callable[[], int]:
    def rss() -> int:
        with open(f"/proc/{shared_daemon.pid}/status") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) << 10

    return rss


# --- P: uploads ---


async def test_an_upload_that_breaks_off_leaves_nothing(files: FileClient, sh: Any) -> None:
    """P18: neither the file nor a part of it, and an old one stays as it was."""
    await sh("echo old >there")
    before = (await files.list()).usage.used_files
    for name in ("there", "new"):
        call = files.stub.UploadFile(timeout=30)
        await call.write(files.header(name, size_bytes=2 * MIB))
        await call.write(pb.UploadFileRequest(chunk=b"x" * MIB))
        call.cancel()

    async def is_as_before() -> bool:
        return (await files.list()).usage.used_files == before

    await eventually(is_as_before)
    assert await sh("cat there; ls -A") == "old\nagent_workspace\noutputs\nproject_files\nthere\n"


async def test_an_upload_of_other_content_is_not_written(files: FileClient) -> None:
    """A size or a checksum that does not fit what arrived is told, and nothing is there."""
    for header in ({"size_bytes": 4}, {"size_bytes": 2}, {"sha256": b"\0" * 32}):
        with refused(StatusCode.ABORTED, "CHECKSUM_MISMATCH"):
            await files.upload("x", b"abc", **header)
    with refused(StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"):
        await files.upload("x", b"abc", sha256=b"short")

    assert "x" not in await files.names()


async def test_of_uploads_to_one_path_one_wins_whole(files: FileClient) -> None:
    """P19: whoever comes last, the file is one of those that were sent."""
    contents = [bytes([number]) * (MIB + number) for number in range(AT_ONCE)]
    await asyncio.gather(*(files.upload("f", content) for content in contents))

    assert await files.download("f") in contents
    assert await files.names() == ["agent_workspace", "f", "outputs", "project_files"]


CUT_OFF_CLIENT = """
import asyncio, sys
from grpc import aio
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1.file_service_pb2_grpc import FileServiceStub

async def main(target, sessions, count):
    async with aio.insecure_channel(target) as channel:
        stub = FileServiceStub(channel)
        calls = []
        for session in sessions:
            for number in range(count):
                call = stub.UploadFile()
                header = pb.UploadHeader(session_id=session, path=f"f{number}", size_bytes=1 << 20)
                await call.write(pb.UploadFileRequest(header=header))
                await call.write(pb.UploadFileRequest(chunk=b"x" * (512 << 10)))
                calls.append(call)
        print("sent", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], sys.argv[3:], int(sys.argv[2])))
"""


async def test_a_client_killed_in_the_middle_of_uploads_leaves_nothing(
    api: Api, shared_daemon: DaemonProcess
) -> None:
    """No partial file is visible, and no inode is left, after 100 uploads whose client died."""
    opened = [
        (
            await api.sessions.OpenSession(
                session_service_pb2.OpenSessionRequest(user_id="tests", thread_id=f"killed {n}")
            )
        ).session.session_id
        for n in range(2)
    ]
    clients = [FileClient(api.files, one) for one in opened]
    before = [(await one.list()).usage for one in clients]
    for _ in range(UPLOADS // (AT_ONCE * len(opened))):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CUT_OFF_CLIENT, f"unix:{shared_daemon.socket}"),
            *(str(AT_ONCE), *opened),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 20) == b"sent\n"
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def all_is_gone() -> bool:
        now = [(await one.list()).usage for one in clients]
        return [one.used_files for one in now] == [one.used_files for one in before]

    await eventually(all_is_gone)
    for client in clients:
        assert await client.names() == ["agent_workspace", "outputs", "project_files"]
        await close_session(api, client.session_id)
    print(f"client killed in the middle of uploads: {UPLOADS} uploads, 0 partial, 0 temporary")


# --- P: names ---


async def test_twins_are_kept_apart(files: FileClient, sh: Any) -> None:
    """P20: composed or not, upper or lower case: names are bytes."""
    twins = ["\u00e9", "e\u0301", "README", "readme"]
    for name in twins:
        await files.upload(name, name.encode())

    for name in twins:
        assert await files.download(name) == name.encode()
    assert set(twins) <= set(await files.names())
    assert int(await sh("ls | wc -l")) == len(twins) + 3


ODD_NAMES = [b"-rf", b"new\nline", b"\xff\xfe", b" ", b"x" * 255, b"\x1b[31m", b"a\\xffb", b"~"]


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_every_name_is_shown_losslessly_and_can_be_removed(
    name: bytes, files: FileClient
) -> None:
    """R30: whatever Linux allows can be written, listed, read, moved and removed."""
    await files.upload(name, b"content")
    (entry,) = [
        one
        for one in (await files.list()).entries
        if one.path not in ("agent_workspace", "outputs", "project_files")
    ]

    assert (entry.path_bytes or entry.path.encode()) == name
    assert entry.path.isprintable()
    assert await files.download(name) == b"content"
    await files.move(name, "plain")
    assert await files.download("plain") == b"content"
    assert await files.remove("plain") == 1


PROTECTED = ["project_files", "outputs", "agent_workspace"]


@pytest.mark.parametrize("path", PROTECTED)
async def test_the_layout_cannot_be_removed_or_moved(path: str, files: FileClient) -> None:
    """P21: the workspace, its mount points and its directories stay."""
    protected = (StatusCode.FAILED_PRECONDITION, "PROTECTED_PATH")
    with refused(*protected):
        await files.remove(path, recursive=True)
    with refused(*protected):
        await files.move(path, "elsewhere")
    await files.upload("f", b"x")
    with refused(*protected):
        await files.move("f", path, replace=True)
    for ends in (("f", "project_files/f"), ("project_files/p", "p")):
        await files.upload("project_files/p", b"x")
        with refused(*protected):
            await files.move(*ends)

    assert await files.names() == ["agent_workspace", "f", "outputs", "project_files"]


# --- bad input ---


async def test_bad_input_has_typed_answers(files: FileClient, sh: Any) -> None:
    """Too long a token, too many hard links and an edit to a TiB are the caller's: no command is
    blamed for them."""
    with refused(StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"):
        await files.list(page_token="A" * 90_000)
    link = {"type": tarfile.LNKTYPE, "linkname": "f"}
    links = [(f"l/{number}", link, b"") for number in range(LINKS)]
    done = await files.upload_tar("", archive_of(("f", {}, b"x"), *links))
    await files.upload("x", b"x" * MIB)
    with refused(StatusCode.FAILED_PRECONDITION, "FILE_TOO_LARGE"):
        await files.edit_text("x", "x", "y" * MIB, replace_all=True)

    count = int(await sh("stat -c %h f"))
    assert (done.extracted, done.refused_count) == (count, 1 + LINKS - count)
    assert {one.why for one in done.refused} == {"a file cannot have as many hard links"}


# --- trees ---


def a_tree(count: int) -> bytes:
    """An archive of small files in directories, with modes, times and links of all kinds."""
    members: list[tuple[str, dict[str, Any], bytes]] = []
    for number in range(count):
        directory = f"d{number % 20}"
        if number < 20:
            members.append((directory, {"type": tarfile.DIRTYPE, "mode": 0o755}, b""))
        fields = {"mode": 0o600 | number % 64, "mtime": 1_000_000_000 + number}
        members.append((f"{directory}/f{number}", fields, f"content {number}\n".encode()))
    for number in range(10):
        link = {"type": tarfile.SYMTYPE, "linkname": f"d{number}/f{number}"}
        members.append((f"link{number}", link, b""))
    return archive_of(*members)


def described(archive: bytes) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for one in tar:
            file = tar.extractfile(one) if one.isreg() else None
            content = file.read() if file else None
            time_of = one.mtime if one.isreg() else None
            mode = one.mode if not one.issym() else None
            found[one.name.removeprefix("./").rstrip("/")] = (
                one.type,
                mode,
                time_of,
                one.linkname,
                content,
            )
    found.pop("", None)
    found.pop(".", None)
    return found


PACKED = [
    files_pb2.TAR_COMPRESSION_NONE,
    files_pb2.TAR_COMPRESSION_GZIP,
    files_pb2.TAR_COMPRESSION_ZSTD,
]


@pytest.mark.parametrize("packed", PACKED)
async def test_a_tree_goes_up_and_down_unchanged(
    packed: files_pb2.TarCompression.ValueType, files: FileClient, sh: Any
) -> None:
    """Names, contents, modes, times and links of 900 files are the same afterwards."""
    tree = a_tree(SMALL_FILES)
    done = await files.upload_tar("tree", tree)
    assert (done.refused_count, done.extracted) == (0, SMALL_FILES + 30)
    archive, end = await files.download_tar("tree", compression=packed)

    assert end.skipped_count == 0
    if packed == files_pb2.TAR_COMPRESSION_ZSTD:
        again = await files.upload_tar("tree", archive, compression=packed)
        assert again.refused_count == 0
        archive, _ = await files.download_tar("tree")
    assert described(archive) == described(tree)
    assert await sh("cat tree/link7; stat -c '%a %Y' tree/d3/f3") == "content 7\n603 1000000003\n"


async def test_an_archive_is_much_faster_than_file_by_file(
    files: FileClient, api: Api, session_id: str
) -> None:
    """900 small files: one call up and one down, against one each way for each of them, of which a
    part is measured."""
    tree = a_tree(SMALL_FILES)
    began = time.monotonic()
    await files.upload_tar("tree", tree)
    await files.download_tar("tree")
    as_tar = time.monotonic() - began
    await files.remove("tree", recursive=True)
    began = time.monotonic()
    for number in range(20):
        await files.make_directory(f"d{number}")
    for number in range(ONE_BY_ONE):
        content = f"content {number}\n".encode()
        await files.upload(f"d{number % 20}/f{number}", content, size_bytes=len(content))
    for number in range(ONE_BY_ONE):
        await files.download(f"d{number % 20}/f{number}")
    one_by_one = (time.monotonic() - began) * SMALL_FILES / ONE_BY_ONE

    ratio = one_by_one / as_tar
    print(
        f"{SMALL_FILES} files as tar: {as_tar * 1e3:.0f} ms up and down, one by one "
        f"{one_by_one * 1e3:.0f} ms, {ratio:.0f} times"
    )
    assert ratio > 3


# --- watch ---


async def test_a_watch_tells_every_change_or_that_it_could_not(files: FileClient, sh: Any) -> None:
    """500 files made by a command: each is told once at least, or the overflow is."""
    call = files.watch(recursive=True)
    assert (await call.read()).watching
    await sh(f"mkdir w; cd w; for i in $(seq {CHANGES}); do echo $i >f$i; done")
    created: set[str] = set()
    overflow = False
    async with asyncio.timeout(30):
        while len(created) < CHANGES and not overflow:
            told = await call.read()
            overflow |= told.overflow
            created |= {
                one.path
                for one in told.changes
                if one.kind == pb.FILE_CHANGE_KIND_CREATED and not one.is_directory
            }
    assert overflow or created == {f"w/f{number}" for number in range(1, CHANGES + 1)}
    await sh("mv w/f1 w/g; rm w/f2; echo more >>w/f3")
    seen = []
    async with asyncio.timeout(30):
        while len(seen) < 3:
            told = await call.read()
            seen += [
                (one.kind, one.path, one.old_path)
                for one in told.changes
                if one.path in ("w/g", "w/f2", "w/f3") and one.kind != pb.FILE_CHANGE_KIND_CREATED
            ]
    call.cancel()

    assert sorted(seen) == sorted(
        [
            (pb.FILE_CHANGE_KIND_MOVED, "w/g", "w/f1"),
            (pb.FILE_CHANGE_KIND_REMOVED, "w/f2", ""),
            (pb.FILE_CHANGE_KIND_MODIFIED, "w/f3", ""),
        ]
    )
    print(f"changes told by a watch: {len(created)} of {CHANGES}, overflow {overflow}")


# --- limits ---


@pytest.fixture
async def tight() -> AsyncIterator[Api]:
    """A daemon whose sessions have little room."""
    settings = {
        "MAX_FILE_SIZE_MB": "4",
        "MAX_WORKSPACE_SIZE_MB": "16",
        "MAX_TOTAL_FILES": "40",
        "SANDBOXD_MAX_PROJECT_SIZE_MB": "3",
        "SANDBOXD_MAX_PROJECT_FILES": "5",
    }
    async with running_daemon(POOL_SIZE="1", **settings) as daemon, daemon.api() as api:
        yield api


async def test_limits_are_told_with_their_figures(tight: Api) -> None:
    """A file, the workspace in bytes and in files, the project files in both: each has its own
    error, before the bytes are sent where that can be known, and the kernel holds commands."""
    opened = await tight.sessions.OpenSession(
        session_service_pb2.OpenSessionRequest(user_id="u", thread_id="t")
    )
    session_id = opened.session.session_id
    files = FileClient(tight.files, session_id)
    assert opened.session.limits.max_file_bytes == 4 * MIB

    call = tight.files.UploadFile(timeout=20)  # refused without a byte
    await call.write(files.header("x", size_bytes=4 * MIB + 1))
    with refused(StatusCode.FAILED_PRECONDITION, "FILE_TOO_LARGE") as refusal:
        await call
    assert refusal.info.metadata["limitBytes"] == str(4 * MIB)
    with refused(StatusCode.FAILED_PRECONDITION, "FILE_TOO_LARGE"):
        await files.upload("x", b"x" * (4 * MIB + 1))
    await files.upload("exactly", b"x" * 4 * MIB)

    done = await run(tight, session_id, "ulimit -f; head -c 5M /dev/zero >y")
    assert (done.stdout.data, done.exit.code) == (b"4096\n", 128 + signal.SIGXFSZ)
    assert "SIGXFSZ" in done.exit.hint
    done = await run(tight, session_id, ["dd", "if=/dev/zero", "of=z", "bs=1M", "count=5"])
    assert done.exit.signal == signal.SIGXFSZ
    assert done.exit.reason == exec_pb2.EXIT_REASON_SIGNALLED
    assert "single file" in done.exit.hint
    assert "did not send" not in done.exit.hint
    await run(tight, session_id, "rm -f y z")

    for number in range(2):
        await files.upload(f"fill{number}", b"x" * 4 * MIB)
    await files.upload("fill", b"x" * 3 * MIB)
    call = tight.files.UploadFile(timeout=20)
    await call.write(files.header("full", size_bytes=2 * MIB))
    with refused(StatusCode.FAILED_PRECONDITION, "WORKSPACE_FULL") as refusal:
        await call
    assert refusal.info.metadata["limitBytes"] == str(16 * MIB)
    with refused(StatusCode.FAILED_PRECONDITION, "WORKSPACE_FULL"):
        await files.upload("full", b"x" * 2 * MIB)
    usage = (await files.list()).usage
    assert (usage.max_bytes, usage.max_files, usage.max_file_bytes) == (16 * MIB, 40, 4 * MIB)
    assert 15 * MIB - SLACK_BYTES <= usage.used_bytes <= 16 * MIB
    assert usage.used_files == 4

    await run(tight, session_id, "rm fill*; for i in $(seq 39); do echo >f$i; done")
    assert (await files.list()).usage.used_files == 40
    with refused(StatusCode.FAILED_PRECONDITION, "WORKSPACE_FULL") as refusal:
        await files.upload("one more", b"")
    assert refusal.info.metadata["limitFiles"] == "40"

    await files.upload("project_files/a", b"x" * 2 * MIB)
    with refused(StatusCode.FAILED_PRECONDITION, "WORKSPACE_FULL") as refusal:
        await files.upload("project_files/b", b"x" * 2 * MIB)
    assert refusal.info.metadata["limitBytes"] == str(3 * MIB)
    for number in range(4):
        await files.upload(f"project_files/{number}", b"")
    with refused(StatusCode.FAILED_PRECONDITION, "WORKSPACE_FULL"):
        await files.upload("project_files/many", b"")
    assert len(await files.names("project_files")) == 5


async def test_a_sparse_file_is_listed_and_read_within_its_limit(
    files: FileClient, sh: Any
) -> None:
    """R22: no file can claim more than a single one may have."""
    done = await sh("truncate -s 1T f 2>&1 || truncate -s 50M f; stat -c %s f")
    size = int(done.split()[-1])
    assert size == 50 * MIB == (await files.stat("f")).size_bytes
    assert await files.download("f", offset=size - 3) == b"\0\0\0"


async def test_too_many_calls_on_one_session_are_told(files: FileClient) -> None:
    """Watches do not take all places: others are served, and one watch too many is told when."""
    watches = [files.watch() for _ in range(4)]
    for one in watches:
        assert (await one.read()).watching
    with refused(StatusCode.RESOURCE_EXHAUSTED, "FILE_BUSY"):
        await files.watch().read()
    assert await files.names()
    for one in watches:
        one.cancel()


async def test_a_stalled_upload_is_given_up(tight_idle: Api) -> None:
    """G04: a client that is connected and sends nothing does not hold its place for ever."""
    opened = await tight_idle.sessions.OpenSession(
        session_service_pb2.OpenSessionRequest(user_id="u", thread_id="t")
    )
    files = FileClient(tight_idle.files, opened.session.session_id)
    for messages in ([], [files.header("x")]):
        call = tight_idle.files.UploadFile(timeout=20)
        for message in messages:
            await call.write(message)
        with refused(StatusCode.ABORTED, "UPLOAD_STALLED"):
            await call
    assert "x" not in await files.names()


@pytest.fixture
async def tight_idle() -> AsyncIterator[Api]:
    async with (
        running_daemon(POOL_SIZE="1", SANDBOXD_UPLOAD_IDLE_SECONDS="0.3") as daemon,
        daemon.api() as api,
    ):
        yield api
