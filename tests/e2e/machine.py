"""A machine that runs systemd: namespaces of this one, with a Docker Engine of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.docker.daemon_process import RUNTIME, Api

IMAGE = "sandboxd/test-busybox:latest"
BOOT_SECONDS = 300.0
COMMAND_SECONDS = 300.0
GUEST_RUNTIME = "/opt/guest-runtime"
ROOT = Path(__file__).parents[2]
_BOOT = Path(__file__).with_name("boot_machine")


class Machine:
    """Boots, runs commands inside, and is gone without a trace when it is ended."""

    def __init__(self, image: str = IMAGE) -> None:
        self._image = image
        self.directory = Path(tempfile.mkdtemp(prefix="sbx-machine-", dir="/var/tmp"))
        self.console = self.directory / "console.log"
        self._process: asyncio.subprocess.Process | None = None
        self.first_pid = 0
        """Of its systemd, as it is seen from here."""
        self.programs = self.directory / "kept" / "programs"
        """Its /opt/sandboxd, as it is seen from here."""

    async def boot(self) -> None:
        kept = self.directory / "kept"
        shown = {
            RUNTIME.resolve(): GUEST_RUNTIME,
            kept / "docker": "/var/lib/docker",
            kept / "state": "/var/lib/sandboxd",
            self.programs: "/opt/sandboxd",
            # Of which a machine that boots would else find nothing, where it is below /tmp.
            ROOT: str(ROOT),
        }
        with self.console.open("ab") as console:
            self._process = await asyncio.create_subprocess_exec(
                *(str(_BOOT), str(self.directory)),
                *(f"{source}={target}" for source, target in shown.items()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        async with asyncio.timeout(BOOT_SECONDS):
            while not await self._is_up():
                assert self._process.returncode is None, self.console.read_text()[-4000:]
                await asyncio.sleep(0.1)
        await self.run("systemctl", "start", "docker")
        self._save_image(kept / "state/image.tar")
        await self.run("docker", "load", "--input", "/var/lib/sandboxd/image.tar")
        await self.run("rm", "/var/lib/sandboxd/image.tar")

    def _save_image(self, archive: Path) -> None:
        command = ["docker", "save", "--output", archive, self._image]
        subprocess.run(command, check=True, timeout=COMMAND_SECONDS)

    async def _is_up(self) -> bool:
        self.first_pid = self._find_first()
        if not self.first_pid:
            return False
        said = await self.attempt("systemctl", "is-system-running")
        return said[1].strip() in ("running", "degraded")

    def _find_first(self) -> int:
        """0 as long as it is not systemd."""
        assert self._process is not None
        with suppress(FileNotFoundError):
            pid = self._process.pid
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                    return int(child)
        return 0

    async def attempt(self, *command: str) -> tuple[int, str]:
        """Run a command in the machine; returns its exit code and what it said."""
        process = await asyncio.create_subprocess_exec(
            *("nsenter", "--target", str(self.first_pid), "--all", *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(COMMAND_SECONDS):
            said, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode(errors="replace")

    async def run(self, *command: str) -> str:
        code, said = await self.attempt(*command)
        assert code == 0, f"{command}: {said}\n{await self.journal()}"
        return said

    async def journal(self) -> str:
        """What the service has logged lately, and systemd about it."""
        return (
            await self.attempt("journalctl", "-u", "sandboxd", "-a", "--no-pager", "-n", "500")
        )[1]

    async def service(self, name: str) -> str:
        """A property of the service."""
        return (await self.run("systemctl", "show", "sandboxd", "-P", name)).strip()

    async def host_pid(self) -> int:
        """The daemon's pid, as it is seen from here."""
        return self._host_pid(await self.service("MainPID"))

    def _host_pid(self, inside: str) -> int:
        for status in Path("/proc").glob("[0-9]*/status"):
            with suppress(OSError):  # it ended meanwhile
                own = next(line for line in status.read_text().splitlines() if "NSpid" in line)
                if own.split()[-1] == inside and self._is_inside(status.parent):
                    return int(status.parent.name)
        raise AssertionError(f"the service has no process {inside}")

    def _is_inside(self, process: Path) -> bool:
        namespaces = [os.readlink(f"{one}/ns/pid") for one in (process, f"/proc/{self.first_pid}")]
        return namespaces[0] == namespaces[1]

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Write a file of the machine."""
        target = Path(f"/proc/{self.first_pid}/root{path}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    @asynccontextmanager
    async def api(self) -> AsyncIterator[Api]:
        api = Api(f"unix:/proc/{self.first_pid}/root/run/sandboxd/sandboxd.sock")
        try:
            yield api
        finally:
            await api.channel.close()

    async def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # its first process goes with it, and all
            await self._process.wait()
        async with asyncio.timeout(30):
            while not self._remove_cgroups():
                await asyncio.sleep(0.05)
        shutil.rmtree(self.directory)

    def _remove_cgroups(self) -> bool:
        """False while the kernel is still at work on the last processes."""
        mounts = Path("/sys/fs/cgroup")
        # Where boot_machine made them; a look at all groups would meet some that are just removed.
        for top in (*mounts.glob(self.directory.name), *mounts.glob(f"*/{self.directory.name}")):
            for group, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(group)
                except OSError:
                    return False
        return True


@asynccontextmanager
async def booted(image: str = IMAGE) -> AsyncIterator[Machine]:
    """A machine that is up and has an engine with an image."""
    machine = Machine(image)
    try:
        await machine.boot()
        yield machine
    finally:
        await machine.end()
