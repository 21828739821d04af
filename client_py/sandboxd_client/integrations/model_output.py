"""Output in a size that a model can read, with a pointer to the rest."""

from __future__ import annotations

from sandboxd_client.errors import ExecNotFoundError
from sandboxd_client.results import CommandResult, OutputPreview, StreamName
from sandboxd_client.sandbox import AsyncSandbox


async def shaped(
    sandbox: AsyncSandbox,
    result: CommandResult,
    max_bytes: int,
    *,
    reader: str = "read_command_output",
) -> tuple[str, str, bool]:
    """Standard output and error of a command, and whether something was left out.

    Short, plain output is returned unchanged. Otherwise the daemon returns its beginning and end,
    with progress bars reduced to their last state and without colours. `reader` is the name of the
    tool that reads the rest.
    """
    if _is_fit(result, max_bytes):
        return result.stdout, result.stderr, False
    try:
        command = await sandbox.commands.connect(result.exec_id)
        stdout, stderr = await command.preview_output(max_bytes=max_bytes, collapse=True)
    except ExecNotFoundError:
        # No longer kept, because very many commands have ended since: cut what we have.
        stdout, stderr = _cut(result.stdout, max_bytes), _cut(result.stderr, max_bytes)
        return stdout.text, stderr.text, False
    is_cut = bool(stdout.omitted_bytes or stderr.omitted_bytes)
    return (
        _text(stdout, "stdout", result.exec_id, reader),
        _text(stderr, "stderr", result.exec_id, reader),
        is_cut,
    )


def _is_fit(result: CommandResult, max_bytes: int) -> bool:
    if result.stdout_omitted_bytes or result.stderr_omitted_bytes:
        return False
    return all(
        len(data) <= max_bytes and b"\r" not in data and b"\x1b" not in data
        for data in (result.stdout_bytes, result.stderr_bytes)
    )


def _text(preview: OutputPreview, stream: StreamName, output_id: str, reader: str) -> str:
    if not preview.omitted_bytes:
        return preview.head
    offset = len(preview.head.encode())
    return (
        f"{_ended(preview.head)}[... {preview.omitted_bytes} of {preview.total_bytes} bytes left "
        f'out; {reader}("{output_id}", stream="{stream}", offset={offset}) has them, '
        f"and with pattern= it finds lines ...]\n{preview.tail}"
    )


def _cut(text: str, max_bytes: int) -> OutputPreview:
    data = text.encode()
    if len(data) <= max_bytes:
        return OutputPreview(text, "", 0, len(data))
    half = max_bytes // 2
    return OutputPreview(
        data[:half].decode(errors="ignore"),
        data[-half:].decode(errors="ignore"),
        len(data) - 2 * half,
        len(data),
    )


def _ended(head: str) -> str:
    return head if not head or head.endswith("\n") else f"{head}\n"
