"""Workers on files beside hostile commands of the same sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from grpc import StatusCode, aio

from sandboxd_proto.v1 import file_service_pb2 as pb
from tests.docker.commands import run
from tests.docker.daemon_process import Api, running_daemon
from tests.docker.test_command_limits import open_session
from tests.docker.test_lifecycle import eventually
from tests.service.client import refused
from tests.service.file_client import FileClient

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
SWAPS = 20_000
TRIES = 300
DEPTH = 10_000


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


SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
one, other = (name.encode() for name in sys.argv[1:3])
count = 0
while not os.path.exists("stop") or count < int(sys.argv[3]):
    if libc.renameat2(-100, one, -100, other, 2) == 0:  # both names change places in one step
        count += 1
print(count)
"""


REPLACER = """
import os, sys
name, target = sys.argv[1:3]
count = 0
while not os.path.exists("stop") or count < int(sys.argv[3]):
    os.symlink(target, name + ".link")
    os.rename(name + ".link", name)
    with open(name + ".file", "w") as file:
        file.write("old")
    os.rename(name + ".file", name)
    count += 2
print(count)
"""
"""A name that is a file and a link in turn: an upload replaces what it finds, so two names that
change places would soon be two files."""


async def swapping(
    files: FileClient,
    sh: Any,
    one: str,
    other: str,
    attempt: Callable[[], Any],
    program: str = SWAPPER,
) -> tuple[int, int, int]:
    """Make attempts while two names change places; swaps, answers and refusals."""
    await files.upload("swap.py", program.encode())
    swapper = asyncio.ensure_future(sh(f"python3 swap.py {one} {other} {SWAPS}", 100))
    answers, refusals, codes = 0, 0, set()
    for _ in range(TRIES):
        try:
            await attempt()
            answers += 1
        except aio.AioRpcError as error:
            codes.add(error.code())
            refusals += 1
    await files.upload("stop", b"")
    assert codes <= {StatusCode.FAILED_PRECONDITION, StatusCode.NOT_FOUND}
    return int(await swapper), answers, refusals


@pytest.mark.calm
async def test_a_file_swapped_for_a_link_under_a_download(files: FileClient, sh: Any) -> None:
    """P07: what is sent is the file in the workspace, or nothing."""
    await sh("echo inside >f; ln -s /etc/passwd l")

    async def attempt() -> None:
        assert await files.download("f") == b"inside\n"

    swaps, answers, refusals = await swapping(files, sh, "f", "l", attempt)
    assert swaps >= SWAPS
    assert answers > 0
    print(f"swaps under downloads: {swaps}, {answers} sent, {refusals} refused, 0 leaks")


@pytest.mark.calm
async def test_a_directory_swapped_for_a_link_under_a_download(files: FileClient, sh: Any) -> None:
    """P08: also where a directory on the way is swapped."""
    await sh("mkdir d; echo inside >d/passwd; ln -s /etc l")

    async def attempt() -> None:
        assert await files.download("d/passwd") == b"inside\n"

    swaps, answers, refusals = await swapping(files, sh, "d", "l", attempt)
    assert swaps >= SWAPS
    assert answers > 0
    print(f"directory swaps under downloads: {swaps}, {answers} sent, {refusals} refused, 0 leaks")


@pytest.mark.calm
async def test_a_directory_swapped_for_a_link_under_an_upload(files: FileClient, sh: Any) -> None:
    """P06, P08: nothing is written outside, whatever the directory is in between."""
    await sh("mkdir d; ln -s /tmp l")
    written = []

    async def attempt() -> None:
        await files.upload(f"d/f{len(written)}", b"x" * 1000)
        written.append(1)

    swaps, answers, refusals = await swapping(files, sh, "d", "l", attempt)
    assert swaps >= SWAPS
    assert await sh("ls -A /tmp") == ""
    names = (await sh("ls -A d/ l/ | grep -v : | sort -u")).split()
    assert sorted(names) == sorted(f"f{number}" for number in range(answers))
    print(f"swaps under uploads: {swaps}, {answers} written, {refusals} refused, 0 outside")


@pytest.mark.calm
async def test_a_file_swapped_for_a_link_under_an_upload(files: FileClient, sh: Any) -> None:
    """P07: the name is replaced or the call refused; what a link there points to stays."""
    await sh("echo old >/tmp/outside; echo old >f")

    async def attempt() -> None:
        await files.upload("f", b"new\n")

    swaps, answers, refusals = await swapping(files, sh, "f", "/tmp/outside", attempt, REPLACER)
    assert swaps >= SWAPS
    assert answers > 0
    assert refusals > 0
    assert await sh("cat /tmp/outside") == "old\n"
    print(f"name swaps under uploads: {swaps}, {answers} written, {refusals} refused, 0 outside")


WORKERS = (
    "for p in /proc/[0-9]*; do read c <$p/comm || continue; "
    '[ "$c" != python3.11 ] || echo ${p#/proc/}; done 2>/dev/null'
)


@pytest.mark.parametrize("blow", ["KILL", "STOP"])
async def test_a_worker_that_a_command_ends_or_stops(blow: str, files: FileClient, sh: Any) -> None:
    """The caller is told, the worker is gone in the end, and the next call is served."""
    await files.upload("f", bytes(48 * MIB))
    call = files.stub.DownloadFile(
        pb.DownloadFileRequest(session_id=files.session_id, path="f"), timeout=100
    )
    await call.read()
    await sh(f"for p in $({WORKERS}); do [ $p = 1 ] || kill -{blow} $p; done")
    with refused(StatusCode.ABORTED, "FILE_WORK_INTERRUPTED"):
        while await call.read() != aio.EOF:
            pass

    async def is_gone() -> bool:
        return (await sh(WORKERS)).split() == ["1"]

    await eventually(is_gone)
    assert (await files.stat("f")).size_bytes == 48 * MIB


@pytest.mark.parametrize("blow", ["KILL", "STOP"])
async def test_an_upload_whose_worker_a_command_ends_or_stops(
    blow: str, files: FileClient, sh: Any
) -> None:
    """The caller is told although it is still sending, and nothing of the upload shows."""
    await sh("echo old >f")
    is_hit = asyncio.Event()

    async def parts() -> AsyncIterator[pb.UploadFileRequest]:
        yield files.header("f")
        yield pb.UploadFileRequest(chunk=bytes(MIB))
        await is_hit.wait()
        for _ in range(32):
            yield pb.UploadFileRequest(chunk=bytes(MIB))

    call = files.stub.UploadFile(parts(), timeout=100)

    async def has_begun() -> bool:
        return len((await sh(WORKERS)).split()) == 2

    await eventually(has_begun)
    await sh(f"for p in $({WORKERS}); do [ $p = 1 ] || kill -{blow} $p; done")
    is_hit.set()
    with refused(StatusCode.ABORTED, "FILE_WORK_INTERRUPTED"):
        await call
    assert await files.download("f") == b"old\n"
    assert await sh("ls -A") == "agent_workspace\nf\noutputs\nproject_files\n"


async def test_a_worker_is_closed_to_commands(files: FileClient, sh: Any) -> None:
    """Its memory, descriptors and environment are not theirs to read, though it has their uid;
    and it is not in the cgroup of commands."""
    await files.upload("f", b"x" * (8 * MIB))
    call = files.stub.DownloadFile(
        pb.DownloadFileRequest(session_id=files.session_id, path="f"), timeout=60
    )
    await call.read()

    async def is_alone() -> bool:
        return len((await sh(WORKERS)).split()) == 2

    await eventually(is_alone)  # one that waits for work may be there for a while
    worker = next(pid for pid in (await sh(WORKERS)).split() if pid != "1")
    looks = [
        f"cat /proc/{worker}/environ",
        f"head -c 1 /proc/{worker}/mem",
        f"ls /proc/{worker}/fd/",
        f"cat /proc/{worker}/maps",
        f"readlink /proc/{worker}/exe",
    ]
    for look in looks:
        assert await sh(f"{look} 2>/dev/null || echo refused") == "refused\n"
    assert "/cmd" not in await sh(f"grep -E ':memory:' /proc/{worker}/cgroup")
    call.cancel()


@pytest.mark.calm
async def test_a_very_deep_directory() -> None:
    """10,000 levels are listed page by page as far as paths go, told as incomplete, and removed."""
    dig = f"import os\nfor _ in range({DEPTH}): os.mkdir('d'); os.chdir('d')"
    many = {"MAX_TOTAL_FILES": str(2 * DEPTH), "MAX_WORKSPACE_SIZE_MB": "100"}
    async with running_daemon(POOL_SIZE="1", **many) as daemon, daemon.api() as api:
        session_id = await open_session(api)
        files = FileClient(api.files, session_id)
        done = await run(api, session_id, f'mkdir deep; cd deep; python3 -c "{dig}"', timeout=60)
        assert done.exit.code == 0, done.stderr.data
        names = await files.names("deep", recursive=True)
        first = await files.list("deep", recursive=True)

        assert len(names) == (4095 - len("deep")) // 2
        assert not first.complete
        assert await files.remove("deep", recursive=True) == DEPTH + 1
        assert await files.names() == ["agent_workspace", "outputs", "project_files"]


async def test_permissions_that_a_command_has_set(files: FileClient, sh: Any) -> None:
    """They hold for workers as well, and are told as what they are."""
    await sh("mkdir -p d/e; echo x >secret; echo x >d/f; chmod 0 secret d/e; chmod 500 d")
    for call in (
        lambda: files.download("secret"),
        lambda: files.list("d/e"),
        lambda: files.upload("d/new", b"x"),
        lambda: files.remove("d/f"),
        lambda: files.remove("d", recursive=True),
    ):
        with refused(StatusCode.FAILED_PRECONDITION, "FILE_NOT_PERMITTED"):
            await call()
    _, end = await files.download_tar()
    assert {one.name for one in end.skipped} == {"secret", "d/e"}
    await sh("chmod -R u+rwx d secret")
    assert await files.remove("d", recursive=True) == 3
