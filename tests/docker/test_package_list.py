"""The packages that sessions can ask for by default exist, fit and work: with the true index."""

from __future__ import annotations

import asyncio
import os
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
import pytest_asyncio
import uv as uv_package

from sandboxd.config.definition import DATA_PACKAGES
from sandboxd.environments.environment import PackageKind
from sandboxd.packages import uv
from sandboxd.packages.build_area import inherited
from sandboxd.packages.pylock import parse_pylock
from sandboxd.packages.python_installer import index_of
from sandboxd.packages.target import Target
from sandboxd_proto.v1 import session_pb2, session_service_pb2
from tests.docker.commands import close_session, duration, run
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon

BUILD_SECONDS = 600.0
RESOLVE_SECONDS = 300.0
MODULES = {
    "beautifulsoup4": "bs4",
    "pillow": "PIL",
    "python-dateutil": "dateutil",
    "python-docx": "docx",
    "python-pptx": "pptx",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
}
"""Where the module is not called as the package."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]


class Tried(NamedTuple):
    package: str
    version: str = ""
    is_imported: bool = False
    problem: str = ""

    def __str__(self) -> str:
        imported = "yes" if self.is_imported else f"no: {self.problem}"
        return f"| {self.package} | {self.version} | {imported} |"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon() -> AsyncIterator[DaemonProcess]:
    """With the settings for packages that everyone has."""
    changes = {
        "SANDBOXD_PACKAGES_USER_BUILDS_PER_HOUR": "1000",
        "SANDBOXD_PACKAGES_BUILD_SECONDS": f"{BUILD_SECONDS:g}",
    }
    async with running_daemon(**changes) as running:
        yield running


async def tried(api: Api, package: str) -> Tried:
    """A session with this package, which imports it."""
    request = session_service_pb2.OpenSessionRequest(
        user_id="ada",
        thread_id=package,
        environment_config=session_pb2.EnvironmentConfig(packages=[package]),
        build_wait=duration(BUILD_SECONDS),
    )
    module = MODULES.get(package, package)
    program = f"import {module}, importlib.metadata as m; print(m.version({package!r}))"
    try:
        opened = await api.sessions.OpenSession(request, timeout=BUILD_SECONDS + 60)
    except grpc.aio.AioRpcError as error:
        return Tried(package, problem=error.details() or str(error.code()))
    session_id = opened.session.session_id
    try:
        answer = await run(api, session_id, ["python3", "-c", program])
        if answer.exit.code == 0:
            return Tried(package, answer.stdout.data.decode().strip(), is_imported=True)
        last = answer.stderr.data.decode().strip().splitlines()[-1:]
        return Tried(package, problem=" ".join(last) or f"exit code {answer.exit.code}")
    finally:
        await close_session(api, session_id)


async def test_every_package_of_the_list_is_installed_and_imported(daemon: DaemonProcess) -> None:
    """In the default environment, one session for each; prints what docs/packages.md shows."""
    async with daemon.api() as api:
        found = [await tried(api, package) for package in DATA_PACKAGES]

    print("| package | version | imported |", "| --- | --- | --- |", *found, sep="\n")
    assert [str(one) for one in found if not one.is_imported] == []


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
async def test_every_package_of_the_list_has_wheels_for(
    version: str, machine: str, tmp_path: Path
) -> None:
    """The Pythons of all environments, on both kinds of processors."""
    target = Target.of(
        PackageKind.PYTHON,
        version=version,
        machine=machine,
        glibc="glibc 2.36",
        directory="/packages",
    )
    problems = {}
    for package in DATA_PACKAGES:
        try:
            await resolved(package, target, tmp_path)
        except (AssertionError, ValueError) as error:
            problems[package] = str(error)

    assert problems == {}


async def resolved(package: str, target: Target, area: Path) -> None:
    """As a build does it, apart from the walls around it."""
    (area / uv.REQUEST).write_text(f"{package}\n")
    (area / uv.TEMPORARY).mkdir(exist_ok=True)
    places = uv.Places(uv=uv_package.find_uv_bin(), python=sys.executable, area=str(area))
    process = await asyncio.create_subprocess_exec(
        *uv.resolve(places, target, min_age_days=3.0),
        env=dict(uv.environment(places, inherited(), index_of("", os.environ))),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(RESOLVE_SECONDS):
        _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    lock = parse_pylock((area / uv.PYLOCK).read_text(), target)
    listed = tomllib.loads((area / uv.PYLOCK).read_text())["packages"]
    assert len(lock.archives) == len(listed)
