"""File transfers next to `docker cp`, and many small files in one archive or one by one."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from grpc import aio

from benchmarks import memory
from benchmarks.client import CommandFailed
from benchmarks.daemon import Daemon
from benchmarks.engine import Engine, EngineError
from benchmarks.race import Contestant, median, milliseconds, race
from benchmarks.table import Group
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import file_service_pb2_grpc

if TYPE_CHECKING:
    from sandboxd_proto.v1.file_service_pb2_grpc import FileServiceAsyncStub

CHUNK = 1 << 20
LARGE = 100 << 20
MEGABYTE = 1_000_000
LISTED = 1000
SMALL = 900
UPLOAD, DOWNLOAD = "UploadFile", "DownloadFile"
COPY_IN, COPY_OUT = "docker cp, in", "docker cp, out"


class Files:
    """The files of one session, transferred by a client that has them on disk."""

    def __init__(self, channel: aio.Channel, session: str) -> None:
        self._stub = cast("FileServiceAsyncStub", file_service_pb2_grpc.FileServiceStub(channel))
        self._session = session

    async def upload(self, source: Path, path: str) -> float:
        """Seconds of an upload whose checksum the daemon has confirmed."""
        began = time.perf_counter()
        done = await self._stub.UploadFile(self._parts(source, path))
        seconds = time.perf_counter() - began
        if done.sha256 != _sha256(source):
            raise CommandFailed(f"{path} was not received correctly")
        return seconds

    async def _parts(self, source: Path, path: str) -> AsyncIterator[pb.UploadFileRequest]:
        header = pb.UploadHeader(session_id=self._session, path=path)
        header.size_bytes = os.path.getsize(source)  # noqa: ASYNC240  # it is in memory
        yield pb.UploadFileRequest(header=header)
        with source.open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                yield pb.UploadFileRequest(chunk=chunk)

    async def download(self, path: str, target: Path) -> float:
        began = time.perf_counter()
        request = pb.DownloadFileRequest(session_id=self._session, path=path)
        end = pb.DownloadEnd()
        with target.open("wb", buffering=0) as file:
            async for part in self._stub.DownloadFile(request):
                if part.HasField("chunk"):
                    file.write(part.chunk)
                elif part.HasField("end"):
                    end = part.end
        seconds = time.perf_counter() - began
        if end.sha256 != _sha256(target):
            raise CommandFailed(f"{path} was not received correctly")
        return seconds

    async def list(self, path: str) -> float:
        began = time.perf_counter()
        request = pb.ListFilesRequest(session_id=self._session, path=path)
        found = await self._stub.ListFiles(request)
        seconds = time.perf_counter() - began
        if len(found.entries) != LISTED:
            raise CommandFailed(f"{len(found.entries)} entries of {LISTED} were listed")
        return seconds

    async def write(self, path: str, data: bytes) -> None:
        async def parts() -> AsyncIterator[pb.UploadFileRequest]:
            header = pb.UploadHeader(session_id=self._session, path=path, size_bytes=len(data))
            yield pb.UploadFileRequest(header=header)
            yield pb.UploadFileRequest(chunk=data)

        await self._stub.UploadFile(parts())

    async def read(self, path: str) -> bytes:
        request = pb.DownloadFileRequest(session_id=self._session, path=path)
        return b"".join([part.chunk async for part in self._stub.DownloadFile(request)])

    async def unpack(self, archive: bytes, path: str) -> None:
        async def parts() -> AsyncIterator[pb.UploadTarRequest]:
            header = pb.UploadTarHeader(session_id=self._session, path=path)
            yield pb.UploadTarRequest(header=header)
            for begin in range(0, len(archive), CHUNK):
                yield pb.UploadTarRequest(chunk=archive[begin : begin + CHUNK])

        await self._stub.UploadTar(parts())

    async def remove(self, path: str) -> None:
        request = pb.RemoveFileRequest(session_id=self._session, path=path, recursive=True)
        await self._stub.RemoveFile(request)

    async def pack(self, path: str) -> int:
        request = pb.DownloadTarRequest(session_id=self._session, path=path)
        members = 0
        async for part in self._stub.DownloadTar(request):
            members = part.end.members
        return members


async def large_files(
    daemon: Daemon, engine: Engine, directory: Path, *, rounds: int
) -> tuple[Group, dict[str, float]]:
    """100 MiB in both directions, ours and `docker cp` in turns; how many times as fast ours is."""
    source, target = directory / "source", directory / "target"
    source.write_bytes(os.urandom(LARGE))
    image = (await daemon.client.status()).engine.image_id
    session = await daemon.client.open("large files")
    before = memory.daemon_rss(daemon)
    samples: dict[str, list[float]] = {UPLOAD: [], COPY_IN: [], DOWNLOAD: [], COPY_OUT: []}
    async with aio.insecure_channel(daemon.unix_target) as channel:
        files = Files(channel, session)
        with engine.container(image) as container:
            for _ in range(rounds):
                samples[UPLOAD].append(await files.upload(source, "large"))
                samples[COPY_IN].append(_copy(str(source), f"{container}:/tmp/large"))
                samples[DOWNLOAD].append(await files.download("large", target))
                samples[COPY_OUT].append(_copy(f"{container}:/tmp/large", str(target)))
    after = memory.daemon_rss(daemon)
    await daemon.client.end(session)
    rows = {
        name: {
            "ms": median(taken) * 1000,
            "MB_per_second": LARGE / median(taken) / MEGABYTE,
            "samples": len(taken),
        }
        for name, taken in samples.items()
    }
    rows["daemon before, MiB of memory"] = {"MiB": before / (1 << 20)}
    rows["daemon after, MiB of memory"] = {"MiB": after / (1 << 20)}

    def times(ours: str, other: str) -> float:
        return median([b / a for a, b in zip(samples[ours], samples[other], strict=True)])

    return Group("a file of 100 MiB", rows), {
        "docker_cp_of_upload": times(UPLOAD, COPY_IN),
        "docker_cp_of_download": times(DOWNLOAD, COPY_OUT),
    }


async def small_calls(
    daemon: Daemon, directory: Path, *, rounds: int
) -> tuple[Group, dict[str, float]]:
    """1 MB in both directions, and a listing."""
    source, target = directory / "megabyte", directory / "back"
    source.write_bytes(os.urandom(MEGABYTE))
    session = await daemon.client.open("small calls")
    other = await daemon.client.open("small calls, another")
    async with aio.insecure_channel(daemon.unix_target) as channel:
        listed, moved = Files(channel, session), Files(channel, other)
        await listed.unpack(archive(LISTED), "outputs")
        await moved.upload(source, "f")
        contestants = [
            Contestant(name="UploadFile, 1 MB", call=lambda: moved.upload(source, "f")),
            Contestant(name="DownloadFile, 1 MB", call=lambda: moved.download("f", target)),
            Contestant(name=f"ListFiles, {LISTED} files", call=lambda: listed.list("outputs")),
        ]
        samples = await race(contestants, rounds=rounds, seconds=20.0)
    for session_id in (session, other):
        await daemon.client.end(session_id)
    rows = {name: milliseconds(taken, 50, 95) for name, taken in samples.items()}
    names = ("upload_1mb_p50_ms", "download_1mb_p50_ms", "list_p50_ms")
    return Group("calls on files", rows), {
        name: median(taken) * 1000 for name, taken in zip(names, samples.values(), strict=True)
    }


async def trees(daemon: Daemon, *, one_by_one: int) -> tuple[Group, float]:
    """900 small files up and down as one archive, and some of them one by one, scaled."""
    session = await daemon.client.open("trees")
    async with aio.insecure_channel(daemon.unix_target) as channel:
        files = Files(channel, session)
        packed = archive(SMALL)
        up = await _seconds(lambda: files.unpack(packed, "tree"))
        down = await _seconds(lambda: files.pack("tree"))
        await files.remove("tree")
        scale = SMALL / one_by_one
        single_up = scale * await _seconds(lambda: _write_all(files, one_by_one))
        single_down = scale * await _seconds(lambda: _read_all(files, one_by_one))
    await daemon.client.end(session)
    rows = {
        "UploadTar": {"ms": up * 1000},
        "UploadFile for each": {"ms": single_up * 1000, "times": single_up / up},
        "DownloadTar": {"ms": down * 1000},
        "DownloadFile for each": {"ms": single_down * 1000, "times": single_down / down},
    }
    return Group(f"{SMALL} small files", rows), (single_up + single_down) / (up + down)


async def _write_all(files: Files, count: int) -> None:
    for number in range(count):
        await files.write(f"f{number}", b"content\n")


async def _read_all(files: Files, count: int) -> None:
    for number in range(count):
        await files.read(f"f{number}")


async def _seconds(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def archive(count: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for number in range(count):
            member = tarfile.TarInfo(f"f{number}")
            member.size = 8
            tar.addfile(member, io.BytesIO(b"content\n"))
    return buffer.getvalue()


def _copy(source: str, target: str) -> float:
    """Seconds of a `docker cp`."""
    began = time.perf_counter()
    done = subprocess.run(
        ["docker", "cp", "--quiet", source, target], capture_output=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise EngineError(f"docker cp: {done.stderr.decode(errors='replace').strip()}")
    return seconds


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
