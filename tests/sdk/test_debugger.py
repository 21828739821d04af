"""The debugger through the SDK on real sandboxes, the same on all faces."""

from __future__ import annotations

import pytest

from sandboxd_client import Breakpoint, DebuggerError
from tests.sdk.faces import Face

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROGRAM = """\
def double(n):
    result = 2 * n
    return result

total = 0
for n in (1, 2, 3):
    total += double(n)
    print('total', total)
"""


async def test_steps_tell_line_changes_and_output(face: Face, thread: str) -> None:
    """Exactly the output in between, and what is new or has changed."""
    async with await face.open("ada", thread) as sandbox:
        async with sandbox.code.step_through("x = 1\nprint('one')\nx = 2\ny = x") as steps:
            seen = [one async for one in steps]
        assert [one.line for one in seen] == [1, 2, 3, 4, 4]
        assert [one.reason for one in seen] == ["entry", "step", "step", "step", "return"]
        assert [one.source for one in seen][:2] == ["x = 1", "print('one')"]
        assert [one.stdout for one in seen] == ["", "", "one\n", "", ""]
        changes = [{v.name: v.value for v in one.changed} for one in seen]
        assert changes[1:] == [{"x": "1"}, {}, {"x": "2"}, {"y": "2"}]
        assert seen[3].changed[0].previous_value == "1"
        assert steps.result is not None
        assert steps.result.ok
        assert (await sandbox.code.run("y")).result == 2
        await sandbox.kill()


async def test_iteration_steps_into_functions(face: Face, thread: str) -> None:
    """From stop to stop, with depth and function, to the outcome."""
    async with await face.open("ada", thread) as sandbox:
        async with sandbox.code.debug(PROGRAM) as debugger:
            seen = [(one.line, one.function, one.depth) async for one in debugger]
        assert seen[0] == (1, "<module>", 1)
        assert (2, "double", 2) in seen
        assert debugger.result is not None
        assert debugger.result.stdout == "total 2\ntotal 6\ntotal 12\n"
        await sandbox.kill()


async def test_breakpoints_stack_variables_and_evaluate(face: Face, thread: str) -> None:
    """With a condition; values are looked into by handles; an expression sees its frame."""
    async with await face.open("ada", thread) as sandbox:
        stop = Breakpoint(3, condition="n == 2")
        async with sandbox.code.debug(PROGRAM, breakpoints=[stop]) as debugger:
            step = await debugger.continue_()
            assert step is not None
            assert (step.reason, step.line, step.function) == ("breakpoint", 3, "double")
            assert step.stdout == "total 2\n"
            frames = await debugger.stack()
            assert [frame.function for frame in frames] == ["double", "<module>"]
            assert (await debugger.variables())["result"].value == "4"
            assert (await debugger.variables(1))["total"].value == "2"
            assert (await debugger.evaluate("n * 100")).value == "200"
            assert (await debugger.evaluate("total", frame=1)).value == "2"
            failed = await debugger.evaluate("nothing")
            assert failed.error is not None
            assert failed.error.type == "NameError"

            returned = await debugger.step_out()
            assert returned is not None
            assert (returned.reason, returned.return_value) == ("return", "4")
            added = await debugger.set_breakpoint(8)
            assert [one.id for one in debugger.breakpoints] == [added.id]
            step = await debugger.continue_()
            assert step is not None
            assert step.line == 8
            await debugger.clear_breakpoint(added.id)
            assert await debugger.continue_() is None
        assert debugger.result is not None
        assert debugger.result.ok
        await sandbox.kill()


async def test_parts_of_values(face: Face, thread: str) -> None:
    """No method of the user's runs to show them."""
    code = (
        "class Thing:\n"
        "    def __init__(self): self.parts = [1, {'k': 'v'}]\n"
        "    def __repr__(self): raise SystemExit('never')\n"
        "thing = Thing()\n"
        "end = 1\n"
    )
    async with await face.open("ada", thread) as sandbox:
        async with sandbox.code.debug(code, breakpoints=[5]) as debugger:
            await debugger.continue_()
            found = (await debugger.variables())["thing"]
            assert found.type == "Thing"
            (parts,) = await debugger.variables(handle=found.handle)
            assert parts.name == "parts"
            items = await debugger.variables(handle=parts.handle)
            assert items[0].value == "1"
            await debugger.continue_()
        await sandbox.kill()


async def test_post_mortem(face: Face, thread: str) -> None:
    """An exception that nothing catches stops, and its frames can be examined."""
    code = "def f(x):\n    return 1 / x\nf(0)"
    async with await face.open("ada", thread) as sandbox:
        async with sandbox.code.debug(code, stop_at_entry=False) as debugger:
            step = await debugger.wait()
            assert step is not None
            assert (step.reason, step.line) == ("exception", 2)
            assert step.error is not None
            assert step.error.type == "ZeroDivisionError"
            assert (await debugger.evaluate("x")).value == "0"
            assert await debugger.continue_() is None
        assert debugger.result is not None
        assert debugger.result.status == "raised"
        await sandbox.kill()


async def test_pause_and_quit(face: Face, thread: str) -> None:
    """A loop at full speed stops, and ends; the context keeps its variables."""
    code = "n = 0\nwhile True:\n    n += 1\n"
    async with await face.open("ada", thread) as sandbox:
        await sandbox.code.run("kept = 7")
        async with sandbox.code.debug(code, stop_at_entry=False) as debugger:
            with pytest.raises(DebuggerError, match="pause it first"):
                await debugger.stack()
            step = await debugger.pause()
            assert step is not None
            assert step.reason == "pause"
            ended = await debugger.quit()
            assert ended.status == "interrupted"
        assert (await sandbox.code.run("kept")).result == 7
        await sandbox.kill()


async def test_leaving_the_block_leaves_nothing_running(face: Face, thread: str) -> None:
    """The context is free for the next run."""
    async with await face.open("ada", thread) as sandbox:
        async with sandbox.code.debug("x = 1\nwhile True: pass"):
            pass
        assert (await sandbox.code.run("1 + 1", timeout=20)).result == 2
        await sandbox.kill()


async def test_kept_run_is_attached_again(face: Face, thread: str) -> None:
    """It stays where it stopped."""
    async with await face.open("ada", thread) as sandbox:
        first = sandbox.code.debug("x = 1\nx = 2\nx = 3", keep=True)
        await first.start()
        await first.step_over()
        await first.aclose()
        async with sandbox.code.attach_debugger(first.exec_id) as again:
            assert again.step is not None
            assert again.step.line == 2
            step = await again.step_over()
            assert step is not None
            assert step.line == 3
            assert await again.continue_() is None
        assert (await sandbox.code.run("x")).result == 3
        await sandbox.kill()


async def test_async_code_and_generators(face: Face, thread: str) -> None:
    """Stepping over a yield or an await stays in its function."""
    code = (
        "import asyncio\n"
        "async def work():\n"
        "    await asyncio.sleep(0)\n"
        "    return 5\n"
        "value = await work()\n"
        "total = sum(n for n in (1, 2))\n"
    )
    async with await face.open("ada", thread) as sandbox:
        async with sandbox.code.debug(code, each="step_over") as debugger:
            lines = [one.line async for one in debugger]
        assert lines == [1, 2, 5, 6]
        assert (await sandbox.code.run("value + total")).result == 8
        await sandbox.kill()
