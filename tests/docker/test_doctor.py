"""Proofs of the isolation on the real thing, and the command that prints them."""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiodocker
import grpc
import pytest
from click.testing import CliRunner

from sandboxd.cli.doctor import as_document, as_table, doctor, summary
from sandboxd.config import Config
from sandboxd.daemon import composition as daemon
from sandboxd.engine.contract import Engine
from sandboxd.environments.environment import Environment
from sandboxd.isolation.kernel_memory import KernelMemoryWatch
from sandboxd.isolation.visibility import masked_paths
from sandboxd.protections import probe
from sandboxd.protections.examination import (
    BUFFERS,
    FORK,
    HOST_KILL,
    LOCKS,
    MEMORY,
    NOT_YET,
    REFUSED_FORKS,
    Observations,
    checks,
    examine,
)
from sandboxd.protections.report import Verdict
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd_proto.v1 import admin_service_pb2 as pb
from sandboxd_proto.v1 import admin_service_pb2_grpc
from tests.docker.daemon_process import RUNTIME, Api, DaemonProcess, first_uid, running_daemon

EXAMINED = {
    "capabilities",
    "root filesystem",
    "network",
    "own uid",
    "user name",
    "guest",
    "host details",
    "system calls",
    "command limits",
    "kernel memory",
    "workspace",
    "host kill",
}
IMAGES = ["sandbox-secure:latest", "sandboxd/test-busybox:latest"]


@dataclass
class Parts:
    """What a daemon makes sandboxes with."""

    maker: SandboxMaker
    environment: Environment


@asynccontextmanager
async def parts_of_a_daemon(directory: Path, image: str) -> AsyncIterator[Parts]:
    """A daemon in this process whose pool stays empty, so that every container is ours."""
    makers: list[SandboxMaker] = []

    def maker(engine: Engine, settings: SandboxSettings, host: Host) -> SandboxMaker:
        makers.append(SandboxMaker(engine, settings, host))
        return makers[0]

    config = Config(
        host="",
        state_dir=directory / "state",
        run_dir=directory / "run",
        guest_runtime=RUNTIME,
        container_image=image,
        pool_size=0,
        min_pool_size=0,
        sandbox_uid_start=first_uid(),
        examine=False,
    )
    async with daemon.running(config, maker=maker) as running:
        yield Parts(makers[0], running.pools.default.environment)


async def containers_of(docker: aiodocker.Docker, instance: str, status: Sequence[str] = ()) -> int:
    filters = {"label": [f"sandboxd.instance={instance}"], "status": list(status)}
    return len(await docker.containers.list(all=True, filters=filters))


@pytest.mark.parametrize("image", IMAGES)
async def test_every_attack_on_a_sandbox_fails(
    image: str, short_dir: Path, docker: aiodocker.Docker
) -> None:
    """In any image all attempts are made, none gets through, and no container is left."""
    async with parts_of_a_daemon(short_dir, image) as parts:
        findings = await examine(parts.maker, parts.environment)

        assert await containers_of(docker, parts.maker.settings.instance) == 0
    assert [one for one in findings if one.verdict is not Verdict.HOLDS] == []
    assert {one.protection for one in findings} == EXAMINED


async def test_locks_are_held_until_the_daemon_has_looked(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is so busy that the daemon looks late is not one without a limit."""
    monkeypatch.setitem(KernelMemoryWatch.__init__.__kwdefaults__, "look_seconds", 8.0)
    async with parts_of_a_daemon(short_dir, IMAGES[0]) as parts:
        findings = await examine(parts.maker, parts.environment)

    (locks,) = [one for one in findings if one.tried == LOCKS]
    assert (locks.verdict, "record locks, more than" in locks.seen) == (Verdict.HOLDS, True)


async def run_without_protection(docker: aiodocker.Docker) -> bytes:
    """What the probe writes in a container as the engine makes it, without a filter."""
    arguments = json.dumps({"workspace": "/tmp", "masked": masked_paths()})
    config: dict[str, Any] = {
        "Image": IMAGES[0],
        # The probe is not the first process: that one has to be a stranger to it.
        "Entrypoint": ["sh", "-c", f'{probe.PYTHON} -I -S -c "$0" try_all "$1"; exit'],
        "Cmd": [inspect.getsource(probe), arguments],
        "User": "1000:0",
        "HostConfig": {
            "SecurityOpt": ["seccomp=unconfined"],
            "NetworkMode": "none",
            "Binds": [f"{RUNTIME.resolve()}:/.sandboxd:ro"],
        },
    }
    name = f"test-doctor-{secrets.token_hex(4)}"
    container = await docker.containers.create(config=config, name=name)
    try:
        await container.start()
        await container.wait(timeout=30)
        return "".join(await container.log(stdout=True)).encode()
    finally:
        await container.delete(force=True)


async def test_the_probe_gets_through_where_nothing_holds_it(
    docker: aiodocker.Docker, sandbox_settings: SandboxSettings, environment: Environment
) -> None:
    """In a plain container the same attempts succeed, so that their failure proves something."""
    observations = Observations()
    observations.read(await run_without_protection(docker))

    findings = observations.judge(checks(sandbox_settings, environment, uid=200_000), "unseen")

    failed = {one.tried for one in findings if one.verdict is Verdict.FAILS}
    assert failed >= {
        "capabilities",
        "no new privileges",
        "write to /",
        "uid",
        "groups",
        "seccomp mode",
        "AF_VSOCK",
        "io_uring_setup",
        "seccomp",
        "prctl(SET_SECCOMP)",
        "filter on a socket",
        "options that a socket keeps",
        "locks of open files",
        "ptrace",
        "unshare(NEWUSER)",
        "open /proc/1/mem",
        "open /proc/1/environ",
        "list /proc/1/fd",
        "prlimit(1)",
        "setpriority(1)",
        "room",
        "masked paths",
        "cgroup",
        "host name",
    }
    unseen = {one.tried for one in findings if one.verdict is Verdict.UNSEEN}
    assert unseen == {FORK, MEMORY, REFUSED_FORKS, HOST_KILL, BUFFERS, LOCKS}


async def test_an_examination_that_is_cancelled_leaves_no_container(
    short_dir: Path, docker: aiodocker.Docker
) -> None:
    """A daemon that stops in the middle of it cleans up first."""
    async with parts_of_a_daemon(short_dir, IMAGES[0]) as parts:
        instance = parts.maker.settings.instance
        examining = asyncio.create_task(examine(parts.maker, parts.environment))
        async with asyncio.timeout(30):
            while not await containers_of(docker, instance, ["running"]):
                await asyncio.sleep(0.01)
        examining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await examining

        assert await containers_of(docker, instance) == 0


# --- the command ---


def protection(name: str, state: pb.ProtectionState.ValueType, proof: str = "") -> pb.Protection:
    return pb.Protection(name=name, state=state, detail=f"about {name}", proof=proof)


SOME = [
    protection("network", pb.PROTECTION_STATE_IN_FORCE, "seen: lo"),
    protection("single use", pb.PROTECTION_STATE_IN_FORCE),
    protection("kernel", pb.PROTECTION_STATE_WEAKER),
]
ONE_MISSING = [*SOME, protection("host kill", pb.PROTECTION_STATE_MISSING)]


def test_summary_is_one_line() -> None:
    """It counts what is in force, what of that was proved, and what is not."""
    assert summary(SOME) == "3 protections: 2 in force (1 proved), 1 weaker"
    assert summary(ONE_MISSING) == "4 protections: 2 in force (1 proved), 1 weaker, 1 MISSING"
    assert summary([]) == "0 protections: 0 in force (0 proved)"


def test_table_has_one_line_per_protection_for_programs() -> None:
    """Away from a terminal nothing is wrapped, so that lines can be searched."""
    assert as_table(ONE_MISSING, None).splitlines() == [
        "ok       network     about network | proved: seen: lo",
        "ok       single use  about single use",
        "weaker   kernel      about kernel",
        "MISSING  host kill   about host kill",
        "",
        summary(ONE_MISSING),
    ]


def test_table_fits_a_terminal() -> None:
    """Long lines go on below their own column."""
    long = pb.Protection(
        name="network", state=pb.PROTECTION_STATE_IN_FORCE, detail="word " * 40, proof="seen " * 40
    )

    rows = as_table([long], 80).splitlines()[:-2]

    assert rows[0].startswith("ok  network  word")
    assert all(len(row) <= 80 for row in rows)
    assert all(row.startswith(" " * 13) for row in rows[1:])


def test_document_is_for_programs() -> None:
    """Every field is there, states as words."""
    document = json.loads(as_document(ONE_MISSING))

    assert document["summary"] == summary(ONE_MISSING)
    assert document["protections"][0] == {
        "name": "network",
        "state": "in force",
        "detail": "about network",
        "proof": "seen: lo",
    }
    assert [one["state"] for one in document["protections"][2:]] == ["weaker", "missing"]


def test_without_a_daemon_doctor_says_what_to_do(short_dir: Path) -> None:
    """Exit code 2 and one sentence, no traceback."""
    result = CliRunner().invoke(doctor, ["--socket", str(short_dir / "none.sock")])

    assert result.exit_code == 2
    assert "start one" in result.output
    assert len(result.output.splitlines()) == 1


class Answering(admin_service_pb2_grpc.AdminServiceServicer):
    """A daemon that has only a status."""

    def __init__(self, protections: Sequence[pb.Protection]) -> None:
        self._protections = protections

    def GetStatus(  # noqa: N802  (the proto's name)
        self, request: pb.GetStatusRequest, context: grpc.ServicerContext
    ) -> pb.GetStatusResponse:
        return pb.GetStatusResponse(protections=self._protections)


@pytest.mark.parametrize(
    ("protections", "code"), [(SOME, 0), (ONE_MISSING, 1)], ids=["weaker", "missing"]
)
def test_exit_code_tells_scripts_what_is_missing(
    protections: Sequence[pb.Protection], code: int, short_dir: Path
) -> None:
    """A weaker protection is no failure, a missing one is."""
    server = grpc.server(ThreadPoolExecutor(1))
    admin_service_pb2_grpc.add_AdminServiceServicer_to_server(Answering(protections), server)
    server.add_insecure_port(f"unix:{short_dir}/api.sock")
    server.start()
    try:
        result = CliRunner().invoke(doctor, ["--socket", f"{short_dir}/api.sock"])
    finally:
        server.stop(grace=None).wait()

    assert (result.exit_code, result.stdout) == (code, as_table(protections, None) + "\n")


async def examined(api: Api) -> Sequence[pb.Protection]:
    """The protections of a daemon once it has examined a sandbox."""
    async with asyncio.timeout(60):
        while True:
            protections = (await api.status()).protections
            if not any(NOT_YET in one.detail for one in protections):
                return protections
            await asyncio.sleep(0.05)


async def run_doctor(daemon: DaemonProcess, *options: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandboxd", "doctor", "--socket", str(daemon.socket), *options),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_a_daemon_proves_what_it_promises() -> None:
    """Soon after its start everything that can be tried has been, and doctor finds no fault."""
    async with running_daemon(POOL_SIZE="1", SANDBOXD_EXAMINE="1") as daemon, daemon.api() as api:
        protections = await examined(api)
        code, table = await run_doctor(daemon)
        json_code, document = await run_doctor(daemon, "--json")

    missing = [one for one in protections if one.state == pb.PROTECTION_STATE_MISSING]
    assert missing == []
    unproved = {one.name: one.detail for one in protections if "seen in a sandbox" not in one.proof}
    assert {one: unproved[one] for one in EXAMINED & unproved.keys()} == {}
    assert {one.name for one in protections} - unproved.keys() == EXAMINED
    assert (code, table.splitlines()[-1]) == (0, summary(protections))
    names = [one["name"] for one in json.loads(document)["protections"]]
    assert (json_code, names) == (0, [one.name for one in protections])
