"""Daemons that are forked by a process which has imported everything, as processes of a test."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from tests.docker.daemon_server import ENDED, STARTED

START_SECONDS = 120.0


class ForkedDaemon:
    """Has what tests use of an asyncio.subprocess.Process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended: Future[int] = Future()

    @property
    def returncode(self) -> int | None:
        return self.ended.result() if self.ended.done() else None

    def send_signal(self, number: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    async def wait(self) -> int:
        return await asyncio.shield(asyncio.wrap_future(self.ended))


class DaemonServer:
    """The process that forks daemons; one for each process of the tests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.docker.daemon_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._started: queue.SimpleQueue[ForkedDaemon] = queue.SimpleQueue()
        self._running: dict[int, ForkedDaemon] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, environment: Mapping[str, str], log: Path) -> ForkedDaemon:
        request = {"environment": dict(environment), "log": str(log)}
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            return self._started.get(timeout=START_SECONDS)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, pid, *rest = json.loads(line)
            if what == STARTED:
                self._running[pid] = daemon = ForkedDaemon(pid)
                self._started.put(daemon)
            else:
                assert what == ENDED
                self._running.pop(pid).ended.set_result(rest[0])

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)


_servers: list[DaemonServer] = []


async def start_forked(environment: Mapping[str, str], log: Path) -> ForkedDaemon:
    if not _servers:
        _servers.append(DaemonServer())
        atexit.register(_servers[0].stop)
    return await asyncio.to_thread(_servers[0].start, environment, log)
