"""gunicorn: with --preload it imports the application once and forks its workers; without, each
worker imports it, and local mode has one daemon for all of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.docker.daemon_process import RUNTIME, first_uid, running_daemon
from tests.vendors.frameworks import FRAMEWORKS

FRAMEWORK = "gunicorn"
INSTALLED = FRAMEWORKS / FRAMEWORK
LIMIT = 120
APPLICATION = """
from sandboxd_client import Sandbox

shared = Sandbox.open("ada", "shared")
shared.files.write("by-the-parent.txt", "written before the fork")

def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    thread = environ["PATH_INFO"].strip("/")
    with Sandbox.open("ada", thread) as own:
        text = own.commands.run(f"echo {thread}").stdout
    return [(text + shared.commands.run("cat by-the-parent.txt").stdout).encode()]
"""


LOCAL_APPLICATION = """
import os
from sandboxd_client import SandboxClient

client = SandboxClient(mode="local")

def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    client.get_or_create_session("ada", "42")
    return [client.execute(f"echo {os.getpid()} >> log; cat log")["stdout"].encode()]
"""


async def get(socket: Path, path: str) -> str:
    """The body of the answer, once the server listens."""
    while True:
        try:
            reader, writer = await asyncio.open_unix_connection(str(socket))
            break
        except OSError:
            await asyncio.sleep(0.05)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode().partition("\r\n\r\n")[2]


@asynccontextmanager
async def serving(directory: Path, *options: str, **environment: str) -> AsyncIterator[Path]:
    """The socket of a server for app.py of the directory; it ends when it is asked to."""
    socket = directory / "http.sock"
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gunicorn", *options, "--bind", f"unix:{socket}"),
        "app:application",
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(INSTALLED), str(directory))),
            **environment,
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(LIMIT):
            yield socket
        server.terminate()
        async with asyncio.timeout(LIMIT):
            assert await server.wait() == 0
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


async def test_requests_in_forked_workers_use_sandboxes(short_dir: Path) -> None:
    """Their own and one that was opened before the fork; nothing is to be set up for it."""
    (short_dir / "app.py").write_text(APPLICATION)
    async with running_daemon(POOL_SIZE="2") as daemon:
        url = f"unix:{daemon.socket}"
        async with serving(short_dir, "--preload", "--workers=2", SANDBOXD_URL=url) as socket:
            asked = [get(socket, f"/thread-{number}") for number in range(6)]
            answers = await asyncio.gather(*asked)
            assert answers == [f"thread-{number}\nwritten before the fork" for number in range(6)]


async def test_workers_share_the_daemon_of_local_mode(short_dir: Path) -> None:
    """Four workers; the requests of a conversation find its files at each of them."""
    (short_dir / "app.py").write_text(LOCAL_APPLICATION)
    environment = {
        "HOST": "0.0.0.0",
        "REDIS_HOST": "redis",
        "POOL_SIZE": "1",
        "MAX_WORKSPACE_SIZE_MB": "16",
        "SANDBOXD_STATE_DIR": f"{short_dir}/state",
        "SANDBOXD_RUN_DIR": f"{short_dir}/run",
        "SANDBOXD_GUEST_RUNTIME": str(RUNTIME),
        "SANDBOXD_UID_START": str(first_uid()),
    }
    async with serving(short_dir, "--workers=4", **environment) as socket:
        pids: list[str] = []
        while len(set(pids)) < 4:
            pids = max(await asyncio.gather(*(get(socket, "/") for _ in range(8))), key=len).split()
    assert not (short_dir / "run" / "local.sock").exists()
