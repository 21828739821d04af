"""`sandboxd code` and `sandboxd dap` on real sandboxes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandboxd.cli.dap_messages import Decoder, Message, encoded
from tests.cli.command_line import CommandLine
from tests.docker.daemon_process import DaemonProcess
from tests.docker.screen import on_screen

SECONDS = 60
PROGRAM = """\
def double(n):
    result = 2 * n
    return result

total = 0
for n in (1, 2):
    total += double(n)
    print('total', total)
"""


@pytest.fixture
async def sandboxd(shared_daemon: DaemonProcess) -> CommandLine:
    return CommandLine(shared_daemon.socket)


@pytest.fixture
async def session(sandboxd: CommandLine, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    opened = await sandboxd("session", "open", "cli", request.node.name)
    yield opened.stdout.strip()
    await sandboxd("session", "close", opened.stdout.strip())


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


async def test_code_of_a_file_a_word_and_a_pipe(sandboxd: CommandLine, program: str) -> None:
    """In a sandbox for this call only: output first, then the value."""
    ran = await sandboxd("code", "run", program)
    assert (ran.code, ran.stdout) == (0, "total 2\ntotal 6\n")
    ran = await sandboxd("code", "run", "-c", "print('hi')\n6 * 7")
    assert (ran.code, ran.stdout) == (0, "hi\n42\n")
    ran = await sandboxd("code", "run", "-", stdin=b"sum(range(5))")
    assert ran.stdout == "10\n"
    for words in ((), ("-c", "1", program), ("no-such-file.py",)):
        ran = await sandboxd("code", "run", *words)
        assert (ran.code, ran.stdout) == (2, "")


async def test_ends_and_their_exit_codes(sandboxd: CommandLine, session: str) -> None:
    """As shells know them, with the traceback on standard error."""
    raised = await sandboxd("code", "run", "-s", session, "-c", "1 / 0")
    assert raised.code == 1
    assert "ZeroDivisionError" in raised.stderr
    late = await sandboxd(
        *("code", "run", "-s", session, "--timeout", "0.3", "-c", "while True: pass")
    )
    assert late.code == 124
    lost = await sandboxd("code", "run", "-s", session, "-c", "import os; os._exit(3)")
    assert lost.code == 125
    left = await sandboxd("code", "run", "-s", session, "-c", "import sys; sys.exit(3)")
    assert left.code == 3


async def test_pictures_are_saved(sandboxd: CommandLine, session: str, tmp_path: Path) -> None:
    """As files in the directory that was asked for."""
    code = "class P:\n    def _repr_png_(self): return b'\\x89PNG'\ndisplay(P())"
    ran = await sandboxd("code", "run", "-s", session, "--save", str(tmp_path / "out"), "-c", code)
    assert ran.code == 0
    assert (tmp_path / "out" / "figure-1.png").read_bytes() == b"\x89PNG"


async def test_document_for_programs(sandboxd: CommandLine, session: str) -> None:
    """Everything about the run."""
    ran = await sandboxd("code", "run", "--json", "-s", session, "-c", "{'a': 1}")
    document = ran.document
    assert (document["status"], document["result"]) == ("ok", {"a": 1})
    assert document["value"]["text/plain"] == "{'a': 1}"


async def test_contexts(sandboxd: CommandLine, session: str) -> None:
    """Listed with their variables, interrupted, restarted and deleted."""
    await sandboxd("code", "run", "-s", session, "--context", "work", "-c", "x = [1, 2]")
    (found,) = (await sandboxd("code", "contexts", "--json", session)).document
    assert (found["name"], found["state"], found["runs"]) == ("work", "idle", 1)
    assert "work" in (await sandboxd("code", "contexts", session)).stdout
    state = await sandboxd("code", "state", session, "work")
    assert "x" in state.stdout
    assert "list" in state.stdout
    idle = await sandboxd("code", "interrupt", session, "work")
    assert idle.stdout == "the context was idle\n"
    (restarted,) = (await sandboxd("code", "restart", "--json", session, "work")).document
    assert restarted["state"] == "lost"
    assert (await sandboxd("code", "delete", session, "work")).code == 0
    assert (await sandboxd("code", "state", session, "work")).code == 3


async def test_check_and_functions(sandboxd: CommandLine, session: str) -> None:
    """What code may do, without running any."""
    assert (await sandboxd("code", "check", "-s", session, "-c", "import json")).code == 0
    found = await sandboxd("code", "functions", session)
    assert "inspect_var" in found.stdout
    assert "limits:" in found.stdout


async def test_debugging_with_typed_commands(
    sandboxd: CommandLine, session: str, program: str
) -> None:
    """Each answers with where the code is, what changed, and what it wrote."""
    typed = b"b 3 if n == 2\nc\np n * 100\nw\nv\nnonsense\no\nc\n"
    ran = await sandboxd("code", "debug", "-s", session, program, stdin=typed)
    assert ran.code == 0, ran
    shown = ran.stdout
    assert "-- 1: line 1 in <module> (entry)" in shown
    assert "breakpoint 1 at line 3" in shown
    assert "line 3 in double (breakpoint)" in shown
    assert " >    3      return result" in shown
    assert "result = 4" in shown
    assert "\n200\n" in shown
    assert "1: line 7 in <module>" in shown
    assert "is not a command" in shown
    assert "returns 4" in shown
    assert "total 6" in shown
    assert shown.endswith("the code has ended\n")


async def test_quit_and_the_end_of_input_end_the_run(
    sandboxd: CommandLine, session: str, program: str
) -> None:
    """The context is free afterwards."""
    for typed in (b"n\nq\n", b"n\n"):
        ran = await sandboxd("code", "debug", "-s", session, program, stdin=typed)
        assert ran.code == 130
    ran = await sandboxd("code", "run", "-s", session, "-c", "1 + 1")
    assert ran.stdout == "2\n"


async def test_debugging_in_a_terminal(sandboxd: CommandLine, session: str) -> None:
    """With a prompt; Ctrl-C pauses code that runs."""
    command = [sys.executable, "-m", "sandboxd", "code", "debug", "-s", session]
    code = "n = 0\nprint('it', 'runs')\nwhile True:\n    n += 1\n"
    async with on_screen([*command, "-c", code], sandboxd.environment) as screen:
        await screen.shows("(debug) ")
        screen.type("c\n")
        await screen.shows("it runs")
        screen.type("\x03")
        await screen.shows("(pause)")
        screen.type("p n >= 0\n")
        await screen.shows("True")
        screen.type("q\n")
        assert await screen.ends() == 130


class Editor:
    """The other side of `sandboxd dap`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._decoder = Decoder()
        self._arrived: list[Message] = []
        self._number = 0

    async def ask(self, command: str, **arguments: Any) -> Any:
        self._number += 1
        assert self._process.stdin is not None
        request = {"seq": self._number, "type": "request", "command": command}
        self._process.stdin.write(encoded({**request, "arguments": arguments}))
        answer = await self._next(
            lambda one: one["type"] == "response" and one["request_seq"] == self._number
        )
        assert answer["success"], answer
        return answer.get("body")

    async def event(self, name: str) -> Any:
        found = await self._next(lambda one: one["type"] == "event" and one["event"] == name)
        return found["body"]

    async def _next(self, is_wanted: Any) -> Message:
        async with asyncio.timeout(SECONDS):
            while True:
                for message in self._arrived:
                    if is_wanted(message):
                        self._arrived.remove(message)
                        return message
                assert self._process.stdout is not None
                data = await self._process.stdout.read(65536)
                assert data, "the adapter ended"
                self._arrived += self._decoder.feed(data)


async def test_an_editor_debugs_a_program(
    sandboxd: CommandLine, session: str, program: str
) -> None:
    """From initialize to terminated over standard input and output."""
    async with sandboxd.started("dap", "-s", session) as process:
        editor = Editor(process)
        await editor.ask("initialize", adapterID="sandboxd")
        await editor.event("initialized")
        await editor.ask("launch", program=program)
        await editor.ask(
            "setBreakpoints",
            source={"path": program},
            breakpoints=[{"line": 3, "condition": "n == 2"}],
        )
        await editor.ask("setExceptionBreakpoints", filters=["uncaught"])
        await editor.ask("configurationDone")
        placed = await editor.event("breakpoint")
        assert placed["breakpoint"]["verified"]
        stopped = await editor.event("stopped")
        assert stopped["reason"] == "breakpoint"

        assert (await editor.ask("threads"))["threads"][0]["name"] == "main"
        frames = (await editor.ask("stackTrace", threadId=1))["stackFrames"]
        assert [(one["name"], one["line"]) for one in frames] == [("double", 3), ("<module>", 7)]
        assert frames[0]["source"]["path"] == program
        scopes = (await editor.ask("scopes", frameId=frames[0]["id"]))["scopes"]
        local = await editor.ask("variables", variablesReference=scopes[0]["variablesReference"])
        values = {one["name"]: one["value"] for one in local["variables"]}
        assert values == {"n": "2", "result": "4"}
        found = await editor.ask("evaluate", expression="total", frameId=frames[1]["id"])
        assert found["result"] == "2"

        await editor.ask("stepOut", threadId=1)
        await editor.event("stopped")
        await editor.ask("next", threadId=1)
        await editor.event("stopped")
        await editor.ask("continue", threadId=1)
        assert (await editor.event("exited"))["exitCode"] == 0
        await editor.event("terminated")
        await editor.ask("disconnect")
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0


async def test_an_editor_pauses_and_leaves(sandboxd: CommandLine, session: str) -> None:
    """A loop stops where it is; without an editor nothing runs on."""
    async with sandboxd.started("dap", "-s", session) as process:
        editor = Editor(process)
        await editor.ask("initialize", adapterID="sandboxd")
        await editor.ask("launch", code="n = 0\nwhile True:\n    n += 1\n")
        await editor.ask("configurationDone")
        async with asyncio.timeout(SECONDS):
            while True:
                shown = await sandboxd("code", "contexts", "--json", session)
                if [one["state"] for one in json.loads(shown.stdout)] == ["busy"]:
                    break
        await editor.ask("pause", threadId=1)
        assert (await editor.event("stopped"))["reason"] == "pause"
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(SECONDS):
            await process.wait()
    ran = await sandboxd("code", "run", "-s", session, "-c", "1 + 1")
    assert ran.stdout == "2\n"
