"""Promises of the debugger, over a stand-in for PID 1."""

from __future__ import annotations

import itertools
import signal
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sandboxd.code.events import (
    Accepted,
    Breakpoint,
    Failure,
    Note,
    Stack,
    Step,
    Variable,
    Variables,
)
from sandboxd.guest.code.protocol import Statuses
from sandboxd.guest.code.records import Reasons
from tests.code.pythons import PYTHONS
from tests.code.rig import ContextRig, Run, Zygote
from tests.code.seed_programs import SEED_PROGRAMS

FUNCTION = textwrap.dedent(
    """\
    def double(n):
        m = n * 2
        return m

    a = double(1)
    b = double(a)
    print(a, b)
    """
)


@pytest.fixture(scope="module", params=PYTHONS, ids=[name for name, _ in PYTHONS])
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    made = Zygote(request.param[1])
    yield made
    made.close()


def stopped(context: ContextRig, code: str, **options: Any) -> tuple[Run, Step]:
    """A run that has stopped for the first time."""
    run = context.start(textwrap.dedent(code), mode="debug", **options)
    return run, run.next(Step)


def at(context: ContextRig, code: str, line: int, **options: Any) -> tuple[Run, Step]:
    """A run that has stopped at a line."""
    options["breakpoints"] = [{"line": line}]
    return stopped(context, code, run_to_breakpoint=True, **options)


def changes(step: Step) -> dict[str, str]:
    return {one.name: one.value for one in step.changed}


def value(run: Run, expression: str, frame: int = 0) -> str:
    answer = run.command("evaluate", expression=expression, frame=frame)
    assert isinstance(answer.body, Variable), answer
    return answer.body.value


def failure(run: Run, do: str, **arguments: Any) -> str:
    answer = run.command(do, **arguments)
    assert isinstance(answer.body, Failure), answer
    return answer.body.reason


def variables(run: Run, **arguments: Any) -> dict[str, Variable]:
    answer = run.command("variables", **arguments)
    assert isinstance(answer.body, Variables), answer
    return {one.name: one for one in answer.body.variables}


# --- steps ---


def test_a_run_stops_before_its_first_line(context: ContextRig) -> None:
    """The first stop is the entry: line 1, its source, nothing executed."""
    run, step = stopped(context, "x = 1\ny = 2")
    assert (step.reason, step.number, step.line, step.source) == (Reasons.ENTRY, 1, 1, "x = 1")
    assert (step.file, step.function, step.depth) == ("<run 1>", "<module>", 1)
    assert run.go_on().status == Statuses.OK


def test_a_step_reports_what_changed(context: ContextRig) -> None:
    """A step has new and changed variables with their value before, and no others."""
    run, _ = stopped(context, "x = 1\ny = 'a'\nx = 2\npass")
    assert changes(run.step("step_over")) == {"x": "1"}
    assert changes(run.step("step_over")) == {"y": "'a'"}
    step = run.step("step_over")
    assert [(one.name, one.value, one.previous_value) for one in step.changed] == [("x", "2", "1")]
    run.go_on()


def test_a_step_reports_what_is_gone(context: ContextRig) -> None:
    """A deleted variable is reported as removed."""
    run, _ = stopped(context, "x = 1\ndel x\npass")
    run.step("step_over")
    step = run.step("step_over")
    assert (step.removed, step.changed) == (["x"], [])
    run.go_on()


def test_a_change_inside_a_container_is_a_change(context: ContextRig) -> None:
    """A list that grew is reported with both values."""
    run, _ = stopped(context, "x = [1]\nx.append(2)\npass")
    run.step("step_over")
    step = run.step("step_over")
    assert [(one.value, one.previous_value) for one in step.changed] == [("[1, 2]", "[1]")]
    run.go_on()


def test_variables_of_earlier_runs_are_in_the_first_step(context: ContextRig) -> None:
    """The first step in a frame has all of its variables."""
    context.run("old = 1")
    run, step = stopped(context, "new = 2")
    assert changes(step)["old"] == "1"
    run.go_on()


def test_step_over_a_call_stays_in_the_caller(context: ContextRig) -> None:
    """Step over executes a called function without stopping in it."""
    run, step = stopped(context, FUNCTION)
    lines = [step.line]
    for _ in range(3):
        lines.append(run.step("step_over").line)
    assert lines == [1, 5, 6, 7]
    run.go_on()


def test_step_in_enters_a_call(context: ContextRig) -> None:
    """Step in stops on the first line of the called function, one deeper, with its arguments."""
    run, _ = stopped(context, FUNCTION)
    run.step("step_in")
    step = run.step("step_in")
    assert (step.line, step.function, step.depth) == (2, "double", 2)
    assert changes(step) == {"n": "1"}
    run.go_on()


def test_step_over_the_end_of_a_function_ends_in_its_caller(context: ContextRig) -> None:
    """After the last line of a function the next stop is in its caller."""
    run, step = at(context, FUNCTION, 3)
    assert step.function == "double"
    step = run.step("step_over")
    assert (step.line, step.function) == (6, "<module>")
    assert changes(step)["a"] == "2"
    run.command("clear_breakpoint", id=1)
    run.go_on()


def test_step_out_stops_at_the_return(context: ContextRig) -> None:
    """Step out goes to the end of the function and reports the returned value."""
    run, _ = at(context, FUNCTION, 2)
    step = run.step("step_out")
    assert (step.reason, step.line, step.function) == (Reasons.RETURN, 3, "double")
    assert step.return_value == "2"
    run.command("clear_breakpoint", id=1)
    assert run.step("step_over").line == 6
    run.go_on()


def test_step_out_of_recursion_leaves_one_level(context: ContextRig) -> None:
    """In recursion step out returns from the innermost call only."""
    code = """\
    def f(n):
        if n == 0:
            return 0
        return f(n - 1) + 1
    f(3)
    """
    run, step = at(context, code, 3)
    assert step.depth == 5
    assert run.step("step_out").return_value == "0"
    step = run.step("step_out")
    assert (step.return_value, step.depth) == ("1", 4)
    run.go_on()


def test_step_over_in_recursion_stays_in_its_level(context: ContextRig) -> None:
    """Lines of deeper calls of the same function are not stops of a step over."""
    code = """\
    def f(n):
        if n:
            f(n - 1)
        x = n
        return x
    f(3)
    """
    run, step = stopped(context, code)
    while step.line != 3:
        step = run.step("step_in")
    step = run.step("step_over")
    assert (step.line, step.depth) == (4, 2)
    assert value(run, "n") == "3"
    run.go_on()


def test_step_over_an_exception_goes_to_its_handler(context: ContextRig) -> None:
    """An exception of a called function continues in the caller's handler."""
    code = """\
    def f():
        raise ValueError('x')
    try:
        f()
    except ValueError as e:
        y = 1
    """
    run, _step = at(context, code, 4)
    assert run.step("step_over").line == 5
    assert run.step("step_over").line == 6
    assert run.go_on().status == Statuses.OK


def test_step_out_by_an_exception_stops_in_the_caller(context: ContextRig) -> None:
    """A function that raises has no value to return; step out still ends where it is left."""
    code = """\
    def f():
        x = 1
        raise ValueError('x')
    try:
        f()
    except ValueError:
        y = 1
    """
    run, _ = at(context, code, 2)
    step = run.step("step_out")
    assert step.line in (3, 6)
    assert run.go_on().status == Statuses.OK


def test_the_last_expression_is_a_step(context: ContextRig) -> None:
    """The line of the last expression stops like any other, and its value is reported."""
    run, _ = stopped(context, "x = 1\nx + 1")
    assert run.step("step_over").line == 2
    outcome = run.go_on()
    assert outcome.value == "2"


def test_libraries_are_stepped_over(context: ContextRig) -> None:
    """Step in does not stop in the standard library."""
    run, _ = stopped(context, "import textwrap\nx = textwrap.dedent(' a')\ny = 1")
    assert run.step("step_in").line == 2
    assert run.step("step_in").line == 3
    run.go_on()


def test_step_in_reaches_a_callback_of_a_library(context: ContextRig) -> None:
    """A function of the user that a library calls is stepped into."""
    code = """\
    def key(x):
        return -x
    y = sorted([1, 2], key=key)
    """
    run, _ = at(context, code, 3)
    assert run.step("step_in").function == "key"
    run.go_on()


def test_comprehensions_do_not_lose_the_step(context: ContextRig) -> None:
    """A step over a comprehension goes to the next line."""
    run, _ = stopped(context, "x = [i * 2 for i in range(3)]\ny = sum(n for n in x)\nz = 1")
    assert run.step("step_over").line == 2
    assert run.step("step_over").line == 3
    run.go_on()


def test_a_loop_stops_at_each_turn(context: ContextRig) -> None:
    """Steps follow a loop turn by turn."""
    run, step = stopped(context, "for i in range(2):\n    x = i\ny = 1")
    lines = [step.line]
    while step.line != 3:
        step = run.step("step_over")
        lines.append(step.line)
    assert lines == [1, 2, 1, 2, 1, 3]
    run.go_on()


# --- breakpoints ---


def test_a_breakpoint_stops(context: ContextRig) -> None:
    """Continue goes to the breakpoint; the stop has its id."""
    run, _ = stopped(context, "x = 1\ny = 2\nz = 3")
    answer = run.command("set_breakpoint", line=3)
    assert answer.body == Breakpoint(1, "<run 1>", 3, "", "")
    step = run.step("continue")
    assert (step.reason, step.line, step.breakpoint_id) == (Reasons.BREAKPOINT, 3, 1)
    run.go_on()


def test_a_breakpoint_moves_to_a_line_with_code(context: ContextRig) -> None:
    """On an empty line or a comment it is set on the next line with code; the answer says so."""
    run, _ = stopped(context, "x = 1\n\n# nothing\ny = 2")
    body = run.command("set_breakpoint", line=2).body
    assert isinstance(body, Breakpoint)
    assert body.line == 4
    assert run.step("continue").line == 4
    run.go_on()


def test_a_breakpoint_behind_the_end_is_refused(context: ContextRig) -> None:
    """There is no code there, and the answer says so."""
    run, _ = stopped(context, "x = 1")
    assert "no code on line 9" in failure(run, "set_breakpoint", line=9)
    assert "line from 1" in failure(run, "set_breakpoint", line=0)
    run.go_on()


def test_a_removed_breakpoint_does_not_stop(context: ContextRig) -> None:
    """After clear_breakpoint the run passes the line; clearing it twice is a failure."""
    run, _ = stopped(context, "x = 1\ny = 2\nz = 3")
    run.command("set_breakpoint", line=2)
    assert isinstance(run.command("clear_breakpoint", id=1).body, Accepted)
    assert "no breakpoint 1" in failure(run, "clear_breakpoint", id=1)
    assert run.go_on().status == Statuses.OK


def test_a_condition_decides(context: ContextRig) -> None:
    """A conditional breakpoint stops where its expression is true, and nowhere else."""
    code = "for i in range(10):\n    x = i"
    run, _step = stopped(
        context, code, run_to_breakpoint=True, breakpoints=[{"line": 2, "condition": "i == 7"}]
    )
    assert value(run, "i") == "7"
    assert run.go_on().status == Statuses.OK


def test_a_condition_that_raises_stops_and_says_so(context: ContextRig) -> None:
    """A condition that cannot be evaluated is reported in a note, and the run stops."""
    run, _step = stopped(
        context, "x = 1", run_to_breakpoint=True, breakpoints=[{"line": 1, "condition": "nothing"}]
    )
    assert "NameError" in run.next(Note).text
    run.go_on()


def test_a_condition_that_never_ends_is_capped(context: ContextRig) -> None:
    """A condition may take half a second."""
    context.run("def slow():\n    while True: pass")
    run, _step = stopped(
        context, "x = 1", run_to_breakpoint=True, breakpoints=[{"line": 1, "condition": "slow()"}]
    )
    assert "TimeLimit" in run.next(Note).text
    run.go_on()


def test_a_condition_that_is_no_expression_is_refused(context: ContextRig) -> None:
    """The answer says that the condition is not an expression."""
    run, _ = stopped(context, "x = 1")
    assert "not an expression" in failure(run, "set_breakpoint", line=1, condition="x = 1")
    assert "not Python" in failure(run, "set_breakpoint", line=1, condition="x +")
    run.go_on()


def test_a_function_breakpoint_stops_in_each_call(context: ContextRig) -> None:
    """A breakpoint by name stops on the first line of the function, for every call."""
    run, step = stopped(
        context, FUNCTION, run_to_breakpoint=True, breakpoints=[{"function": "double"}]
    )
    assert (step.line, step.function, step.reason) == (2, "double", Reasons.BREAKPOINT)
    step = run.step("continue")
    assert (step.line, changes(step)["n"]) == (2, "2")
    assert run.go_on().status == Statuses.OK


def test_a_breakpoint_in_a_function_of_an_earlier_run(context: ContextRig) -> None:
    """Functions of earlier runs can be stopped in, by their file."""
    context.run("def f():\n    x = 1\n    return x")
    run, step = stopped(
        context, "f()", run_to_breakpoint=True, breakpoints=[{"file": "<run 1>", "line": 3}]
    )
    assert (step.file, step.line, step.source) == ("<run 1>", 3, "return x")
    run.go_on()


def test_a_breakpoint_in_a_loop_stops_each_time(context: ContextRig) -> None:
    """The same breakpoint stops as often as its line is reached."""
    run, _step = at(context, "for i in range(3):\n    x = i", 2)
    assert [changes(run.step("continue"))["i"] for _ in range(2)] == ["1", "2"]
    assert run.go_on().status == Statuses.OK


def test_breakpoint_in_the_code_stops(context: ContextRig) -> None:
    """breakpoint() stops at the next line, with the reason that the code asked for it."""
    run, step = stopped(context, "x = 1\nbreakpoint()\ny = 2", run_to_breakpoint=True)
    assert (step.reason, step.line) == (Reasons.CODE, 3)
    run.go_on()


def test_breakpoint_in_a_function_stops_there(context: ContextRig) -> None:
    """breakpoint() in a function stops in that function."""
    code = "def f():\n    breakpoint()\n    return 1\nf()"
    run, step = stopped(context, code, run_to_breakpoint=True)
    assert (step.function, step.line) == ("f", 3)
    run.go_on()


def test_breakpoint_outside_of_the_debugger_does_nothing(context: ContextRig) -> None:
    """A plain run with breakpoint() runs through."""
    assert context.run("breakpoint()\n1").value == "1"


def test_run_to_breakpoint_without_one_runs_through(context: ContextRig) -> None:
    """Without a breakpoint the run ends without a stop."""
    outcome = context.run("x = 1\nx", mode="debug", run_to_breakpoint=True)
    assert (outcome.steps, outcome.value) == ([], "1")


def test_breakpoints_are_limited(context: ContextRig) -> None:
    """A run has at most 200 breakpoints."""
    points = [{"line": 2}] * 201
    run, _ = stopped(context, "x = 1\ny = 2", breakpoints=points)
    assert any(isinstance(one.body, Failure) for one in iter_answers(run, 201))
    run.command("clear_breakpoint", id=1)
    run.send("quit")
    assert run.wait().status == Statuses.INTERRUPTED


def iter_answers(run: Run, count: int) -> list[Any]:
    from sandboxd.code.events import Answer

    return [run.next(Answer) for _ in range(count)]


# --- pause, quit, input ---


def test_pause_stops_a_busy_loop(context: ContextRig) -> None:
    """Pause reaches a loop that runs at full speed without a breakpoint."""
    code = "n = 0\nprint('go')\nwhile True:\n    n += 1"
    run = context.start(code, mode="debug", run_to_breakpoint=True)
    run.until_output(b"go")
    run.send("pause")
    step = run.next(Step)
    assert step.reason == Reasons.PAUSE
    assert step.line in (3, 4)
    run.send("quit")
    assert run.wait().status == Statuses.INTERRUPTED
    assert context.run("n >= 0").value == "True"


def test_a_pause_directly_after_a_resume_stops_the_code(context: ContextRig) -> None:
    """It may come before the code has left the stop; it is not lost then."""
    run, _ = stopped(context, "n = 0\nwhile True:\n    n += 1")
    for _ in range(50):
        run.send("resume", mode="continue")
        run.send("pause")
        assert run.next(Step).reason == Reasons.PAUSE
    run.send("quit")
    assert run.wait().status == Statuses.INTERRUPTED


def test_a_breakpoint_can_be_set_while_the_code_runs(context: ContextRig) -> None:
    """A breakpoint that comes in the middle of a loop stops it."""
    code = "n = 0\nprint('go')\nwhile True:\n    n += 1"
    run = context.start(code, mode="debug", run_to_breakpoint=True)
    run.until_output(b"go")
    run.send("set_breakpoint", line=4)
    assert run.next(Step).line == 4
    run.send("quit")
    run.wait()


def test_looking_needs_a_stop(context: ContextRig) -> None:
    """Commands that need a stop fail while the code runs, and say what to do."""
    code = "print('go')\nwhile True: pass"
    run = context.start(code, mode="debug", run_to_breakpoint=True)
    run.until_output(b"go")
    assert "stop it with pause" in failure(run, "stack")
    run.send("quit")
    assert run.wait().status == Statuses.INTERRUPTED


def test_quit_ends_a_stopped_run(context: ContextRig) -> None:
    """Quit interrupts the code where it is; variables stay."""
    run, _ = stopped(context, "x = 1\ny = 2\nz = 3")
    run.step("step_over")
    run.send("quit")
    assert run.wait().status == Statuses.INTERRUPTED
    assert context.run("x").value == "1"
    assert context.run("'z' in globals()").value == "False"


def test_quit_ends_a_sleeping_run(context: ContextRig) -> None:
    """Quit reaches code that waits in a system call."""
    code = "import time\nprint('go')\ntime.sleep(600)"
    run = context.start(code, mode="debug", run_to_breakpoint=True)
    run.until_output(b"go")
    run.send("quit")
    assert run.wait().status == Statuses.INTERRUPTED


def test_an_interrupt_ends_a_stopped_run(context: ContextRig) -> None:
    """A client that has gone leaves nothing running: the timeout's interrupt ends the stop."""
    run, _ = stopped(context, "x = 1\ny = 2")
    context.signal(signal.SIGINT)
    assert run.wait().status == Statuses.INTERRUPTED
    assert context.run("1").value == "1"


def test_commands_of_an_ended_run_do_not_reach_the_next(context: ContextRig) -> None:
    """Input is numbered by run: what is left over is dropped."""
    run, _ = stopped(context, "x = 1")
    run.send("resume", mode="continue")
    run.send("quit")
    run.send("resume", mode="continue")
    run.wait()
    run, step = stopped(context, "y = 1\nz = 2")
    assert step.line == 1
    assert run.step("step_over").line == 2
    assert run.go_on().status == Statuses.OK


def test_an_unknown_command_is_a_failure(context: ContextRig) -> None:
    """It has an answer like any other."""
    run, _ = stopped(context, "x = 1")
    assert "unknown command" in failure(run, "dance")
    assert "unknown mode" in failure(run, "resume", mode="sideways")
    run.go_on()


def test_commands_in_pieces(context: ContextRig) -> None:
    """A command may arrive byte by byte."""
    from sandboxd.code.events import Answer
    from sandboxd.guest.code import protocol

    run, _ = stopped(context, "x = 1")
    for byte in protocol.encode_command(3, "resume", mode="continue"):
        context.input.sendall(protocol.encode_piece(run.number, bytes([byte])))
    assert run.next(Answer).command == 3
    assert run.wait().status == Statuses.OK


# --- stack and variables ---


def test_the_stack(context: ContextRig) -> None:
    """Frames innermost first, with file, line, function and source."""
    run, _ = at(context, FUNCTION, 2)
    body = run.command("stack").body
    assert isinstance(body, Stack)
    found = [(one.number, one.function, one.line, one.source) for one in body.frames]
    assert found == [(0, "double", 2, "m = n * 2"), (1, "<module>", 5, "a = double(1)")]
    run.command("clear_breakpoint", id=1)
    run.go_on()


def test_a_deep_stack_is_cut(context: ContextRig) -> None:
    """At most as many frames as were asked for; the rest is counted."""
    code = "def f(n):\n    if n == 0:\n        return 0\n    return f(n - 1)\nf(300)"
    run, step = at(context, code, 3)
    assert step.depth == 302
    body = run.command("stack", max_frames=5).body
    assert isinstance(body, Stack)
    assert (len(body.frames), body.left_out_frames) == (5, 297)
    body = run.command("stack", max_frames=1000).body
    assert isinstance(body, Stack)
    assert len(body.frames) == 200
    run.go_on()


def test_variables_of_each_frame(context: ContextRig) -> None:
    """Variables of an outer frame are there by its number; one that does not exist is a failure."""
    run, _ = at(context, FUNCTION, 3)
    assert set(variables(run)) == {"n", "m"}
    assert "double" in variables(run, frame=1)
    assert "double" in variables(run, globals=True)
    assert "no frame 9" in failure(run, "variables", frame=9)
    run.command("clear_breakpoint", id=1)
    run.go_on()


def test_looking_into_a_value(context: ContextRig) -> None:
    """A handle leads to the parts of a value, and from there further."""
    run, _ = at(context, "x = {'a': [1, 2], 'b': 3}\ny = 1", 2)
    x = variables(run)["x"]
    assert (x.type, x.length) == ("dict", 2)
    parts = variables(run, handle=x.handle)
    assert (parts["'a'"].value, parts["'b'"].handle) == ("[1, 2]", 0)
    assert variables(run, handle=parts["'a'"].handle)["[1]"].value == "2"
    run.go_on()


def test_looking_into_an_object(context: ContextRig) -> None:
    """Attributes of an instance, from its dictionary and its slots."""
    code = """\
    class A:
        def __init__(self):
            self.n = 1
    class B:
        __slots__ = ('s',)
        def __init__(self):
            self.s = 'x'
    a, b = A(), B()
    c = 1
    """
    run, _ = at(context, code, 9)
    found = variables(run)
    assert (found["a"].value, found["b"].value) == ("A(n=1)", "B(s='x')")
    assert variables(run, handle=found["a"].handle)["n"].value == "1"
    run.go_on()


def test_a_handle_ends_with_the_stop(context: ContextRig) -> None:
    """After the code has gone on the handle is not valid, and the answer says so."""
    run, _ = at(context, "x = [1]\ny = 1\nz = 2", 2)
    handle = variables(run)["x"].handle
    run.step("step_over")
    assert "not valid" in failure(run, "variables", handle=handle)
    run.go_on()


def test_many_variables_are_pages(context: ContextRig) -> None:
    """50 variables at a time; the rest is counted, and `offset` leads to it."""
    run, _ = at(context, "x = list(range(120))\ny = 1", 2)
    handle = variables(run)["x"].handle
    body = run.command("variables", handle=handle, offset=100).body
    assert isinstance(body, Variables)
    assert ([one.name for one in body.variables][:1], body.left_out) == (["[100]"], 0)
    body = run.command("variables", handle=handle).body
    assert isinstance(body, Variables)
    assert (len(body.variables), body.left_out) == (50, 70)
    run.go_on()


def test_a_step_has_at_most_50_variables(context: ContextRig) -> None:
    """The others are counted, and are in later steps until all were shown."""
    code = "for i in range(70):\n    exec(f'v{i} = {i}')\nx = 1\ny = 2"
    run, step = at(context, code, 3)
    assert (len(step.changed), step.left_out_variables) == (50, 21)
    run.go_on()


def test_values_are_cut(context: ContextRig) -> None:
    """200 characters, depth 2, whatever the value."""
    code = "a = 'x' * 10**6\nb = [[[[1]]]]\nc = 7 ** 10**5\nd = list(range(10**5))\ne = 1"
    run, _ = at(context, code, 5)
    found = variables(run)
    assert all(len(one.value) <= 200 for one in found.values())
    assert found["b"].value == "[[[... 1 items]]]"
    assert "bits" in found["c"].value
    assert found["d"].value.endswith("... 100000 items]")
    run.go_on()


HOSTILE = """
ran = []
class Meta(type):
    def __repr__(cls): ran.append('meta'); return 'x'
    def __getattribute__(cls, name): ran.append(name); return super().__getattribute__(name)
class Evil(metaclass=Meta):
    def __init__(self): object.__setattr__(self, 'n', 1)
    def __repr__(self): ran.append('repr'); return 'x'
    def __str__(self): ran.append('str'); return 'x'
    def __getattribute__(self, name): ran.append('get ' + name); return 1
    def __eq__(self, other): ran.append('eq'); return True
    def __hash__(self): return 1
    def __len__(self): ran.append('len'); return 1
    def __iter__(self): ran.append('iter'); return iter([])
    def __sizeof__(self): ran.append('sizeof'); return 1
    @property
    def __dict__(self): ran.append('dict'); return {}
    @property
    def __class__(self): ran.append('class'); return int
class EvilList(list):
    def __iter__(self): ran.append('list iter'); return iter([])
    def __len__(self): ran.append('list len'); return 1
    def __getitem__(self, i): ran.append('list item'); return 1
    def __repr__(self): ran.append('list repr'); return 'x'
class EvilStr(str):
    def __repr__(self): ran.append('str repr'); return 'x'
    def __getitem__(self, i): ran.append('str item'); return 'x'
class EvilInt(int):
    def __repr__(self): ran.append('int repr'); return 'x'
e = Evil(); l = EvilList([1, 2]); s = EvilStr('abc'); i = EvilInt(5)
nested = {'k': [e, (e,)], e: e}
del ran[:]
"""


def test_looking_runs_nothing_of_the_user(context: ContextRig) -> None:
    """Steps, variables, handles and the listing of a context call no method of the user."""
    context.run(HOSTILE)
    run, step = stopped(context, "x = 1\ny = 2")
    shown = changes(step)
    found = variables(run)
    for one in found.values():
        if one.handle:
            variables(run, handle=one.handle)
    run.step("step_over")
    run.go_on()
    context.run(mode="state")
    assert (shown["l"], shown["s"], shown["i"]) == (
        "EvilList([1, 2])",
        "EvilStr('abc')",
        "EvilInt(5)",
    )
    assert context.run("list(ran)").value == "[]"


# --- evaluate ---


def test_evaluate_in_a_frame(context: ContextRig) -> None:
    """An expression sees the variables of the frame that is named."""
    run, _ = at(context, FUNCTION, 3)
    assert value(run, "n + m") == "3"
    assert value(run, "[n * i for i in range(3)]") == "[0, 1, 2]"
    assert value(run, "double.__name__", frame=1) == "'double'"
    run.command("clear_breakpoint", id=1)
    run.go_on()


def test_evaluate_a_statement_changes_the_frame(context: ContextRig) -> None:
    """An assignment to a local variable stays when the code goes on."""
    run, _ = at(context, FUNCTION, 3)
    value(run, "m = 50")
    run.command("clear_breakpoint", id=1)
    assert run.go_on().stdout == b"50 100\n"


def test_evaluate_a_statement_changes_the_context(context: ContextRig) -> None:
    """An assignment at the top level stays too."""
    run, _ = at(context, "x = 1\ny = x + 1", 2)
    value(run, "x = 10")
    run.go_on()
    assert context.run("y").value == "11"


def test_evaluate_that_raises_reports_the_exception(context: ContextRig) -> None:
    """The answer has the exception; the run is where it was."""
    run, _ = stopped(context, "x = 1\ny = 2")
    answer = run.command("evaluate", expression="1 / 0")
    assert answer.error is not None
    assert answer.error.type == "ZeroDivisionError"
    assert run.step("step_over").line == 2
    run.go_on()


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(600)"])
def test_evaluate_is_capped(context: ContextRig, code: str) -> None:
    """Half a second, then it is a failure, and the run goes on."""
    run, _ = stopped(context, "x = 1\ny = 2")
    assert "longer than 0.5 s" in failure(run, "evaluate", expression=code)
    assert run.go_on().status == Statuses.OK


def test_evaluate_can_print(context: ContextRig) -> None:
    """What an expression prints is output of the run."""
    run, _ = stopped(context, "x = 1")
    value(run, "print('from the debugger')")
    assert run.go_on().stdout == b"from the debugger\n"


def test_evaluate_what_is_no_python(context: ContextRig) -> None:
    """A syntax error is a failure with its reason."""
    run, _ = stopped(context, "x = 1")
    assert "not Python" in failure(run, "evaluate", expression="1 +")
    run.go_on()


# --- exceptions ---


def test_post_mortem(context: ContextRig) -> None:
    """An exception that nothing catches stops where it was raised, with its frames to look at."""
    code = "def f(n):\n    m = n + 1\n    return 1 / 0\nf(5)"
    run = context.start(code, mode="debug", run_to_breakpoint=True)
    step = run.next(Step)
    assert (step.reason, step.line, step.function) == (Reasons.EXCEPTION, 3, "f")
    assert step.error is not None
    assert step.error.type == "ZeroDivisionError"
    assert value(run, "m") == "6"
    assert value(run, "f.__name__", frame=1) == "'f'"
    outcome = run.go_on()
    assert (outcome.status, outcome.error.type) == (Statuses.RAISED, "ZeroDivisionError")


def test_post_mortem_can_be_declined(context: ContextRig) -> None:
    """With ignore_exceptions the run ends at once."""
    outcome = context.run("1 / 0", mode="debug", run_to_breakpoint=True, ignore_exceptions=True)
    assert (outcome.status, outcome.steps) == (Statuses.RAISED, [])


def test_caught_exceptions_do_not_stop(context: ContextRig) -> None:
    """Only what nothing catches is a stop."""
    code = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    x = 1"
    assert context.run(code, mode="debug", run_to_breakpoint=True).steps == []


def test_a_syntax_error_does_not_stop(context: ContextRig) -> None:
    """There is no frame to look at; the run ends with the error."""
    outcome = context.run("def f(:", mode="debug")
    assert (outcome.status, outcome.steps) == (Statuses.RAISED, [])


def test_system_exit_is_no_exception_to_look_at(context: ContextRig) -> None:
    """sys.exit() ends the run without a stop."""
    outcome = context.run("raise SystemExit", mode="debug", run_to_breakpoint=True)
    assert (outcome.status, outcome.steps) == (Statuses.OK, [])


# --- generators, tasks, threads ---

GENERATOR = """\
def numbers():
    a = 1
    yield a
    b = 2
    yield b
for n in numbers():
    print(n)
"""


def test_step_over_a_yield_goes_to_the_consumer(context: ContextRig) -> None:
    """A generator that yields hands over to the line that uses the value."""
    run, _ = at(context, GENERATOR, 3)
    step = run.step("step_over")
    assert (step.line, step.function) == (7, "<module>")
    run.command("clear_breakpoint", id=1)
    run.go_on()


def test_step_in_returns_to_a_generator(context: ContextRig) -> None:
    """Step in from the loop enters the generator where it stood, with its variables."""
    run, _ = at(context, GENERATOR, 7)
    run.command("clear_breakpoint", id=1)
    step = run.step("step_in")
    while step.function != "numbers":
        step = run.step("step_in")
    assert (step.line, value(run, "a")) == (4, "1")
    run.go_on()


def test_step_out_of_a_generator_is_its_end(context: ContextRig) -> None:
    """A yield is not a return: step out stops when the generator is exhausted."""
    run, _ = at(context, GENERATOR, 2)
    step = run.step("step_out")
    assert (step.reason, step.function) == (Reasons.RETURN, "numbers")
    assert run.go_on().stdout == b"1\n2\n"


ASYNC = """\
import asyncio
async def work(n):
    a = n
    await asyncio.sleep(0.01)
    b = a + 1
    return b
x = await work(1)
y = await work(x)
print(x, y)
"""


def test_step_over_an_await_stays_in_the_coroutine(context: ContextRig) -> None:
    """Stepping over `await` goes to the next line of the same coroutine, not into the loop."""
    run, step = at(context, ASYNC, 3)
    assert step.function == "work"
    assert run.step("step_over").line == 4
    step = run.step("step_over")
    assert (step.line, step.function) == (5, "work")
    run.command("clear_breakpoint", id=1)
    run.go_on()


def test_step_over_a_top_level_await(context: ContextRig) -> None:
    """A top-level await is one step."""
    run, _ = at(context, ASYNC, 7)
    run.command("clear_breakpoint", id=1)
    step = run.step("step_over")
    assert (step.line, changes(step)["x"]) == (8, "2")
    run.go_on()


def test_step_out_of_a_coroutine_is_its_end(context: ContextRig) -> None:
    """Awaits on the way are not returns."""
    run, _ = at(context, ASYNC, 3)
    run.command("clear_breakpoint", id=1)
    step = run.step("step_out")
    assert (step.reason, step.return_value) == (Reasons.RETURN, "2")
    run.go_on()


def test_a_breakpoint_in_a_task(context: ContextRig) -> None:
    """Tasks beside the main one stop at their breakpoints."""
    code = """\
    import asyncio
    async def work(n):
        await asyncio.sleep(0)
        return n
    r = await asyncio.gather(work(1), work(2))
    """
    run, _step = at(context, code, 4)
    seen = [value(run, "n")]
    run.step("continue")
    seen.append(value(run, "n"))
    assert sorted(seen) == ["1", "2"]
    run.go_on()
    assert context.run("r").value == "[1, 2]"


def test_a_breakpoint_in_a_thread(context: ContextRig) -> None:
    """A thread stops at its breakpoint; the step says which thread."""
    code = """\
    import threading
    def work():
        a = 1
        b = 2
    t = threading.Thread(target=work)
    t.start()
    t.join()
    """
    run, step = at(context, code, 4)
    assert (step.thread, step.function) == (1, "work")
    assert variables(run)["a"].value == "1"
    assert "main thread only" in failure(run, "evaluate", expression="1")
    assert run.go_on().status == Statuses.OK


def test_a_step_in_a_thread_stays_in_it(context: ContextRig) -> None:
    """Step over in a thread stops in that thread."""
    code = """\
    import threading
    def work():
        a = 1
        b = 2
    t = threading.Thread(target=work)
    t.start()
    t.join()
    """
    run, _ = at(context, code, 3)
    step = run.step("step_over")
    assert (step.thread, step.line) == (1, 4)
    assert run.go_on().status == Statuses.OK


# --- output ---


def test_output_before_a_step_is_exact(context: ContextRig) -> None:
    """Each step has the positions of both streams: what was written before it, and nothing more."""
    code = "import sys\nprint('one')\nprint('two', file=sys.stderr)\nprint('three', end='')\npass"
    run, step = stopped(context, code)
    positions = [(step.stdout_offset, step.stderr_offset)]
    for _ in range(4):
        step = run.step("step_over")
        positions.append((step.stdout_offset, step.stderr_offset))
    assert positions == [(0, 0), (0, 0), (4, 0), (4, 4), (9, 4)]
    run.go_on()


# --- StepThrough ---


def test_step_through_the_example_of_the_documentation(context: ContextRig) -> None:
    """Every line with number, source, what changed and the output in between, to the letter."""
    code = SEED_PROGRAMS["debug"]
    outcome = context.run(code, mode="steps")
    lines = [step.line for step in outcome.steps if step.reason != Reasons.RETURN]
    assert lines == [2, 3, 5, *([6, 7, 8, 9] * 5), 6, 11, 12]
    sources = code.splitlines()
    assert all(one.source == sources[one.line - 1].strip() for one in outcome.steps)
    state: dict[str, str] = {}
    states = []
    for step in outcome.steps:
        state.update(changes(step))
        states.append(dict(state))
    assert states[1] == {"data": "[1, 2, 3, 4, 5]"}
    assert states[7]["result"] == "[2]"
    assert states[-1]["__result__"] == "[2, 4, 6, 8, 10]"
    assert outcome.result == [2, 4, 6, 8, 10]
    messages = [(log.level, log.message) for log in outcome.logs]
    assert messages[0] == ("INFO", "Starting processing")
    assert messages[1] == ("DEBUG", "Processed item 1 -> 2")
    assert messages[-1] == ("INFO", "Processing complete")
    assert len(messages) == 7


def test_step_through_keeps_output_with_its_step(context: ContextRig) -> None:
    """The positions of each step cut standard output into the output of each line."""
    outcome = context.run("for i in range(3):\n    print(i)\nprint('end')", mode="steps")
    cuts = [step.stdout_offset for step in outcome.steps]
    pieces = [outcome.stdout[a:b] for a, b in itertools.pairwise(cuts)]
    assert [piece for piece in pieces if piece] == [b"0\n", b"1\n", b"2\n", b"end\n"]


def test_step_through_stays_at_the_top_level(context: ContextRig) -> None:
    """Functions are one step, unless they are asked for."""
    outcome = context.run(FUNCTION, mode="steps")
    assert {step.function for step in outcome.steps} == {"<module>"}
    outcome = context.run(FUNCTION, mode="steps", step_into_functions=True)
    assert {step.function for step in outcome.steps} == {"<module>", "double"}


def test_step_through_is_limited(context: ContextRig) -> None:
    """After max_steps the code runs on without reports, and a note says so."""
    code = "n = 0\nfor i in range(1000):\n    n += i\n__result__ = n"
    outcome = context.run(code, mode="steps", max_steps=10)
    assert len(outcome.steps) == 10
    assert outcome.result == 499500
    assert any("not reported" in note for note in outcome.notes)


def test_step_through_ends_with_the_exception(context: ContextRig) -> None:
    """Steps up to the line that raised, then the error."""
    outcome = context.run("x = 1\n1 / 0\ny = 2", mode="steps")
    assert [step.line for step in outcome.steps][:2] == [1, 2]
    assert (outcome.status, outcome.error.type) == (Statuses.RAISED, "ZeroDivisionError")


def test_step_through_awaits(context: ContextRig) -> None:
    """Top-level await can be stepped through."""
    outcome = context.run(ASYNC, mode="steps")
    assert [s.line for s in outcome.steps if s.reason != Reasons.RETURN] == [1, 2, 7, 8, 9]
    assert outcome.stdout == b"2 3\n"


def test_step_through_can_be_interrupted(context: ContextRig) -> None:
    """An interrupt in the middle of reports tears no record and keeps the context."""
    run = context.start("while True:\n    x = 1\n    y = 2", mode="steps")
    for _ in range(5):
        run.next(Step)
    context.signal(signal.SIGINT)
    outcome = run.wait()
    assert outcome.status == Statuses.INTERRUPTED
    assert not any("cannot be read" in note for note in outcome.notes)
    assert context.run("x").value == "1"


# --- figures ---


def test_the_overhead_of_a_traced_line(zygote: Zygote) -> None:
    """Prints what a line costs: plain, with a breakpoint elsewhere, in the same function, and
    after `continue` without one. The order of the ratios is the promise, not their size."""
    code = (
        "import time\n"
        "def f(n):\n"
        "    i = 0\n"
        "    while i < n:\n"
        "        i += 1\n"
        "    return i\n"
        "def g():\n"
        "    return 1\n"
        "t = time.process_time(); f(100000); __result__ = time.process_time() - t\n"
    )
    figures: dict[str, list[float]] = {"plain": [], "continue": [], "elsewhere": [], "same": []}
    context = zygote.context()
    for _ in range(5):
        figures["plain"].append(context.run(code).result)
        for name, points in (
            ("continue", []),
            ("elsewhere", [{"line": 8}]),
            ("same", [{"line": 5, "condition": ""}]),
        ):
            if name == "same":
                points = [{"line": 6}]
            run = context.start(code, mode="debug", run_to_breakpoint=True, breakpoints=points)
            if name == "same":
                run.next(Step)
                figures[name].append(run.go_on().result)
            else:
                figures[name].append(run.wait().result)
    lines = 200_000
    found = {name: sorted(values)[2] / lines * 1e9 for name, values in figures.items()}
    python = zygote.facts["python"]
    print(
        f"\ndebugger {python}: ns per line " + ", ".join(f"{k} {v:.0f}" for k, v in found.items())
    )
    assert found["continue"] < found["same"]


def test_the_time_of_a_step(context: ContextRig) -> None:
    """Prints how long a step with its answer takes over the stand-in."""
    run, _ = stopped(context, "x = 0\n" + "x += 1\n" * 100)
    started = time.monotonic()
    for _ in range(100):
        run.step("step_over")
    print(f"\ndebugger: {(time.monotonic() - started) * 10_000:.0f} us for a step and its answer")
    assert run.go_on().status == Statuses.OK
