"""The files of a real guest, as a daemon works on them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from sandboxd.files import FilePath, FileSettings, UploadSpec, WorkspaceFiles
from sandboxd.guest.frames import FRAME_COST, Exited, StartFailure, Stream
from sandboxd.link import GuestLink
from tests.guest.guest_rig import PATIENCE, PROGRAM, ROOT

MIB = 1 << 20


def settings(workspace: Path | str, **changes: Any) -> FileSettings:
    usual: dict[str, Any] = {
        "workspace_dir": str(workspace),
        "max_file_bytes": 256 * MIB,
        "workspace_bytes": 1024 * MIB,
        "workspace_files": 1_000_000,
    }
    return FileSettings(**{**usual, **changes})


class Finished:
    """A channel that waits for its command."""

    def __init__(self, link: GuestLink) -> None:
        self._link = link
        self.number = 0
        self.output = bytearray()
        self.end: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def on_output(self, stream: Stream, offset: int, data: bytes, frame_count: int) -> None:
        self.output += data
        self._link.widen(self.number, len(data) + frame_count * FRAME_COST)

    def on_skipped(self, stream: Stream, count: int) -> None: ...

    def on_input_taken(self, count: int) -> None: ...

    def on_sweeping(self) -> None: ...

    def on_swept(self, *, was_known: bool) -> None: ...

    def on_exited(self, exited: Exited) -> None:
        self.end.set_result(exited)

    def on_started(self, pid: int) -> None: ...

    def on_refused(self, failure: StartFailure, why: str) -> None:
        self.end.set_result(why)

    def on_lost(self, why: str) -> None:
        self.end.set_result(why)


class FileRig:
    """A guest in a PID namespace of its own, and the files of its workspace."""

    def __init__(self, directory: Path, changes: Mapping[str, Any], project: Path | None) -> None:
        self.workspace = directory / "workspace"
        self.link = GuestLink(on_closed=lambda why: None)
        self.project = project
        self.process: asyncio.subprocess.Process | None = None
        self.settings = settings(self.workspace, **changes)
        self.files = WorkspaceFiles(self.link, self.settings, project)

    def path(self, raw: bytes | str) -> FilePath:
        exact = raw if isinstance(raw, bytes) else raw.encode()
        return FilePath.parse("", exact, workspace=str(self.workspace), may_be_workspace=True)

    def start(self, line: str) -> Finished:
        """Run a command beside the files."""
        channel = Finished(self.link)
        request = {"shell": line, "argv": [], "cwd": "", "env": {}}
        channel.number = self.link.start(json.dumps(request).encode(), channel)
        return channel

    async def run(self, line: str) -> str:
        channel = self.start(line)
        async with asyncio.timeout(PATIENCE):
            await channel.end
        return channel.output.decode(errors="replace")

    async def put(self, path: bytes | str, data: bytes = b"", **more: Any) -> bytes:
        spec = UploadSpec(path=self.path(path), **more)
        return (await self.files.upload(spec, chunks_of(data))).sha256

    async def get(self, path: bytes | str, **more: Any) -> bytes:
        async with self.files.download(self.path(path), **more) as download:
            return b"".join([chunk async for chunk in download])

    def end_guest(self) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.kill()

    def names(self) -> set[str]:
        """Everything in the workspace, temporary names included."""
        return {
            os.path.relpath(os.path.join(directory, name), self.workspace)
            for directory, names, files in os.walk(self.workspace)
            for name in [*names, *files]
        }


async def chunks_of(data: bytes, size: int = MIB) -> AsyncIterator[bytes]:
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


@asynccontextmanager
async def guest_with_files(
    directory: Path, *, project: Path | None = None, **changes: Any
) -> AsyncIterator[FileRig]:
    rig = FileRig(directory, changes, project)
    rig.workspace.mkdir()
    path = directory / "guest.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0:
        unshare.append("--map-root-user")
    program = [sys.executable, "-I", "-S", "-c", PROGRAM, str(ROOT / "sandboxd"), str(path), ""]
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    rig.process = process = await asyncio.create_subprocess_exec(
        *unshare, *program, env=environment
    )
    try:
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE):
            peer, _ = await loop.sock_accept(listener)
            await loop.connect_accepted_socket(lambda: rig.link, peer)

            async def welcome() -> Mapping[str, object]:
                return {
                    "workspace": str(rig.workspace),
                    "directories": [],
                    "env": {},
                    "asks_to_place": False,
                    "is_first_victim": False,
                }

            await rig.link.greet(welcome)
        yield rig
    finally:
        await rig.files.aclose()
        rig.link.close("the test is over")
        listener.close()
        rig.end_guest()
        await process.wait()


def _only_child_of(pid: int) -> str:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return child


async def mount_read_only(rig: FileRig, source: Path, target: Path) -> None:
    """In the guest's namespace, from outside: its commands may not mount."""
    assert rig.process is not None
    enter = ["nsenter", f"--target={_only_child_of(rig.process.pid)}", "--mount"]
    if os.geteuid() != 0:
        enter += ["--user", "--preserve-credentials"]
    mount = f"mount --bind {source} {target} && mount -o remount,bind,ro {target}"
    mounting = await asyncio.create_subprocess_exec(*enter, "sh", "-c", mount)
    assert await mounting.wait() == 0
