"""The lines of docs/operations.md, on a machine that has nothing of sandboxd."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from sandboxd_proto.v1 import exec_pb2, session_pb2
from tests.docker.commands import attach, run, start, wait
from tests.docker.daemon_process import Api
from tests.docker.test_lifecycle import eventually, get_session, open_session
from tests.e2e.machine import GUEST_RUNTIME, Machine, booted

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations.md"
DEFAULT_IMAGE = "sandbox-secure:latest"
SANDBOXD = "/opt/sandboxd/bin/sandboxd"
ADDRESS = "127.0.0.1:5000"
ENVIRONMENT = "/etc/sandboxd/environment"
TOKENS = "/etc/sandboxd/tokens"
SETTINGS = {
    "SANDBOXD_GUEST_RUNTIME": GUEST_RUNTIME,
    "SANDBOXD_COMMAND_POLICY": "open",
    "MAX_WORKSPACE_SIZE_MB": "16",
    "POOL_SIZE": "1",
    "MIN_POOL_SIZE": "0",
}
GIVEN = ("apt-get ", "git ", "/opt/sandboxd/source/scripts/build_images")
"""Lines of which the machine is given the result: it has no network."""
SHELL_SETTINGS = {
    "HOME": "/root",
    "PATH": f"{sys.base_prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PIP_CONFIG_FILE": "/dev/null",
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "/opt/sandboxd/wheels",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
NEXT_VERSION = "99.1.0"
COUNT = "i=0; until [ -e done ]; do echo $i; i=$((i + 1)); sleep 0.02; done"

pytestmark = pytest.mark.timeout(600)


def lines_of(section: str) -> list[str]:
    """The first block of commands below a heading of the page."""
    text = PAGE.read_text().partition(f"{section}\n")[2]
    lines = text.split("```\n")[1].splitlines()
    assert lines, f"{PAGE.name} has no commands below {section!r}"
    return [line for line in lines if not line.startswith(GIVEN)]


def pasted(*lines: str) -> list[str]:
    """The command that runs lines as somebody who pastes them into a shell."""
    settings = (f"{name}={value}" for name, value in SHELL_SETTINGS.items())
    return ["env", "-i", *settings, "bash", "-ec", "\n".join(lines)]


async def follow(machine: Machine, section: str) -> str:
    """Do what the page says there."""
    return await machine.run(*pasted(*lines_of(section)))


def copy_tree(target: Path) -> None:
    """What a clone of the repository would have."""
    listing = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"]
    names = subprocess.run(listing, check=True, capture_output=True, timeout=30).stdout
    target.mkdir(parents=True)
    copying = ["tar", "-C", str(ROOT), "--null", "--files-from=-", "-cf", "-"]
    packed = subprocess.run(copying, input=names, check=True, capture_output=True, timeout=30)
    unpacking = ["tar", "-C", str(target), "-xf", "-"]
    subprocess.run(unpacking, input=packed.stdout, check=True, timeout=30)


def download_dependencies(target: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["daemon"],
        *project["build-system"]["requires"],
    ]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(target), *wanted]
    subprocess.run(command, check=True, timeout=600)


def set_version(source: Path, version: str) -> None:
    settings = source / "pyproject.toml"
    text = settings.read_text()
    project = tomllib.loads(text)["project"]
    settings.write_text(text.replace(f'version = "{project["version"]}"', f'version = "{version}"'))


def write_settings(machine: Machine, settings: Mapping[str, str]) -> None:
    machine.write(ENVIRONMENT, "".join(f"{name}={value}\n" for name, value in settings.items()))


async def new_token(machine: Machine) -> str:
    """Give out a token in the way that the page tells."""
    await follow(machine, "### Give out a token")
    said = await machine.run("cat", "/root/new-token")
    return next(line for line in said.splitlines() if line.startswith("sbx_"))


async def is_let_in(machine: Machine, token: str) -> bool:
    """Over TCP, with the program that was installed."""
    code, said = await machine.attempt(
        *pasted(f"{SANDBOXD} status --url {ADDRESS} --token {token}")
    )
    assert code == 0 or "does not know the token" in said, said
    return code == 0


async def test_from_nothing_to_an_upgraded_service(tmp_path: Path) -> None:
    """Installed by the lines of the page it serves, also over TCP to those with a token; a token is
    given out and another withdrawn by a reload; a command that runs lives through an upgrade."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        downloading = tasks.create_task(asyncio.to_thread(download_dependencies, tmp_path))
        async with booted(DEFAULT_IMAGE) as machine:
            copy_tree(machine.programs / "source")
            await downloading
            shutil.copytree(tmp_path, machine.programs / "wheels")
            await install(machine)
            installed = time.monotonic()
            async with machine.api() as api:
                session_id = (await open_session(api, "first")).session.session_id
                await start(api, session_id, COUNT, exec_id="count", timeout=120)
                await change_tokens(machine)
                await upgrade(machine, api)
                lines = await counted(api, session_id)
            assert await machine.service("NRestarts") == "0"
    print(
        f"from nothing: installed after {installed - began:.0f} s, upgraded after "
        f"{time.monotonic() - began:.0f} s, {lines} lines of a running command, none lost"
    )


async def install(machine: Machine) -> None:
    assert (await machine.attempt("systemctl", "cat", "sandboxd"))[0] != 0
    write_settings(machine, SETTINGS)
    said = await follow(machine, "## Install")
    assert "hello from Linux" in said
    assert await machine.service("UnitFileState") == "enabled"


async def change_tokens(machine: Machine) -> None:
    machine.write(TOKENS, "", mode=0o600)
    write_settings(machine, {**SETTINGS, "SANDBOXD_TOKENS_FILE": TOKENS})
    await machine.run("systemctl", "restart", "sandboxd")
    first = await new_token(machine)
    await eventually(lambda: is_let_in(machine, first))
    first_line = await machine.run("cat", TOKENS)

    pid = await machine.service("MainPID")
    second = await new_token(machine)
    await eventually(lambda: is_let_in(machine, second))
    both = await machine.run("cat", TOKENS)
    machine.write(TOKENS, both.removeprefix(first_line), mode=0o600)
    await machine.run("systemctl", "reload", "sandboxd")

    async def is_shut_out() -> bool:
        return not await is_let_in(machine, first)

    await eventually(is_shut_out)
    assert await is_let_in(machine, second)
    assert await machine.service("MainPID") == pid


async def upgrade(machine: Machine, api: Api) -> None:
    assert (await api.status()).version != NEXT_VERSION
    set_version(machine.programs / "source", NEXT_VERSION)
    await follow(machine, "### Upgrade in place")
    assert (await api.status()).version == NEXT_VERSION


async def counted(api: Api, session_id: str) -> int:
    """End the command; how many lines it has written, which has to be every number once."""
    await run(api, session_id, "touch done")
    ended = await wait(api, session_id, "count")
    assert (ended.exit.code, ended.exit.reason) == (0, exec_pb2.EXIT_REASON_EXITED)
    lines = (await attach(api, session_id, "count")).stdout.decode().split()
    assert lines == [str(number) for number in range(len(lines))]
    session = await get_session(api, session_id)
    assert (session.state, session.incarnation) == (session_pb2.SESSION_STATE_ACTIVE, 1)
    return len(lines)
