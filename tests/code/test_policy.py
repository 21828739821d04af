"""The code policy: what it refuses, where, and what it lets pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandboxd.guest.code.policy import Policy
from sandboxd.guest.code.protocol import Statuses
from tests.code.bypasses import BYPASSES, RUNTIME_ALONE, STATIC
from tests.code.rig import ContextRig, Zygote
from tests.code.seed_programs import SEED_PROGRAMS

ALLOWED = [
    "import json, math, random, re, string, datetime, collections\njson.dumps([1])",
    "from urllib.parse import quote\nquote('a b')",
    "from urllib import parse\nparse.quote('a b')",
    "import asyncio\nawait asyncio.sleep(0)",
    "import aiohttp\naiohttp.ClientTimeout(1)",
    "json.dumps(re.findall('a', datetime.now().isoformat()))",
    "x = 1\nx.__class__.__name__",
    "class A:\n    def __init__(self):\n        self.n = 1\n    def __repr__(self): ...\na = A()",
    "class B(dict):\n    def __init__(self):\n        super().__init__()\nB()",
    "getattr('a', 'upper')()",
    "open('policy-test.txt', 'w').write('x')",
    "import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int = 1\nP()",
    "import enum\nclass E(enum.Enum):\n    A = 1\nE.A.name",
    "from collections import namedtuple\nnamedtuple('N', 'a b')(1, 2)",
    "import logging\nlogging.warning('x')",
    "'{:>5}'.format(1)",
    "d = [1]\nd[0] += 1\n__result__ = d",
    "if __name__ == '__main__':\n    print('yes')",
]


@pytest.mark.parametrize(("name", "layer", "code"), BYPASSES, ids=[b[0] for b in BYPASSES])
def test_a_bypass_is_refused(strict: ContextRig, name: str, layer: str, code: str) -> None:
    """Each way around the policy is refused by the layer that is recorded for it."""
    outcome = strict.run("print('began')\n" + code)
    if layer == STATIC:
        assert outcome.status == Statuses.REFUSED
        assert outcome.stdout == b""  # nothing has run
        assert outcome.violations
        assert outcome.error.type == "CodeNotAllowed"
    else:
        assert outcome.status == Statuses.RAISED
        assert outcome.error.type == "CodeNotAllowed"
        assert outcome.error.frames[-1].source


def test_there_are_as_many_bypasses_as_the_page_says() -> None:
    """docs/code_policy.md counts them."""
    page = (Path(__file__).parents[2] / "docs" / "code_policy.md").read_text()
    assert len(BYPASSES) >= 61
    assert f"{len(BYPASSES)} ways around" in page


@pytest.mark.parametrize(("name", "code"), RUNTIME_ALONE, ids=[b[0] for b in RUNTIME_ALONE])
def test_the_run_itself_refuses(name: str, code: str) -> None:
    """What comes past the check of the tree is refused when it is done."""
    script = Path(__file__).with_name("unchecked.py")
    ended = subprocess.run(
        [sys.executable, str(script), code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout.split()[-1:] == ["CodeNotAllowed"], ended


@pytest.mark.parametrize("code", ALLOWED)
def test_plain_code_is_allowed(strict: ContextRig, code: str) -> None:
    """The policy does not stand in the way of code that computes."""
    outcome = strict.run(code)
    assert outcome.status == Statuses.OK, outcome.events


@pytest.mark.parametrize("name", SEED_PROGRAMS)
def test_the_programs_of_the_documentation_are_allowed(strict: ContextRig, name: str) -> None:
    """Programs as agents write them, with a database and `datetime` ready, pass the check."""
    outcome = strict.run(SEED_PROGRAMS[name], mode="check")
    assert outcome.status == Statuses.OK
    assert outcome.violations == []


def test_a_refusal_names_line_rule_and_way(strict: ContextRig) -> None:
    """A violation has the rule, the line, the name, and what to do instead."""
    found = strict.run("x = 1\n\nimport subprocess\ny = eval('1')").violations
    assert [(one.rule, one.line, one.name) for one in found] == [
        ("module", 3, "subprocess"),
        ("call", 4, "eval"),
    ]
    assert "run commands with the sandbox's Run call" in found[0].message
    assert "json.loads" in found[1].message


def test_a_check_runs_nothing(strict: ContextRig) -> None:
    """CheckCode reports what would be refused, and no line of the code is executed."""
    outcome = strict.run("print('x')\nimport os", mode="check")
    assert outcome.status == Statuses.OK
    assert outcome.stdout == b""
    assert [one.line for one in outcome.violations] == [2]
    assert strict.run("print('x')", mode="check").violations == []


def test_a_check_says_what_is_no_python(strict: ContextRig) -> None:
    """A check of code with a syntax error reports that error."""
    assert strict.run("def f(:", mode="check").error.type == "SyntaxError"


def test_open_allows_everything(context: ContextRig) -> None:
    """Without a policy nothing is refused."""
    assert context.run("import os, sys\neval('os.getpid() > 0')").value == "True"


def test_lists_of_a_policy_are_its_own(zygote: Zygote) -> None:
    """A policy with its own lists allows those modules and blocks those calls, and no others."""
    own = zygote.context(
        policy={"name": "mine", "allowed_modules": ["os"], "blocked_calls": ["print"]}
    )
    assert own.run("import os\nos.getpid() > 0").value == "True"
    assert [one.name for one in own.run("import json").violations] == ["json"]
    found = own.run("print(1)").violations
    assert [(one.rule, one.name) for one in found] == [("call", "print")]
    assert "`mine`" in found[0].message


def test_variables_survive_a_refusal(strict: ContextRig) -> None:
    """A refused run changes nothing."""
    strict.run("x = 41")
    strict.run("x = 1\nimport os")
    assert strict.run("x + 1").value == "42"


def test_the_debugger_does_not_evaluate_what_is_refused(strict: ContextRig) -> None:
    """Expressions and conditions of the debugger are checked like code."""
    from sandboxd.code.events import Failure, Step

    run = strict.start("x = 1\ny = 2", mode="debug")
    run.next(Step)
    for do, key in (("evaluate", "expression"), ("set_breakpoint", "condition")):
        answer = run.command(do, **{key: "__import__('os')"}, line=2)
        assert isinstance(answer.body, Failure)
        assert "not allowed" in answer.body.reason
    run.go_on()


def test_many_violations_are_bounded() -> None:
    """At most 50 violations are reported, whatever the size of the code."""
    import ast

    found = Policy({"name": "strict"}).check(ast.parse("eval\n" * 5000))
    assert len(found) == 50
    assert [one.line for one in found] == list(range(1, 51))
