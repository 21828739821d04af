"""Doors: what the egress proxy moves, and a round trip through a forwarded port, each next to the
same without a sandbox."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.daemon import Daemon
from benchmarks.race import median
from benchmarks.table import Group
from sandboxd_client import AsyncSandbox

MEGABYTE = 1_000_000
CHUNK = bytes(1 << 18)
PINGS = 200
LOOKS = 1200
FETCH = """
import http.client, sys, time
connect, port, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
host, _, at = connect.partition(":")
began = time.perf_counter()
client = http.client.HTTPConnection(host, int(at))
client.request("GET", f"http://127.0.0.1:{port}/{size}", headers={"Host": f"127.0.0.1:{port}"})
answer = client.getresponse()
received = 0
while data := answer.read(1 << 18):
    received += len(data)
assert received == size, received
print(time.perf_counter() - began)
"""
ECHO = """
import socket
listener = socket.create_server(("127.0.0.1", 7000))
while True:
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := peer.recv(100):
        peer.sendall(data)
"""


async def doors(daemon: Daemon, *, size: int, rounds: int) -> tuple[Group, Group]:
    """The two tables. Ratios are medians of neighbouring measurements."""
    rules = [f"127.0.0.1:{daemon.site_port}"]
    async with (
        _site(daemon.site_port),
        await AsyncSandbox.create(server_url=daemon.unix_target, egress=rules) as sandbox,
    ):
        await sandbox.files.write("fetch.py", FETCH)
        await sandbox.files.write("echo.py", ECHO)
        echo = await sandbox.commands.run("python3 echo.py", background=True, timeout=600)
        for _ in range(LOOKS):
            if await sandbox.ports.list():
                break
            await asyncio.sleep(0.05)
        moved = await _egress(sandbox, daemon.site_port, size, rounds)
        trips = await _ports(sandbox, rounds)
        await echo.kill()
    return moved, trips


async def _egress(sandbox: AsyncSandbox, port: int, size: int, rounds: int) -> Group:
    ours, direct = [], []
    for _ in range(rounds):
        words = f"fetch.py 127.0.0.1:3128 {port} {size}"
        inside = await sandbox.commands.run(f"python3 {words}", timeout=120, check=True)
        ours.append(size / float(inside.stdout) / MEGABYTE)
        direct.append(size / await _fetch_on_the_host(port, size) / MEGABYTE)
    ratio = median([one / other for one, other in zip(ours, direct, strict=True)])
    rows = {
        "host, direct": {"MB_per_second": median(direct), "samples": rounds},
        "sandbox, egress": {"MB_per_second": median(ours), "samples": rounds, "of_host": ratio},
    }
    return Group(f"HTTP download of {size >> 20} MiB", rows)


async def _fetch_on_the_host(port: int, size: int) -> float:
    words = ("-c", FETCH, f"127.0.0.1:{port}", str(port), str(size))
    host = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=subprocess.PIPE)
    return float((await host.communicate())[0])


async def _ports(sandbox: AsyncSandbox, rounds: int) -> Group:
    ours, direct = [], []
    async with await sandbox.ports.forward(7000) as forward, _echo() as port:
        for _ in range(rounds):
            ours.append(await _round_trip(forward.local_port))
            direct.append(await _round_trip(port))
    ratio = median([one / other for one, other in zip(ours, direct, strict=True)])
    rows = {
        "host, direct": {"p50_ms": median(direct) * 1000, "samples": rounds * PINGS},
        "sandbox, port forward": {
            "p50_ms": median(ours) * 1000,
            "samples": rounds * PINGS,
            "of_host": ratio,
        },
    }
    return Group("round trip of one byte", rows)


async def _round_trip(port: int) -> float:
    """The median of many on one connection, in seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken = []
    for _ in range(PINGS):
        began = time.perf_counter()
        writer.write(b"x")
        await reader.readexactly(1)
        taken.append(time.perf_counter() - began)
    writer.close()
    return median(taken)


@asynccontextmanager
async def _echo() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def _site(port: int) -> AsyncIterator[None]:
    """Answers GET /SIZE with so many bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        left = size = int(head.split()[1].rpartition(b"/")[2])
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode())
        while left:
            writer.write(CHUNK[:left])
            await writer.drain()
            left -= min(left, len(CHUNK))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
