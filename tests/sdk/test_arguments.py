"""Arguments of the wrong type are refused by name, before anything is sent."""

from __future__ import annotations

import inspect
import io
import typing
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sandboxd_client
from sandboxd_client import (
    ArgumentTypeError,
    AsyncCommandHandle,
    AsyncCommands,
    AsyncFiles,
    AsyncProjects,
    AsyncPty,
    AsyncSandbox,
    AsyncSandboxClient,
    AsyncShell,
    InvalidRequestError,
    Sandbox,
    SandboxClient,
    SandboxError,
)
from sandboxd_client.arguments import InstanceOrClass, checked
from sandboxd_client.connection import Connection
from sandboxd_client.errors import ConnectionLostError
from sandboxd_proto.v1 import exec_pb2
from tests.sdk.scripted import TIMEOUTS, Scripted, hold_on

NOWHERE = "unix:/nowhere/sandboxd.sock"


class Nothing(Scripted):
    """Answers every call with an error, and counts them."""

    def __init__(self) -> None:
        super().__init__({}, can_come_back=False)

    def _next(self, method: Any, request: Any, metadata: Any) -> Any:
        self.asked.append((method.name, request))
        return ConnectionLostError("nothing answers")


def objects(transport: Scripted) -> dict[type, Any]:
    """An instance of each class whose methods users call."""
    hold = hold_on(transport)
    commands = AsyncCommands(hold)
    client = AsyncSandboxClient(server_url=NOWHERE)
    client._connection = Connection(transport, TIMEOUTS)
    return {
        AsyncSandboxClient: client,
        AsyncSandbox: AsyncSandbox(hold),
        AsyncCommands: commands,
        AsyncCommandHandle: AsyncCommandHandle(hold, exec_pb2.Exec(exec_id="e1")),
        AsyncShell: AsyncShell(commands, "main"),
        AsyncPty: AsyncPty(hold),
        AsyncFiles: AsyncFiles(hold),
        AsyncProjects: client.projects,
    }


def parameters() -> Iterator[Any]:
    for kind in objects(Nothing()):
        for name, member in vars(kind).items():
            if name.startswith("_") or isinstance(member, property):
                continue
            function = getattr(member, "__wrapped__", member)
            for parameter in list(inspect.signature(function).parameters.values())[1:]:
                yield pytest.param(
                    kind, name, parameter, id=f"{kind.__name__}.{name}-{parameter.name}"
                )


PLAUSIBLE: dict[str, object] = {
    "number": 9,
    "rows": 1,
    "columns": 1,
    "data": b"",
    "labels": {},
    "files": {},
    "source": io.BytesIO(),
    "target": io.BytesIO(),
}
"""Values of required parameters; the others are texts."""


@pytest.mark.parametrize(("kind", "name", "parameter"), list(parameters()))
async def test_every_parameter_is_checked(
    kind: type, name: str, parameter: inspect.Parameter
) -> None:
    """Of every method, also of those that are added later; the message names it."""
    transport = Nothing()
    method = getattr(objects(transport)[kind], name)
    required = {
        one.name: PLAUSIBLE.get(one.name, "text")
        for one in inspect.signature(method).parameters.values()
        if one.default is inspect.Parameter.empty
    }

    with pytest.raises(ArgumentTypeError, match=rf"^{parameter.name}: must .*, not object$"):
        answer = method(**{**required, parameter.name: object()})
        if inspect.isawaitable(answer):
            await answer

    assert transport.asked == []


Call = Callable[[Any], Any]
WRONG: dict[str, tuple[Call, str]] = {
    "no command": (
        lambda box: box.commands.run(None),
        "command: must be text or a list of text, not None",
    ),
    "a word that is none": (
        lambda box: box.commands.run(["echo", 1]),
        "command: item 1 must be text, not int",
    ),
    "env": (
        lambda box: box.commands.run("true", env={"A": 1}),
        "env: the value of 'A' must be text, not int",
    ),
    "a key of env": (
        lambda box: box.commands.run("true", env={1: "A"}),
        "env: the key 1 must be text, not int",
    ),
    "timeout": (
        lambda box: box.commands.run("true", timeout="5"),
        "timeout: must be a number, not str",
    ),
    "endless": (
        lambda box: box.commands.run("true", timeout=float("inf")),
        "timeout: must be finite, but is inf",
    ),
    "callback": (
        lambda box: box.commands.run("true", on_stdout="print"),
        "on_stdout: must be a function, not str",
    ),
    "format": (
        lambda box: box.files.read("a", format="nonsense"),
        """format: must be "text" or "bytes" or "stream", not 'nonsense'""",
    ),
    "line": (
        lambda box: box.files.read_lines("a", first_line=-1),
        "first_line: must not be negative, but is -1",
    ),
    "surrogate": (
        lambda box: box.files.read("a\udcff"),
        "path: must be valid Unicode, without lone surrogates",
    ),
    "switch": (
        lambda box: box.files.list(recursive="no"),
        "recursive: must be True or False, not str",
    ),
    "label": (
        lambda box: box.update_metadata({"n": 1}),
        "labels: the value of 'n' must be text, not int",
    ),
    "two names": (
        lambda box: box.commands.run("true", env={"A": "1"}, envs={"B": "1"}),
        "env and envs: give one of them, they mean the same",
    ),
    "a time without a unit": (
        lambda box: box.set_timeout(300),
        "timeout: say which unit it has, as in set_timeout(minutes=5) or set_timeout(seconds=300)",
    ),
    "two units": (
        lambda box: box.set_timeout(minutes=5, seconds=300),
        "minutes and seconds: give one of them, they mean the same",
    ),
    "another sandbox": (
        lambda box: box.kill("ses_other"),
        "session_id: this sandbox has another id; call kill() on the class",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("is_sync", [False, True], ids=["async", "sync"])
async def test_message_says_what_is_wrong(name: str, is_sync: bool) -> None:
    """In both faces; to those who catch ValueError or TypeError as to others."""
    call, message = WRONG[name]
    transport = Nothing()
    sandbox: Any = AsyncSandbox(hold_on(transport))

    with pytest.raises(InvalidRequestError) as caught:
        if is_sync:
            call(Sandbox(sandbox))
        else:
            await call(sandbox)

    assert str(caught.value) == message
    assert isinstance(caught.value, ValueError)
    assert transport.asked == []


@pytest.mark.parametrize("kind", [AsyncSandbox, Sandbox])
def test_class_of_a_sandbox_says_how_to_get_one(kind: Callable[[], object]) -> None:
    """Not which argument of an internal constructor is missing."""
    with pytest.raises(InvalidRequestError, match=r"Sandbox\.create\(\)"):
        kind()


async def test_kill_on_the_class_needs_an_id() -> None:
    """Both faces say how it is meant."""
    with pytest.raises(InvalidRequestError, match=r"use kill\(session_id\)"):
        await AsyncSandbox.kill()
    with pytest.raises(InvalidRequestError, match=r"use kill\(session_id\)"):
        Sandbox.kill()


def test_constructor_of_a_client_is_checked() -> None:
    """Both faces have one that users call."""
    for kind in (AsyncSandboxClient, SandboxClient):
        with pytest.raises(ArgumentTypeError, match="timeouts: must be a Timeouts, not int"):
            kind(server_url=NOWHERE, timeouts=5)  # type: ignore[arg-type]
        with pytest.raises(ArgumentTypeError, match="mode: must be"):
            kind(mode="loca")  # type: ignore[arg-type]


def test_objects_describe_themselves() -> None:
    """In a debugger or a notebook: what it is and which one."""
    sandbox = AsyncSandbox(hold_on(Nothing()))
    sandbox.info.user_id, sandbox.info.thread_id = "ada", "42"
    command = AsyncCommandHandle(hold_on(Nothing()), exec_pb2.Exec(exec_id="e1"))
    client = SandboxClient(server_url=NOWHERE, token="sbx_secret")

    assert repr(sandbox) == "<AsyncSandbox ses_1 of ada/42, active>"
    assert repr(Sandbox(sandbox)) == "<Sandbox ses_1 of ada/42, active>"
    assert "e1" in repr(command)
    assert repr(client) == f"<SandboxClient of {NOWHERE}>"


def test_version_is_that_of_the_package() -> None:
    """And other names are still missing."""
    from sandboxd import __version__

    assert sandboxd_client.__version__ == __version__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = sandboxd_client.nothing


async def test_what_is_accepted_is_passed_on() -> None:
    """Numbers of other libraries, tuples, any mapping; and a wrong call fails as in Python."""

    @checked
    class Things:
        async def call(
            self, count: int, names: typing.Sequence[str] = (), **more: object
        ) -> object:
            return count, names, more

        @InstanceOrClass
        def where(self, name: str) -> str:
            return f"{name} of {'the class' if self is None else 'an instance'}"

    things = Things()
    assert await things.call(1, ("a", "b"), other=3) == (1, ("a", "b"), {"other": 3})
    assert await things.call(names=["a"], count=2) == (2, ["a"], {})
    assert Things.where("x") == "x of the class"
    assert things.where("x") == "x of an instance"
    with pytest.raises(ArgumentTypeError, match=r"^name: must be text"):
        Things.where(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        await things.call()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "data", [io.BytesIO(b"abcd"), memoryview(b"abcd"), bytearray(b"abcd"), array("H", b"abcd")]
)
async def test_content_of_a_file_may_be_any_bytes(data: Any) -> None:
    """Its size is that of its bytes."""
    transport = Nothing()
    given = memoryview(data) if isinstance(data, array) else data

    with pytest.raises(SandboxError, match="nothing answers"):
        await AsyncFiles(hold_on(transport)).write("a", given)

    ((_, (header, chunk)),) = transport.asked
    assert (header.header.size_bytes, chunk.chunk) == (4, b"abcd")
