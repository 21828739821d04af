"""Builds of package sets: with uv, an index on this machine and containers of the real engine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import stat
import struct
import sys
import time
import zipfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandboxd.config import Config
from sandboxd.daemon import settings
from sandboxd.daemon.packages import open_packages
from sandboxd.engine.docker import DockerEngine, EngineTimeouts
from sandboxd.environments.environment import DEFAULT_ENVIRONMENT
from sandboxd.environments.npm_client import NpmClient
from sandboxd.errors import (
    PackageIndexUnreachable,
    PackagesBuildFailed,
    PackagesNotResolved,
    PackagesTooLarge,
    PackagesUnsafe,
    SandboxdError,
)
from sandboxd.isolation.uids import UidRange
from sandboxd.packages import python_installer
from sandboxd.packages.build_area import AREA, BuildSettings, process_limits, view_of
from sandboxd.packages.packages import Packages
from sandboxd.packages.python_installer import PYTHON, PythonSettings
from sandboxd.packages.store import PackageSet
from sandboxd.packages.worker_process import Finished, WorkerTimedOut, run_worker
from sandboxd.sandboxes.guest_install import install_guest
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.workspaces.disks import Disks
from tests.docker.daemon_process import RUNTIME
from tests.fakes.npm_registry import NpmRegistry
from tests.fakes.package_index import PackageIndex
from tests.fakes.waiting import eventually
from tests.fakes.wheels import Entry, WheelFile, a_source_archive, a_wheel

UIDS = 64
SET_MB = 32
"""Size of a set here; the usual one would make tests slow."""
TOO_SLOW_SECONDS = 10.0
LEAVE_SECONDS = 30.0


class Rig:
    """Packages of a daemon that does nothing else."""

    def __init__(
        self,
        directory: Path,
        index: PackageIndex | NpmRegistry,
        *,
        has_disks: bool = True,
        environment: Mapping[str, Any] | None = None,
        npm_dir: Path | None = None,
        **changes: Any,
    ) -> None:
        """With what its environment has that the default one has not, and where npm is."""
        self.directory = directory
        self.index = index
        self.config = Config(
            state_dir=directory / "state",
            run_dir=directory / "run",
            guest_runtime=RUNTIME,
            packages_policy="open",
            **{
                "packages_min_age_days": 0,
                "packages_index": index.url,
                "packages_set_mb": SET_MB,
                "packages_total_mb": 10 * SET_MB,
                **changes,
            },
        )
        known = settings.definitions(self.config)[DEFAULT_ENVIRONMENT]
        usual = settings.environment(self.config, known)
        self.environment = replace(usual, **(environment or {}))
        self._npm = NpmClient(npm_dir or self.config.state_dir / "npm", index.url)
        # Not as other tests count: a process of this uid is one of this rig.
        self.first_uid = 10_000_000 + UIDS * secrets.randbelow(1_000_000)
        self.instance = f"test-{secrets.token_hex(4)}"
        self.engine = DockerEngine(url=None, timeouts=EngineTimeouts())
        disks = Disks(settings.disk_settings(self.config)) if has_disks else None
        self.host = Host(uids=UidRange(start=self.first_uid, count=UIDS), disks=disks)
        guest_dir = install_guest(self.config.state_dir)
        sandbox_settings = settings.sandbox_settings(self.config, self.instance, guest_dir)
        self.maker = SandboxMaker(self.engine, sandbox_settings, self.host)
        self.packages: Packages

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Rig]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.engine.aclose)
            self.packages = await open_packages(
                self.config, self.maker, self.host, self._npm, stack
            )
            yield self

    async def ensure(self, *packages: str) -> PackageSet:
        return await self.packages.ensure(
            self.environment, packages, user_id="ada", wait_seconds=100.0
        )

    @property
    def state(self) -> Path:
        return self.config.state_dir / "packages"

    async def left_behind(self) -> list[str]:
        """What a build has left on the host, apart from sets.

        A disk that is unmounted stays for as long as another process is about to leave the mounts
        of the host, so it is looked at until it is gone.
        """
        give_up_at = time.monotonic() + LEAVE_SECONDS
        while (found := await self._left_now()) and time.monotonic() < give_up_at:
            await asyncio.sleep(0.05)
        return found

    async def _left_now(self) -> list[str]:
        names = ("new", "trash", "areas", "view", "disks")
        found = [
            str(path)
            for name in names
            for path in (self.state / name).rglob("*")
            if not path.name.startswith("template-")
        ]
        found += map(str, self.config.run_dir.glob("package-mounts/*"))
        found += map(str, (self.state / "targets").glob("probe-*"))
        found += [line for line in held_by_the_kernel() if str(self.directory) in line]
        found += [f"process {pid}" for pid in self._processes()]
        labels = {"sandboxd.instance": self.instance}
        found += [container.name for container in await self.engine.list_containers(labels)]
        return found

    def _processes(self) -> Iterator[str]:
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                text = status.read_text()
                uid = int(re.findall(r"^Uid:\s+(\d+)", text, re.MULTILINE)[0])
            except (OSError, IndexError):
                continue  # it has ended
            # One that has ended stays until the host's first process collects it.
            is_over = re.search(r"^State:\s+Z", text, re.MULTILINE)
            if self.first_uid <= uid < self.first_uid + UIDS and not is_over:
                yield status.parent.name


def held_by_the_kernel() -> Iterator[str]:
    """Mounts, and files behind block devices."""
    yield from Path("/proc/self/mountinfo").read_text().splitlines()
    for file in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            yield file.read_text()
        except OSError:
            continue  # it went away meanwhile


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    with PackageIndex().serving() as serving:
        yield serving


@pytest.fixture
async def rig(tmp_path: Path, index: PackageIndex) -> AsyncIterator[Rig]:
    async with Rig(tmp_path, index).running() as running:
        yield running


async def refused(rig: Rig, kind: type[SandboxdError], *packages: str) -> SandboxdError:
    """The build is refused with this error, and nothing of it is left."""
    with pytest.raises(kind) as error:
        await rig.ensure(*packages)

    assert await rig.left_behind() == []
    assert list((rig.state / "sets").iterdir()) == []
    return error.value


# --- sets ---


async def test_set_has_the_packages_and_what_they_depend_on(rig: Rig) -> None:
    """Installed, compiled, owned by root, writable by nobody, and with all of the build gone."""
    rig.index.add(a_wheel("first", requires=["second>=1"]), a_wheel("second", "1.5"))

    built = await rig.ensure("First")

    assert dict(built.packages) == {"first": "1.0", "second": "1.5"}
    path = rig.packages.sets.path(built)
    compiled = {file.name for file in path.rglob("*.pyc")}
    assert compiled == {"__init__.cpython-311.pyc"}
    for file in path.rglob("*"):
        assert (file.lstat().st_uid, file.lstat().st_mode & 0o7222) == (0, 0)
    assert built.target.directory == "/usr/local/lib/python3.11/dist-packages"
    assert await rig.left_behind() == []


async def test_programs_of_packages_find_the_python_of_the_sandbox(rig: Rig) -> None:
    info = "tool-1.0.dist-info"
    entry_points = Entry(f"{info}/entry_points.txt", b"[console_scripts]\ntool = tool:main\n")
    rig.index.add(a_wheel("tool", entries=[entry_points]))

    built = await rig.ensure("tool")

    program = rig.packages.sets.path(built) / "bin" / "tool"
    assert program.read_text().startswith("#!/usr/bin/env python3\n")
    assert stat.S_IMODE(program.stat().st_mode) == 0o555


async def test_newest_versions_that_fit_are_taken(rig: Rig) -> None:
    rig.index.add(a_wheel("a", "1.0"), a_wheel("a", "2.0"), a_wheel("b", requires=["a<2"]))

    assert dict((await rig.ensure("a", "b")).packages) == {"a": "1.0", "b": "1.0"}
    assert dict((await rig.ensure("a")).packages) == {"a": "2.0"}


async def test_set_survives_the_daemon(tmp_path: Path, index: PackageIndex) -> None:
    """The next one finds it without the index and without a build."""
    index.add(a_wheel("good"))
    async with Rig(tmp_path, index).running() as rig:
        built = await rig.ensure("good")
    asked = index.requests.total()

    async with Rig(tmp_path, index).running() as rig:
        assert await rig.ensure("good") == built

    assert index.requests.total() == asked


async def test_private_index_is_asked_with_its_credentials(tmp_path: Path) -> None:
    """They are in no message, not even when it refuses them."""
    with PackageIndex("reader:pass-word").serving() as private:
        private.add(a_wheel("good"))
        async with Rig(tmp_path, private).running() as rig:
            assert dict((await rig.ensure("good")).packages) == {"good": "1.0"}
            with pytest.raises(SandboxdError) as missing:
                await rig.ensure("missing")
        changed = private.url.replace("pass-word", "wrong-word")
        async with Rig(tmp_path, private, packages_index=changed).running() as rig:
            with pytest.raises(SandboxdError) as refusal:
                await rig.ensure("good>0")
    for error in (missing.value, refusal.value):
        assert "-word" not in error.message


# --- hostile packages ---


async def test_package_that_would_run_code_to_be_built_is_refused(rig: Rig, tmp_path: Path) -> None:
    """Only wheels are used: nothing of a package runs on the host."""
    proof = tmp_path / "proof"
    rig.index.add(a_source_archive("source", proof=str(proof)))

    error = await refused(rig, PackagesNotResolved, "source")

    assert "source" in error.message
    assert not proof.exists()


HOSTILE = {
    "dots": Entry("../../../../up.txt", b"x"),
    "absolute": Entry("/etc/cron.d/sandboxd-test", b"x"),
    "data": Entry("data-1.0.data/data/../../../up.txt", b"x"),
    "link": Entry("link/shadow", b"/etc/shadow", stat.S_IFLNK | 0o777),
    "device": Entry("device/disk", b"", stat.S_IFBLK | 0o666),
    "setuid": Entry("setuid/root", b"#!/bin/sh\n", stat.S_IFREG | 0o4755),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_wheel_with_what_no_package_needs_is_refused(rig: Rig, name: str) -> None:
    """The error names the package, also one that only another one depends on."""
    rig.index.add(a_wheel(name, entries=[HOSTILE[name]]), a_wheel("outer", requires=[name]))

    error = await refused(rig, PackagesUnsafe, "outer")

    assert error.metadata["package"] == name
    assert "sandboxd-test" not in os.listdir("/etc/cron.d")


async def test_no_code_of_a_package_runs_during_a_build(rig: Rig) -> None:
    """Not even what Python runs whenever it starts with a package installed."""
    place = "/usr/local/lib/python3.11/dist-packages/ran"
    code = f"open({place!r} + __import__('os').urandom(4).hex(), 'w')".encode()
    entries = [
        Entry("evil.pth", b"import os; " + code + b"\n"),
        Entry("sitecustomize.py", code + b"\n"),
        Entry("usercustomize.py", code + b"\n"),
        Entry("compileall.py", code + b"\n"),
    ]
    rig.index.add(a_wheel("evil", entries=entries))

    path = rig.packages.sets.path(await rig.ensure("evil"))

    assert (path / "evil.pth").exists()
    assert not list(path.glob("ran*"))


async def test_package_that_leads_to_another_address_is_refused(rig: Rig) -> None:
    """Dependencies come from the index too."""
    address = f"{rig.index.url.removesuffix('/simple')}/files/inner/inner-1.0-py3-none-any.whl"
    rig.index.add(a_wheel("outer", requires=[f"inner @ {address}"]), a_wheel("inner"))

    error = await refused(rig, PackagesNotResolved, "outer")

    assert "http" not in error.message


async def test_file_that_is_not_the_one_that_was_locked_is_refused(rig: Rig) -> None:
    good = a_wheel("good")
    changed = a_wheel("good", entries=[Entry("good/more.py")])

    class Changing(WheelFile):
        @property
        def sha256(self) -> str:
            return good.sha256

    rig.index.add(Changing(good.file_name, changed.data, good.metadata))

    error = await refused(rig, PackagesUnsafe, "good")

    assert "another file than it had announced" in error.message


async def test_set_that_resolves_for_ever_is_ended(tmp_path: Path, index: PackageIndex) -> None:
    """Each package needs one more, without end."""

    def another(name: str) -> WheelFile:
        number = int(name.removeprefix("endless"))
        return a_wheel(name, requires=[f"endless{number + 1}"])

    index.on_missing = another
    async with Rig(tmp_path, index, packages_build_seconds=TOO_SLOW_SECONDS).running() as rig:
        error = await refused(rig, PackagesBuildFailed, "endless0")

    assert f"longer than the {TOO_SLOW_SECONDS:g} s" in error.message
    assert index.requests.total() > 100


async def test_download_without_end_is_refused(rig: Rig) -> None:
    """A set of 5 GB, or more, is given up as soon as it is larger than a set may be."""
    wheel = a_wheel("huge")
    rig.index.add(wheel)
    rig.index.endless.add(wheel.file_name)

    error = await refused(rig, PackagesTooLarge, "huge")

    assert error.metadata["limit"] == f"{SET_MB} MiB"


async def test_wheel_that_unpacks_to_too_much_is_refused(rig: Rig) -> None:
    """A few kilobytes may unpack to gigabytes."""
    bomb = a_wheel("bomb", entries=[Entry("bomb/zeros.bin", bytes((SET_MB + 1) << 20))])
    assert len(bomb.data) < 1 << 20
    rig.index.add(bomb)

    await refused(rig, PackagesTooLarge, "bomb")


async def test_wheel_that_lies_about_its_size_is_refused(rig: Rig) -> None:
    """It says that it is small; what it unpacks to is limited all the same."""
    rig.index.add(a_liar())

    await refused(rig, SandboxdError, "liar")


def a_liar() -> WheelFile:
    """A wheel that unpacks to more than it says."""
    bomb = a_wheel("liar", entries=[Entry("liar/zeros.bin", bytes((4 * SET_MB) << 20))])
    real = struct.pack("<I", (4 * SET_MB) << 20)
    return bomb._replace(data=bomb.data.replace(real, struct.pack("<I", 1000)))


async def test_many_small_files_are_refused(rig: Rig) -> None:
    """Empty files have no size, but use up the files of a disk."""
    entries = [Entry(f"many/{number}") for number in range(100_001)]
    rig.index.add(a_wheel("many", entries=entries, compression=zipfile.ZIP_STORED))

    error = await refused(rig, PackagesTooLarge, "many")

    assert "files" in error.message


@pytest.mark.parametrize("has_disks", [True, False])
async def test_set_that_grows_while_it_is_compiled_is_refused(
    tmp_path: Path, index: PackageIndex, has_disks: bool
) -> None:
    """The wheels fit, but not with what they are compiled to."""
    text = b"x = '" + b"a" * (5 << 20) + b"'\n"
    data = Entry("grown/data.bin", os.urandom((SET_MB - 8) << 20))
    index.add(a_wheel("grown", entries=[Entry("grown/big.py", text), data]))
    async with Rig(tmp_path, index, has_disks=has_disks).running() as rig:
        await refused(rig, PackagesTooLarge, "grown")


async def test_build_without_a_disk_is_looked_at(tmp_path: Path, index: PackageIndex) -> None:
    """Where the kernel does not limit it, a build that is too large is ended all the same."""
    index.add(a_wheel("good"), a_liar())
    async with Rig(tmp_path, index, has_disks=False).running() as rig:
        await refused(rig, SandboxdError, "liar")

        assert dict((await rig.ensure("good")).packages) == {"good": "1.0"}
        assert await rig.left_behind() == []


async def test_index_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    """As something to try again, without its address."""
    with PackageIndex().serving() as gone:
        pass
    async with Rig(tmp_path, gone).running() as rig:
        error = await refused(rig, PackageIndexUnreachable, "good")

    assert error.retry_after_seconds
    assert "127.0.0.1" not in error.message


async def test_packages_that_do_not_fit_together_are_reported(rig: Rig) -> None:
    rig.index.add(a_wheel("a", requires=["c<2"]), a_wheel("b", requires=["c>=2"]))
    rig.index.add(a_wheel("c", "1.0"), a_wheel("c", "2.0"))

    error = await refused(rig, PackagesNotResolved, "a", "b")

    assert "c" in error.message


async def test_unknown_package_is_reported(rig: Rig) -> None:
    error = await refused(rig, PackagesNotResolved, "unknown-package")

    assert "unknown-package" in error.message


async def test_cancelled_build_leaves_nothing(rig: Rig) -> None:
    """The end of the daemon ends a build at any point."""
    wheel = a_wheel("huge")
    rig.index.add(wheel)
    rig.index.endless.add(wheel.file_name)
    building = asyncio.create_task(rig.ensure("huge"))
    await eventually(lambda: any("huge" in path for path in rig.index.requests), timeout_seconds=60)

    await rig.packages.sets.aclose()

    with pytest.raises(SandboxdError):
        await building
    assert await rig.left_behind() == []


# --- the confined worker ---

LOOK = """
import json, os, socket
def tried(work):
    try:
        return str(work())
    except OSError as error:
        return os.strerror(error.errno)
root = [name for name in sorted(os.listdir("/")) if name not in
        ("usr", "etc", "lib", "lib32", "lib64", "libx32", "bin", "sbin", "dev")]
print(json.dumps({
    "uid": os.getresuid(), "gid": os.getresgid(), "groups": os.getgroups(),
    "root": root,
    "write /": tried(lambda: open("/x", "w")),
    "write /etc": tried(lambda: open("/etc/x", "w")),
    "write /usr": tried(lambda: open("/usr/x", "w")),
    "write area": tried(lambda: open("AREA/x", "w").close()),
    "nice": os.nice(0),
    "interfaces": [name for _, name in socket.if_nameindex()],
}), flush=True)
"""


class Confined:
    """Runs programs as a build runs uv."""

    def __init__(self, rig: Rig, area: Path) -> None:
        directory = rig.state
        self._settings = BuildSettings(
            max_bytes=1 << 20, seconds=30.0, min_age_days=0, build_dir=directory / "view"
        )
        python = PythonSettings(
            index=rig.index.url, uv=Path(sys.executable), runtime_dir=RUNTIME.resolve()
        )
        self._tools = python_installer.tools(python)
        self._area = area
        self.uid = rig.first_uid
        self.lines: list[str] = []

    async def run(
        self, program: str, *, seconds: float = 30.0, has_network: bool = False
    ) -> Finished:
        view = view_of(self._settings, self._area, self.uid, self._tools, has_network=has_network)
        job = {
            "limits": process_limits(self._settings)._asdict(),
            "view": view._asdict(),
            "argv": [PYTHON, "-I", "-S", "-c", program],
            "environment": {},
        }
        return await run_worker(job, environment={}, seconds=seconds, on_line=self.lines.append)


@pytest.fixture
def confined(rig: Rig, tmp_path: Path) -> Confined:
    area = tmp_path / "area"
    area.mkdir()
    os.chown(area, rig.first_uid, rig.first_uid)
    return Confined(rig, area)


async def test_worker_sees_little_and_may_do_little(confined: Confined) -> None:
    """Its own user, no groups, no network, nothing of the host's files but libraries, and one
    directory to write to."""
    finished = await confined.run(LOOK.replace("AREA", AREA))

    assert finished.code == 0, finished.errors
    seen = json.loads(confined.lines[0])
    assert seen["uid"] == seen["gid"] == [confined.uid] * 3
    assert seen["groups"] == []
    libraries = {Path(os.__file__).parts[1], Path(os.environ.get("SSL_CERT_FILE", "/etc")).parts[1]}
    assert set(seen["root"]) - libraries <= {".sandboxd", "build", "run", "uv"}
    assert seen["write area"] == "None"
    for place in ("write /", "write /etc", "write /usr"):
        assert seen[place] == "Read-only file system"
    assert seen["interfaces"] == ["lo"]
    assert seen["nice"] >= 10


async def test_worker_is_limited(confined: Confined) -> None:
    """In memory, in processes and in the size of a file."""
    memory = "x = bytearray(3 << 30)"
    file = f"open('{AREA}/large', 'wb').write(bytes(2 << 20))"
    processes = (
        "import os\nwhile True:\n    if os.fork() == 0:\n        __import__('time').sleep(60)"
    )

    for program, complaint in (
        (memory, "MemoryError"),
        (file, "File too large"),
        (processes, "Resource temporarily unavailable"),
    ):
        finished = await confined.run(program)
        assert finished.code != 0
        assert complaint in finished.errors


async def test_worker_that_takes_too_long_is_killed_with_its_children(
    confined: Confined, rig: Rig
) -> None:
    program = "import os, time\nos.fork()\nos.fork()\nprint('up', flush=True)\ntime.sleep(600)"

    with pytest.raises(WorkerTimedOut):
        await confined.run(program, seconds=3.0)

    assert confined.lines
    assert await rig.left_behind() == []


async def test_output_of_a_worker_is_bounded(confined: Confined, rig: Rig) -> None:
    """One that writes without end is killed; of its errors only the end is kept."""
    finished = await confined.run("while True: print('x' * 1000)")
    assert finished.code == 128 + 9

    finished = await confined.run("import sys; sys.stderr.write('x' * (1 << 20) + 'the end')")
    assert len(finished.errors) == 16 << 10
    assert finished.errors.endswith("the end")
    assert await rig.left_behind() == []
