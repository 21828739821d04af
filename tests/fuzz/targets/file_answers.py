"""What a worker for files answers, up to the message that a caller gets of it."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any

import structlog

from sandboxd.config import Config
from sandboxd.errors import SandboxdError
from sandboxd.files import FileSettings, WorkspaceFiles
from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import (
    MAX_PATH,
    Change,
    Entry,
    Failed,
    Failure,
    Found,
    Kind,
    LeftOut,
    Why,
)
from sandboxd.guest.worker_frames import HEADER, frame
from sandboxd.link.workers import Controls
from sandboxd.service.file_service import FileServicer
from sandboxd.service.transport.status import to_status
from sandboxd.sessions.journal import Journal
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import files_pb2
from tests.fuzz.target import Run, Target

SETTINGS = FileSettings(
    workspace_dir="/workspace",
    max_file_bytes=1 << 20,
    workspace_bytes=1 << 20,
    workspace_files=1000,
)
FILE = Entry(b"a/b.txt", 1, 0o644, 5, 1_700_000_000_000_000_000, b"")
LINK = Entry(b"link", 3, 0o777, 0, -1, b"a/b.txt")
ODD = Entry(b"\xff\n\xc3\xa9", 6, 0o7777, (1 << 64) - 1, -(1 << 63), b"")
READY = frame(Kind.READY)
DONE = codec.encode_done(1, 2, 3, 0, 5, 6)
ONE = frame(Kind.ENTRIES, codec.encode_entry(FILE))
LEFT_OUT = frame(
    Kind.LEFT_OUT,
    codec.encode_left_out(LeftOut(Why.OUTSIDE, b"../x"))
    + codec.encode_left_out(LeftOut(Why.SPARSE, b"y")),
)


async def upload(header: Any) -> AsyncIterator[Any]:
    yield header
    yield memoryview(b"bytes")


def named(request: type[Any], **fields: Any) -> Any:
    return request(session_id="s", path="a", **fields)


OPERATIONS: Sequence[tuple[Callable[[FileServicer], Any], bytes]] = (
    (
        lambda files: files.UploadFile(
            upload(pb.UploadFileRequest(header=named(pb.UploadHeader, size_bytes=5))), None
        ),
        READY + ONE + DONE,
    ),
    (
        lambda files: files.DownloadFile(named(pb.DownloadFileRequest), None),
        ONE + frame(Kind.DATA, b"hello") + DONE,
    ),
    (
        lambda files: files.ListFiles(named(pb.ListFilesRequest, page_size=10), None),
        frame(Kind.ENTRIES, b"".join(map(codec.encode_entry, (FILE, LINK, ODD)))) + DONE,
    ),
    (lambda files: files.StatFile(named(pb.StatFileRequest), None), ONE + DONE),
    (lambda files: files.MakeDirectory(named(pb.MakeDirectoryRequest), None), ONE + DONE),
    (
        lambda files: files.MoveFile(named(pb.MoveFileRequest, new_path="b"), None),
        codec.encode_failed(Failed(Failure.EXISTS, 1, 2, b"b")),
    ),
    (lambda files: files.RemoveFile(named(pb.RemoveFileRequest), None), READY + READY + DONE),
    (
        lambda files: files.ReadText(named(pb.ReadTextRequest, max_bytes=1000), None),
        ONE + frame(Kind.DATA, b"text\n\xff") + DONE,
    ),
    (
        lambda files: files.WriteText(named(pb.WriteTextRequest, text="text"), None),
        READY + codec.encode_failed(Failed(Failure.FULL, 1, 2, b"")),
    ),
    (
        lambda files: files.EditText(named(pb.EditTextRequest, old_text="a", new_text="b"), None),
        READY + codec.encode_failed(Failed(Failure.TEXT_NOT_FOUND, 3, 0, b"")),
    ),
    (
        lambda files: files.GrepFiles(
            named(pb.GrepFilesRequest, pattern="x", max_matches=10), None
        ),
        codec.encode_found(Found(1, b"a", b"x")) + codec.encode_found(Found(2, b"b", b"")) + DONE,
    ),
    (
        lambda files: files.GlobFiles(
            named(pb.GlobFilesRequest, pattern="*", max_entries=10), None
        ),
        ONE + ONE + DONE,
    ),
    (
        lambda files: files.WatchFiles(named(pb.WatchFilesRequest), None),
        READY
        + codec.encode_changes(
            overflow=True, changes=codec.encode_change(Change(4, False, b"new", b"old"))
        )
        + codec.encode_changes(overflow=False, changes=b""),
    ),
    (
        lambda files: files.UploadTar(
            upload(pb.UploadTarRequest(header=named(pb.UploadTarHeader))), None
        ),
        READY + LEFT_OUT + DONE,
    ),
    (
        lambda files: files.DownloadTar(
            named(pb.DownloadTarRequest, compression=files_pb2.TAR_COMPRESSION_NONE), None
        ),
        READY + frame(Kind.DATA, b"archive") + LEFT_OUT + DONE,
    ),
)
"""What a caller asks for, and what a worker answers. The first byte of an input is the number."""


class _Sessions:
    """Gives every call the same files."""

    def __init__(self, files: WorkspaceFiles) -> None:
        self._work = SimpleNamespace(files=files, until_closed=lambda messages: messages)

    @asynccontextmanager
    async def file_work(
        self, session_id: str, *, incarnation: int = 0, changes: bool = False
    ) -> AsyncIterator[Any]:
        yield self._work

    def get(self, session_id: str) -> Any:
        return SimpleNamespace(record=None)


class _NoPace:
    async def wait(self, changes: int) -> None: ...


class _Worker:
    """Says what the input has, and hangs up."""

    def __init__(self) -> None:
        self.answer = b""
        self._end: socket.socket | None = None

    async def start(self, its_end: socket.socket) -> Controls:
        self._end = its_end
        its_end.sendall(self.answer)
        its_end.shutdown(socket.SHUT_WR)
        return Controls(kill=self.close)

    def close(self) -> None:
        if self._end is not None:
            self._end.close()
            self._end = None


@contextmanager
def opened() -> Iterator[Run]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    worker = _Worker()
    link: Any = SimpleNamespace(
        closed_because=None, keeps_workers=False, knows=lambda purpose: True
    )
    workspace: Any = WorkspaceFiles(link, SETTINGS)
    workspace._operations._workers._start_in_guest = worker.start
    workspace._change_pace = _NoPace()
    sessions: Any = _Sessions(workspace)
    files = FileServicer(sessions, Config(), Journal())

    async def run(data: bytes) -> Hashable:
        number = data[0] % len(OPERATIONS) if data else 0
        worker.answer = data[1:]
        call = OPERATIONS[number][0](files)
        count = 0
        try:
            if isinstance(call, AsyncIterator):
                async for message in call:
                    count += 1
                    if not isinstance(message, bytes):
                        message.SerializeToString()
            else:
                (await call).SerializeToString()
        except SandboxdError as error:
            to_status(error)
            return number, min(count, 3), error.reason
        finally:
            worker.close()
        return number, min(count, 3), ""

    yield run


def reframed(data: bytes, random: Random) -> bytes:
    """The same with lengths of frames that fit, and now and then another kind."""
    body, parts = data[1:], [data[:1]]
    while len(body) >= HEADER.size:
        kind, size = HEADER.unpack_from(body)
        if size > len(body) - HEADER.size:
            size = random.choice((0, len(body) - HEADER.size))
        if random.random() < 0.1:
            kind = random.randrange(1, 11)
        parts += (HEADER.pack(kind, size), body[HEADER.size : HEADER.size + size])
        body = body[HEADER.size + size :]
    return b"".join((*parts, body))


ANSWERS = Target(
    name="file-answers",
    open=opened,
    seeds=[
        *(bytes([number]) + answer for number, (_, answer) in enumerate(OPERATIONS)),
        *(
            bytes([number]) + READY + codec.encode_failed(Failed(failure, 7, 9, b"p" * MAX_PATH))
            for number, failure in enumerate(Failure)
        ),
    ],
    words=[READY, DONE, ONE, LEFT_OUT],
    repair=reframed,
    max_bytes=16 << 10,
)
