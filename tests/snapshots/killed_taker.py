"""Takes snapshots in processes that are killed: `python -m tests.snapshots.killed_taker ...`.

Each process changes the workspace, takes a snapshot, and writes a line with its number and a digest
of what the kernel says is in the workspace. With a service, what stands between is killed, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import sys
import time
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from sandboxd.errors import SandboxdError
from sandboxd.snapshots.contract import WorkspaceDisk
from sandboxd.snapshots.objects import DirectoryObjects, Objects
from sandboxd.snapshots.snapshots import DiskSnapshots
from tests.ports import free_port
from tests.snapshots import comparison
from tests.snapshots.object_server import objects_at
from tests.snapshots.rig import LINE, UID, snapshots_on
from tests.snapshots.wild_changes import WildChanges

UNDISTURBED = 4
"""Snapshots of a process that is not killed, which show how long one takes on this machine."""


def digest_of(seen: comparison.Seen) -> str:
    return hashlib.sha256(repr(sorted(seen.items())).encode()).hexdigest()


def open_objects(store: str) -> Objects:
    if store.startswith("http"):
        return objects_at(store, call_seconds=5.0)
    return DirectoryObjects(Path(store))


async def take_for_ever(
    snapshots: DiskSnapshots, image: Path, workspace: Path, acknowledged: int, seed: int
) -> None:
    descriptor = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    disk = WorkspaceDisk(image=image, workspace=descriptor)
    changes = WildChanges(os.fsencode(workspace / "outputs"), Random(seed))
    while True:
        changes.some(10)
        _own(workspace / "outputs")
        try:
            taken = await snapshots.take(LINE, disk)
        except SandboxdError:
            continue
        assert taken is not None
        line = f"{taken.number} {digest_of(comparison.directory(descriptor))}\n"
        os.write(acknowledged, line.encode())


def _own(directory: Path) -> None:
    for path, names, files in os.walk(os.fsencode(directory)):
        for name in [*names, *files]:
            os.chown(os.path.join(path, name), UID, UID, follow_symlinks=False)


def forked(work: object) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()  # type: ignore[operator]
        finally:
            os._exit(1)
    return pid


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


async def forward(port: int, address: str) -> None:
    """What stands between the process and the service."""
    to = urlsplit(address)

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_connection(to.hostname, to.port)
        await asyncio.gather(pump(reader, inner[1]), pump(inner[0], writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", port, reuse_port=True)
    await server.serve_forever()


def main() -> None:
    store, image, workspace, acknowledged, kills, seed = sys.argv[1:]
    random = Random(int(seed))
    log = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    port, between = free_port(), -1
    place = f"http://127.0.0.1:{port}" if store.startswith("http") else store

    def take() -> None:
        objects = open_objects(place)
        snapshots = snapshots_on(objects, Path(acknowledged).parent / "unfinished")
        work = take_for_ever(
            snapshots, Path(image), Path(workspace), log, random.randrange(1 << 30)
        )
        asyncio.run(work)

    def proxy() -> None:
        asyncio.run(forward(port, store))

    if store.startswith("http"):
        between = forked(proxy)
        _wait_for(port)
    longest = 4 * _seconds_of_one(forked(take), Path(acknowledged))
    for _ in range(int(kills)):
        random.random()  # each process makes other changes
        taker = forked(take)
        time.sleep(random.uniform(0, longest))
        if between >= 0 and random.random() < 0.5:
            end(between)
            between = forked(proxy)
            _wait_for(port)
            time.sleep(random.uniform(0, longest))
        end(taker)
    if between >= 0:
        end(between)


def _seconds_of_one(taker: int, log: Path) -> float:
    started = time.monotonic()
    while len(log.read_bytes().splitlines()) < UNDISTURBED:
        assert time.monotonic() - started < 120, "no snapshot is taken"
        time.sleep(0.005)
    end(taker)
    return (time.monotonic() - started) / UNDISTURBED


def _wait_for(port: int) -> None:
    give_up_at = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < give_up_at
            time.sleep(0.005)


if __name__ == "__main__":
    main()
