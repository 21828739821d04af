"""Starts the process that fuzzes a target, and says what became of it."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.process import HANG, Settings, find, read_box

ROOT = Path(__file__).parents[2]
SPARE_SECONDS = 60.0
"""Beyond the time for inputs: to start, and to end on a busy machine."""
_LINE = 96


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a target withstood."""

    target: str
    inputs: int = 0
    outcomes: int = 0
    """Different endings of inputs."""
    growth: int = 0
    """Bytes of memory."""
    failure: str = ""
    """What went wrong; empty if nothing did."""
    kind: str = ""
    """`crash`, `hang` or `exception`."""
    data: bytes = b""
    """The input that it went wrong with."""

    def __str__(self) -> str:
        line = f"{self.target}: {self.inputs} inputs, {self.outcomes} outcomes"
        if not self.failure:
            return f"{line}, memory +{self.growth >> 20} MiB"
        text = encoded(self.data)
        wrapped = "\n".join(text[begin : begin + _LINE] for begin in range(0, len(text), _LINE))
        return f"{line}\n{self.kind.upper()}: {self.failure}\ninput:\n{wrapped}"


def encoded(data: bytes) -> str:
    """An input as text that fits a report: most of it repeats itself."""
    return base64.b64encode(zlib.compress(data, 9)).decode()


def decoded(text: str) -> bytes:
    return zlib.decompress(base64.b64decode("".join(text.split())))


def fuzz(
    target: str, *, seed: int, seconds: float = 60.0, processor_seconds: float = 0.0
) -> Report:
    """Fuzz a target until either time is up, or something goes wrong."""
    with tempfile.TemporaryDirectory(prefix="sbx-fuzz-") as directory:
        box = Path(directory) / "input"
        settings = Settings(target, processor_seconds, seconds, seed, str(box))
        ended, output, errors = _run(settings, seconds + SPARE_SECONDS)
        inputs, data = read_box(box) if box.exists() else (0, b"")
    name = find(target).name
    if ended == 0:
        return Report(target=name, **json.loads(output))
    kind, failure = _judge(ended, errors)
    return Report(target=name, inputs=inputs, kind=kind, failure=failure, data=data)


def reproduce(target: str, data: bytes) -> Report:
    """Try a single input."""
    with tempfile.TemporaryDirectory(prefix="sbx-fuzz-") as directory:
        box = Path(directory) / "input"
        box.write_bytes(data)
        settings = Settings(target, 0.0, SPARE_SECONDS, 0, str(box), is_reproduced=True)
        ended, output, errors = _run(settings, SPARE_SECONDS)
    if ended == 0:
        return Report(target=find(target).name, **json.loads(output))
    kind, failure = _judge(ended, errors)
    return Report(target=find(target).name, inputs=1, kind=kind, failure=failure, data=data)


def _run(settings: Settings, seconds: float) -> tuple[int | None, str, str]:
    """How the process ended, None if it had to be killed, and what it wrote."""
    command = [sys.executable, "-m", "tests.fuzz.process", json.dumps(settings)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        output, errors = process.communicate(timeout=seconds)
        return process.returncode, output, errors
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        return None, output, errors
    finally:
        process.kill()
        process.wait()


def _judge(ended: int | None, errors: str) -> tuple[str, str]:
    if ended is None:
        return "hang", f"it waits for something\n{errors}"
    if ended == -HANG:
        return "hang", f"an input takes more processor time than it may\n{errors}"
    if ended < 0:
        return "crash", f"{signal.Signals(-ended).name}\n{errors}"
    return "exception", errors
