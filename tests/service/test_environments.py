"""Environments and command policies of sessions, as callers see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd.audit.check import entries
from sandboxd.config import EnvironmentTable
from sandboxd.daemon.composition import Daemon
from sandboxd.environments import catalogue
from sandboxd.errors import EngineFailed
from sandboxd_proto.v1 import environment_pb2, session_service_pb2
from sandboxd_proto.v1 import environment_service_pb2 as pb
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.service.client import Api, duration, refused

StartDaemon = Callable[..., Awaitable[Daemon]]
Code = grpc.StatusCode
MIB = 1 << 20
HOSTILE = [
    "../x",
    "small/../default",
    "Small",
    "small\n",
    "-small",
    "sm all",
    "\u017fmall",
    "a" * 65,
]


@pytest.fixture
def dockerfile(short_dir: Path) -> Path:
    file = short_dir / "Dockerfile"
    file.write_text("ARG BASE\nFROM ${BASE}\n")
    return file


@pytest.fixture
def start_api(start_daemon: StartDaemon, dockerfile: Path) -> Callable[..., Any]:
    """A daemon with the environment `small`, which has more memory and two variables, and with the
    policy `careful`."""

    @asynccontextmanager
    async def start(**settings: Any) -> AsyncIterator[Api]:
        small = EnvironmentTable(
            description="A small one",
            dockerfile=dockerfile,
            memory_limit_bytes=512 * MIB,
            env_vars={"COLOUR": "blue", "TOKEN": "s3cret"},
            command_policy="careful",
        )
        usual = {
            "environments": {"small": small},
            "policies": {"careful": {"extends": "open", "forbid": ["sleep"]}},
        }
        daemon = await start_daemon(**{**usual, **settings})
        async with Api(daemon.config.api_socket) as api:
            yield api

    return start


@pytest.fixture
async def api(start_api: Callable[..., Any]) -> AsyncIterator[Api]:
    async with start_api() as api:
        yield api


async def build(api: Api, name: str, **fields: Any) -> list[pb.BuildEnvironmentResponse]:
    call = api.environments.BuildEnvironment(pb.BuildEnvironmentRequest(name=name, **fields))
    return [event async for event in call]


async def get(api: Api, name: str) -> environment_pb2.Environment:
    return (await api.environments.GetEnvironment(pb.GetEnvironmentRequest(name=name))).environment


async def listed(api: Api) -> dict[str, environment_pb2.Environment]:
    answer = await api.environments.ListEnvironments(pb.ListEnvironmentsRequest())
    return {environment.name: environment for environment in answer.environments}


# --- EnvironmentService ---


async def test_list_has_every_environment_with_its_state(api: Api) -> None:
    """The built-in ones and those of the configuration, the default first."""
    found = await listed(api)

    assert next(iter(found)) == "default"
    assert set(found) == {
        *("default", "python3.11", "python3.12", "python3.13", "node20", "data", "small")
    }
    small = found["small"]
    assert small.state == environment_pb2.ENVIRONMENT_STATE_NOT_BUILT
    assert small.state_detail
    assert small.description == "A small one"
    assert small.limits.memory_bytes == 512 * MIB
    assert small.command_policy == "careful"
    assert dict(small.env_vars) == {"COLOUR": "", "TOKEN": ""}, "values may be secret"


async def test_build_streams_its_progress_and_ends_with_the_environment(
    api: Api, engine: FakeEngine
) -> None:
    """The image is described, and a second build has nothing to do."""
    *progress, last = await build(api, "small")
    assert progress
    assert all(event.HasField("progress") for event in progress)
    environment = last.environment
    assert environment.state == environment_pb2.ENVIRONMENT_STATE_READY
    assert environment.image_id in engine.images.values()
    assert (environment.source, environment.image_bytes > 0) == ("environment", True)
    assert environment.HasField("build_time")

    same = await build(api, "small")
    assert same[-1].environment.image_id == environment.image_id
    assert engine.calls["build_image"] == 1
    again = await build(api, "small", rebuild=True)
    assert again[-1].environment.image_id != environment.image_id


async def test_callers_who_build_the_same_share_one_build(api: Api, engine: FakeEngine) -> None:
    """And it goes on when one of them leaves."""
    engine.gates["build_image.step"] = asyncio.Event()
    leaving = api.environments.BuildEnvironment(pb.BuildEnvironmentRequest(name="small"))
    await leaving.read()
    staying = asyncio.ensure_future(build(api, "small"))
    await engine.wait_until(lambda: engine.calls["build_image"] == 1)
    leaving.cancel()
    environment = await get(api, "small")
    assert environment.state == environment_pb2.ENVIRONMENT_STATE_BUILDING
    assert environment.progress.step == "image"
    engine.gates.pop("build_image.step").set()

    assert (await staying)[-1].HasField("environment")
    assert engine.calls["build_image"] == 1


async def test_failed_build_is_told_with_its_step(api: Api, engine: FakeEngine) -> None:
    """And the state keeps the reason."""
    engine.failures["build_image.step"] = EngineFailed("The image build failed at 'RUN x': no.")
    with refused(Code.FAILED_PRECONDITION, "ENVIRONMENT_BUILD_FAILED") as refusal:
        await build(api, "small")

    assert "RUN x" in refusal.message
    environment = await get(api, "small")
    assert environment.state == environment_pb2.ENVIRONMENT_STATE_FAILED
    assert "RUN x" in environment.state_detail


async def test_delete_removes_the_image(api: Api, engine: FakeEngine) -> None:
    """Unless sessions are open in it; the default one stays in any case."""
    await build(api, "small")
    session = (await api.open(environment="small")).session
    assert (await get(api, "small")).active_sessions == 1
    for name in ("small", "default"):
        with refused(Code.FAILED_PRECONDITION, "ENVIRONMENT_IN_USE"):
            await api.environments.DeleteEnvironment(pb.DeleteEnvironmentRequest(name=name))
    await api.close(session.session_id)
    answer = await api.environments.DeleteEnvironment(pb.DeleteEnvironmentRequest(name="small"))

    assert answer.environment.state == environment_pb2.ENVIRONMENT_STATE_NOT_BUILT
    assert not [tag for tag in engine.images if tag.startswith("sandboxd/environment:")]


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_name_is_refused_by_every_method(
    name: str, api: Api, engine: FakeEngine
) -> None:
    """A name becomes part of a tag and of a file, so nothing but a name is accepted."""
    environments = api.environments
    for call in (
        lambda: environments.GetEnvironment(pb.GetEnvironmentRequest(name=name)),
        lambda: environments.DeleteEnvironment(pb.DeleteEnvironmentRequest(name=name)),
        lambda: build(api, name),
        lambda: api.open(environment=name),
        lambda: api.open(command_policy=name),
    ):
        with refused(Code.INVALID_ARGUMENT, "INVALID_REQUEST"):
            await call()
    assert engine.calls["build_image"] == 0


async def test_unknown_environment_is_refused_with_those_there_are(api: Api) -> None:
    """The caller learns what it can ask for."""
    with refused(Code.NOT_FOUND, "ENVIRONMENT_NOT_FOUND") as refusal:
        await api.open(environment="large")
    assert "small" in refusal.info.metadata["environments"]
    with refused(Code.NOT_FOUND, "ENVIRONMENT_NOT_FOUND"):
        await build(api, "large")


async def test_builds_and_deletions_are_in_the_audit_log(
    start_daemon: StartDaemon, dockerfile: Path
) -> None:
    """With who asked for them."""
    daemon = await start_daemon(environments={"small": EnvironmentTable(dockerfile=dockerfile)})
    async with Api(daemon.config.api_socket) as api:
        await build(api, "small")
        await api.environments.DeleteEnvironment(pb.DeleteEnvironmentRequest(name="small"))
    await eventually(lambda: daemon.journal.audit.is_flushed)
    found = [entry for entry, _ in entries(daemon.config.audit_dir)]

    assert [(entry["action"], entry["who"]) for entry in found if "environment" in entry] == [
        ("environment.build_started", "host"),
        ("environment.built", "daemon"),
        ("environment.deleted", "host"),
    ]


# --- sessions in environments ---


async def test_session_is_opened_in_the_environment_that_it_asks_for(
    api: Api, engine: FakeEngine
) -> None:
    """Image, limits and policy are those of the environment; it is built if it has to be."""
    opened = await api.open(environment="small", build_wait=duration(30))

    session = opened.session
    assert (session.environment, session.command_policy) == ("small", "careful")
    assert session.limits.memory_bytes == 512 * MIB
    (spec,) = [spec for spec in engine.specs.values() if spec.memory_bytes > 512 * MIB]
    assert spec.image == (await get(api, "small")).image_id
    assert (await api.get(session.session_id)).environment == "small"
    assert (await api.open(thread="other")).session.environment == "default"


async def test_environment_that_is_not_ready_is_told_with_its_progress(
    api: Api, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer can be tried again, and an open that waits gets its session."""
    monkeypatch.setattr(catalogue, "QUICK_SECONDS", 0.01)
    engine.gates["build_image.step"] = asyncio.Event()
    step = ""
    async with asyncio.timeout(30):
        while not step:  # a busy machine takes a while to begin
            with refused(Code.UNAVAILABLE, "ENVIRONMENT_NOT_READY") as refusal:
                await api.open(environment="small")
            step = refusal.info.metadata["step"]
    assert refusal.detail(error_details_pb2.RetryInfo) is not None
    assert refusal.info.metadata["environment"] == "small"
    assert 0 <= float(refusal.info.metadata["fraction"]) <= 1
    waiting = asyncio.ensure_future(api.open(environment="small", build_wait=duration(30)))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    engine.gates.pop("build_image.step").set()

    assert (await waiting).session.environment == "small"
    assert engine.calls["build_image"] == 1


async def test_open_session_is_not_moved_to_another_environment(api: Api) -> None:
    """Another environment or configuration is refused; none named attaches."""
    await build(api, "small")
    await api.open(environment="small", environment_config={"env_vars": {"A": "1"}})
    for fields, field in (
        ({"environment": "default"}, "environment"),
        ({"environment_config": {"env_vars": {"A": "2"}}}, "env_vars"),
        ({"environment_config": {}}, "env_vars"),
        ({"command_policy": "open"}, "command_policy"),
    ):
        with refused(Code.FAILED_PRECONDITION, "ENVIRONMENT_MISMATCH") as refusal:
            await api.open(**fields)
        assert refusal.info.metadata["field"] == field
    attached = await api.open()
    assert attached.outcome == session_service_pb2.OPEN_OUTCOME_ATTACHED
    again = await api.open(
        environment="small",
        command_policy="careful",
        environment_config={"env_vars": {"A": "1"}},
    )
    assert again.outcome == session_service_pb2.OPEN_OUTCOME_ATTACHED


async def test_session_that_ended_may_be_opened_in_another_environment(
    start_api: Callable[..., Any], engine: FakeEngine, guests: FakeGuests
) -> None:
    """It keeps its own unless the open names one."""
    async with start_api(pool_size=0) as api:
        await build(api, "small")
        first = (await api.open(environment="small")).session
        await lose(api, first.session_id, engine, guests)
        same = (await api.open()).session
        assert (same.session_id, same.incarnation) == (first.session_id, 2)
        assert same.environment == "small"
        await lose(api, first.session_id, engine, guests)

        assert (await api.open(environment="default")).session.environment == "default"


async def lose(api: Api, session_id: str, engine: FakeEngine, guests: FakeGuests) -> None:
    """End the sandbox of a session as if by itself, and wait until the daemon has noticed."""
    lost = guests.by_container.keys() & engine.live
    for container in lost:
        guests.lose(container)
    await engine.wait_until(lambda: not lost & engine.live)
    assert (await api.get(session_id)).end_reason


async def test_variables_come_from_environment_configuration_session_and_command(
    api: Api, guests: FakeGuests
) -> None:
    """Each overrides the one before; values of the configuration are not shown again."""
    await build(api, "small")
    opened = await api.open(
        environment="small",
        env={"B": "session"},
        environment_config={"env_vars": {"A": "config", "B": "config"}},
    )
    session = opened.session
    assert dict(session.environment_config.env_vars) == {"A": "", "B": ""}
    await api.run(session.session_id, "true", env={"C": "command"})
    (command,) = guests.commands
    assert command.request["env"] == {"A": "config", "B": "session", "C": "command"}
    assert command.guest.settings is not None
    assert command.guest.settings["env"].items() >= {"COLOUR": "blue", "TOKEN": "s3cret"}.items()
    await api.reset(session.session_id)
    again = await api.get(session.session_id)
    assert dict(again.environment_config.env_vars) == {"A": "", "B": ""}


async def test_pools_of_all_environments_are_in_the_status(api: Api) -> None:
    """One for each that has an image, with its figures."""
    await build(api, "small")
    await api.open(environment="small")
    status = await api.status()
    pools = {pool.environment: pool for pool in status.pools}

    assert set(pools) == {"default", "small"}
    assert (pools["small"].in_use, pools["default"].in_use) == (1, 0)
    assert status.pool.environment == "default"


# --- policies ---


async def test_session_asks_for_a_policy_and_refusals_name_it(api: Api) -> None:
    """The daemon's own stays for the others."""
    strict = (await api.open(command_policy="strict")).session
    usual = (await api.open(thread="t2")).session

    assert (strict.command_policy, usual.command_policy) == ("strict", "open")
    with refused(Code.PERMISSION_DENIED, "COMMAND_NOT_ALLOWED") as refusal:
        await api.run(strict.session_id, "rm x")
    assert refusal.info.metadata["policy"] == "strict"
    assert "`strict`" in refusal.message
    await api.run(usual.session_id, "rm x")


async def test_policy_of_the_configuration_is_used_by_its_name(api: Api) -> None:
    """Its rules decide, and its name is in the refusal."""
    session = (await api.open(command_policy="careful")).session
    with refused(Code.PERMISSION_DENIED, "COMMAND_NOT_ALLOWED") as refusal:
        await api.run(session.session_id, "sleep 1")

    assert refusal.info.metadata["policy"] == "careful"
    await api.run(session.session_id, "true")


async def test_unknown_policy_is_refused_with_those_there_are(api: Api) -> None:
    """Before anything is opened."""
    with refused(Code.INVALID_ARGUMENT, "INVALID_REQUEST") as refusal:
        await api.open(command_policy="lax")
    assert "careful, open, strict" in refusal.message
    assert not (await api.list()).sessions


async def test_policy_stays_with_a_session_that_is_reset(api: Api) -> None:
    """A fresh sandbox gives no other rights."""
    session = (await api.open(command_policy="strict")).session
    again = await api.reset(session.session_id)

    assert again.command_policy == "strict"
    with refused(Code.PERMISSION_DENIED, "COMMAND_NOT_ALLOWED"):
        await api.run(session.session_id, "rm x")


async def test_variables_of_a_session_are_checked_by_its_policy(api: Api) -> None:
    """Also those of its environment configuration."""
    for fields in (
        {"env": {"LD_PRELOAD": "x"}},
        {"environment_config": {"env_vars": {"LD_PRELOAD": "x"}}},
    ):
        with refused(Code.PERMISSION_DENIED, "COMMAND_NOT_ALLOWED"):
            await api.open(command_policy="strict", **fields)
    await api.open(command_policy="strict")
    with refused(Code.PERMISSION_DENIED, "COMMAND_NOT_ALLOWED"):
        await api.open(env={"LD_PRELOAD": "x"})


CALLERS = {
    "plain": Caller(name="plain", scope=Scope.USER, user_id="ada"),
    "some": Caller(name="some", scope=Scope.USER, user_id="ada", policies=frozenset({"open"})),
    "all": Caller(name="all", scope=Scope.USER, user_id="ada", policies=frozenset({"*"})),
    "ops": Caller(name="ops", scope=Scope.ADMIN),
}


@pytest.mark.parametrize(
    ("who", "allowed"),
    [
        ("plain", {"", "strict"}),
        ("some", {"", "strict", "open"}),
        ("all", {"", "strict", "open", "careful"}),
        ("ops", {"", "strict", "open", "careful"}),
    ],
)
async def test_token_says_which_policies_its_caller_may_ask_for(
    who: str, allowed: set[str], start_api: Callable[..., Any], short_dir: Path
) -> None:
    """Every token may name the policy that it would get anyway."""
    tokens = {name: new_token() for name in CALLERS}
    file = short_dir / "tokens"
    file.write_text("\n".join(line(CALLERS[name], hash_of(tokens[name])) for name in CALLERS))
    file.chmod(0o600)
    settings = {"tokens_file": file, "socket_auth": "token", "command_policy": "strict"}
    async with start_api(**settings) as api:
        metadata = (("authorization", f"Bearer {tokens[who]}"),)
        for number, policy in enumerate(["", "strict", "open", "careful"]):
            request = session_service_pb2.OpenSessionRequest(
                user_id="ada", thread_id=f"t{number}", command_policy=policy
            )
            if policy in allowed:
                opened = await api.sessions.OpenSession(request, metadata=metadata)
                assert opened.session.command_policy == (policy or "strict")
                await _close(api, opened.session.session_id, metadata)
                continue
            with refused(Code.PERMISSION_DENIED, "NOT_PERMITTED") as refusal:
                await api.sessions.OpenSession(request, metadata=metadata)
            assert policy in refusal.message


async def _close(api: Api, session_id: str, metadata: aio.Metadata | tuple[Any, ...]) -> None:
    request = session_service_pb2.CloseSessionRequest(session_id=session_id)
    await api.sessions.CloseSession(request, metadata=metadata)
