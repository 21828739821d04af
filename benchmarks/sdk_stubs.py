"""The sync SDK next to the bare stubs, call by call, and what a new process pays for it."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc

from benchmarks.client import CommandFailed
from benchmarks.daemon import Daemon
from benchmarks.race import PAUSE_SECONDS, WARM_UP_ROUNDS, median
from benchmarks.table import Group
from sandboxd_client import Sandbox, SandboxClient
from sandboxd_proto.v1 import exec_service_pb2, exec_service_pb2_grpc, file_service_pb2_grpc
from sandboxd_proto.v1 import file_service_pb2 as pb

GOAL = 1.15
"""Most that a call of the SDK may take, in calls of a stub."""
MEGABYTE = os.urandom(1 << 20)
SMALL = b"content\n"
IN_A_ROW = 3
"""Calls of one kind in a turn; the first is not counted, since the turn before leaves the machine
to it in another state."""
FRESH = """
import sys, time
began, used = time.perf_counter(), time.process_time()
{work}
print(time.perf_counter() - began, time.process_time() - used)
"""
WITH_STUBS, WITH_SDK = "import, channel, OpenSession", "import, Sandbox.open"
FRESH_WORK = {
    "import grpc": "import grpc",
    "import sandboxd_client": "import sandboxd_client",
    "import Sandbox": "from sandboxd_client import Sandbox",
    WITH_STUBS: """
import grpc
from sandboxd_proto.v1 import session_service_pb2 as pb, session_service_pb2_grpc
stub = session_service_pb2_grpc.SessionServiceStub(grpc.insecure_channel(sys.argv[1]))
stub.OpenSession(pb.OpenSessionRequest(user_id="bench", thread_id=sys.argv[2]))""",
    WITH_SDK: """
from sandboxd_client import Sandbox
Sandbox.open("bench", sys.argv[2], server_url=sys.argv[1])""",
}
"""What a process does first; those with an open find the session there."""


class _Pair(NamedTuple):
    """The same call, with a stub and with the SDK."""

    stub: Callable[[], object]
    sdk: Callable[[], object]


async def sdk_and_stubs(
    daemon: Daemon, *, rounds: int, seconds: float
) -> tuple[Group, Group, dict[str, float]]:
    """A row per call with the ratio of both, a row per beginning of a process, and the worst
    ratio."""
    samples = await asyncio.to_thread(_race, daemon.unix_target, rounds, seconds)
    rows: dict[str, dict[str, float]] = {}
    for name, (stub, sdk) in samples.items():
        ours, bare = median(sdk), median(stub)
        rows[name] = {
            "stub_p50_ms": bare * 1000,
            "sdk_p50_ms": ours * 1000,
            "sdk_of_stub": ours / bare,
            "goal": GOAL,
            "samples": len(sdk),
        }
    fresh = await asyncio.to_thread(_fresh_processes, daemon.unix_target, max(5, rounds // 4))
    return (
        Group("the sync SDK, against stubs", rows),
        Group("in a new process", fresh),
        {
            "sdk_worst_of_stub": max(row["sdk_of_stub"] for row in rows.values()),
            "sdk_first_open_of_stub": fresh[WITH_SDK]["of_stub"],
        },
    )


def _race(target: str, rounds: int, seconds: float) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of every call, of stubs and of the SDK, in turns."""
    with (
        grpc.insecure_channel(target) as channel,
        Sandbox.open("bench", "stubs", server_url=target) as sandbox,
        SandboxClient(server_url=target) as client,
    ):
        client.get_or_create_session("bench", "stubs")
        sandbox.files.write("large.bin", MEGABYTE)
        sandbox.files.write("small.txt", SMALL)
        pairs = _pairs(channel, sandbox, client)
        samples: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in pairs}
        shuffler = random.Random(1)
        order = list(pairs.items())
        give_up_at = time.monotonic() + seconds
        for number in itertools.count(-WARM_UP_ROUNDS):
            if number >= rounds or (number >= 1 and time.monotonic() > give_up_at):
                break
            shuffler.shuffle(order)
            for name, pair in order:
                for side in (0, 1) if number % 2 else (1, 0):
                    taken = [_seconds(pair[side]) for _ in range(IN_A_ROW)]
                    if number >= 0:
                        samples[name][side].extend(taken[1:])
                    time.sleep(PAUSE_SECONDS)
        sandbox.kill()
    return samples


def _pairs(channel: grpc.Channel, sandbox: Sandbox, client: SandboxClient) -> dict[str, _Pair]:
    files: Any = file_service_pb2_grpc.FileServiceStub(channel)
    execs: Any = exec_service_pb2_grpc.ExecServiceStub(channel)
    session = sandbox.session_id

    def run() -> None:
        done = execs.Run(exec_service_pb2.ExecRequest(session_id=session, shell="true"))
        if done.exit.code != 0:
            raise CommandFailed(f"`true` ended with {done.exit.code}")

    def read(path: str) -> bytes:
        request = pb.DownloadFileRequest(session_id=session, path=path)
        return b"".join([part.chunk for part in files.DownloadFile(request)])

    def write(path: str, data: bytes) -> None:
        def parts() -> Iterator[pb.UploadFileRequest]:
            header = pb.UploadHeader(session_id=session, path=path, size_bytes=len(data))
            yield pb.UploadFileRequest(header=header)
            yield pb.UploadFileRequest(chunk=data)

        files.UploadFile(parts())

    return {
        "commands.run, Run": _Pair(run, lambda: sandbox.commands.run("true", check=True)),
        "client.execute, Run": _Pair(run, lambda: client.execute("true")),
        "files.read of 1 MB, DownloadFile": _Pair(
            lambda: read("large.bin"), lambda: sandbox.files.read("large.bin", format="bytes")
        ),
        "files.write of 1 MB, UploadFile": _Pair(
            lambda: write("large.bin", MEGABYTE), lambda: sandbox.files.write("large.bin", MEGABYTE)
        ),
        "files.read of 8 bytes, DownloadFile": _Pair(
            lambda: read("small.txt"), lambda: sandbox.files.read("small.txt", format="bytes")
        ),
        "files.write of 8 bytes, UploadFile": _Pair(
            lambda: write("small.txt", SMALL), lambda: sandbox.files.write("small.txt", SMALL)
        ),
    }


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _fresh_processes(target: str, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds until a new Python has done each thing, and of a processor, in turns."""
    thread = "a new process"
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in FRESH_WORK}
    with (
        Sandbox.open("bench", thread, server_url=target) as sandbox,
        tempfile.TemporaryDirectory(prefix="sandboxd-bench-") as compiled,
    ):
        # As after an installation: no module has to be compiled, except in the first round.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(-1, rounds):
            for name, work in FRESH_WORK.items():
                done = subprocess.run(
                    [sys.executable, "-c", FRESH.format(work=work), target, thread],
                    capture_output=True,
                    check=False,
                    env=environment,
                    text=True,
                )
                if done.returncode != 0:
                    raise CommandFailed(f"{name}: {done.stderr.strip()}")
                taken, used = map(float, done.stdout.split())
                if number >= 0:
                    samples[name].append((taken, used))
        sandbox.kill()
    rows = {
        name: {
            "p50_ms": median([taken for taken, _ in found]) * 1000,
            "cpu_p50_ms": median([used for _, used in found]) * 1000,
            "samples": len(found),
        }
        for name, found in samples.items()
    }
    stub, sdk = rows[WITH_STUBS], rows[WITH_SDK]
    sdk["of_stub"] = sdk["p50_ms"] / stub["p50_ms"]
    sdk["cpu_of_stub"] = sdk["cpu_p50_ms"] / stub["cpu_p50_ms"]
    return rows
