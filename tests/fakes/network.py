"""A network namespace of a test's own, as a sandbox has one."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from sandboxd.isolation.host_process import HostProcess

DEADLINE_SECONDS = 30
CLIENT = """
import socket, sys
kind, place = sys.argv[1:3]
if kind == "unix":
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(chr(0) + place)
else:
    peer = socket.create_connection(("127.0.0.1", int(place)))
peer.sendall(b"hello\\n")
print(peer.makefile().readline(), end="")
"""


class Other:
    """A process in a network namespace of its own, in which only loopback is up."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pinned = HostProcess(process.pid)
        self._pid = process.pid

    async def inside(self, make: Callable[[], socket.socket]) -> socket.socket:
        return await asyncio.to_thread(partial(self.pinned.in_network, make))

    def run(self, *command: str) -> list[str]:
        return ["nsenter", "--net", "--target", str(self._pid), *command]

    async def talk(self, kind: str, place: str) -> bytes:
        client = await asyncio.create_subprocess_exec(
            *self.run(sys.executable, "-c", CLIENT, kind, place),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        async with asyncio.timeout(DEADLINE_SECONDS):
            return (await client.communicate())[0]


@contextmanager
def other_network() -> Iterator[Other]:
    process = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "ip link set lo up && echo ready; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        other = Other(process)
        yield other
        other.pinned.close()
    finally:
        process.communicate(timeout=DEADLINE_SECONDS)
