"""A Docker Engine of a test's own, which may be stopped, hung and killed without harm to others."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

IMAGE = "sandboxd/test-busybox:latest"
"""Small, so that a new engine has it at once."""
START_SECONDS = 60.0
STOP_SECONDS = 60.0


class PrivateEngine:
    """A dockerd with data, sockets and containerd of its own; no network, as ours needs none."""

    def __init__(self, directory: Path, *, live_restore: bool) -> None:
        self._directory = directory
        self._log = directory / "dockerd.log"
        # Without, what a container does with SIGTERM decides how long a stop takes.
        self._flags = ["--live-restore"] if live_restore else ["--shutdown-timeout=2"]
        self.url = f"unix://{directory}/docker.sock"
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, again as often as wanted, and wait until it answers."""
        self._remove_stale_pids()
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                "dockerd",
                *("--host", self.url, "--data-root", str(self._directory / "data")),
                *("--exec-root", str(self._directory / "exec")),
                *("--pidfile", str(self._directory / "dockerd.pid")),
                *("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"),
                *self._flags,
                stdout=log,
                stderr=log,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        async with asyncio.timeout(START_SECONDS):
            while not await self.answers():
                assert self.process.returncode is None, self._log.read_text()[-4000:]
                await asyncio.sleep(0.1)

    def _remove_stale_pids(self) -> None:
        """dockerd refuses to start while any process has the pid that a killed one left."""
        for name in ("dockerd.pid", "exec/containerd/containerd.pid"):
            (self._directory / name).unlink(missing_ok=True)

    async def answers(self) -> bool:
        return (await self._docker("version", seconds=5.0))[0] == 0

    async def load_image(self) -> None:
        archive = self._directory / "image.tar"
        await _run("docker", "save", "--output", str(archive), IMAGE)
        code, said = await self._docker("load", "--input", str(archive), seconds=60.0)
        assert code == 0, said
        archive.unlink()

    async def containers(self, *more: str) -> list[str]:
        return (await self.docker("ps", "--all", "--quiet", *more)).split()

    async def attempt(self, *arguments: str) -> bool:
        return (await self._docker(*arguments, seconds=20.0))[0] == 0

    async def docker(self, *arguments: str, seconds: float = 20.0) -> str:
        code, said = await self._docker(*arguments, seconds=seconds)
        assert code == 0, said
        return said

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End dockerd; with live-restore its containers go on."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(STOP_SECONDS):
            await self.process.wait()
            # Its containerd goes with it, a moment later after a kill.
            while _is_alive(self._directory / "exec/containerd/containerd.pid"):
                await asyncio.sleep(0.05)

    async def remove_all(self) -> None:
        """End what a test has left behind, containers first."""
        if self.process is None:
            return
        if self.process.returncode is None:
            self.send(signal.SIGCONT)
        else:
            await self.start()
        if left := await self.containers():
            await self._docker("rm", "--force", *left, seconds=60.0)
        await self.end()

    async def _docker(self, *arguments: str, seconds: float) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *("docker", "--host", self.url, *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(seconds):
                said, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return -1, "no answer in time"
        assert process.returncode is not None
        return process.returncode, said.decode(errors="replace")


def _is_alive(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text()), 0)
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return False
    return True


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode(errors="replace")


def _mounts_below(directory: Path) -> list[str]:
    """The innermost first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted((line.split()[4] for line in lines if f" {directory}/" in line), reverse=True)


@asynccontextmanager
async def private_engine(*, live_restore: bool = True) -> AsyncIterator[PrivateEngine]:
    """An engine that runs and has the image; ended and removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="sbx-engine-", dir="/var/tmp"))
    engine = PrivateEngine(directory, live_restore=live_restore)
    try:
        await engine.start()
        await engine.load_image()
        yield engine
    finally:
        await engine.remove_all()
        # dockerd mounts its data on itself, and leaves that for the next one.
        for point in _mounts_below(directory):
            await _run("umount", point)
        shutil.rmtree(directory)
