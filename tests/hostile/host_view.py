"""What the host sees of a sandbox, without asking its guest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiodocker

LABEL = "sandboxd.instance"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A process of a sandbox."""

    pid: int
    parent: int
    command: bytes

    @property
    def is_waiting_shell(self) -> bool:
        """Called with nothing but blanks, which the command will be written over."""
        return self.command.replace(b"\0", b" ").split() == [b"bash", b"-c"]

    def __str__(self) -> str:
        return f"{self.pid} {self.command[:60].replace(bytes(1), b' ').decode(errors='replace')}"


@dataclass(frozen=True, kw_only=True)
class SandboxSeen:
    """The container of a session and the pid of its guest."""

    container_id: str
    guest_pid: int
    uid: int
    pid_namespace: str

    def processes(self) -> Iterator[Seen]:
        """Everything in the guest's pid namespace: no program can leave it. Also once the
        container is removed, should a process have outlived it."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if os.readlink(entry / "ns" / "pid") == self.pid_namespace:
                        yield _seen(entry)
                except OSError:
                    continue  # ended meanwhile

    def strangers(self) -> list[Seen]:
        """Processes other than the guest and shells of its own that wait for a command."""
        return [
            process
            for process in self.processes()
            if process.pid != self.guest_pid
            and not (process.parent == self.guest_pid and process.is_waiting_shell)
        ]


def _seen(entry: Path) -> Seen:
    stat = (entry / "stat").read_bytes()
    parent = int(stat[stat.rindex(b")") + 2 :].split()[1])
    return Seen(pid=int(entry.name), parent=parent, command=(entry / "cmdline").read_bytes())


async def find_sandbox(docker: aiodocker.Docker, *, instance: str, uid: int) -> SandboxSeen | None:
    """The container whose commands run as `uid`, which is like no other's; None if it is gone."""
    for container in await docker.containers.list(filters={"label": [f"{LABEL}={instance}"]}):
        try:
            shown = await container.show()
        except aiodocker.DockerError as error:
            if error.status == 404:
                continue  # another one, removed meanwhile
            raise
        if shown["Config"]["User"].split(":")[0] == str(uid):
            pid = shown["State"]["Pid"]
            namespace = os.readlink(f"/proc/{pid}/ns/pid")
            return SandboxSeen(
                container_id=shown["Id"], guest_pid=pid, uid=uid, pid_namespace=namespace
            )
    return None


def resident_bytes(pid: int) -> int:
    """Memory of a process of the host."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)
