"""Files arrive whole or not at all, also where the connection breaks off on the way."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import random
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandboxd.daemon.composition import Daemon
from sandboxd_client import (
    AsyncSandbox,
    AsyncSandboxClient,
    ChecksumMismatchError,
    ConnectionLostError,
    FileChangedError,
    FileExistsInSandboxError,
    MissingFileError,
    SessionRecreatedError,
    Timeouts,
)
from sandboxd_client.connection import Connection
from sandboxd_client.files import AsyncFiles
from sandboxd_client.methods.files import DOWNLOAD_FILE, DOWNLOAD_TAR, UPLOAD_FILE
from sandboxd_client.session import SessionHold
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import files_pb2
from tests.fakes.waiting import eventually
from tests.sdk.cutting_proxy import CuttingProxy, cutting_proxy
from tests.sdk.scripted import TIMEOUTS, Answer, Scripted, hold_on
from tests.sdk.test_auto_retry import opened

CUT_OFF = ConnectionLostError("cut off")
CONTENT = random.Random(7).randbytes(5 << 20)


def entry(size: int, *, changed: int = 1) -> pb.DownloadFileResponse:
    described = files_pb2.FileEntry(path="x", size_bytes=size)
    described.modify_time.FromSeconds(changed)
    return pb.DownloadFileResponse(entry=described)


def chunk(data: bytes) -> pb.DownloadFileResponse:
    return pb.DownloadFileResponse(chunk=data)


def end(data: bytes) -> pb.DownloadFileResponse:
    sha256 = hashlib.sha256(data).digest()
    return pb.DownloadFileResponse(end=pb.DownloadEnd(sent_bytes=len(data), sha256=sha256))


def content_of(path: str) -> bytes:
    return Path(path).read_bytes()


def downloads(*answers: list[Answer], **settings: Any) -> tuple[AsyncFiles, Scripted]:
    transport = Scripted({"DownloadFile": list(answers)}, **settings)
    return AsyncFiles(hold_on(transport)), transport


def offsets(transport: Scripted) -> list[int]:
    return [one.offset for one in transport.requests(DOWNLOAD_FILE)]


# --- downloads ---


async def test_broken_download_goes_on_where_it_was(tmp_path: Path) -> None:
    """Nothing is fetched twice, whether it broke off early, late, or before it had begun."""
    files, transport = downloads(
        [CUT_OFF],
        [entry(6), chunk(b"ab"), CUT_OFF],
        [entry(6), chunk(b"cd"), chunk(b"ef")],
        [entry(6), end(b"")],
    )
    told: list[int] = []

    target = await files.download("x", tmp_path / "x", on_progress=told.append)

    assert content_of(target) == b"abcdef"
    assert offsets(transport) == [0, 0, 2, 6]
    assert transport.tries(DOWNLOAD_FILE) == ["", "1", "2", "3"]
    assert told == [2, 2, 2]


@pytest.mark.parametrize("changed", [entry(6, changed=2), entry(5)])
async def test_file_that_has_changed_is_fetched_from_its_beginning(
    changed: pb.DownloadFileResponse,
) -> None:
    """Two halves of two files are no file."""
    files, transport = downloads(
        [entry(6), chunk(b"abcd"), CUT_OFF],
        [changed, chunk(b"yz"), end(b"yz")],
        [changed, chunk(b"wxyz"), end(b"wxyz")],
    )

    assert await files.read("x") == "wxyz"
    assert offsets(transport) == [0, 4, 0]


async def test_rest_that_arrives_wrongly_is_an_error(tmp_path: Path) -> None:
    """Each piece has its own checksum, and what is wrong is not kept."""
    files, _ = downloads([entry(4), chunk(b"ab"), CUT_OFF], [entry(4), chunk(b"cX"), end(b"cd")])

    with pytest.raises(ChecksumMismatchError):
        await files.download("x", tmp_path / "x")
    assert os.listdir(tmp_path) == []


async def test_file_that_is_gone_is_told() -> None:
    """Only the connection is a reason to try again."""
    files, transport = downloads([entry(4), chunk(b"ab"), CUT_OFF], [MissingFileError("gone")])

    with pytest.raises(MissingFileError):
        await files.read("x")
    assert len(offsets(transport)) == 2


async def test_daemon_in_the_process_does_not_come_back() -> None:
    """There a broken download is an error at once."""
    files, transport = downloads([entry(4), chunk(b"ab")], can_come_back=False)

    with pytest.raises(ConnectionLostError):
        await files.read("x")
    assert offsets(transport) == [0]


@pytest.mark.parametrize(
    "timeouts", [Timeouts(transfer=0.3, reconnect=60), Timeouts(transfer=60, reconnect=0.3)]
)
async def test_tries_of_a_download_are_bounded(timeouts: Timeouts) -> None:
    """By the time for a transfer, and by that for a daemon to come back."""
    transport = Scripted({"DownloadFile": [[CUT_OFF]]})
    files = AsyncFiles(SessionHold(Connection(transport, timeouts), hold_on(transport).info))

    with pytest.raises(ConnectionLostError):
        async with asyncio.timeout(5):
            await files.read("x")
    assert len(offsets(transport)) > 1


async def test_downloads_that_get_further_have_one_deadline() -> None:
    """A connection that breaks again and again does not make a transfer endless."""
    transport = Scripted({"DownloadFile": [[entry(1 << 40), chunk(b"ab"), CUT_OFF]]})
    timeouts = Timeouts(transfer=0.5, reconnect=0.3)
    files = AsyncFiles(SessionHold(Connection(transport, timeouts), hold_on(transport).info))

    with pytest.raises(ConnectionLostError):
        async with asyncio.timeout(5):
            await files.read("x")


async def test_broken_range_goes_on_where_it_was() -> None:
    """Up to its end and no further; a range that has arrived is complete."""
    files, transport = downloads(
        [entry(9), chunk(b"cd"), CUT_OFF],
        [entry(9), chunk(b"ef"), CUT_OFF],
    )

    assert await files.read("x", offset=2, length=4) == "cdef"
    asked = [(one.offset, one.length) for one in transport.requests(DOWNLOAD_FILE)]
    assert asked == [(2, 4), (4, 2)]


# --- streams ---


async def test_broken_stream_goes_on_where_it_was() -> None:
    """Its reader sees every byte once."""
    files, transport = downloads(
        [CUT_OFF],
        [entry(6), chunk(b"ab"), CUT_OFF],
        [entry(6), chunk(b"cd"), chunk(b"ef"), end(b"cdef")],
    )
    async with await files.read("x", format="stream") as stream:
        assert stream.info.size_bytes == 6
        assert [chunk async for chunk in stream] == [b"ab", b"cd", b"ef"]
        assert [chunk async for chunk in stream] == []

    assert offsets(transport) == [0, 0, 2]


async def test_stream_of_a_file_that_has_changed() -> None:
    """Its reader is told, since it has seen the beginning of another file."""
    files, _ = downloads(
        [entry(6), chunk(b"ab"), CUT_OFF], [entry(6, changed=2), chunk(b"yz"), end(b"yz")]
    )
    stream = await files.read("x", format="stream")
    assert await anext(stream) == b"ab"
    with pytest.raises(FileChangedError):
        await anext(stream)
    await stream.aclose()


async def test_stream_of_nothing() -> None:
    """A missing file is told before the stream is used, an empty one is empty."""
    files, _ = downloads([MissingFileError("gone")], [entry(0), end(b"")])
    with pytest.raises(MissingFileError):
        await files.read("x", format="stream")
    async with await files.read("x", format="stream") as stream:
        assert [chunk async for chunk in stream] == []


@pytest.mark.parametrize("is_read", [False, True])
async def test_stream_that_is_left_ends_its_call(is_read: bool) -> None:
    """At once, however much of it was read."""
    files, transport = downloads([entry(6), chunk(b"ab"), chunk(b"cd"), chunk(b"ef")])
    async with await files.read("x", format="stream") as stream:
        if is_read:
            assert await anext(stream) == b"ab"

    assert transport.left == 1
    with pytest.raises(StopAsyncIteration):
        while True:
            await anext(stream)


# --- archives ---


async def test_broken_archive_is_fetched_from_its_beginning(tmp_path: Path) -> None:
    """Nothing of the first try is left in it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("file"))
    whole = pb.DownloadTarResponse(chunk=packed.getvalue())
    done = pb.DownloadTarResponse(end=pb.DownloadTarEnd(members=1))
    transport = Scripted(
        {"DownloadTar": [[pb.DownloadTarResponse(chunk=b"x" * 50_000), CUT_OFF], [whole, done]]}
    )
    told: list[int] = []

    report = await AsyncFiles(hold_on(transport)).download_dir(
        "d", tmp_path, on_progress=told.append
    )

    assert report.entries == 1
    assert os.listdir(tmp_path) == ["file"]
    assert transport.tries(DOWNLOAD_TAR) == ["", "1"]


# --- uploads ---


def written(sent: list[pb.UploadFileRequest]) -> pb.UploadFileResponse:
    data = b"".join(one.chunk for one in sent)
    return pb.UploadFileResponse(
        entry=files_pb2.FileEntry(name="x"), sha256=hashlib.sha256(data).digest()
    )


async def test_broken_upload_is_sent_again_whole(tmp_path: Path) -> None:
    """From the beginning, with the same header; progress counts each byte once."""
    source = tmp_path / "x"
    source.write_bytes(b"abcdef")
    transport = Scripted({"UploadFile": [CUT_OFF, CUT_OFF, written]})
    told: list[int] = []

    await AsyncFiles(hold_on(transport)).upload(source, on_progress=told.append)

    first, second, third = transport.requests(UPLOAD_FILE)
    assert first == second == third
    assert b"".join(one.chunk for one in third) == b"abcdef"
    assert transport.tries(UPLOAD_FILE) == ["", "1", "2"]
    assert sum(told) == 6


async def test_bytes_are_sent_again_too() -> None:
    """What is in memory can be sent as often as it takes."""
    transport = Scripted({"UploadFile": [CUT_OFF, written]})
    await AsyncFiles(hold_on(transport)).write("x", "abc")

    _, second = transport.requests(UPLOAD_FILE)
    assert b"".join(one.chunk for one in second) == b"abc"


@pytest.mark.parametrize("cuts", [0, 1])
async def test_file_that_exists_may_be_ours(cuts: int) -> None:
    """Where it must not be there, an error says whether an earlier try may have written it."""
    transport = Scripted(
        {"UploadFile": [*[CUT_OFF] * cuts, FileExistsInSandboxError("it is there")]}
    )

    with pytest.raises(FileExistsInSandboxError) as caught:
        await AsyncFiles(hold_on(transport)).write("x", "abc", overwrite=False)
    assert caught.value.may_have_begun is bool(cuts)


async def test_upload_goes_to_the_reopened_session_though_it_may_have_begun() -> None:
    """Unlike a command: twice is as once."""
    answers = {
        "OpenSession": [opened(1, "CREATED"), opened(2, "RECREATED")],
        "UploadFile": [CUT_OFF, SessionRecreatedError("another sandbox"), written],
    }
    client = AsyncSandboxClient()
    client._connection = Connection(Scripted(answers), TIMEOUTS)
    await client.get_or_create_session("ada", "42")

    assert (await client.upload_file_from_bytes("x", b"abc"))["filename"] == "x"


# --- over a connection that is cut ---


@asynccontextmanager
async def sandbox_behind(proxy: CuttingProxy) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.open("ada", "42", server_url=proxy.url) as sandbox:
        yield sandbox


async def test_file_arrives_through_cut_connections(
    daemon: Daemon, short_dir: Path, tmp_path: Path
) -> None:
    """Up and down, cut in the middle, as often as it takes."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(CONTENT)
    async with (
        cutting_proxy(short_dir, daemon.config.api_socket) as proxy,
        sandbox_behind(proxy) as sandbox,
    ):
        proxy.to_daemon += [2 << 20, 3 << 20]
        await sandbox.files.upload(source, "x")
        assert proxy.to_daemon == []
        proxy.to_client += [2 << 20, 1 << 20]
        await sandbox.files.download("x", target)
        assert proxy.to_client == []

    assert target.read_bytes() == CONTENT
    assert proxy.connections == 5
    assert sorted(os.listdir(tmp_path)) == ["source", "target"]


async def test_file_that_changes_while_the_connection_is_cut(
    daemon: Daemon, short_dir: Path
) -> None:
    """What arrives is the new file, not some of each."""
    changed = CONTENT[::-1]
    async with (
        cutting_proxy(short_dir, daemon.config.api_socket) as proxy,
        sandbox_behind(proxy) as sandbox,
    ):
        await sandbox.files.write("x", CONTENT)
        url = f"unix:{daemon.config.api_socket}"
        other = await AsyncSandbox.connect(sandbox.session_id, server_url=url)
        proxy.to_client.append(2 << 20)
        proxy.is_open.clear()
        download = asyncio.create_task(sandbox.files.read("x", format="bytes"))
        await eventually(lambda: not proxy.to_client)
        await other.files.write("x", changed)
        proxy.is_open.set()

        assert await download == changed
        assert proxy.connections == 2
        await other.aclose()
