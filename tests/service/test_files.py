"""FileService at its edge: streams from callers, bad requests, and sessions that come and go."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode, aio

from sandboxd.daemon.composition import Daemon
from sandboxd.service import file_wire
from sandboxd.service.wire import Context
from sandboxd.sessions.session import Session
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import files_pb2
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.service.client import Api, refused
from tests.service.file_client import FileClient

StartDaemon = Callable[..., Awaitable[Daemon]]
MIB = 1 << 20
INVALID = (StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
AT_ONCE = 8
"""Calls that one session takes at a time."""
ROUNDS = 10
UPLOAD_METHOD = "/sandboxd.v1.FileService/UploadFile"


@pytest.fixture
async def files(api: Api) -> FileClient:
    return FileClient(api.files, await api.open_id())


def session_of(daemon: Daemon, files: FileClient) -> Session:
    return daemon.sessions.get(files.session_id)


def calls_at_work(daemon: Daemon, files: FileClient) -> int:
    return len(session_of(daemon, files).files or ())


async def begun_upload(
    files: FileClient, path: str = "x", **header: Any
) -> aio.StreamUnaryCall[pb.UploadFileRequest, pb.UploadFileResponse]:
    """An upload that has sent its header and a chunk."""
    call = files.stub.UploadFile(timeout=20)
    await call.write(files.header(path, **header))
    await call.write(pb.UploadFileRequest(chunk=b"part"))
    return call


# --- in and out ---


async def test_files_go_in_and_out(files: FileClient) -> None:
    """In chunks of any size, empty ones too, with the checksum of what was sent."""
    data = os.urandom(2 * MIB + 17)
    done = await files.upload("f", data, mode=0o640)

    assert (done.entry.path, done.entry.size_bytes, done.entry.mode) == ("f", len(data), 0o640)
    assert done.entry.permissions == "-rw-r-----"
    assert done.entry.modified.endswith("Z")
    assert await files.download("f") == data
    assert await files.download("/workspace/f", offset=5, length=3) == data[5:8]
    await files.upload("empty", b"")
    assert await files.download("empty") == b""


async def test_chunks_may_be_of_any_size(files: FileClient) -> None:
    """Tiny and empty ones too: together they are the file."""
    call = files.stub.UploadFile(timeout=20)
    await call.write(files.header("f"))
    for chunk in (b"a", b"", b"b" * 300, b"c"):
        await call.write(pb.UploadFileRequest(chunk=chunk))
    await call.done_writing()
    await call
    assert await files.download("f") == b"a" + b"b" * 300 + b"c"


async def test_listing_comes_in_pages(files: FileClient) -> None:
    """Every entry once, in the order of their bytes, with totals of the whole on each page."""
    for number in range(7):
        await files.upload(f"f{number}", b"x" * number)
    first = await files.list(page_size=3)

    assert (len(first.entries), first.total_files, first.total_bytes) == (3, 7, 21)
    assert first.complete
    assert await files.names(page_size=3) == [f"f{number}" for number in range(7)]
    assert first.usage.max_file_bytes == 100 * MIB


async def test_text_and_searches_pass_the_edge(files: FileClient) -> None:
    """Each field arrives where it belongs."""
    await files.write_text("a/b.txt", "one\ntwo\nthree\n", make_parents=True)
    assert await files.edit_text("a/b.txt", "two", "2") == 1
    assert (await files.read_text("a/b.txt", first_line=2, max_lines=1)).text == "2\n"
    assert [one.line for one in (await files.grep("THREE", ignore_case=True)).matches] == ["three"]
    assert await files.glob("*.txt") == ["a/b.txt"]
    with refused(StatusCode.FAILED_PRECONDITION, "TEXT_NOT_FOUND"):
        await files.edit_text("a/b.txt", "absent", "x")
    with refused(StatusCode.ALREADY_EXISTS, "FILE_EXISTS"):
        await files.write_text("a/b.txt", "x", overwrite=pb.OVERWRITE_POLICY_FAIL)
    archive, end = await files.download_tar("a")
    assert end.members >= 1
    assert (await files.upload_tar("copy", archive)).extracted == end.members
    assert (await files.read_text("copy/b.txt")).text == "one\n2\nthree\n"


async def test_watch_begins_with_a_promise_and_ends_with_its_session(
    files: FileClient, api: Api
) -> None:
    """`watching` comes first, then changes, and the close of the session is told."""
    call = files.watch()
    assert (await call.read()).watching
    await files.upload("f", b"x")
    seen: set[str] = set()
    while "f" not in seen:
        seen |= {one.path for one in (await call.read()).changes}
    await api.close(files.session_id)
    with refused(StatusCode.FAILED_PRECONDITION, "SESSION_CLOSED"):
        while True:
            await call.read()


# --- what is wrong with a request ---


async def test_upload_begins_with_its_header(files: FileClient) -> None:
    """A stream without one, with a chunk first, or with a second header is refused."""
    chunk = pb.UploadFileRequest(chunk=b"x")
    for messages in ([], [chunk], [pb.UploadFileRequest()], [files.header("x"), files.header("y")]):
        call = files.stub.UploadFile(timeout=20)
        for message in messages:
            await call.write(message)
        await call.done_writing()
        with refused(*INVALID):
            await call
    assert await files.names() == []


async def test_messages_that_are_none_are_refused(files: FileClient, api: Api) -> None:
    """Bytes that are no message, first or later, are a typed error and not a traceback."""
    upload = api.channel.stream_unary(UPLOAD_METHOD)
    header = files.header("x").SerializeToString()
    for messages in ([b"\xff\xff"], [header, b"\xff\xff"], [header, b"\x12\x05abc"]):
        call = upload(iter_of(messages), timeout=20)
        with refused(*INVALID):
            await call
    twice = b"".join(pb.UploadFileRequest(chunk=c).SerializeToString() for c in (b"a", b"last"))
    await upload(iter_of([header, twice]), timeout=20)
    assert await files.download("x") == b"last", "of a field that is there twice the last counts"


async def iter_of(messages: list[bytes]) -> AsyncIterator[bytes]:
    for message in messages:
        yield message


BAD_HEADERS: dict[str, dict[str, Any]] = {
    "sha256": {"sha256": b"short"},
    "mode": {"mode": 0o10000},
    "policy": {"overwrite": 9},
}


@pytest.mark.parametrize("header", BAD_HEADERS.values(), ids=BAD_HEADERS)
async def test_bad_headers_are_refused(header: dict[str, Any], files: FileClient) -> None:
    """Before anything of the file is taken."""
    with refused(*INVALID):
        await files.upload("x", b"x", **header)


async def test_large_chunks_are_refused(files: FileClient) -> None:
    """A message has its limit, whatever its form."""
    call = files.stub.UploadFile(timeout=20)
    await call.write(files.header("x"))
    await call.write(pb.UploadFileRequest(chunk=b"x" * (4 * MIB + 1)))
    with refused(*INVALID) as refusal:
        await call
    assert "smaller" in refusal.message


async def test_bad_fields_are_refused(files: FileClient) -> None:
    """Each names its field."""
    long = "x" * 1001
    bad: dict[str, Awaitable[Any]] = {
        "page_size": files.list(page_size=10_001),
        "page_token": files.list(page_token="\u00e9"),
        "max_bytes": files.read_text("x", max_bytes=5 * MIB),
        "text": files.write_text("x", "\u00e9" * (3 * MIB)),
        "line_count": files.write_text("x", "", line_count=1),
        "old_text": files.edit_text("x", "", "y"),
        "expected_count": files.edit_text("x", "y", "z", replace_all=True, expected_count=2),
        "pattern": files.grep(""),
        "glob": files.grep("x", glob=long),
        "max_matches": files.grep("x", max_matches=10_001),
        "max_entries": files.glob("x", max_entries=10_001),
        "gather": files.watch(gather=Duration(seconds=11)).read(),
        "compression": files.download_tar(compression=7),
        "mode": files.make_directory("x", mode=0o17777),
        "new_path": files.move("x", "../y"),
        "types": files.glob("x", types=[99]),
        "exclude_dirs": files.grep("x", exclude_dirs=["a/b"]),
    }
    for field, call in bad.items():
        with refused(*INVALID) as refusal:
            await call
        assert refusal.info.metadata["field"] == field
    for pattern in (
        files.grep(long),
        files.glob(long),
        files.glob("../x"),
        files.glob("{a,b}" * 9),
    ):
        with refused(*INVALID) as refusal:
            await pattern
        assert refusal.info.metadata["field"] == "pattern"


async def test_times_beyond_a_timestamp_are_clamped(files: FileClient, guests: FakeGuests) -> None:
    """A command may set any time; a listing with it can still be read by every client."""
    await files.upload("f", b"")
    (guest,) = [one for one in guests.by_container.values() if (one.workspace / "f").exists()]
    os.utime(guest.workspace / "f", (0, -62_135_596_900))
    (entry,) = (await files.list()).entries

    # Some filesystems have clamped it themselves.
    assert entry.modify_time.ToJsonString().startswith(("0001-", "16", "19"))


async def test_paths_outside_of_the_workspace(files: FileClient, guests: FakeGuests) -> None:
    """They are another area of the same session: entries have absolute paths, the usage is that of
    the workspace, and nothing of the host is touched."""
    await files.upload("/tmp/d/f", b"x", make_parents=True)
    listed = await files.list("/", recursive=True)
    (guest,) = [one for one in guests.by_container.values() if one.outside.exists()]

    assert [entry.path for entry in listed.entries] == ["/tmp", "/tmp/d", "/tmp/d/f"]
    assert [entry.name for entry in listed.entries] == ["tmp", "d", "f"]
    assert listed.usage.max_files == (await files.list()).usage.max_files
    assert (guest.outside / "tmp/d/f").read_bytes() == b"x"
    assert await files.names() == []
    assert (await files.stat("/")).path == "/"
    for call in (files.upload("/", b"x"), files.remove("/"), files.move("/tmp/d/f", "/")):
        with refused(*INVALID):
            await call
    with refused(StatusCode.FAILED_PRECONDITION, "PROTECTED_PATH"):
        await files.move("/tmp/d/f", "f")


# --- sessions ---


async def test_sessions_that_are_not_there_are_told(files: FileClient, api: Api) -> None:
    """Unknown, closed and on another incarnation: the same words as for commands."""
    with refused(StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        await FileClient(api.files, "ses_nobody").upload("x", b"x")
    with refused(StatusCode.FAILED_PRECONDITION, "SESSION_RECREATED"):
        await files.upload("x", b"x", incarnation=7)
    with refused(StatusCode.FAILED_PRECONDITION, "SESSION_RECREATED"):
        await files.upload_tar("x", b"", incarnation=7)
    await api.close(files.session_id)
    for call in (files.list(), files.upload("x", b"x"), files.download("x"), files.watch().read()):
        with refused(StatusCode.FAILED_PRECONDITION, "SESSION_CLOSED"):
            await call


@pytest.mark.parametrize("end", ["close", "reset", "loss"])
async def test_upload_ends_with_its_session(
    end: str, files: FileClient, api: Api, daemon: Daemon, guests: FakeGuests
) -> None:
    """While it waits for its caller: the caller hears it, and nothing of the file is there."""
    for path in ("x", "project_files/x"):
        files.session_id = await api.open_id(thread=f"{end} {path[:1]}")
        call = await begun_upload(files, path)
        await eventually(lambda: calls_at_work(daemon, files) == 1)
        session = session_of(daemon, files)
        if end == "close":
            await api.close(files.session_id)
        elif end == "reset":
            await api.reset(files.session_id)
        else:
            assert session.sandbox is not None
            guests.lose(session.sandbox.container_id)
        told = (
            (StatusCode.FAILED_PRECONDITION, "SESSION_CLOSED")
            if end == "close"
            else (StatusCode.ABORTED, "SANDBOX_LOST")
        )
        with refused(*told):
            await call
        if end == "reset":
            assert await files.names() == []
            await api.close(files.session_id)


async def test_work_on_files_is_use_of_the_session(start_daemon: StartDaemon) -> None:
    """An upload that takes longer than the idle time keeps its session; its end begins the idle
    time anew."""
    daemon = await start_daemon(session_timeout_minutes=0.2 / 60)
    async with Api(daemon.config.api_socket) as api:
        files = FileClient(api.files, await api.open_id())
        call = await begun_upload(files)
        other = await api.open_id(thread="unused")
        await eventually(lambda: not daemon.sessions.get(other).is_active)
        assert session_of(daemon, files).is_active
        await call.done_writing()
        await call
        assert session_of(daemon, files).seconds_left > 0
        await eventually(lambda: not session_of(daemon, files).is_active)


async def test_passive_reads_are_no_use_of_the_session(start_daemon: StartDaemon) -> None:
    """A panel that only shows files does not keep a sandbox."""
    daemon = await start_daemon(session_timeout_minutes=0.2 / 60)
    passive = (("sandboxd-passive", "1"),)
    async with Api(daemon.config.api_socket) as api:
        files = FileClient(api.files, await api.open_id())
        watch = api.files.WatchFiles(
            pb.WatchFilesRequest(session_id=files.session_id), metadata=passive, timeout=60
        )
        await watch.read()
        await eventually(lambda: not session_of(daemon, files).is_active, timeout_seconds=30)


async def test_only_reads_can_be_passive(files: FileClient, api: Api, daemon: Daemon) -> None:
    """A listing that is marked so leaves the idle time as it is; a change renews it."""
    passive, session = (("sandboxd-passive", "1"),), session_of(daemon, files)
    await files.upload("f", b"x")
    asked = time.monotonic()
    await api.files.ListFiles(pb.ListFilesRequest(session_id=files.session_id), metadata=passive)
    since_asked = time.monotonic() - asked
    assert session.unused_seconds > since_asked
    asked = time.monotonic()
    await api.files.MakeDirectory(
        pb.MakeDirectoryRequest(session_id=files.session_id, path="d"), metadata=passive
    )
    assert session.unused_seconds <= time.monotonic() - asked


async def test_abandoned_calls_are_forgotten(files: FileClient, daemon: Daemon) -> None:
    """A caller that goes away leaves no call at work and no file, whatever it was doing."""
    await files.upload("f", b"x" * MIB)
    upload = await begun_upload(files, "half")
    watch = files.watch()
    await watch.read()
    download = files.stub.DownloadFile(
        pb.DownloadFileRequest(session_id=files.session_id, path="f"), timeout=20
    )
    await download.read()
    await eventually(lambda: calls_at_work(daemon, files) >= 2)
    for call in (upload, watch, download):
        call.cancel()

    await eventually(lambda: calls_at_work(daemon, files) == 0)
    assert await files.names() == ["f"]


async def test_an_upload_that_is_cut_off_is_not_taken_as_complete(
    files: FileClient, daemon: Daemon
) -> None:
    """Neither size nor checksum say where it ends; the end of a cancelled stream does not either,
    however late the cancellation is noticed."""
    for _ in range(ROUNDS):
        halves = [await begun_upload(files, f"half{number}") for number in range(AT_ONCE - 1)]
        whole = await begun_upload(files, "whole")
        await eventually(lambda: calls_at_work(daemon, files) == AT_ONCE)
        for call in halves:
            call.cancel()
        await whole.done_writing()
        await whole
        await eventually(lambda: calls_at_work(daemon, files) == 0)

    assert await files.names() == ["whole"]


async def test_an_end_is_trusted_when_the_caller_can_be_answered() -> None:
    """And not before: a call that was cancelled ends as that, even if nobody has said so yet."""

    class Cancelled:
        async def send_initial_metadata(self, metadata: object) -> None:
            raise RuntimeError("the call is closed")

    async def chunks() -> AsyncIterator[bytes]:
        yield b"half"

    got = []
    with pytest.raises(asyncio.CancelledError):
        async for chunk in file_wire.unless_cancelled(chunks(), cast(Context, Cancelled())):
            got.append(chunk)
    assert got == [b"half"]


async def test_stalled_upload_is_given_up(start_daemon: StartDaemon) -> None:
    """Before its header and after it: half-open streams do not last, and others are served."""
    daemon = await start_daemon(upload_idle_seconds=0.1)
    async with Api(daemon.config.api_socket) as api:
        files = FileClient(api.files, await api.open_id())
        silent = files.stub.UploadFile(timeout=20)
        for call in (silent, await begun_upload(files)):
            with refused(StatusCode.ABORTED, "UPLOAD_STALLED") as refusal:
                await call
            assert "send it again" in refusal.message
        assert calls_at_work(daemon, files) == 0
        await files.upload("x", b"x")


async def test_uploads_count_as_calls(start_daemon: StartDaemon) -> None:
    """One call too many is refused, also of a caller that streams; its end makes room."""
    daemon = await start_daemon(max_calls=2)
    async with Api(daemon.config.api_socket) as api:
        files = FileClient(api.files, await api.open_id())
        calls = [await begun_upload(files, f"f{n}") for n in range(2)]
        await eventually(lambda: calls_at_work(daemon, files) == 2)
        with refused(StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS"):
            await files.upload("one", b"more")
        for call in calls:
            await call.done_writing()
            await call
        await files.upload("one", b"more")


async def test_draining_takes_no_work_on_files(files: FileClient, daemon: Daemon) -> None:
    """While the daemon leaves, calls may end but none begins."""
    call = await begun_upload(files)
    await eventually(lambda: calls_at_work(daemon, files) == 1)
    daemon.sessions.drain()
    with refused(StatusCode.UNAVAILABLE, "DRAINING"):
        await files.list()
    await call.done_writing()
    assert (await call).entry.size_bytes == 4


async def test_separate_layout_resolves_relative_paths_where_commands_start(
    start_daemon: StartDaemon, guests: FakeGuests
) -> None:
    """Paths of listings can be asked for, and `data.json` is where commands are."""
    daemon = await start_daemon(workspace_layout="separate")
    async with Api(daemon.config.api_socket) as api:
        files = FileClient(api.files, await api.open_id())
        await files.upload("/workspace/agent_workspace/a", b"a", make_parents=True)
        await files.upload("data.json", b"{}")
        await files.upload("outputs/o", b"o", make_parents=True)
        started = [guest.settings for guest in guests.by_container.values() if guest.settings]

        assert started[0]["start_dir"] == "/workspace/agent_workspace"
        assert await files.names(recursive=True) == [
            "agent_workspace",
            "agent_workspace/a",
            "agent_workspace/data.json",
            "outputs",
            "outputs/o",
        ]
        assert await files.download("./data.json") == b"{}"
        assert await files.download("agent_workspace/data.json") == b"{}"
        assert (await files.stat("outputs")).type == files_pb2.FILE_TYPE_DIRECTORY


async def test_racing_files_and_resets(files: FileClient, api: Api) -> None:
    """Whatever overtakes what, each call is served or told, and the session goes on."""

    async def work(number: int) -> None:
        try:
            await files.upload(f"f{number % 3}", b"x" * 1000)
            await files.list()
        except aio.AioRpcError as error:
            if error.code() != StatusCode.ABORTED:
                raise

    for _ in range(5):
        workers = [asyncio.ensure_future(work(number)) for number in range(6)]
        await asyncio.gather(api.reset(files.session_id), *workers)
    await files.upload("last", b"x")
    assert "last" in await files.names()
