"""Output of an ended command that one answer does not hold."""

from __future__ import annotations

from sandboxd_client.capture import Capture
from sandboxd_client.methods.execs import READ_OUTPUT
from sandboxd_client.session import SessionHold
from sandboxd_proto.v1 import exec_pb2
from sandboxd_proto.v1 import exec_service_pb2 as pb

MAX_PIECE_BYTES = 1 << 20
"""Most that the daemon returns at once."""


async def read_on(
    hold: SessionHold,
    exec_id: str,
    stream: exec_pb2.OutputStream.ValueType,
    captured: exec_pb2.CapturedOutput,
    max_bytes: int,
) -> exec_pb2.CapturedOutput:
    """The same output with what was left out of it, up to so many bytes in all."""
    head, tail = captured.data[: captured.omitted_at], captured.data[captured.omitted_at :]
    begin, end = len(head), len(head) + captured.omitted_bytes
    room = min(max_bytes - len(captured.data), captured.omitted_bytes)
    # Half of what may be returned is the beginning, as in what the daemon returns.
    first_end = min(end, max(begin, max_bytes // 2)) if room < captured.omitted_bytes else end
    second_begin = max(first_end, end - (room - (first_end - begin)))
    capture = Capture(max_bytes)
    capture.add(head)
    reader = _Reader(hold, exec_id, stream, capture)
    await reader.read(begin, first_end)
    if second_begin > first_end:
        capture.skip(second_begin - first_end)
    await reader.read(second_begin, end)
    capture.add(tail)
    return capture.output()


class _Reader:
    """Adds kept output to a capture."""

    def __init__(
        self,
        hold: SessionHold,
        exec_id: str,
        stream: exec_pb2.OutputStream.ValueType,
        capture: Capture,
    ) -> None:
        self._hold = hold
        self._exec_id = exec_id
        self._stream = stream
        self._capture = capture

    async def read(self, begin: int, end: int) -> None:
        """Bytes from one position to another; those that are no longer kept are counted."""
        while begin < end:
            request = pb.ReadOutputRequest(
                session_id=self._hold.id,
                exec_id=self._exec_id,
                stream=self._stream,
                offset=begin,
                max_bytes=min(MAX_PIECE_BYTES, end - begin),
            )
            piece = await self._hold.connection.call(READ_OUTPUT, request)
            data = piece.data[: max(0, end - piece.offset)]
            missing = (piece.offset if data else end) - begin
            if missing > 0:
                self._capture.skip(min(missing, end - begin))
            self._capture.add(data)
            begin = piece.offset + len(data) if data else end
