"""Redis servers and sentinels of the tests' own, in directories of their own."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.ports import free_port

START_SECONDS = 60
QUIET = ("--save", "", "--appendonly", "no", "--daemonize", "no", "--bind", "127.0.0.1")


class RedisServer:
    """One process; its directory outlives a restart, its run id does not."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        place = ("--port", str(self.port), "--dir", str(self.directory))
        self._process = self._run("redis-server", *QUIET, *place, *self.options)
        self._wait()

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.wait(START_SECONDS)
        self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self.kill()

    def _run(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _wait(self) -> None:
        give_up_at = time.monotonic() + START_SECONDS
        while not self._answers():
            assert time.monotonic() < give_up_at, (self.directory / "log").read_text()
            time.sleep(0.01)

    @property
    def is_primary(self) -> bool:
        return b"master" in self._reply("ROLE")

    def _answers(self) -> bool:
        return self._reply("PING").startswith(b"+PONG")

    def _reply(self, command: str) -> bytes:
        """The beginning of an answer; empty if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(command.encode() + b"\r\n")
                return connection.recv(100)
        except OSError:
            return b""


class SentinelServer(RedisServer):
    """Watches the primary under the name `sandboxd`."""

    def __init__(self, directory: Path, primary_port: int, quorum: int) -> None:
        super().__init__(directory)
        self.configuration = directory / "sentinel.conf"
        self.configuration.write_text(
            f"port {self.port}\n"
            "bind 127.0.0.1\n"
            f"dir {directory}\n"
            f"sentinel monitor sandboxd 127.0.0.1 {primary_port} {quorum}\n"
            "sentinel down-after-milliseconds sandboxd 1000\n"
            "sentinel failover-timeout sandboxd 5000\n"
        )

    def start(self) -> None:
        self._process = self._run("redis-sentinel", str(self.configuration))
        self._wait()


@contextmanager
def redis_directory_of_its_own() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="sbx-redis-", dir="/tmp"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def running_redis(*options: str) -> Iterator[RedisServer]:
    assert shutil.which("redis-server"), "no Redis; run tests/install_packages"
    with redis_directory_of_its_own() as directory:
        server = RedisServer(directory, *options)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def running_node_of_a_cluster() -> Iterator[RedisServer]:
    """One node that has all slots, and refuses keys of different slots in one script."""
    bus = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with running_redis(*bus) as server:
        command = ("redis-cli", "-p", str(server.port), "cluster")
        subprocess.run([*command, "addslotsrange", "0", "16383"], check=True, timeout=60)
        give_up_at = time.monotonic() + START_SECONDS
        state = b""
        while b"cluster_state:ok" not in state:
            assert time.monotonic() < give_up_at, state
            state = subprocess.run([*command, "info"], capture_output=True, timeout=60).stdout
        yield server


class Replicated:
    """A primary with replicas, and sentinels that promote one of them."""

    def __init__(self, servers: list[RedisServer], sentinels: list[SentinelServer]) -> None:
        self.servers = servers
        self.primary, self.replica = servers[:2]
        self.sentinels = sentinels

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", sentinel.port) for sentinel in self.sentinels]


@contextmanager
def running_sentinels(count: int = 3, *, replicas: int = 1) -> Iterator[Replicated]:
    with ExitStack() as stack:
        primary = stack.enter_context(running_redis())
        following = ("--replicaof", f"127.0.0.1 {primary.port}")
        servers = [primary]
        servers += [stack.enter_context(running_redis(*following)) for _ in range(replicas)]
        sentinels = []
        for _ in range(count):
            directory = stack.enter_context(redis_directory_of_its_own())
            sentinel = SentinelServer(directory, primary.port, count // 2 + 1)
            stack.callback(sentinel.stop)
            sentinel.start()
            sentinels.append(sentinel)
        yield Replicated(servers, sentinels)
