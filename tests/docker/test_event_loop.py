"""How long calls hold the daemon's event loop, in which all others wait: every method, at its
limits. Prints the table of docs/performance.md."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from sandboxd_client import AsyncSandbox
from sandboxd_proto.v1.admin_service_pb2 import VerifyAuditRequest
from tests.docker.daemon_process import Api, DaemonProcess, served

pytestmark = [pytest.mark.calm, pytest.mark.timeout(600)]

REQUEST_BYTES = 8 << 20
"""Nearly the largest request."""
UNKNOWN = b"\xc2\x3e"
"""Tag of a field that no message has, with bytes."""
HELD_SECONDS = 0.5
"""Of processor time in one turn: no call may take longer. What is usual is far below."""
CALL_SECONDS = 30.0
LAST = ("ResetSession", "ParkSession", "CloseSession", "DrainWorker")
"""Calls after which there is no session, or no daemon, for others."""


@dataclass
class Held:
    """What a call did to the loop."""

    worst: float = 0.0
    """Processor time of the longest turn."""
    late: float = 0.0
    """Of all time, how much of it turns were late."""

    def __or__(self, other: Held) -> Held:
        return Held(max(self.worst, other.worst), max(self.late, other.late))


class Probe:
    """Reads what the daemon writes."""

    def __init__(self, path: Path, api: Api) -> None:
        self.path = path
        self.api = api
        self.found: dict[str, dict[str, Held]] = {}
        """By method and what was done to it."""

    @asynccontextmanager
    async def measuring(self, method: str, how: str) -> AsyncIterator[None]:
        self.path.write_bytes(b"")
        began = time.monotonic()
        try:
            yield
        finally:
            await self.api.status()  # the loop has turned, also after a call that was given up
            took = time.monotonic() - began
            lines = self.path.read_text().splitlines()
            turns = [tuple(map(float, line.split())) for line in lines]
            held = Held(
                worst=max((min(late, used) for late, used in turns), default=0.0),
                late=sum(min(late, used) for late, used in turns) / took,
            )
            of_method = self.found.setdefault(method, {})
            of_method[how] = of_method.get(how, Held()) | held


def methods() -> list[MethodDescriptor]:
    """Of all services; those that end sessions last."""
    found = []
    for file in sorted(files("sandboxd_proto.v1").iterdir(), key=lambda one: one.name):
        if file.name.endswith("_service_pb2.py"):
            module = import_module(f"sandboxd_proto.v1.{file.name.removesuffix('.py')}")
            services = module.DESCRIPTOR.services_by_name.values()
            found += [method for service in services for method in service.methods]
    return sorted(found, key=lambda method: LAST.index(method.name) if method.name in LAST else -1)


# --- the largest requests ---


def largest(kind: Descriptor, known: Mapping[str, Any]) -> Iterator[bytes]:
    """Requests in which one field has all the bytes: each, also of messages in the message."""
    base = GetMessageClass(kind)()
    for name in known.keys() & kind.fields_by_name.keys():
        setattr(base, name, known[name])
    for one in kind.fields:
        for content in contents(one, depth=2) if one.name not in known else ():
            yield base.SerializeToString() + content
    yield base.SerializeToString() + UNKNOWN + varint(REQUEST_BYTES) + bytes(REQUEST_BYTES)


def contents(one: FieldDescriptor, depth: int) -> Iterator[bytes]:
    size, count = REQUEST_BYTES, 200_000
    if one.message_type is not None and one.message_type.GetOptions().map_entry:
        entries = (b"\x0a\x07%07d\x12\x01a" % number for number in range(count))
        yield b"".join(tagged(one, 2) + varint(len(entry)) + entry for entry in entries)
    elif one.message_type is not None:
        if one.is_repeated:
            yield (tagged(one, 2) + b"\0") * count
        for inner in one.message_type.fields if depth else ():
            for content in contents(inner, depth - 1):
                yield tagged(one, 2) + varint(len(content)) + content
    elif one.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        yield tagged(one, 2) + varint(size) + b"a" * size
        if one.is_repeated:
            yield (tagged(one, 2) + b"\x01a") * (10 * count)
    elif one.is_repeated:
        yield tagged(one, 2) + varint(size) + b"\x01" * size


def tagged(one: FieldDescriptor, wire_type: int) -> bytes:
    return varint(one.number << 3 | wire_type)


def varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


async def send(channel: grpc.aio.Channel, method: MethodDescriptor, request: bytes) -> None:
    """As one message of whatever kind of call it is; what is answered does not matter."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    stub: Any = channel.stream_stream(path)
    call = stub(once(request), timeout=CALL_SECONDS)
    with suppress(grpc.aio.AioRpcError, TimeoutError):
        async with asyncio.timeout(2):
            async for _ in call:
                break
        call.cancel()


async def once(request: bytes) -> AsyncIterator[bytes]:
    yield request


# --- the most work ---


@dataclass
class Rig:
    sandbox: AsyncSandbox
    api: Api
    directory: Path


Work: TypeAlias = Callable[[Rig], Awaitable[object]]


async def drained(events: Any) -> None:
    async for _ in events:
        pass


LINES = "seq 100000 | awk '{print $1 * 7919 % 1000003}'"
MAKE_FILES = """
import os, random
os.makedirs("many")
for n in range(10_000):
    open(f"many/{n:05}", "w").write(f"{n} needle\\n")
for n in range(8):
    open(f"text{n}", "w").writelines(f"{random.randrange(10**6)}\\n" for _ in range(50_000))
os.makedirs("deep/" + "d/" * 60)
"""
CHANGE_FILES = """
import random
for n in range(0, 10_000, 2):
    open(f"many/{n:05}", "w").write(f"{n} changed\\n")
for n in range(8):
    open(f"text{n}", "w").writelines(f"{random.randrange(10**6)}\\n" for _ in range(50_000))
"""
RESULT = "[{'a': n, 'b': str(n), 'c': [n] * 5} for n in range(20_000)]"
PRINTS = "for n in range(200_000): print(n)"
STORM = "for i in $(seq 3000); do : > many/s$i; rm many/s$i; done"


async def watch(rig: Rig) -> None:
    async with rig.sandbox.files.watch_dir("", recursive=True) as changes:
        storm = asyncio.ensure_future(rig.sandbox.commands.run(STORM, timeout=60))
        with suppress(TimeoutError):
            async with asyncio.timeout(3):
                async for _ in changes:
                    pass
        await storm


async def download(rig: Rig) -> None:
    with (rig.directory / "all.tar").open("wb") as file:
        await rig.sandbox.files.download_archive("", file)


async def upload(rig: Rig) -> None:
    with (rig.directory / "all.tar").open("rb") as file:
        await rig.sandbox.files.upload_archive(file, "again")


WORK: Mapping[str, Work] = {
    "Run": lambda rig: rig.sandbox.commands.run("head -c 8M /dev/zero | tr '\\0' 'a'"),
    "StartExec": lambda rig: asyncio.gather(
        *(rig.sandbox.commands.run(f": {'a' * 100_000}") for _ in range(16))
    ),
    "RunCode": lambda rig: rig.sandbox.code.run(RESULT),
    "StreamCode": lambda rig: rig.sandbox.code.run(PRINTS),
    "ListFiles": lambda rig: rig.sandbox.files.list("many"),
    "GrepFiles": lambda rig: rig.sandbox.files.grep("[0-9]*[0-9] *needle", regex=True),
    "GlobFiles": lambda rig: rig.sandbox.files.glob("**/*0*"),
    "UploadFile": lambda rig: rig.sandbox.files.write("big", bytes(32 << 20)),
    "DownloadFile": lambda rig: rig.sandbox.files.read("big", format="bytes"),
    "DownloadTar": download,
    "UploadTar": upload,
    "WatchFiles": watch,
    "CreateSnapshot": lambda rig: rig.sandbox.snapshots.create(),
    "DiffSnapshots": lambda rig: rig.sandbox.snapshots.diff(1, 2, with_text=True),
    "ExportSnapshot": lambda rig: rig.sandbox.snapshots.export_to(2, rig.directory / "snap.tar"),
    "ImportSnapshot": lambda rig: rig.sandbox.snapshots.import_from(rig.directory / "snap.tar"),
    "ListSnapshots": lambda rig: rig.sandbox.snapshots.list(),
    "VerifySnapshots": lambda rig: rig.sandbox.snapshots.verify(),
    "ForkSession": lambda rig: rig.sandbox.fork("forked"),
    "VerifyAudit": lambda rig: rig.api.admin.VerifyAudit(VerifyAuditRequest(), timeout=60),
}
"""What methods do that do much; others do little, whatever they are asked."""


# --- the table ---


@asynccontextmanager
async def probed(directory: Path) -> AsyncIterator[tuple[AsyncSandbox, Probe]]:
    """A sandbox of a daemon that is probed."""
    file = directory / "probe"
    daemon = DaemonProcess(
        POOL_SIZE="3",
        MAX_WORKSPACE_SIZE_MB="256",
        MAX_TOTAL_FILES="40000",
        LOOP_PROBE=str(file),
        PYTHONPATH=str(Path(__file__).parents[2]),
    )
    daemon.program = [sys.executable, str(Path(__file__).with_name("probed_daemon.py")), "serve"]
    async with served(daemon), daemon.api() as api:
        await daemon.wait_until_warm()
        url = f"unix:{daemon.socket}"
        async with await AsyncSandbox.open("ada", "work", server_url=url) as sandbox:
            yield sandbox, Probe(file, api)


def shown(found: Mapping[str, Mapping[str, Held]]) -> Iterator[str]:
    yield "| method | most work | of that time |"
    yield "|---|---|---|"
    for name, how in found.items():
        if work := how.get("work"):
            yield f"| {name} | {work.worst * 1000:.0f} ms | {work.late:.0%} |"
    worst = {name: how["request"].worst * 1000 for name, how in found.items() if "request" in how}
    in_order = sorted(worst.items(), key=lambda item: -item[1])
    yield "largest request, ms: " + ", ".join(f"{name} {ms:.0f}" for name, ms in in_order)


async def test_no_call_holds_the_loop(tmp_path: Path) -> None:
    """Neither the largest request in any of its fields, nor the most work."""
    async with probed(tmp_path) as (sandbox, probe):
        rig = Rig(sandbox, probe.api, tmp_path)
        for program in (MAKE_FILES, CHANGE_FILES):
            await sandbox.files.write("make.py", program)
            await sandbox.commands.run("python3 make.py", check=True, timeout=120)
            await sandbox.snapshots.create()
        for name, work in WORK.items():
            async with probe.measuring(name, "work"):
                await work(rig)
        known = {"user_id": "ada", "thread_id": "work", "session_id": sandbox.session_id}
        for method in methods():
            given = {} if method.name in LAST else known
            for request in largest(method.input_type, given):
                async with probe.measuring(method.name, "request"):
                    await send(probe.api.channel, method, request)
    print(*shown(probe.found), sep="\n")
    held = {
        name: one.worst
        for name, of_method in probe.found.items()
        for one in of_method.values()
        if one.worst > HELD_SECONDS
    }
    assert held == {}
