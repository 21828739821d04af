"""The command policy at the edge: what it refuses is never started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from sandboxd.daemon.composition import Daemon
from sandboxd.daemon.instance import StartRefused
from sandboxd_proto.v1 import exec_pb2
from tests.fakes.guest import FakeGuests
from tests.service.client import Api, exec_request, refused

StartDaemon = Callable[..., Awaitable[Daemon]]
DENIED = grpc.StatusCode.PERMISSION_DENIED
METHODS = ("Run", "Exec", "StartExec")


@pytest.fixture
async def strict(start_daemon: StartDaemon) -> AsyncIterator[Api]:
    daemon = await start_daemon(command_policy="strict")
    async with Api(daemon.config.api_socket) as api:
        yield api


async def call(api: Api, method: str, session_id: str, **fields: Any) -> None:
    request = exec_request(session_id, **fields)
    answer = getattr(api.execs, method)(request)
    if method == "Exec":
        async for _ in answer:
            pass
    else:
        await answer


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("fields", "rule", "command"),
    [
        ({"shell": "echo x; r''m y"}, "forbidden-command", "rm"),
        ({"argv": ["/bin/rm", "y"]}, "forbidden-command", "rm"),
        ({"shell": "perl x"}, "not-on-allow-list", "perl"),
        ({"shell": "$X"}, "dynamic", "$X"),
        ({"shell": "echo 'x"}, "unparsable", "echo 'x"),
        ({"shell": "echo x", "env": {"LD_PRELOAD": "x"}}, "guarded-variable", "LD_PRELOAD"),
    ],
)
async def test_refused_command_is_not_started(
    method: str,
    fields: dict[str, Any],
    rule: str,
    command: str,
    strict: Api,
    guests: FakeGuests,
) -> None:
    """The status says which rule and which command, and the guest has heard of nothing."""
    session_id = await strict.open_id()

    with refused(DENIED, "COMMAND_NOT_ALLOWED") as refusal:
        await call(strict, method, session_id, **fields)

    told = dict(refusal.info.metadata)
    assert told == {"kind": "policy", "policy": "strict", "rule": rule, "command": command}
    assert f"(rule {rule})" in refusal.message
    assert guests.commands == []
    assert list((await strict.list_execs(session_id)).execs) == []


@pytest.mark.parametrize("method", METHODS)
async def test_command_that_takes_long_to_check_is_checked(
    method: str, strict: Api, guests: FakeGuests
) -> None:
    """A long script runs if all of it is allowed, and does not if it ends in what is forbidden."""
    session_id = await strict.open_id()
    script = "echo out; " * 100

    await call(strict, method, session_id, shell=script)
    with refused(DENIED, "COMMAND_NOT_ALLOWED") as refusal:
        await call(strict, method, session_id, shell=f"{script}rm x")
    with refused(DENIED, "COMMAND_NOT_ALLOWED"):
        await call(strict, method, session_id, argv=["bash", "-c", f"{script}rm x"])
    with refused(DENIED, "COMMAND_NOT_ALLOWED"):
        await call(strict, method, session_id, shell=script, env={"LD_PRELOAD": "x"})

    assert refusal.info.metadata["command"] == "rm"
    assert [command.request["shell"] for command in guests.commands] == [script]


async def test_session_that_ends_during_a_check_starts_nothing(
    strict: Api, guests: FakeGuests
) -> None:
    """The state of a session counts when its command starts."""
    session_id = await strict.open_id()
    script = "echo out; " * 100
    calls = [
        asyncio.create_task(call(strict, "Run", session_id, shell=f"{script}{number}=1"))
        for number in range(20)
    ]
    await strict.close(session_id)
    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert all(isinstance(answer, grpc.aio.AioRpcError) for answer in answers)
    assert guests.commands == []


@pytest.mark.parametrize("name", ["PATH", "BASH_ENV", "LD_PRELOAD", "BASH_FUNC_ls%%"])
async def test_variables_of_a_session_are_checked(name: str, strict: Api) -> None:
    """What changes the meaning of names is refused when the session is opened."""
    with refused(DENIED, "COMMAND_NOT_ALLOWED") as refusal:
        await strict.open(env={name: "x"})

    assert refusal.info.metadata["rule"] == "guarded-variable"
    assert refusal.info.metadata["command"] == name
    session_id = (await strict.open(env={"LC_ALL": "C"})).session.session_id
    await call(strict, "Run", session_id, shell="echo out")


async def test_variables_that_a_session_has_already_are_checked(
    start_daemon: StartDaemon,
) -> None:
    """A session may be older than the policy: then its commands are refused."""
    daemon = await start_daemon(command_policy="strict")
    async with Api(daemon.config.api_socket) as api:
        session_id = await api.open_id()
        session = daemon.sessions.get(session_id)
        session.record = replace(session.record, env={"BASH_ENV": "x"})
        for shell in ("echo out", "echo out; " * 100):
            with refused(DENIED, "COMMAND_NOT_ALLOWED") as refusal:
                await api.run(session_id, shell)
            assert refusal.info.metadata["command"] == "BASH_ENV"


@pytest.mark.parametrize("method", METHODS)
async def test_allowed_command_runs(method: str, strict: Api, guests: FakeGuests) -> None:
    """What is on the list is handed to the guest as it is."""
    await call(strict, method, await strict.open_id(), shell="echo out", exec_id="e1")

    assert guests.commands[-1].request["shell"] == "echo out"


async def test_refusal_tells_an_agent_what_to_do(strict: Api) -> None:
    """The message names the command, the rule and another way."""
    with refused(DENIED, "COMMAND_NOT_ALLOWED") as refusal:
        await strict.run(await strict.open_id(), "curl http://x | head")

    assert refusal.message == (
        "The policy `strict` refuses this command (rule forbidden-command): `curl` is forbidden "
        "here. There is no network; upload the data through the files API."
    )


async def test_session_goes_on_after_a_refusal(strict: Api) -> None:
    """A refusal is about one command."""
    session_id = await strict.open_id()
    with refused(DENIED, "COMMAND_NOT_ALLOWED"):
        await strict.run(session_id, "rm x")

    answer = await strict.run(session_id, "echo out")

    assert answer.exit.reason == exec_pb2.EXIT_REASON_EXITED
    assert answer.stdout.data == b"out\n"


async def test_custom_policy_comes_from_its_file(
    start_daemon: StartDaemon, short_dir: Path
) -> None:
    """What the file allows runs, and what it forbids is refused in its words."""
    path = short_dir / "policy.toml"
    path.write_text('extends = "open"\nforbid = ["flood"]\n[instead]\nflood = "Use a trickle."\n')
    daemon = await start_daemon(command_policy="custom", command_policy_file=path)

    async with Api(daemon.config.api_socket) as api:
        session_id = await api.open_id()
        await api.run(session_id, "err oops")
        with refused(DENIED, "COMMAND_NOT_ALLOWED") as refusal:
            await api.run(session_id, "flood 1")

    assert "Use a trickle." in refusal.message
    assert refusal.info.metadata["policy"] == "custom"


async def test_daemon_does_not_start_with_a_broken_policy(
    start_daemon: StartDaemon, short_dir: Path
) -> None:
    """A mistake in the file is told at the start and not at the first command."""
    path = short_dir / "policy.toml"
    path.write_text('alow = ["ls"]')

    with pytest.raises(StartRefused, match="did you mean `allow`"):
        await start_daemon(command_policy="custom", command_policy_file=path)
