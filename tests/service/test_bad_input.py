"""Bad input: each a typed status, a reason, and a sentence that says what is wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc import aio

from sandboxd.service.transport.server import MAX_REQUEST_BYTES
from tests.fakes.guest import FakeGuests
from tests.service.client import Api, refused
from tests.service.file_client import FileClient

INVALID = grpc.StatusCode.INVALID_ARGUMENT
LONG_AGO = Duration(seconds=-(2**63), nanos=-999_999_999)
FOR_EVER = Duration(seconds=2**63 - 1, nanos=999_999_999)


async def run(api: Api, method: str, session_id: str, fields: dict[str, Any]) -> None:
    if method == "Run":
        await api.run(session_id, **fields)
    else:
        await api.exec(session_id, **fields).read()


@pytest.mark.parametrize("method", ["Run", "Exec"])
@pytest.mark.parametrize(
    ("fields", "reason", "field", "told"),
    [
        pytest.param({"shell": None}, "INVALID_REQUEST", "command", "give `shell` or `argv`"),
        pytest.param({"shell": ""}, "INVALID_REQUEST", "command", "give a command line"),
        pytest.param({"shell": "  \n"}, "INVALID_REQUEST", "command", "give a command line"),
        pytest.param({"shell": "a\0b"}, "INVALID_REQUEST", "command", "NUL"),
        pytest.param({"argv": []}, "INVALID_REQUEST", "command", "needs a program"),
        pytest.param({"argv": ["", "x"]}, "INVALID_REQUEST", "command", "needs a program"),
        pytest.param({"argv": ["ls", "\0"]}, "INVALID_REQUEST", "command", "NUL"),
        pytest.param({"argv": ["ls", "x" * (4 << 20)]}, "REQUEST_TOO_LARGE", "command", "at most"),
        pytest.param({"argv": ["x" * 1000] * 4000}, "REQUEST_TOO_LARGE", "command", "use a file"),
        pytest.param({"argv": ["x"] * 40_000}, "REQUEST_TOO_LARGE", "command", "at most"),
        pytest.param({"shell": "x" * (2 << 20)}, "REQUEST_TOO_LARGE", "command", "in a file"),
        pytest.param({"env": {"A=B": "x"}}, "INVALID_REQUEST", "env", "not a valid variable name"),
        pytest.param({"env": {"": "x"}}, "INVALID_REQUEST", "env", "not a valid variable name"),
        pytest.param({"env": {"A": "x\0"}}, "INVALID_REQUEST", "env", "NUL"),
        pytest.param({"env": {"A": "x" * (1 << 20)}}, "REQUEST_TOO_LARGE", "env", "too large"),
        pytest.param(
            {"env": {"=" * 100_000: ""}}, "INVALID_REQUEST", "env", "not a valid variable name"
        ),
        pytest.param({"env": {"A" * 200_000: ""}}, "REQUEST_TOO_LARGE", "env", "too large"),
        pytest.param({"cwd": "a\0"}, "INVALID_REQUEST", "cwd", "NUL"),
        pytest.param({"cwd": "x" * 5000}, "REQUEST_TOO_LARGE", "cwd", "at most"),
        pytest.param({"exec_id": "no blanks"}, "INVALID_REQUEST", "exec_id", "letters, digits"),
        pytest.param({"exec_id": "x" * 65}, "INVALID_REQUEST", "exec_id", "1 to 64"),
        pytest.param({"exec_id": "x" * 100_000}, "INVALID_REQUEST", "exec_id", "1 to 64"),
        pytest.param({"timeout": -1}, "INVALID_REQUEST", "timeout", "from 0.001 to 3600"),
        pytest.param({"timeout": 1e-6}, "INVALID_REQUEST", "timeout", "from 0.001 to 3600"),
        pytest.param({"timeout": 3601}, "INVALID_REQUEST", "timeout", "from 0.001 to 3600"),
        pytest.param({"timeout": LONG_AGO}, "INVALID_REQUEST", "timeout", "from 0.001 to 3600"),
        pytest.param({"timeout": FOR_EVER}, "INVALID_REQUEST", "timeout", "from 0.001 to 3600"),
        pytest.param(
            {"on_disconnect": 99}, "INVALID_REQUEST", "on_disconnect", "KILL, KEEP_RUNNING"
        ),
        pytest.param({"max_output_bytes": 2**63}, "INVALID_REQUEST", "max_output_bytes", "at most"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
async def test_bad_command_is_refused(
    method: str,
    fields: dict[str, Any],
    reason: str,
    field: str,
    told: str,
    api: Api,
    guests: FakeGuests,
) -> None:
    """The caller learns which field is wrong and how; the guest learns nothing."""
    session_id = await api.open_id()
    asked = {"shell": "true", **fields} if "argv" not in fields else fields
    with refused(INVALID, reason) as refusal:
        await run(api, method, session_id, {k: v for k, v in asked.items() if v is not None})

    assert told in refusal.message
    violations = refusal.detail(error_details_pb2.BadRequest)
    assert violations is not None
    assert [one.field for one in violations.field_violations] == [field]
    assert guests.commands == []
    assert (await api.run(session_id, "true")).exit.code == 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"user": ""}, "user_id"),
        ({"thread": ""}, "thread_id"),
        ({"user": "x" * 257}, "user_id"),
        ({"user": "x" * 1_000_000}, "user_id"),
        ({"thread": "a\nb"}, "thread_id"),
        ({"thread": "a\0b"}, "thread_id"),
        ({"idle_timeout": 0}, "idle_timeout"),
        ({"idle_timeout": 0.5}, "idle_timeout"),
        ({"idle_timeout": -5}, "idle_timeout"),
        ({"idle_timeout": FOR_EVER}, "idle_timeout"),
        ({"metadata": {"": "x"}}, "metadata"),
        ({"metadata": {"k" * 65: "x"}}, "metadata"),
        ({"metadata": {"k": "x" * 257}}, "metadata"),
        ({"metadata": {f"k{n}": "x" for n in range(33)}}, "metadata"),
    ],
)
async def test_bad_open_is_refused(fields: dict[str, Any], field: str, api: Api) -> None:
    """Nothing is opened for a request that is not understood."""
    with refused(INVALID, "INVALID_REQUEST") as refusal:
        await api.open(**fields)

    assert refusal.message.startswith(f"{field}: ")
    assert list((await api.list()).sessions) == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"page_size": 1001}, "page_size"),
        ({"page_token": "bogus"}, "page_token"),
        ({"page_token": "x" * 100_000}, "page_token"),
        ({"state": 77}, "state"),
    ],
)
async def test_bad_listing_is_refused(fields: dict[str, Any], field: str, api: Api) -> None:
    """A page that does not exist is told, not guessed."""
    with refused(INVALID, "INVALID_REQUEST") as refusal:
        await api.list(**fields)

    assert refusal.message.startswith(f"{field}: ")


@pytest.mark.parametrize("listing", ["sessions", "execs", "executions", "files"])
async def test_page_token_of_another_listing_is_refused(listing: str, api: Api) -> None:
    """Each listing takes its own tokens only, and answers a huge one at once."""
    await api.open_id(thread="t2")
    session_id = await api.open_id()
    for n in range(2):
        await api.start(session_id, "true", f"e{n}")
        await api.wait(session_id, f"e{n}")
    lists: dict[str, Callable[..., Awaitable[Any]]] = {
        "sessions": api.list,
        "execs": partial(api.list_execs, session_id),
        "executions": partial(api.executions, session_id),
        "files": FileClient(api.files, session_id).list,
    }
    list_page = lists.pop(listing)
    foreign = [
        (await other(page_size=1)).next_page_token
        for name, other in lists.items()
        if name != "files"
    ]
    assert all(foreign)

    for token in (*foreign, "A" * 90_000):
        with refused(INVALID, "INVALID_REQUEST") as refusal:
            await list_page(page_token=token)
        assert refusal.message.startswith("page_token: not a token of this listing")


@pytest.mark.parametrize(
    "session_id", ["ses_nobody", "x" * 20_000, "\u00e9\n\x1b[31m", "a" * (5 << 20)]
)
@pytest.mark.parametrize("use", ["get", "touch", "close", "run", "exec"])
async def test_unknown_session_is_told(use: str, session_id: str, api: Api) -> None:
    """Whatever is sent as an id, the answer is the same, and it is short."""
    with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND") as refusal:
        if use == "exec":
            await api.exec(session_id, "true").read()
        else:
            await getattr(api, use)(session_id, *(["true"] if use == "run" else []))

    assert "open the session" in refusal.message
    assert len(refusal.message) < 1000
    assert refusal.message.isprintable()


async def test_missing_session_id_is_told(api: Api) -> None:
    """A command without a session says where to get one."""
    with refused(INVALID, "INVALID_REQUEST") as refusal:
        await api.run("", "true")

    assert "open a session" in refusal.message


NOT_UTF8 = b"\xff\xfe\x80"
METHODS = {
    "/sandboxd.v1.SessionService/OpenSession": 0x0A,
    "/sandboxd.v1.SessionService/GetSession": 0x0A,
    "/sandboxd.v1.SessionService/ListSessions": 0x12,
    "/sandboxd.v1.ExecService/Run": 0x22,
    "/sandboxd.v1.ExecService/Exec": 0x22,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["not UTF-8", "cut off", "nonsense"])
async def test_message_that_cannot_be_read_is_refused(kind: str, method: str, api: Api) -> None:
    """Bytes that are no message of ours are the caller's fault, and no internals are told."""
    bodies = {
        "not UTF-8": bytes([METHODS[method], len(NOT_UTF8)]) + NOT_UTF8,
        "cut off": b"\x0a\x7fx",
        "nonsense": b"\xff" * 20,
    }
    kind_of_call = api.channel.unary_stream if method.endswith("/Exec") else api.channel.unary_unary
    call = kind_of_call(method, request_serializer=bytes, response_deserializer=bytes)
    with refused(INVALID, "INVALID_REQUEST") as refusal:
        answer = call(bodies[kind])
        await (answer.read() if isinstance(answer, aio.UnaryStreamCall) else answer)

    for internals in ("Unexpected", "class", "Error", "google"):
        assert internals not in refusal.message


async def test_message_over_the_limit_is_refused(api: Api) -> None:
    """A huge message is refused by its length, and the connection serves on."""
    session_id = await api.open_id()
    with pytest.raises(aio.AioRpcError) as caught:
        await api.run(session_id, "x" * (MAX_REQUEST_BYTES + 1))

    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(MAX_REQUEST_BYTES) in (caught.value.details() or "")
    assert (await api.run(session_id, "true")).exit.code == 0
