"""Code through the SDK on real sandboxes, the same on all faces."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandboxd_client import (
    AsyncSandbox,
    CallTimeoutError,
    CodeFailedError,
    CodeLimits,
    CodeLog,
    CodeNote,
    ContextBusyError,
    ContextLostError,
    ContextNotFoundError,
    Display,
    ExecConflictError,
    InvalidRequestError,
    OutputChunk,
)
from tests.docker.daemon_process import DaemonProcess
from tests.sdk.faces import Face

pytestmark = pytest.mark.asyncio(loop_scope="session")

PNG = """
class Picture:
    def _repr_png_(self):
        return b'\\x89PNG picture'
    def _repr_html_(self):
        return '<img>'
    def __repr__(self):
        return 'a picture'
"""


async def test_variables_stay_and_results_are_data(face: Face, thread: str) -> None:
    """One run after the other in one context; another context knows nothing of it."""
    async with await face.open("ada", thread) as sandbox:
        first = await sandbox.code.run("import math\nx = 20\nprint('set', x)")
        assert (first.status, first.stdout, first.outcome) == ("ok", "set 20\n", "created")
        second = await sandbox.code.run("x * 2 + math.floor(2.5)")
        assert (second.result, second["result"], second.text) == (42, 42, "42")
        assert (second.outcome, second.context, second.generation) == ("kept", "main", 1)
        third = await sandbox.code.run("__result__ = {'x': [x, None]}\n'shown'")
        assert (third.result, third.text) == ({"x": [20, None]}, "'shown'")

        other = await sandbox.code.run("x", context="other")
        assert other.status == "raised"
        assert other.error is not None
        assert (other.error.type, other.error.frames[-1].line) == ("NameError", 1)
        assert "NameError" in other.error.traceback
        with pytest.raises(CodeFailedError, match="NameError"):
            await sandbox.code.run("nothing", check=True)
        await sandbox.kill()


async def test_what_json_cannot_say_is_told(face: Face, thread: str) -> None:
    """Converted, with its place in the value."""
    async with await face.open("ada", thread) as sandbox:
        run = await sandbox.code.run("{'a': float('nan'), 'b': {1}, 'c': (1, 2)}")
        assert run.result == {"a": None, "b": [1], "c": [1, 2]}
        assert "$.a" in [conversion.path for conversion in run.conversions]
        huge = await sandbox.code.run("'x' * (3 << 20)")
        assert huge.is_result_truncated
        assert huge.status == "ok"
        await sandbox.kill()


async def test_displays_logs_and_helpers(face: Face, thread: str) -> None:
    """Rich values in all their forms, log lines with levels, inspected variables."""
    async with await face.open("ada", thread) as sandbox:
        run = await sandbox.code.run(
            PNG + "display(Picture())\ndebug('begun', 'INFO')\ninspect_var('n', [1, 2])\nPicture()"
        )
        assert run.status == "ok", run
        (shown,) = run.displays
        assert shown.png == b"\x89PNG picture"
        assert run.value is not None
        assert (run.value.html, run.value.text) == ("<img>", "a picture")
        assert [(line.level, line.variable) for line in run.logs] == [("INFO", ""), ("DEBUG", "n")]
        assert run.logs[1].type == "list"
        execution = await sandbox.run_code("6 * 7")
        assert (execution.text, execution.error) == ("42", None)
        broken = await sandbox.run_code("print('hi')\n1 / 0")
        assert broken.error is not None
        assert (broken.error.name, broken.logs.stdout) == ("ZeroDivisionError", ["hi\n"])
        await sandbox.kill()


async def test_callbacks_get_output_as_it_is_written(face: Face, thread: str) -> None:
    """Also of children, before the run ends: the code waits for a file that a callback writes."""
    async with await face.open("ada", thread) as sandbox:
        texts: list[str] = []
        shown: list[tuple[str | None, bool]] = []
        logs: list[str] = []
        loop = asyncio.get_running_loop()
        seen = asyncio.Event()

        def on_stdout(text: str) -> None:
            texts.append(text)
            loop.call_soon_threadsafe(seen.set)

        code = (
            "import os, subprocess, time\n"
            "subprocess.run(['echo', 'child'])\n"
            "debug('waiting', 'INFO')\n"
            "while not os.path.exists('go'): time.sleep(0.01)\n"
            "print('done')\ndisplay('d')\n'v'"
        )
        running = asyncio.ensure_future(
            sandbox.code.run(
                code,
                on_stdout=on_stdout,
                on_display=lambda one: shown.append((one.text, one.is_value)),
                on_log=lambda line: logs.append(line.message),
            )
        )
        async with asyncio.timeout(30):
            await seen.wait()
        assert texts[0].startswith("child")
        assert not running.done()
        await sandbox.files.write("go", "")
        run = await running
        assert "".join(texts) == run.stdout == "child\ndone\n"
        assert shown == [("'d'", False), ("'v'", True)]
        assert logs == ["waiting"]
        await sandbox.kill()


async def test_runs_are_execs(face: Face, thread: str) -> None:
    """Started once for an id, attached to by another client, listed with their context."""
    async with await face.open("ada", thread) as sandbox:
        code = "counter = globals().get('counter', 0) + 1\nprint('ran')\ncounter"
        first = await sandbox.code.run(code, exec_id="same")
        again = await sandbox.code.run(code, exec_id="same")
        assert (first.result, again.result) == (1, 1)
        with pytest.raises(ExecConflictError):
            await sandbox.code.run("other", exec_id="same")
        assert (await sandbox.code.run("counter")).result == 1

        started = await sandbox.code.start("import time\ntime.sleep(0.2)\n'slept'")
        attached = await sandbox.code.attach(started.exec_id)
        assert (await attached.wait(timeout=30)).result == "slept"
        assert (await started.wait(timeout=30)).result == "slept"
        assert started.context == "main"
        assert any(one.exec_id == started.exec_id for one in await sandbox.commands.list())
        await sandbox.kill()


async def test_stream_of_a_run(face: Face, thread: str) -> None:
    """Everything that it reports, in order, and its outcome at the end."""
    async with await face.open("ada", thread) as sandbox:
        stream = await sandbox.code.stream("print('one')\ndebug('two')\ndisplay(3)\n4")
        async with stream as events:
            seen = [one async for one in events if not isinstance(one, CodeNote)]
        kinds = [type(one) for one in seen]
        assert kinds == [OutputChunk, CodeLog, Display, Display]
        assert [one.is_value for one in seen[2:]] == [False, True]
        assert events.result is not None
        assert events.result.result == 4
        await sandbox.kill()


async def test_time_out_and_interrupt_keep_the_variables(face: Face, thread: str) -> None:
    """The code is interrupted first; only what does not stop loses its context."""
    async with await face.open("ada", thread) as sandbox:
        await sandbox.code.run("x = 1")
        late = await sandbox.code.run("while True: pass", timeout=0.3)
        assert (late.status, late.is_state_kept) == ("timed_out", True)
        started = await sandbox.code.start("while True: pass")
        with pytest.raises(CallTimeoutError):
            await started.wait(timeout=0.1)
        async with asyncio.timeout(30):
            while not await sandbox.code.interrupt():
                await asyncio.sleep(0.02)
        assert (await started.wait(timeout=30)).status == "interrupted"
        assert not await sandbox.code.interrupt()
        assert (await sandbox.code.run("x")).result == 1
        await sandbox.kill()


async def test_lost_context_is_told(face: Face, thread: str) -> None:
    """With how it ended; the next run says that it began anew, or is refused if that matters."""
    async with await face.open("ada", thread) as sandbox:
        await sandbox.code.run("x = 1")
        lost = await sandbox.code.run("import os\nos._exit(3)")
        assert (lost.status, lost.is_state_kept) == ("context_lost", False)
        with pytest.raises(ContextLostError):
            await sandbox.code.run("x", generation=1)
        anew = await sandbox.code.run("'x' in globals()")
        assert (anew.result, anew.outcome, anew.generation) == (False, "recreated", 2)
        await sandbox.kill()


async def test_contexts(face: Face, thread: str) -> None:
    """Created with settings, listed, examined without running code, restarted, deleted."""
    async with await face.open("ada", thread) as sandbox:
        await sandbox.files.make_dir("outputs/sub")
        context = await sandbox.code.create_context(
            "work", env={"GREETING": "hello"}, cwd="outputs/sub", limits=CodeLimits(open_files=50)
        )
        run = await sandbox.code.run(
            "import os\nbig = list(range(1000))\n(os.environ['GREETING'], os.getcwd())",
            context=context,
        )
        assert run.result[0] == "hello"
        assert run.result[1].endswith("/outputs/sub")
        names = [one.name for one in await sandbox.code.contexts()]
        assert "work" in names
        state = await sandbox.code.state("work")
        assert (state["big"].type, state["big"].length) == ("list", 1000)
        assert (await sandbox.code.restart("work")).state == "lost"
        anew = await sandbox.code.run("'big' in globals()", context="work")
        assert (anew.result, anew.generation, anew.outcome) == (False, 2, "recreated")
        await sandbox.code.delete_context("work")
        with pytest.raises(ContextNotFoundError):
            await sandbox.code.state("work")

        started = await sandbox.code.start("import time\ntime.sleep(60)")
        with pytest.raises(ContextBusyError):
            await sandbox.code.state()
        await started.interrupt()
        await started.wait(timeout=30)
        await sandbox.kill()


async def test_policy_and_help(face: Face, thread: str) -> None:
    """A check without a run, a refusal that names the line, and what code may use."""
    async with await face.open("ada", thread) as sandbox:
        strict = await sandbox.code.create_context("strict", policy="strict")
        found = await sandbox.code.check("import math\nimport subprocess\n", context=strict)
        assert not found.allowed
        assert (found.violations[0].line, found.violations[0].name) == (2, "subprocess")
        assert (await sandbox.code.check("import json", context=strict)).allowed
        refused = await sandbox.code.run("print('ran')\nimport subprocess", context=strict)
        assert (refused.status, refused.stdout) == ("refused", "")
        help_ = await sandbox.code.functions(strict)
        assert {"debug", "inspect_var", "get_debug_info"} <= {f.name for f in help_.functions}
        assert "json" in help_.allowed_modules
        assert help_.limits.memory_bytes == 256 << 20
        await sandbox.kill()


async def test_quick_execute(face: Face, thread: str) -> None:
    """One call; no session is left."""
    async with face.client() as client:
        run = await client.quick_execute("print('hi')\n6 * 7", user_id=f"quick-{face.name}")
        assert (run.result, run.stdout, run.status) == (42, "hi\n", "ok")
        assert not await client.list_sessions(user_id=f"quick-{face.name}", state="active")
        await client.get_or_create_session("ada", thread)
        await client.execute_code("x = 5")
        assert (await client.execute_code("x + 1"))["result"] == 6


async def test_wrong_use_is_refused(face: Face, thread: str) -> None:
    """With an error that says what to do."""
    async with await face.open("ada", thread) as sandbox:
        with pytest.raises(InvalidRequestError):
            await sandbox.code.run("x" * (600 << 10))
        with pytest.raises(InvalidRequestError):
            await sandbox.code.run("x", context="no/such name")
        with pytest.raises(ContextNotFoundError):
            await sandbox.code.delete_context("never")
        wrong = await sandbox.code.run("def f(:\n    pass")
        assert wrong.status == "raised"
        assert wrong.error is not None
        assert wrong.error.type == "SyntaxError"
        await sandbox.kill()


async def test_twenty_conversations_at_once(sdk_daemon: DaemonProcess, thread: str) -> None:
    """Each with its own variables, in its own sandbox, however they interleave."""
    url = f"unix:{sdk_daemon.socket}"
    sandboxes = [
        # One after the other: this is about runs at once, not about starts.
        await AsyncSandbox.open(f"user-{number}", thread[-100:], server_url=url)
        for number in range(20)
    ]

    async def conversation(number: int, sandbox: AsyncSandbox) -> Any:
        await sandbox.code.run(f"mine = {number}\ntotal = 0", check=True)
        for turn in range(3):
            run = await sandbox.code.run(f"total += mine * {turn}\n(mine, total)", check=True)
        await sandbox.kill()
        await sandbox.aclose()
        return run.result

    results = await asyncio.gather(*(conversation(*one) for one in enumerate(sandboxes)))
    assert results == [[number, number * 3] for number in range(20)]
