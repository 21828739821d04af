"""The command policy of a real daemon, and what it keeps from running."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc
import pytest
import pytest_asyncio

from sandboxd.policy import STRICT, check
from sandboxd.policy.profile import LISTED
from sandboxd_client import AsyncSandbox, AsyncSandboxClient, PolicyError
from sandboxd_proto.v1 import session_service_pb2
from tests.docker.commands import run
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon, served
from tests.unit.policy_cases import RUNS_RM_WITH_GAWK

FLOODERS = 100
COMMANDS = 40
HOSTILE = "&>case x in a" * 245
PAUSE_SECONDS = 0.05


class Flood:
    """Commands that are refused, as many at once as there are flooders, no two the same."""

    def __init__(self, api: Api, session_id: str) -> None:
        self._api = api
        self._session_id = session_id
        self._numbers = itertools.count()
        self.answers: Counter[grpc.StatusCode] = Counter()

    async def __aenter__(self) -> Flood:
        self._tasks = [asyncio.create_task(self._send()) for _ in range(FLOODERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _send(self) -> None:
        while True:
            try:
                await run(self._api, self._session_id, f"{next(self._numbers)}{HOSTILE}")
            except grpc.aio.AioRpcError as error:
                self.answers[error.code()] += 1
                if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
                    await asyncio.sleep(PAUSE_SECONDS)


async def _open(api: Api, user: str, **fields: str) -> str:
    request = session_service_pb2.OpenSessionRequest(user_id=user, thread_id="flood", **fields)
    return (await api.sessions.OpenSession(request)).session.session_id


async def test_flood_of_refused_commands_does_not_delay_others() -> None:
    """While one user's hostile texts are checked, another user's commands go on: none of them waits
    for all the checks that were asked for before. How many are made beside it depends on how fast
    this machine is at each."""
    async with (
        running_daemon(SANDBOXD_COMMAND_POLICY="strict") as daemon,
        daemon.api() as theirs,
        daemon.api() as ours,
    ):
        hostile, harmless = await _open(theirs, "eve"), await _open(ours, "ada")
        async with Flood(theirs, hostile) as flood:
            while not flood.answers[grpc.StatusCode.PERMISSION_DENIED]:
                await asyncio.sleep(PAUSE_SECONDS)
            flood.answers.clear()
            for _ in range(COMMANDS):
                assert (await run(ours, harmless, "true")).exit.code == 0
            checked = flood.answers[grpc.StatusCode.PERMISSION_DENIED]
    print(f"policy flood: {checked} hostile texts checked beside {COMMANDS} commands of another")

    assert checked <= COMMANDS * FLOODERS // 4


@pytest.mark.parametrize("command", [case[0] for case in RUNS_RM_WITH_GAWK])
async def test_refused_program_of_gawk_would_have_run_rm(
    command: str, api: Api, session_id: str
) -> None:
    """The cases are real: in a sandbox without the policy, the program comes to `rm`."""
    assert not check(command, STRICT).allowed
    await run(api, session_id, "echo line > x")
    with suppress(grpc.aio.AioRpcError):
        await run(api, session_id, command.replace("awk", "gawk", 1))

    assert (await run(api, session_id, "test -e x")).exit.code == 1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain() -> AsyncIterator[DaemonProcess]:
    """A daemon whose operator has set no policy."""
    daemon = DaemonProcess(POOL_SIZE="2")
    del daemon.environment["SANDBOXD_COMMAND_POLICY"]
    async with served(daemon):
        yield daemon


@pytest.mark.asyncio(loop_scope="module")
async def test_promised_programs_are_in_the_image(plain: DaemonProcess) -> None:
    """What `strict` allows by name as a tool for data, the default image has, and it runs."""
    async with plain.api() as api:
        session_id = await _open(api, "ada", command_policy="strict")
        for program in sorted(LISTED):
            found = await run(api, session_id, f"command -v {program}")
            assert found.exit.code == 0, program
        line = "if command -v rg >/dev/null; then echo found | rg -c found; else grep x; fi"
        assert (await run(api, session_id, line)).stdout.data == b"1\n"
        assert (await run(api, session_id, "python -c 'print(6 * 7)'")).stdout.data == b"42\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_without_settings_newcomers_commands_run(plain: DaemonProcess) -> None:
    """Files are removed, moved and made executable; git and make run, or are missing (127)."""
    async with await AsyncSandbox.create(server_url=f"unix:{plain.socket}") as sandbox:
        line = "echo 'echo ran' > a && mv a b && chmod +x b && ./b && rm b && test ! -e b"
        ran = await sandbox.commands.run(line)
        assert (ran.exit_code, ran.stdout) == (0, "ran\n")
        for program in ("git", "make"):
            has_it = (await sandbox.commands.run(f"command -v {program}")).exit_code == 0
            ran = await sandbox.commands.run(f"{program} --version")
            assert ran.exit_code == (0 if has_it else 127)


@pytest.mark.asyncio(loop_scope="module")
async def test_client_of_the_seeds_has_strict_and_finds_the_sessions_of_others(
    plain: DaemonProcess,
) -> None:
    """Its new sessions refuse `rm`; in a session that a sandbox object has opened, `rm` runs."""
    url = f"unix:{plain.socket}"
    async with AsyncSandboxClient(server_url=url) as client:
        await client.get_or_create_session("eve", "new")
        with pytest.raises(PolicyError, match=r"forbidden-command.*command_policy="):
            await client.execute("rm x")
        async with await AsyncSandbox.open("eve", "new", server_url=url) as same:
            with pytest.raises(PolicyError):
                await same.commands.run("rm x")
        async with await AsyncSandbox.open("eve", "theirs", server_url=url) as sandbox:
            await sandbox.files.write("x", "")
            info = await client.get_or_create_session("eve", "theirs")
            assert (info.session_id, info.command_policy) == (sandbox.session_id, "open")
            assert (await client.execute("rm x")).exit_code == 0
