"""Packages of npm for sessions: attached to warm sandboxes of a real daemon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import grpc
import pytest
import pytest_asyncio

from sandboxd_proto.v1 import (
    code_service_pb2,
    environment_service_pb2,
    session_pb2,
    session_service_pb2,
)
from tests.cli.command_line import CommandLine
from tests.docker.code import OK, RAISED, TIMED_OUT, run_code
from tests.docker.commands import close_session, duration, run
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.docker.test_lifecycle import reason
from tests.docker.test_npm_builds import Start
from tests.docker.test_packages import leftovers, sets
from tests.fakes.npm_archives import Member, a_package
from tests.fakes.npm_registry import NpmRegistry

pytestmark = pytest.mark.timeout(600)

WAIT_SECONDS = 200.0
MODULE = b"export const version = '4.0.0';\n"


@pytest.fixture(scope="module")
def registry() -> Iterator[NpmRegistry]:
    with NpmRegistry().serving() as serving:
        program = Member(
            "package/cli.js", b"#!/usr/bin/env node\nconsole.log('hello', __dirname);\n"
        )
        serving.add(a_package("first", dependencies={"second": "*"}), a_package("second", "1.5.0"))
        serving.add(
            a_package(
                "modern",
                "4.0.0",
                members=[Member("package/module.js", MODULE)],
                type="module",
                exports="./module.js",
            )
        )
        serving.add(
            a_package("program", members=[program], bin={"hello-tool": "cli.js", "ls": "cli.js"})
        )
        yield serving


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon(registry: NpmRegistry, node: Start) -> AsyncIterator[DaemonProcess]:
    """With the image of node20, which was built with the registry that npm is set up for."""
    settings = {
        "SANDBOXD_PACKAGES_POLICY": "open",
        "SANDBOXD_NPM_REGISTRY": registry.url,
        "SANDBOXD_PACKAGES_MIN_AGE_DAYS": "0",
        "SANDBOXD_PACKAGES_SET_MB": "16",
        "SANDBOXD_PACKAGES_TOTAL_MB": "320",
        "SANDBOXD_PACKAGES_USER_BUILDS_PER_HOUR": "100",
    }
    async with running_daemon(**settings) as running:
        yield running


@pytest.fixture
async def api(daemon: DaemonProcess) -> AsyncIterator[Api]:
    """With no session of another test."""
    async with daemon.api() as api:
        yield api
        listed = await api.sessions.ListSessions(session_service_pb2.ListSessionsRequest())
        for session in listed.sessions:
            await close_session(api, session.session_id)


async def open_with(
    api: Api, *packages: str, user: str = "ada", wait: float = WAIT_SECONDS
) -> session_pb2.Session:
    request = session_service_pb2.OpenSessionRequest(
        user_id=user,
        thread_id="t",
        environment="node20",
        environment_config=session_pb2.EnvironmentConfig(packages=packages),
        build_wait=duration(wait),
    )
    return (await api.sessions.OpenSession(request, timeout=WAIT_SECONDS + 20)).session


async def output(api: Api, session: session_pb2.Session, command: str) -> str:
    answer = await run(api, session.session_id, command)
    assert answer.exit.code == 0, answer.stderr.data
    return answer.stdout.data.decode().strip()


REQUIRE = "node -p \"require('first').version + ' ' + require('second').version\""
IMPORT = "node --input-type=module -e \"import {version} from 'modern'; console.log(version)\""


async def test_session_has_the_packages_that_it_asks_for(api: Api) -> None:
    """Before its first command, for `require` and for `import`, from any directory."""
    session = await open_with(api, "modern@^4", "first")

    assert await output(api, session, REQUIRE) == "1.0.0 1.5.0"
    assert await output(api, session, IMPORT) == "4.0.0"
    assert await output(api, session, f"mkdir a; cd a; {REQUIRE}; cd /tmp; {REQUIRE}")
    assert list(session.environment_config.packages) == ["first", "modern@^4"]
    same = await open_with(api, "first", "modern@ ^4", wait=0.0)
    assert same.session_id == session.session_id
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await open_with(api, "first")
    assert reason(refused.value) == "ENVIRONMENT_MISMATCH"


async def test_packages_are_read_only_and_their_programs_come_last(api: Api) -> None:
    """Commands cannot change what others share, and no program of a package replaces a tool."""
    session = await open_with(api, "program")

    assert await output(api, session, "hello-tool") == "hello /node_modules/program"
    assert await output(api, session, "command -v ls") in ("/usr/bin/ls", "/bin/ls")
    for command in ("touch /node_modules/x", "rm -r /node_modules/program"):
        answer = await run(api, session.session_id, command)
        assert b"Read-only file system" in answer.stderr.data


async def test_code_of_javascript_runs_in_contexts(api: Api) -> None:
    """Variables stay, packages are there, `await` works, a busy loop is interrupted."""
    session = await open_with(api, "first")
    js = partial(run_code, api, session.session_id, context="js", language="javascript")

    first = await js("const x = await Promise.resolve(41); console.log('hi'); x + 1")
    assert (first.status, first.result.json, first.stdout.data) == (OK, "42", b"hi\n"), str(first)
    assert first.context.version == (await js("process.versions.node")).result.json.strip('"')
    assert (await js("require('first').version + x")).result.json == '"1.0.041"'
    failed = await js("throw new TypeError('no')")
    assert (failed.status, failed.error.type) == (RAISED, "TypeError")
    busy = await js("for (;;) {}", seconds=1.0)
    assert busy.status == TIMED_OUT
    assert (await js("x")).result.json == "41"


async def test_an_interpreter_that_does_not_start(api: Api) -> None:
    """It is reported as such, whatever it wrote; the session goes on."""
    session = await open_with(api)
    made = code_service_pb2.CreateContextRequest(
        session_id=session.session_id,
        name="broken",
        language="javascript",
        env={"NODE_OPTIONS": "--no-such-option"},
    )
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await api.code.CreateContext(made, timeout=60)
    assert "the interpreter did not start" in str(refused.value.details())
    assert await output(api, session, "echo still here") == "still here"


async def test_second_user_waits_for_nothing(api: Api, registry: NpmRegistry) -> None:
    """Not for the registry either: it is not asked."""
    await open_with(api, "first", user="ada")
    asked = registry.requests.total()

    opened = await asyncio.gather(
        *(open_with(api, "first", user=f"user{number}", wait=0.0) for number in range(2))
    )

    assert registry.requests.total() == asked
    for session in opened:
        assert await output(api, session, REQUIRE) == "1.0.0 1.5.0"


async def test_reset_session_has_its_packages(api: Api) -> None:
    session = await open_with(api, "first")

    request = session_service_pb2.ResetSessionRequest(session_id=session.session_id)
    await api.sessions.ResetSession(request, timeout=60)

    assert await output(api, session, REQUIRE) == "1.0.0 1.5.0"


@pytest.mark.parametrize(
    ("package", "why"),
    [
        ("first@latest", "INVALID_REQUEST"),
        ("first@npm:second", "INVALID_REQUEST"),
        ("numpy>=2", "INVALID_REQUEST"),
        ("unknown-package", "PACKAGES_NOT_RESOLVED"),
        ("hostile", "PACKAGES_UNSAFE"),
    ],
)
async def test_packages_that_cannot_be_had_are_refused(
    api: Api, daemon: DaemonProcess, registry: NpmRegistry, package: str, why: str
) -> None:
    """With a reason, for an open and for EnsurePackages alike, and nothing is left of them."""
    registry.add(a_package("hostile", members=[Member("package/../../up")]))
    before = sets(daemon)
    request = environment_service_pb2.EnsurePackagesRequest(
        environment="node20", packages=[package]
    )

    with pytest.raises(grpc.aio.AioRpcError) as of_open:
        await open_with(api, package)
    with pytest.raises(grpc.aio.AioRpcError) as of_call:
        async for _ in api.environments.EnsurePackages(request, timeout=WAIT_SECONDS):
            pass

    assert reason(of_open.value) == reason(of_call.value) == why
    assert leftovers(daemon) == []
    assert sets(daemon) == before


async def test_command_line_builds_packages(daemon: DaemonProcess, api: Api) -> None:
    sandboxd = CommandLine(daemon.socket)

    built = await sandboxd("environments", "packages", "node20", "modern@>=4 <5")

    assert built.code == 0, built
    assert built.stdout.splitlines()[1:] == ["modern 4.0.0"]


async def test_packages_of_the_real_registry_work(node: Start) -> None:
    """From the list of those that are allowed by default: for `require`, for `import` only, and
    with programs."""
    async with running_daemon() as daemon, daemon.api() as api:
        began = time.monotonic()
        session = await open_with(api, "lodash@^4", "nanoid@^5", "prettier", "tsx")
        seconds = time.monotonic() - began
        require = "node -p \"require('lodash').chunk([1, 2, 3], 2).length\""
        assert await output(api, session, require) == "2"
        modern = "import {nanoid} from 'nanoid'; console.log(nanoid().length)"
        assert await output(api, session, f'node --input-type=module -e "{modern}"') == "21"
        assert (await output(api, session, "prettier --version")).startswith("3.")
        typed = "echo 'const x: number = 42; console.log(x)' > a.ts; tsx a.ts"
        assert await output(api, session, typed) == "42"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await open_with(api, "left-pad", user="bob")
        assert reason(refused.value) == "PACKAGES_NOT_ALLOWED"
        print(f"lodash, nanoid, prettier and tsx: opened with them after {seconds:.1f} s")
