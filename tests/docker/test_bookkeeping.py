"""What is told of real sessions: usage, history, and an audit log that outlives a kill."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path

import aiohttp
import grpc
import pytest

from sandboxd.audit.check import check, entries
from sandboxd_proto.v1 import (
    exec_service_pb2,
    file_service_pb2,
    file_service_pb2_grpc,
    session_service_pb2,
)
from tests.docker.commands import run
from tests.docker.daemon_process import Api, running_daemon
from tests.docker.test_lifecycle import open_session

MIB = 1 << 20


async def test_session_tells_what_it_uses(api: Api, session_id: str) -> None:
    """Memory, processor time, processes and the workspace, as the host counts them."""
    request = session_service_pb2.GetSessionRequest(session_id=session_id)
    before = (await api.sessions.GetSession(request)).session.usage
    await run(api, session_id, "head -c 6291456 /dev/urandom > outputs/big; sync")
    await api.execs.StartExec(
        exec_service_pb2.ExecRequest(
            session_id=session_id, exec_id="idle", shell="sleep 60 & sleep 60 & wait"
        )
    )
    async with asyncio.timeout(10):
        while True:
            usage = (await api.sessions.GetSession(request)).session.usage
            if usage.processes >= before.processes + 3:
                break
            await asyncio.sleep(0.02)

    assert usage.workspace_bytes - before.workspace_bytes >= 6 * MIB
    assert usage.workspace_files == before.workspace_files + 1
    assert usage.memory_bytes > 0
    assert usage.cpu_time.ToTimedelta() > before.cpu_time.ToTimedelta()


async def test_executions_tell_usage(api: Api, session_id: str) -> None:
    """The history has what the kernel counted for each command."""
    await run(api, session_id, "head -c 1000000 /dev/zero | wc -c")
    request = exec_service_pb2.ListExecutionsRequest(session_id=session_id)
    (one,) = (await api.execs.ListExecutions(request)).executions

    assert one.exit.usage.peak_processes >= 2
    assert one.exit.usage.cpu_time.ToTimedelta().total_seconds() > 0
    assert one.exit.stdout_bytes == len("1000000\n")


async def test_files_that_move_are_in_the_audit_log() -> None:
    """What goes into a workspace and what comes out of it is told with its size."""
    async with running_daemon() as daemon, daemon.api() as api:
        session_id = (await open_session(api, "files")).session.session_id
        files = file_service_pb2_grpc.FileServiceStub(api.channel)
        await files.WriteText(
            file_service_pb2.WriteTextRequest(session_id=session_id, path="a.txt", text="hello")
        )
        download = files.DownloadFile(
            file_service_pb2.DownloadFileRequest(session_id=session_id, path="a.txt")
        )
        assert b"".join([one.chunk async for one in download]) == b"hello"
        directory = daemon.directory / "state" / "audit"
        async with asyncio.timeout(10):
            while "file.downloaded" not in _told(directory):
                await asyncio.sleep(0.02)
        moved = [one for one, _ in entries(directory) if one["action"].startswith("file.")]

    assert [(one["action"], one["path"], one["bytes_in"], one["bytes_out"]) for one in moved] == [
        ("file.written", "a.txt", 5, 0),
        ("file.downloaded", "a.txt", 0, 5),
    ]


async def test_real_daemon_tells_metrics_health_and_whose_call_a_line_is_about() -> None:
    """Prometheus and balancers are answered on loopback; log lines name method and session."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with running_daemon(SANDBOXD_METRICS_PORT=str(port)) as daemon, daemon.api() as api:
        session_id = (await open_session(api, "metrics")).session.session_id
        await run(api, session_id, "echo hi")
        with pytest.raises(grpc.RpcError):
            await run(api, "ses_none", "echo hi")
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as client:
            async with client.get(f"http://127.0.0.1:{port}/health") as health:
                assert (health.status, (await health.json())["status"]) == (200, "serving")
            async with client.get(f"http://127.0.0.1:{port}/metrics") as metrics:
                text = await metrics.text()
        lines = [json.loads(line) for line in daemon.log.read_text().splitlines() if line[0] == "{"]

    assert 'sandboxd_execs_total{ending="EXITED"} 1.0' in text
    (refused,) = (line for line in lines if line["event"] == "call.refused")
    assert (refused["method"], refused["session_id"]) == ("Run", "ses_none")
    (opened,) = (line for line in lines if line["event"] == "session.opened")
    assert (opened["method"], opened["session_id"]) == ("OpenSession", session_id)
    assert all("method" not in line for line in lines if line["event"] == "sandbox.started")


def _told(directory: Path) -> list[str]:
    return [entry["action"] for entry, _ in entries(directory)]


async def test_audit_log_outlives_a_kill() -> None:
    """After kill -9 the log is whole, has the command that ran, and the next daemon goes on."""
    async with running_daemon() as daemon:
        directory = daemon.directory / "state" / "audit"
        async with daemon.api() as api:
            session_id = (await open_session(api, "audit")).session.session_id
            await api.execs.StartExec(
                exec_service_pb2.ExecRequest(
                    session_id=session_id, exec_id="long", shell="sleep 3; echo over"
                )
            )
            async with asyncio.timeout(10):
                while "exec.started" not in _told(directory):
                    await asyncio.sleep(0.02)
        await daemon.signal(signal.SIGKILL)
        assert check(directory).is_whole
        await daemon.start()
        async with asyncio.timeout(20):
            while "exec.ended" not in _told(directory):
                await asyncio.sleep(0.05)

        verdict = check(directory)
        assert verdict.is_whole, verdict.problems
        (ended,) = (one for one, _ in entries(directory) if one["action"] == "exec.ended")
        assert (ended["exec"], ended["session"], ended["code"]) == ("long", session_id, 0)
        assert _told(directory).count("daemon.started") == 2
