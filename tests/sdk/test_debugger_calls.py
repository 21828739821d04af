"""The debugger and the stream of steps in the SDK, on a daemon that is played."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sandboxd_client import AsyncSandbox, ConnectionLostError, DebuggerError
from sandboxd_client.methods.code import DEBUG_CODE, STEP_THROUGH
from sandboxd_proto.v1 import code_service_pb2 as pb
from tests.sdk.scripted import Scripted, batch, exited, stdout
from tests.sdk.scripted_code import Peer, event, ran, sandbox_on, step


async def test_steps_have_the_output_between_them() -> None:
    """By the positions that the steps report, not by the order in which bytes arrived."""
    sandbox, transport = sandbox_on(
        StepThrough=[
            [
                batch(event(0, step=step(1, 1))),
                batch(stdout(0, b"one\ntwo\n"), event(10, step=step(2, 2, written=4))),
                batch(event(20, step=step(3, 3, written=8)), exited()),
            ]
        ],
        GetCodeRun=[ran()],
    )
    async with sandbox.code.step_through("x", into_functions=True, max_steps=9) as steps:
        seen = [one async for one in steps]

    assert [(one.line, one.stdout) for one in seen] == [(1, ""), (2, "one\n"), (3, "two\n")]
    assert seen[0].changed[0].name == "x"
    assert steps.result is not None
    (asked,) = transport.requests(STEP_THROUGH)
    assert (asked.max_steps, asked.step_into_functions) == (9, True)
    assert not asked.run.HasField("timeout")


async def test_steps_without_an_end_are_an_error() -> None:
    """A cut stream is not taken for the end of the run."""
    sandbox, _ = sandbox_on(StepThrough=[[batch(event(0, step=step(1, 1)))]])
    with pytest.raises(ConnectionLostError):
        async for _ in sandbox.code.step_through("x"):
            pass


def debugged(peer: Peer) -> tuple[AsyncSandbox, Scripted]:
    return sandbox_on(DebugCode=[peer], GetCodeRun=[ran()])


async def test_iteration_goes_from_stop_to_stop() -> None:
    """Each has the output since the last one; the end has the outcome."""
    sandbox, transport = debugged(Peer(3))
    debugger = sandbox.code.debug("x", each="step_over")

    seen = [(one.line, one.stdout) async for one in debugger]

    assert seen == [(1, ""), (2, "line 1\n"), (3, "line 2\n")]
    assert debugger.result is not None
    assert debugger.step is None
    modes = [
        one.resume.mode
        for one in transport.requests(DEBUG_CODE)
        if one is not None and one.HasField("resume")
    ]
    assert modes == [pb.RESUME_MODE_STEP_OVER] * 3


async def test_commands_of_the_debugger() -> None:
    """Each is answered under its number."""
    texts: list[str] = []
    sandbox, transport = debugged(Peer(3))
    async with sandbox.code.debug(
        "x", breakpoints=[2], on_stdout=texts.append, stop_at_exceptions=False
    ) as debugger:
        assert debugger.step is not None
        assert (await debugger.set_breakpoint(4, condition="n")).line == 5
        assert [one.id for one in debugger.breakpoints] == [7]
        await debugger.clear_breakpoint(7)
        assert debugger.breakpoints == ()
        assert (await debugger.evaluate("x")).value == "42"
        with pytest.raises(DebuggerError, match="no such frame"):
            await debugger.evaluate("bad")
        assert [one.name for one in await debugger.variables()] == ["x"]
        assert (await debugger.stack())[0].function == "<module>"
        for move in (debugger.step_in, debugger.step_out):
            assert await move() is not None
        assert await debugger.continue_() is None
        assert await debugger.continue_() is None
        with pytest.raises(DebuggerError, match="has ended"):
            await debugger.evaluate("x")
    assert "".join(texts) == "line 1\nline 2\n"
    opening = transport.requests(DEBUG_CODE)[1].start
    assert opening.breakpoints[0].line == 2
    assert (opening.ignore_exceptions, opening.run_to_breakpoint) == (True, False)


async def test_running_code_is_paused_before_it_is_examined() -> None:
    """A question to running code is refused here, and a pause stops it."""
    sandbox, _ = debugged(Peer(3))
    async with sandbox.code.debug("x", stop_at_entry=False) as debugger:
        for question in (debugger.stack, debugger.step_in):
            with pytest.raises(DebuggerError, match="pause it first"):
                await question()
        paused = await debugger.pause()
        assert paused is not None
        assert (await debugger.quit()).ok


async def test_debugger_that_has_not_started() -> None:
    """Says how to use it."""
    sandbox, _ = debugged(Peer(3))
    with pytest.raises(DebuggerError, match="`with` block"):
        await sandbox.code.debug("x").step_in()


async def test_leaving_the_block_ends_the_call() -> None:
    """So that the daemon ends the run."""
    sandbox, transport = debugged(Peer(3))
    async with sandbox.code.debug("x"):
        assert transport.left == 0
    assert transport.left == 1


async def test_attached_debugger_is_where_the_run_is() -> None:
    """Old steps and old answers are history: the last stop counts, if the run is stopped."""
    sandbox, _ = debugged(Peer(5, history=3))
    async with sandbox.code.attach_debugger("e1") as debugger:
        assert debugger.step is not None
        assert debugger.step.line == 3
        following = await debugger.step_over()
        assert following is not None
        assert following.line == 4

    sandbox, _ = debugged(Peer(5, history=3, is_running=True))
    async with sandbox.code.attach_debugger("e1") as debugger:
        assert debugger.step is None
        with pytest.raises(DebuggerError, match="pause it first"):
            await debugger.stack()


async def test_lost_call_is_raised_where_one_waits() -> None:
    """Not swallowed in the background."""

    async def cut(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for _ in requests:
            yield batch(event(0, step=step(1, 1)))
            yield ConnectionLostError("cut")

    sandbox, _ = sandbox_on(DebugCode=[cut])
    async with sandbox.code.debug("x") as debugger:
        with pytest.raises(ConnectionLostError):
            await debugger.step_in()
            await debugger.step_in()
