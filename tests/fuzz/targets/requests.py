"""Messages of callers, as far as they are read before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import DecodeError, Message

from sandboxd.config import Config
from sandboxd.errors import SandboxdError
from sandboxd.projects import names
from sandboxd.service import exec_wire, file_wire, page_tokens, project_wire, session_wire, wire
from sandboxd.service.transport.chunk_messages import chunk_in
from sandboxd.service.transport.guard import _audited
from sandboxd.service.transport.status import to_status
from sandboxd_proto.v1 import exec_pb2, exec_service_pb2, files_pb2
from sandboxd_proto.v1 import file_service_pb2 as file_pb
from sandboxd_proto.v1 import project_service_pb2 as project_pb
from sandboxd_proto.v1 import session_service_pb2 as session_pb
from tests.docker.commands import duration
from tests.fuzz.target import Run, Target

CONFIG = Config()
PATHS = file_wire.Paths(CONFIG)
FULL_EXEC = exec_service_pb2.ExecRequest(
    session_id="s",
    shell="echo hi",
    cwd="d",
    env={"A": "1"},
    timeout=duration(1.5),
    no_output_timeout=duration(1),
    exec_id="e1",
    stdin=True,
    terminal=exec_pb2.Terminal(rows=24, columns=80),
    shell_name="main",
    max_output_bytes=1000,
    on_disconnect=exec_service_pb2.ON_DISCONNECT_KEEP_RUNNING,
)


def _exec(request: Any) -> None:
    for is_run in (False, True):
        spec = exec_wire.exec_spec(request, CONFIG, is_run=is_run, is_detached=not is_run)
        spec.encode("label")
        assert spec.digest
        assert spec.command is not None


def _open(request: Any) -> None:
    session_wire.name("user_id", request.user_id)
    session_wire.name("thread_id", request.thread_id)
    session_wire.open_request(request)


def _list_sessions(request: Any) -> None:
    session_wire.session_filter(request)
    wire.page_size(request.page_size)
    page_tokens.SESSIONS.decode(request.page_token)


def _list_execs(request: Any) -> None:
    exec_wire.exec_state(request.state)
    page_tokens.EXECS.decode(request.page_token)


def _signal(request: Any) -> None:
    exec_wire.signal_number(request)
    exec_wire.signal_target(request)


def _upload(request: Any) -> None:
    file_wire.upload_spec(request.header, PATHS)


def _upload_tar(request: Any) -> None:
    file_wire.tar_spec(request.header, PATHS)


def _list_files(request: Any) -> None:
    PATHS.parse_or_workspace(request)
    file_wire.page_size(request.page_size)
    page_tokens.FILES.decode(request.page_token)


def _move(request: Any) -> None:
    PATHS.parse(request)
    PATHS.parse_new(request)


def _new_file(request: Any) -> None:
    name = names.clean(project_wire.new_file(request).name)
    assert 0 < len(name.encode()) <= names.MAX_BYTES
    assert not set(name) & set("/\\\0\n")
    assert name not in (".", "..")


REQUESTED: Sequence[tuple[Message, Callable[[Any], object]]] = (
    (FULL_EXEC, _exec),
    (
        exec_service_pb2.ExecRequest(session_id="s", argv=exec_service_pb2.Argv(args=["ls", "x"])),
        _exec,
    ),
    (
        session_pb.OpenSessionRequest(
            user_id="ada", thread_id="t", idle_timeout=duration(60), metadata={"a": "b"}
        ),
        _open,
    ),
    (
        session_pb.UpdateSessionRequest(
            session_id="s", idle_timeout=duration(9), metadata={"a": "b"}, remove_metadata=["c"]
        ),
        session_wire.session_change,
    ),
    (
        project_pb.ProjectFileHeader(
            user_id="ada", project_id="p", name="notes.txt", on_conflict=1, sha256=bytes(32)
        ),
        _new_file,
    ),
    (session_pb.ListSessionsRequest(user_id="ada", page_size=10, page_token="x"), _list_sessions),
    (exec_service_pb2.ListExecsRequest(session_id="s", page_token="x"), _list_execs),
    (exec_service_pb2.SignalExecRequest(session_id="s", exec_id="e", signal=15), _signal),
    (
        exec_service_pb2.SearchOutputRequest(session_id="s", exec_id="e", pattern="a+", stream=1),
        exec_wire.search_query,
    ),
    (exec_service_pb2.WriteStdinRequest(session_id="s", data=b"x" * 10), exec_wire.input_data),
    (
        file_pb.UploadFileRequest(
            header=file_pb.UploadHeader(path="a/b", mode=0o644, sha256=bytes(32), size_bytes=5)
        ),
        _upload,
    ),
    (
        file_pb.UploadTarRequest(
            header=file_pb.UploadTarHeader(
                path="d", compression=files_pb2.TAR_COMPRESSION_ZSTD, overwrite=1
            )
        ),
        _upload_tar,
    ),
    (file_pb.ListFilesRequest(path="/workspace/a", page_size=5, page_token="x"), _list_files),
    (file_pb.MoveFileRequest(path="a", new_path_bytes=b"\xff"), _move),
    (
        file_pb.WriteTextRequest(path="a", text="text", first_line=1, line_count=2),
        lambda request: file_wire.text_spec(request, PATHS),
    ),
    (
        file_pb.EditTextRequest(path="a", old_text="x", new_text="y", expected_count=1),
        lambda request: file_wire.edit_spec(request, PATHS),
    ),
    (
        file_pb.GrepFilesRequest(path="a", pattern="x", glob="*.py", max_matches=10),
        lambda request: file_wire.grep_spec(request, PATHS),
    ),
    (file_pb.WatchFilesRequest(path="a", gather=duration(0.1)), file_wire.gather_seconds),
)
"""Valid requests, and how each is read. The first byte of an input is the number."""


@contextmanager
def reading() -> Iterator[Run]:
    async def run(data: bytes) -> Hashable:
        number, body = (data[0] if data else 0) % len(REQUESTED), data[1:]
        valid, read = REQUESTED[number]
        _check_chunk(body)
        try:
            request = type(valid).FromString(body)
        except DecodeError:
            return number, "unreadable"
        _audited(request)
        try:
            read(request)
        except SandboxdError as error:
            to_status(error)
            return number, error.reason, error.message[:30]
        return number, ""

    yield run


def _check_chunk(body: bytes) -> None:
    """Ours and protobuf's reading of an upload agree."""
    chunk = chunk_in(body)
    if chunk is not None:
        assert file_pb.UploadFileRequest.FromString(body).chunk == chunk


REQUESTS = Target(
    name="requests",
    open=reading,
    seeds=[
        *(
            bytes([number]) + valid.SerializeToString()
            for number, (valid, _) in enumerate(REQUESTED)
        ),
        b"\x08" + file_pb.UploadFileRequest(chunk=b"x" * 300).SerializeToString(),
    ],
    words=[b"\x12\x05hello", b"\x1a\x00", b"\x0a\x01s", b"\x18\x01", b"\xff\xff\xff\xff\x0f"],
    max_bytes=8 << 10,
)
