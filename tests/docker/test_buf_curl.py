"""The API without generated stubs, as an engineer with a terminal uses it."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path

from tests.docker.daemon_process import DaemonProcess

BUF = Path(sys.executable).parent / "buf"


async def buf_curl(daemon: DaemonProcess, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        str(BUF),
        "curl",
        "--protocol",
        "grpc",
        "--http2-prior-knowledge",
        "--unix-socket",
        str(daemon.socket),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    assert process.returncode == 0, stderr.decode()
    return stdout.decode()


async def test_buf_curl_lists_services_and_runs_a_command(shared_daemon: DaemonProcess) -> None:
    """Reflection is enough to find the services, open a session and stream an Exec."""
    services = await buf_curl(shared_daemon, "--list-services", "http://localhost")
    opened = await buf_curl(
        shared_daemon,
        "--data",
        json.dumps({"user_id": "buf", "thread_id": "curl"}),
        "http://localhost/sandboxd.v1.SessionService/OpenSession",
    )
    session_id = json.loads(opened)["session"]["sessionId"]
    streamed = await buf_curl(
        shared_daemon,
        "--data",
        json.dumps({"session_id": session_id, "shell": "echo from buf; exit 4"}),
        "http://localhost/sandboxd.v1.ExecService/Exec",
    )
    decoder = json.JSONDecoder()
    events = []
    while streamed := streamed.lstrip():
        message, end = decoder.raw_decode(streamed)
        events += message["events"]
        streamed = streamed[end:]
    await buf_curl(
        shared_daemon,
        "--data",
        json.dumps({"session_id": session_id}),
        "http://localhost/sandboxd.v1.SessionService/CloseSession",
    )

    for service in ("SessionService", "ExecService", "AdminService"):
        assert f"sandboxd.v1.{service}" in services
    output = b"".join(base64.b64decode(e["stdout"]["data"]) for e in events if "stdout" in e)
    assert output == b"from buf\n"
    assert events[-1]["exited"]["code"] == 4
    assert events[-1]["exited"]["reason"] == "EXIT_REASON_EXITED"
