"""Processes of an OpenAI sandbox agent that run on between two tools; `openai_agents` uses them.

Output is read from the daemon only while a tool waits for it, so a process that nobody looks at
costs no memory here: the daemon keeps its output, within the limits of the session.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from dataclasses import dataclass, field

from agents.sandbox.errors import PtySessionNotFoundError
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    process_id_to_prune_from_meta,
    truncate_text_by_tokens,
)

from sandboxd_client.command_handle import AsyncCommandHandle
from sandboxd_client.errors import SandboxError
from sandboxd_client.results import OutputGap

MAX_UPDATE_BYTES = 1024 * 1024
"""Output that one update reads; the next one continues after it."""


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


@dataclass
class _Process:
    handle: AsyncCommandHandle
    has_terminal: bool
    position: int = 0
    """Position in the output up to which it was reported."""
    decoder: codecs.IncrementalDecoder = field(default_factory=_decoder)
    last_used: float = field(default_factory=time.monotonic)


class Processes:
    """Processes by the number that the model uses for them, at most PTY_PROCESSES_MAX."""

    def __init__(self) -> None:
        self._running: dict[int, _Process] = {}

    async def add(self, handle: AsyncCommandHandle, *, has_terminal: bool) -> int:
        """The number of a process. The least used one is ended if there are too many."""
        number: int = allocate_pty_process_id(set(self._running))
        self._running[number] = _Process(handle, has_terminal)
        if len(self._running) > PTY_PROCESSES_MAX:
            used = [(key, process.last_used, False) for key, process in self._running.items()]
            least_used = process_id_to_prune_from_meta(used)
            if least_used is not None:
                await _end(self._running.pop(least_used))
        return number

    async def write(self, number: int, text: str) -> None:
        process = self._get(number)
        if not text:
            return
        if not process.has_terminal:
            # The framework's tool knows this error by its text.
            raise RuntimeError("stdin is not available for this process")
        await process.handle.send_stdin(text)

    async def update(
        self, number: int, *, seconds: float, max_output_tokens: int | None
    ) -> PtyExecUpdate:
        """What the process wrote since the last update, read until its end or for `seconds`."""
        process = self._get(number)
        process.last_used = time.monotonic()
        output, exit_code = await _read_on(process, seconds)
        if exit_code is not None:
            self._running.pop(number, None)
        text, tokens = truncate_text_by_tokens(
            process.decoder.decode(output, final=exit_code is not None), max_output_tokens
        )
        return PtyExecUpdate(
            process_id=number if exit_code is None else None,
            output=text.encode(),
            exit_code=exit_code,
            original_token_count=tokens,
        )

    async def end_all(self) -> None:
        while self._running:
            _, process = self._running.popitem()
            await _end(process)

    def _get(self, number: int) -> _Process:
        if number not in self._running:
            raise PtySessionNotFoundError(session_id=number)
        return self._running[number]


async def _read_on(process: _Process, seconds: float) -> tuple[bytes, int | None]:
    """New output, and the exit code if the process has ended."""
    output = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async with process.handle.stream(stdout_offset=process.position) as events:
                async for event in events:
                    if isinstance(event, OutputGap):
                        lost = f"\n[{event.size_bytes} bytes of output are no longer kept]\n"
                        output += lost.encode()
                        process.position = event.offset + event.size_bytes
                    elif event.data:
                        output += event.data
                        process.position = event.offset + len(event.data)
                    if len(output) >= MAX_UPDATE_BYTES:
                        return bytes(output), None
                assert events.result is not None
                return bytes(output), events.result.exit_code
    except TimeoutError:
        return bytes(output), None


async def _end(process: _Process) -> None:
    try:
        await process.handle.kill()
    except SandboxError:
        pass  # its sandbox has ended
