"""The command policy of sessions whose callers name none: a client's default or an operator's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd.config import Config, EnvironmentTable
from sandboxd.daemon.composition import Daemon
from sandboxd_proto.v1 import session_pb2, session_service_pb2
from tests.fakes import settings as settings_for_tests
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.service.client import Api, duration, refused
from tests.service.test_environments import lose

StartDaemon = Callable[..., Awaitable[Daemon]]
Code = grpc.StatusCode
CAREFUL: Mapping[str, Any] = {"extends": "open", "forbid": ["sleep"]}
STRICT = {"default_command_policy": "strict"}
"""What the seeds' clients send."""
ATTACHED = session_service_pb2.OPEN_OUTCOME_ATTACHED


@pytest.fixture
def config(short_dir: Path) -> Config:
    config = settings_for_tests.of_daemon(short_dir)
    return settings_for_tests.without_policy(config).model_copy(
        update={"policies": {"careful": CAREFUL}, "pool_size": 0}
    )


@pytest.fixture
async def api(start_daemon: StartDaemon) -> AsyncIterator[Api]:
    daemon = await start_daemon()
    async with Api(daemon.config.api_socket) as api:
        yield api


async def test_new_session_has_the_default_that_its_client_names(api: Api) -> None:
    """Its rules decide; a caller without a default has all commands."""
    strict = (await api.open(**STRICT)).session
    usual = (await api.open(thread="t2")).session
    named = (await api.open(thread="t3", command_policy="careful", **STRICT)).session

    assert [one.command_policy for one in (strict, usual, named)] == ["strict", "open", "careful"]
    with refused(Code.PERMISSION_DENIED, "COMMAND_NOT_ALLOWED"):
        await api.run(strict.session_id, "rm x")
    await api.run(usual.session_id, "rm x")


@pytest.mark.parametrize("first", [{}, STRICT])
async def test_default_is_not_compared_with_an_open_session(
    first: Mapping[str, str], api: Api
) -> None:
    """With and without one a caller attaches, and the session keeps what it has; only a policy that
    a caller has named is compared."""
    policy = (await api.open(**first)).session.command_policy
    for fields in ({}, STRICT, {"default_command_policy": "lax"}, {"command_policy": policy}):
        again = await api.open(**fields)
        assert (again.outcome, again.session.command_policy) == (ATTACHED, policy)
    other = "open" if policy == "strict" else "strict"
    with refused(Code.FAILED_PRECONDITION, "ENVIRONMENT_MISMATCH") as refusal:
        await api.open(command_policy=other)

    assert refusal.info.metadata["field"] == "command_policy"


@pytest.mark.parametrize("first", [{}, STRICT])
async def test_session_that_ended_keeps_its_policy(
    first: Mapping[str, str], api: Api, engine: FakeEngine, guests: FakeGuests
) -> None:
    """Whether the open that brings it back has a default or not."""
    session = (await api.open(**first)).session
    for fields in ({}, STRICT):
        await lose(api, session.session_id, engine, guests)
        again = await api.open(**fields)
        assert again.session.session_id == session.session_id
        assert again.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
        assert again.session.command_policy == session.command_policy


@pytest.mark.parametrize("policy", ["open", "careful"])
async def test_setting_of_the_operator_is_in_force(policy: str, start_daemon: StartDaemon) -> None:
    """Also `open`, where an operator has set it."""
    daemon = await start_daemon(command_policy=policy)
    async with Api(daemon.config.api_socket) as api:
        assert (await api.open(**STRICT)).session.command_policy == policy


async def test_policy_of_an_environment_is_in_force(
    start_daemon: StartDaemon, short_dir: Path
) -> None:
    """What its table names; where it names none, the default for `node20` lets node run."""
    dockerfile = short_dir / "Dockerfile"
    dockerfile.write_text("ARG BASE\nFROM ${BASE}\n")
    tables = {
        "small": EnvironmentTable(dockerfile=dockerfile, command_policy="careful"),
        "node20": EnvironmentTable(dockerfile=dockerfile),
    }
    daemon = await start_daemon(environments=tables)
    async with Api(daemon.config.api_socket) as api:
        for environment, policy in (("small", "careful"), ("node20", "strict-node")):
            opened = await api.open(
                thread=environment, environment=environment, build_wait=duration(30), **STRICT
            )
            assert opened.session.command_policy == policy


@pytest.mark.parametrize(
    ("caller", "policy"),
    [
        ({"scope": Scope.ADMIN}, "strict"),
        ({"scope": Scope.USER, "user_id": "ada"}, "strict"),
        ({"scope": Scope.USER, "user_id": "ada", "policies": frozenset({"careful"})}, "open"),
        ({"scope": Scope.USER, "user_id": "ada", "policies": frozenset({"*"})}, "strict"),
    ],
)
async def test_token_that_lists_policies_has_no_other_by_default(
    caller: dict[str, Any],
    policy: str,
    start_daemon: StartDaemon,
    short_dir: Path,
    engine: FakeEngine,
    guests: FakeGuests,
) -> None:
    """Its sessions have the daemon's policy then. Where no operator has set one, a caller may name
    any, which allows less, and the session keeps it."""
    daemon, metadata = await with_token(start_daemon, short_dir, **caller)
    async with Api(daemon.config.api_socket) as api:

        async def opened(thread: str, **fields: str) -> session_pb2.Session:
            request = session_service_pb2.OpenSessionRequest(
                user_id="ada", thread_id=thread, **fields
            )
            return (await api.sessions.OpenSession(request, metadata=metadata)).session

        assert (await opened("t1", **STRICT)).command_policy == policy
        assert (await opened("t2", command_policy="strict")).command_policy == "strict"
        for container in list(guests.by_container):
            guests.lose(container)
        await engine.wait_until(lambda: not engine.live)
        again = await opened("t2")
        assert (again.incarnation, again.command_policy) == (2, "strict")


async def test_token_asks_for_no_policy_where_an_operator_has_set_one(
    start_daemon: StartDaemon, short_dir: Path
) -> None:
    """Also not in place of `open`, unless its line allows it; a client's default is no reason to
    refuse the session."""
    caller = {"scope": Scope.USER, "user_id": "ada"}
    daemon, metadata = await with_token(start_daemon, short_dir, command_policy="open", **caller)
    request = session_service_pb2.OpenSessionRequest
    async with Api(daemon.config.api_socket) as api:
        with refused(Code.PERMISSION_DENIED, "NOT_PERMITTED"):
            named = request(user_id="ada", thread_id="t", command_policy="strict")
            await api.sessions.OpenSession(named, metadata=metadata)
        usual = request(user_id="ada", thread_id="t", **STRICT)
        opened = await api.sessions.OpenSession(usual, metadata=metadata)

    assert opened.session.command_policy == "open"


async def with_token(
    start_daemon: StartDaemon, directory: Path, *, command_policy: str = "", **caller: Any
) -> tuple[Daemon, tuple[tuple[str, str], ...]]:
    """A daemon that has one caller, and the metadata of that caller's calls."""
    token, file = new_token(), directory / "tokens"
    file.write_text(line(Caller(name="one", **caller), hash_of(token)))
    file.chmod(0o600)
    settings = {"command_policy": command_policy} if command_policy else {}
    daemon = await start_daemon(tokens_file=file, socket_auth="token", **settings)
    return daemon, (("authorization", f"Bearer {token}"),)


async def test_default_that_the_daemon_does_not_have_is_told(api: Api) -> None:
    """A mistake does not end in a session with all commands."""
    with refused(Code.INVALID_ARGUMENT, "INVALID_REQUEST") as refusal:
        await api.open(default_command_policy="lax")

    assert "careful, open, strict" in refusal.message
    assert not (await api.list()).sessions
