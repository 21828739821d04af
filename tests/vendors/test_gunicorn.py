"""gunicorn with --preload imports the application once and forks its workers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tests.docker.daemon_process import running_daemon
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


async def test_requests_in_forked_workers_use_sandboxes(short_dir: Path) -> None:
    """Their own and one that was opened before the fork; nothing is to be set up for it."""
    (short_dir / "app.py").write_text(APPLICATION)
    socket = short_dir / "http.sock"
    async with running_daemon(POOL_SIZE="2") as daemon:
        options = ["--preload", "--workers", "2", "--bind", f"unix:{socket}", "app:application"]
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gunicorn", *options),
            cwd=short_dir,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join((str(INSTALLED), str(short_dir))),
                "SANDBOXD_URL": f"unix:{daemon.socket}",
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(LIMIT):
                asked = [get(socket, f"/thread-{number}") for number in range(6)]
                answers = await asyncio.gather(*asked)
            assert answers == [f"thread-{number}\nwritten before the fork" for number in range(6)]
            server.terminate()
            async with asyncio.timeout(LIMIT):
                assert await server.wait() == 0
        finally:
            if server.returncode is None:
                server.kill()
                await server.wait()
