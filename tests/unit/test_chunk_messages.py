"""Messages that are a chunk, read and written without protobuf."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.service.transport.chunk_messages import OutputPiece, chunk_in, with_chunk, with_output
from sandboxd_proto.v1 import exec_pb2, exec_service_pb2
from sandboxd_proto.v1 import file_service_pb2 as pb

SIZES = [0, 1, 127, 128, 16383, 16384, 1 << 20, (4 << 20) + 1]


@pytest.mark.parametrize("size", SIZES)
def test_chunks_are_what_protobuf_makes_of_them(size: int) -> None:
    """Both ways, at every length of a length."""
    data = b"x" * size
    read = chunk_in(pb.UploadFileRequest(chunk=data).SerializeToString())
    assert read is not None
    assert read == data
    assert pb.DownloadFileResponse.FromString(with_chunk(2, data)).chunk == data
    assert pb.DownloadTarResponse.FromString(with_chunk(1, data)).chunk == data


@given(st.binary(max_size=300))
def test_whatever_is_read_is_what_protobuf_reads(data: bytes) -> None:
    """Of any bytes: a chunk is the same for both, or is left to protobuf."""
    found = chunk_in(data)
    if found is not None:
        message = pb.UploadFileRequest.FromString(data)
        assert (message.WhichOneof("part"), message.chunk) == ("chunk", found)


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=2, max_size=4))
def test_more_than_a_chunk_is_left_to_protobuf(chunks: list[bytes]) -> None:
    """A field that is there twice, or another one before or after it, is not taken for a chunk."""
    parts = [pb.UploadFileRequest(chunk=chunk).SerializeToString() for chunk in chunks]
    header = pb.UploadFileRequest(header=pb.UploadHeader(path="x")).SerializeToString()

    assert chunk_in(b"".join(parts)) is None
    assert chunk_in(header) is None
    assert chunk_in(header + parts[0]) is None
    assert chunk_in(parts[0] + header) is None
    assert chunk_in(parts[0][:-1]) is None


@given(
    st.lists(
        st.builds(
            OutputPiece,
            st.sampled_from(
                [exec_pb2.ExecEvent.STDOUT_FIELD_NUMBER, exec_pb2.ExecEvent.STDERR_FIELD_NUMBER]
            ),
            st.integers(0, (1 << 64) - 1),
            st.binary(min_size=1, max_size=40) | st.sampled_from([b"x" * n for n in SIZES if n]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_output_is_written_as_protobuf_writes_it(pieces: list[OutputPiece]) -> None:
    """To the byte, whichever stream, offset and size."""
    response = exec_service_pb2.ExecResponse()
    for field, offset, data in pieces:
        event = response.events.add()
        is_stdout = field == exec_pb2.ExecEvent.STDOUT_FIELD_NUMBER
        chunk = event.stdout if is_stdout else event.stderr
        chunk.offset, chunk.data = offset, data

    written = with_output(exec_service_pb2.ExecResponse.EVENTS_FIELD_NUMBER, pieces)

    assert written == response.SerializeToString()
