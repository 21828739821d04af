"""Files of a session from standard input and to standard output."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile

from sandboxd.cli import keyboard
from sandboxd.cli.failure import FAILED, Failure
from sandboxd_client import AsyncSandbox, FileInfo
from sandboxd_client.results import ProgressCallback

STANDARD = "-"
"""Stands for standard input or output where a path is expected."""
BROKEN_PIPE_CODE = 128 + signal.SIGPIPE
NEW_FILE_MODE = 0o644


async def to_standard_output(sandbox: AsyncSandbox, path: str) -> int:
    """Write a file to standard output, once it has arrived whole; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="sandboxd-") as directory:
        copy = os.path.join(directory, "file")
        await sandbox.files.download(path, copy)
        with open(copy, "rb") as content:  # noqa: ASYNC230  # nothing else runs here
            try:
                shutil.copyfileobj(content, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                close_unread_output()
                return BROKEN_PIPE_CODE
    return 0


async def from_standard_input(
    sandbox: AsyncSandbox, path: str, on_progress: ProgressCallback
) -> FileInfo:
    """Write what comes from standard input to a file, once it has ended."""
    if keyboard.is_terminal():
        raise Failure("standard input is a terminal; pipe a file into it", FAILED)
    with tempfile.NamedTemporaryFile(prefix="sandboxd-") as copy:
        async for chunk in keyboard.StandardInput().chunks():
            copy.write(chunk)
        copy.flush()
        os.fchmod(copy.fileno(), NEW_FILE_MODE)
        return await sandbox.files.upload(copy.name, path, on_progress=on_progress)


def close_unread_output() -> None:
    """Python would report the broken pipe again when it closes standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
