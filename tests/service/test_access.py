"""Who may do what: every method, for every kind of caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2
from grpc import aio

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd.daemon.composition import Daemon
from sandboxd.service.transport import guard
from sandboxd.service.transport.reflection import SERVICE_V1
from sandboxd.service.transport.rules import LOOK, MANAGE, OVERSEE, RULES, USE
from sandboxd.service.transport.server import SERVICES
from sandboxd_proto.v1 import (
    project_service_pb2,
    project_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
)
from tests.fakes.waiting import eventually
from tests.service.client import Refusal

StartDaemon = Callable[..., Awaitable[Daemon]]
Metadata = tuple[tuple[str, str], ...]

CALLERS = {
    "ada": Caller(name="ada", scope=Scope.USER, user_id="ada"),
    "bob": Caller(name="bob", scope=Scope.USER, user_id="bob"),
    "board": Caller(name="board", scope=Scope.READ_ONLY),
    "ada's board": Caller(name="adas-board", scope=Scope.READ_ONLY, user_id="ada"),
    "ops": Caller(name="ops", scope=Scope.ADMIN),
}
TOKENS = {who: new_token() for who in CALLERS}
NOT_THERE = "ses_000000000000000000000000"
NOT_FOR_USERS = (
    *("GetStatus", "GetStatistics", "WatchFigures", "ListAudit", "VerifyAudit"),
    *("BuildEnvironment", "DeleteEnvironment", "VerifySnapshots"),
    *("ListWorkers", "FindSession", "DrainWorker"),
)
PROJECT = "p1"
WAIT_SECONDS = 20.0


def token_of(who: str) -> Metadata:
    return (("authorization", f"Bearer {TOKENS[who]}"),)


def methods_of(services: tuple[str, ...]) -> list[MethodDescriptor]:
    pool = descriptor_pool.Default()
    return [method for name in services for method in pool.FindServiceByName(name).methods]


SERVED = methods_of(SERVICES)
PROJECT_METHODS = [method.name for method in methods_of(("sandboxd.v1.ProjectService",))]


@pytest.fixture
def tokens_file(short_dir: Path) -> Path:
    file = short_dir / "tokens"
    lines = [line(caller, hash_of(TOKENS[who])) for who, caller in CALLERS.items()]
    file.write_text("\n".join(lines))
    file.chmod(0o600)
    return file


@pytest.fixture
async def guarded(start_daemon: StartDaemon, tokens_file: Path) -> Daemon:
    """A daemon whose socket asks for tokens."""
    return await start_daemon(tokens_file=tokens_file, socket_auth="token")


@pytest.fixture
async def channel(guarded: Daemon) -> AsyncIterator[aio.Channel]:
    async with aio.insecure_channel(f"unix:{guarded.config.api_socket}") as channel:
        yield channel


class Answer(NamedTuple):
    """How a call went; of those that went well only that."""

    code: grpc.StatusCode
    reason: str = ""
    message: str = ""


def request_for(method: MethodDescriptor, session_id: str, user_id: str) -> Message:
    request = GetMessageClass(method.input_type)()
    ids = {"session_id": session_id, "user_id": user_id}
    if method.containing_service.name == "EnvironmentService":
        ids["name"] = "default"
    _fill(request, ids)
    return request


def _fill(message: Message, ids: dict[str, str]) -> None:
    ids = {
        **{"thread_id": "t1", "exec_id": "exe_1", "shell": "true"},
        **{"path": "x", "new_path": "y", "pattern": "z", "old_text": "z"},
        **{"project_id": PROJECT, "name": "x.txt", "code": "echo 1", "context": "main"},
        **ids,
    }
    for field in message.DESCRIPTOR.fields:
        if field.name in ("header", "run", "start", "target") and field.message_type:
            getattr(message, field.name).SetInParent()
            _fill(getattr(message, field.name), ids)
        elif field.name in ("snapshot", "before"):
            getattr(message, field.name).number = 1
        elif field.name in ("number", "count"):
            setattr(message, field.name, 1)
        elif field.name in ids and not field.message_type and not field.is_repeated:
            setattr(message, field.name, ids[field.name])


async def call(
    channel: aio.Channel, method: MethodDescriptor, request: Message, metadata: Metadata = ()
) -> Answer:
    """Call any method with one message, and read one."""
    kind = "_".join(
        "stream" if is_stream else "unary"
        for is_stream in (method.client_streaming, method.server_streaming)
    )
    service, _, name = method.full_name.rpartition(".")
    stub = getattr(channel, kind)(
        f"/{service}/{name}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    first: Any = iter([request]) if method.client_streaming else request
    running = stub(first, metadata=metadata, timeout=WAIT_SECONDS)
    try:
        await (running.read() if method.server_streaming else running)
        running.cancel()
    except aio.AioRpcError as error:
        refusal = Refusal(error)
        info = refusal.detail(error_details_pb2.ErrorInfo)
        return Answer(error.code(), info.reason if info else "", refusal.message)
    return Answer(grpc.StatusCode.OK)


async def everything(
    channel: aio.Channel, metadata: Metadata, *, session_id: str | None = None
) -> dict[str, Answer]:
    """The answers of all methods about a session and a project of ada's, or about this session and
    a project that does not exist."""
    answers = {}
    for method in SERVED:
        asked = session_id or await session_of_ada(channel)
        await Stubs(channel).make_project("ada", exists=session_id is None)
        answer = await call(channel, method, request_for(method, asked, "ada"), metadata)
        answers[method.name] = answer._replace(message=answer.message.replace(asked, "ID"))
    return answers


async def session_of_ada(channel: aio.Channel) -> str:
    return (await Stubs(channel).open("ada", by="ada")).session.session_id


# --- the table ---


def test_every_method_has_a_rule() -> None:
    """A method that is added without saying who may call it is noticed here, and not by callers."""
    every = {method.full_name for method in SERVED}

    assert RULES.keys() == every
    assert set(RULES.values()) == {LOOK, USE, OVERSEE, MANAGE}


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", f"Bearer {new_token()}"),),
        (("authorization", "Bearer "),),
        (("authorization", f"Basic {TOKENS['ops']}"),),
        (("authorization", TOKENS["ops"]),),
        (("token", TOKENS["ops"]),),
    ],
    ids=["none", "wrong", "empty", "other scheme", "no scheme", "other key"],
)
async def test_nobody_gets_in_without_a_token(metadata: Metadata, channel: aio.Channel) -> None:
    """No method answers a caller who is not known, whatever they ask for."""
    answers = await everything(channel, metadata)

    assert {answer[:2] for answer in answers.values()} == {
        (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
    }
    assert all("token" in answer.message for answer in answers.values())


@pytest.mark.parametrize("who", ["ada", "ops"])
async def test_owner_and_admin_get_in(who: str, channel: aio.Channel) -> None:
    """They are answered by the methods themselves, except that the status is not for users, and
    neither are environments to be built or deleted by them."""
    answers = await everything(channel, token_of(who))
    kept_out = {"UNAUTHENTICATED", "NOT_PERMITTED", "SESSION_NOT_FOUND"}
    refusals = {
        name: answer.reason for name, answer in answers.items() if answer.reason in kept_out
    }

    assert refusals == ({} if who == "ops" else dict.fromkeys(NOT_FOR_USERS, "NOT_PERMITTED"))
    assert [answers[name].code for name in ("GetSession", "Run", "CloseSession")] == [
        grpc.StatusCode.OK
    ] * 3


async def test_what_another_user_has_is_as_if_it_were_not(channel: aio.Channel) -> None:
    """For every method, the answer about another's session or project is that about none, to the
    letter."""
    answers = await everything(channel, token_of("bob"))
    absent = await everything(channel, token_of("bob"), session_id=NOT_THERE)

    assert answers == absent
    refusals = dict.fromkeys(("OpenSession", *NOT_FOR_USERS, *PROJECT_METHODS), "NOT_PERMITTED")
    refusals |= dict.fromkeys(("ListSessions", "WhoAmI"), "")
    refusals["CreateConsoleLink"] = "CONSOLE_OFF"
    refusals |= dict.fromkeys(("ListEnvironments", "GetEnvironment"), "")
    refusals["EnsurePackages"] = "INVALID_REQUEST"
    refusals["ListDataSources"] = "NOT_PERMITTED"
    refusals["QuickExecute"] = "NOT_PERMITTED"
    assert {name: answer.reason for name, answer in answers.items()} == {
        method.name: refusals.get(method.name, "SESSION_NOT_FOUND") for method in SERVED
    }


@pytest.mark.parametrize("who", ["board", "ada's board"])
async def test_read_only_token_looks_and_does_nothing(who: str, channel: aio.Channel) -> None:
    """It gets what Get, List and Status tell, and no output, no files and no changes. Figures about
    all users are not for a token of one."""
    answers = await everything(channel, token_of(who))
    looks = {"GetSession", "ListSessions", "WhoAmI", "ListExecs", "ListExecutions"}
    looks |= {"ListEnvironments", "GetEnvironment"}
    looks |= {"GetProject", "ListProjects"}
    looks |= {"ListDataSources", "ListQueries"}
    looks |= {"GetEgress", "ListDoors"}
    if who == "board":
        looks |= {"GetStatus", "GetStatistics", "WatchFigures", "ListWorkers", "FindSession"}
    assert answers.pop("CreateConsoleLink").reason == "CONSOLE_OFF"
    # This daemon has its workspaces in memory.
    assert {answers.pop(name).reason for name in ("ListSnapshots", "GetSnapshot")} == {
        "SNAPSHOTS_OFF"
    }

    assert {name: answer.reason for name, answer in answers.items()} == {
        method.name: "" if method.name in looks else "NOT_PERMITTED"
        for method in SERVED
        if method.name in answers
    }


@pytest.mark.parametrize("who", list(CALLERS))
async def test_caller_learns_who_it_is(who: str, channel: aio.Channel) -> None:
    """As the token file names it, with its scope and its user."""
    stub = session_service_pb2_grpc.SessionServiceStub(channel)
    answer = await stub.WhoAmI(session_service_pb2.WhoAmIRequest(), metadata=token_of(who))
    caller = CALLERS[who]

    assert (answer.name, answer.scope, answer.user_id) == (
        *(caller.name, caller.scope.value),
        caller.user_id or "",
    )


def test_every_method_that_a_read_only_token_may_call_is_documented() -> None:
    """The table in docs/access.md names all of them."""
    page = (Path(__file__).parents[2] / "docs" / "access.md").read_text()
    looks = [
        name.rpartition(".")[2] for name, allowed in RULES.items() if Scope.READ_ONLY in allowed
    ]

    assert [name for name in looks if f"`{name}`" not in page] == []


@pytest.mark.parametrize("method", ["Run", "Exec"])
@pytest.mark.parametrize("message", [None, b"\xff\xff"], ids=["none", "rubbish"])
async def test_known_caller_without_a_readable_request_is_refused(
    message: bytes | None, method: str, start_daemon: StartDaemon, tokens_file: Path
) -> None:
    """Its calls end with the reason, and give their places back."""
    daemon = await start_daemon(tokens_file=tokens_file, socket_auth="token", max_calls=1)
    async with aio.insecure_channel(f"unix:{daemon.config.api_socket}") as channel:
        for _ in range(3):
            stream = channel.stream_stream(f"/sandboxd.v1.ExecService/{method}")(
                metadata=token_of("ops"), timeout=WAIT_SECONDS
            )
            if message is not None:
                await stream.write(message)
            await stream.done_writing()
            assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await Stubs(channel).users(by="ops") == []


async def test_reflection_is_for_known_callers(channel: aio.Channel) -> None:
    """Where calls need a token, so does the description of the API."""
    for metadata, is_known in ((token_of("ada"), True), ((), False)):
        stream = channel.stream_stream(f"/{SERVICE_V1}/ServerReflectionInfo")(
            metadata=metadata, timeout=WAIT_SECONDS
        )
        await stream.done_writing()
        assert (await stream.code() is grpc.StatusCode.OK) == is_known


@pytest.mark.parametrize("name", ["PortService/ForwardPort", "CodeService/DebugCode"])
@pytest.mark.parametrize("is_silent", [False, True])
async def test_conversation_is_refused_when_its_first_message_is_there(
    name: str,
    is_silent: bool,
    guarded: Daemon,
    channel: aio.Channel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or after a while: grpc.aio gives a caller that is still writing an internal error instead."""
    if is_silent:
        monkeypatch.setattr(guard, "DRAIN_SECONDS", 0.05)
    running = channel.stream_stream(f"/sandboxd.v1.{name}")(timeout=WAIT_SECONDS)
    if not is_silent:
        calls = guarded.journal.statistics.calls
        await eventually(lambda: calls[name.rpartition("/")[2]] == 1)
        # Answers of a connection come in order.
        assert (await call(channel, SERVED[0], request_for(SERVED[0], NOT_THERE, "ada"))).reason
        assert not running.done()
        await running.write(b"")

    assert await running.code() is grpc.StatusCode.UNAUTHENTICATED


# --- what is seen ---


async def test_listing_has_the_sessions_of_the_caller(channel: aio.Channel) -> None:
    """A user sees its own whatever it filters for; admins and read-only tokens see everyone's."""
    stub = Stubs(channel)
    for who in ("ada", "bob"):
        await stub.open(who, by=who)

    assert await stub.users(by="ada") == ["ada"]
    assert await stub.users(by="ada", user_id="bob") == []
    assert await stub.users(by="ada's board") == ["ada"]
    assert await stub.users(by="board") == ["ada", "bob"]
    assert await stub.users(by="ops", user_id="bob") == ["bob"]


async def test_admin_opens_for_anyone_and_the_user_finds_it(channel: aio.Channel) -> None:
    """A session belongs to its user and not to the token that opened it."""
    stub = Stubs(channel)
    opened = await stub.open("ada", by="ops")

    assert (await stub.open("ada", by="ada")).session.session_id == opened.session.session_id


async def test_callers_at_once_are_not_mixed_up(channel: aio.Channel) -> None:
    """Who a call is from is known to that call alone."""
    stub = Stubs(channel)
    for who in ("ada", "bob"):
        await stub.open(who, by=who)
    asked = ["ada", "bob", "ops"] * 20
    seen = await asyncio.gather(*(stub.users(by=who) for who in asked))

    wanted = {"ada": ["ada"], "bob": ["bob"], "ops": ["ada", "bob"]}
    assert seen == [wanted[who] for who in asked]


class Stubs:
    """Calls as somebody."""

    def __init__(self, channel: aio.Channel) -> None:
        self.sessions = session_service_pb2_grpc.SessionServiceStub(channel)
        self.projects = project_service_pb2_grpc.ProjectServiceStub(channel)

    async def make_project(self, user: str, *, exists: bool) -> None:
        """As its owner; where there should be none it is deleted."""
        names = {"user_id": user, "project_id": PROJECT}
        made = project_service_pb2.CreateProjectRequest(**names)
        await self.projects.CreateProject(made, metadata=token_of(user))
        if not exists:
            gone = project_service_pb2.DeleteProjectRequest(**names)
            await self.projects.DeleteProject(gone, metadata=token_of(user))

    async def open(
        self, user: str, *, by: str, thread: str = "t1"
    ) -> session_service_pb2.OpenSessionResponse:
        request = session_service_pb2.OpenSessionRequest(user_id=user, thread_id=thread)
        return await self.sessions.OpenSession(request, metadata=token_of(by))

    async def users(self, *, by: str, **fields: Any) -> list[str]:
        """Whose sessions are listed."""
        request = session_service_pb2.ListSessionsRequest(**fields)
        listed = await self.sessions.ListSessions(request, metadata=token_of(by))
        return sorted(session.user_id for session in listed.sessions)
