"""Output of a run between two of its steps."""

from __future__ import annotations

import codecs

from sandboxd_client.debug_results import DebugStep
from sandboxd_client.results import left_out
from sandboxd_proto.v1 import code_pb2, exec_pb2

MAX_BYTES = 1 << 20
"""Most bytes of a stream that one step has; of more, the beginning is left out."""


class _Stream:
    """The bytes of a stream that no step has yet."""

    def __init__(self, offset: int) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._data = bytearray()
        self._begin = offset
        self._omitted = 0

    def add(self, chunk: exec_pb2.OutputChunk) -> None:
        end = self._begin + len(self._data)
        if chunk.offset > end:
            self._skip_to(chunk.offset)
        self._data += chunk.data
        if len(self._data) > MAX_BYTES:
            self._omit(len(self._data) - MAX_BYTES)

    def up_to(self, offset: int) -> str:
        size = max(0, min(offset - self._begin, len(self._data)))
        text = self._decoder.decode(bytes(self._data[:size]))
        del self._data[:size]
        self._begin += size
        omitted, self._omitted = self._omitted, 0
        return left_out(omitted) + text

    def rest(self) -> str:
        return self.up_to(self._begin + len(self._data))

    def _skip_to(self, offset: int) -> None:
        self._omitted += offset - self._begin
        self._data.clear()
        self._begin = offset

    def _omit(self, count: int) -> None:
        del self._data[:count]
        self._begin += count
        self._omitted += count


class StepOutput:
    """Divides the output of a run among its steps, by the positions that they report."""

    def __init__(self, *, stdout_offset: int = 0, stderr_offset: int = 0) -> None:
        self._stdout, self._stderr = _Stream(stdout_offset), _Stream(stderr_offset)

    def add(self, event: exec_pb2.ExecEvent) -> None:
        """Take the output of an event, if it is output."""
        kind = event.WhichOneof("event")
        if kind == "stdout":
            self._stdout.add(event.stdout)
        elif kind == "stderr":
            self._stderr.add(event.stderr)

    def step(self, found: code_pb2.DebugStep) -> DebugStep:
        """A step with the output before it."""
        return DebugStep.of(
            found,
            stdout=self._stdout.up_to(found.stdout_offset),
            stderr=self._stderr.up_to(found.stderr_offset),
        )

    def rest(self) -> tuple[str, str]:
        """Output after the last step."""
        return self._stdout.rest(), self._stderr.rest()
