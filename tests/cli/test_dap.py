"""The debug adapter, driven by a scripted editor, on a debugger that is played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandboxd.cli.dap_adapter import Adapter
from sandboxd.cli.dap_messages import Decoder, InvalidMessage, Message, encoded
from sandboxd_client import AsyncSandbox
from tests.cli.command_line import CommandLine
from tests.sdk.scripted_code import Peer, ran, sandbox_on

SECONDS = 30


class Played:
    """Stands for the daemon."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    @asynccontextmanager
    async def sandbox_or_new(self, session: str | None) -> AsyncIterator[AsyncSandbox]:
        yield self._sandbox


class Editor:
    """Sends requests and waits for events."""

    def __init__(self, peer: Peer) -> None:
        sandbox, _ = sandbox_on(DebugCode=[peer], GetCodeRun=[ran()])
        target: Any = Played(sandbox)
        self.events: list[Message] = []
        self._arrived = asyncio.Event()
        self.adapter = Adapter(target, None, self._take)
        self._looked_at = 0

    def _take(self, message: Message) -> None:
        self.events.append(message)
        self._arrived.set()

    async def ask(self, command: str, **arguments: Any) -> Message:
        request = {"seq": 9, "type": "request", "command": command, "arguments": arguments}
        answer = await self.adapter.answer(request)
        assert answer["request_seq"] == 9
        await self.adapter.after(request)
        return answer

    async def body(self, command: str, **arguments: Any) -> Any:
        answer = await self.ask(command, **arguments)
        assert answer["success"], answer
        return answer.get("body")

    async def event(self, name: str) -> Any:
        """The next event of a name, after the last one that was waited for."""
        async with asyncio.timeout(SECONDS):
            while True:
                for position in range(self._looked_at, len(self.events)):
                    if self.events[position]["event"] == name:
                        self._looked_at = position + 1
                        return self.events[position]["body"]
                self._arrived.clear()
                await self._arrived.wait()


@pytest.fixture
async def editor() -> AsyncIterator[Editor]:
    editor = Editor(Peer(4))
    yield editor
    await editor.adapter.aclose()


async def launched(editor: Editor, program: Path, **more: Any) -> None:
    await editor.body("initialize", adapterID="sandboxd")
    await editor.event("initialized")
    await editor.body("launch", program=str(program), **more)
    await editor.body("configurationDone")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text("a = 1\nb = 2\nc = 3\nd = 4\n")
    return path


async def test_a_whole_session(editor: Editor, program: Path) -> None:
    """From initialize to terminated, as an editor does it."""
    capabilities = await editor.body("initialize", adapterID="sandboxd")
    assert capabilities["supportsConfigurationDoneRequest"]
    await editor.event("initialized")
    await editor.body("launch", program=str(program), stopOnEntry=True)
    placed = await editor.body(
        "setBreakpoints", source={"path": str(program)}, breakpoints=[{"line": 2}]
    )
    assert placed["breakpoints"] == [{"id": 1, "verified": False}]
    await editor.body("setExceptionBreakpoints", filters=["uncaught"])
    await editor.body("configurationDone")

    changed = await editor.event("breakpoint")
    assert changed["breakpoint"] == {"id": 1, "verified": True, "line": 3}
    stopped = await editor.event("stopped")
    assert (stopped["reason"], stopped["threadId"]) == ("step", 1)

    threads = await editor.body("threads")
    assert threads["threads"] == [{"id": 1, "name": "main"}]
    frames = (await editor.body("stackTrace", threadId=1))["stackFrames"]
    assert frames[0]["source"]["path"] == str(program)
    scopes = (await editor.body("scopes", frameId=frames[0]["id"]))["scopes"]
    assert [scope["name"] for scope in scopes] == ["Locals", "Globals"]
    found = await editor.body("variables", variablesReference=scopes[0]["variablesReference"])
    assert [one["name"] for one in found["variables"]] == ["x"]
    assert (await editor.body("evaluate", expression="x", frameId=1))["result"] == "42"

    for command in ("next", "stepIn", "stepOut"):
        await editor.body(command, threadId=1)
        await editor.event("stopped")
    await editor.body("continue", threadId=1)
    assert (await editor.event("exited"))["exitCode"] == 0
    await editor.event("terminated")
    written = [one["body"]["output"] for one in editor.events if one["event"] == "output"]
    assert "".join(written) == "line 1\nline 2\nline 3\n"
    await editor.body("disconnect")
    assert editor.adapter.is_over


async def test_a_pause_before_the_first_line_stops_there(editor: Editor, program: Path) -> None:
    """A pause that comes while the run is being started is not lost."""
    assert "has not started" in (await editor.ask("pause", threadId=1))["message"]
    await launched(editor, program)
    await editor.body("pause", threadId=1)
    assert (await editor.event("stopped"))["reason"] == "pause"
    frames = (await editor.body("stackTrace", threadId=1))["stackFrames"]
    assert frames[0]["line"] == 1


async def test_without_stop_on_entry_it_continues(editor: Editor, program: Path) -> None:
    """To the first breakpoint, or to the end."""
    await launched(editor, program)
    stopped = await editor.event("stopped")
    assert stopped["reason"] == "step"
    assert [one["event"] for one in editor.events].count("stopped") == 1


async def test_values_are_known_until_the_code_moves(editor: Editor, program: Path) -> None:
    """A reference of an earlier stop is refused, not mixed up."""
    await launched(editor, program, stopOnEntry=True)
    await editor.event("stopped")
    scopes = (await editor.body("scopes", frameId=1))["scopes"]
    await editor.body("next", threadId=1)
    await editor.event("stopped")
    answer = await editor.ask("variables", variablesReference=scopes[0]["variablesReference"])
    assert not answer["success"]
    assert "moved on" in answer["message"]


async def test_disconnect_ends_the_run(editor: Editor, program: Path) -> None:
    """Nothing is left running behind an editor that was closed."""
    await launched(editor, program, stopOnEntry=True)
    await editor.event("stopped")
    await editor.body("disconnect")
    await editor.event("terminated")


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("fly", {}),
        ("stackTrace", {"threadId": 1}),
        ("variables", {"variablesReference": 1}),
        ("variables", {}),
        ("setBreakpoints", {}),
        ("launch", {}),
        ("launch", {"program": "/no/such/program.py"}),
        ("evaluate", {"expression": "x"}),
        ("next", {}),
        ("scopes", {"frameId": "one"}),
    ],
)
async def test_what_cannot_be_done_is_answered(
    editor: Editor, command: str, arguments: dict[str, Any]
) -> None:
    """With a message, and the adapter goes on."""
    answer = await editor.ask(command, **arguments)
    assert not answer["success"]
    assert answer["message"]
    assert await editor.body("threads")


async def test_other_files_have_no_breakpoints(editor: Editor, program: Path) -> None:
    """They are told as unverified, with the reason."""
    await editor.body("launch", program=str(program))
    placed = await editor.body(
        "setBreakpoints", source={"path": "/elsewhere.py"}, breakpoints=[{"line": 2}]
    )
    assert not placed["breakpoints"][0]["verified"]
    assert placed["breakpoints"][0]["message"]


def test_messages_arrive_in_pieces() -> None:
    """Byte by byte, and several at once."""
    messages: list[Message] = [{"seq": n, "text": "é" * n} for n in range(3)]
    stream = b"".join(map(encoded, messages))
    decoder = Decoder()
    assert [one for byte in stream for one in decoder.feed(bytes([byte]))] == messages
    assert Decoder().feed(stream) == messages


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 5000,
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 99999999\r\n\r\n",
        b"Content-Type: json\r\n\r\n{}",
        b"Content-Length: 2\r\n\r\n[]",
        b"Content-Length: 1\r\n\r\n{",
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    """Before they fill the memory."""
    with pytest.raises(InvalidMessage):
        Decoder().feed(data)


async def test_program_that_is_no_editor(sandboxd: CommandLine) -> None:
    """It is told in one line."""
    ran_ = await sandboxd("dap", stdin=b"hello\r\n\r\n")
    assert ran_.code == 2
    assert "Debug Adapter Protocol" in ran_.stderr
