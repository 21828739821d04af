"""What the policy `strict` allows and refuses, and how it says so."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandboxd.cli import selfcheck
from sandboxd.policy import OPEN, STRICT, CommandChecker, Rule, check, syntax
from sandboxd.policy.checker import QUICK_WORK
from sandboxd.policy.profile import FORBIDDEN, LISTED
from sandboxd.policy.syntax import MAX_MARKS, parsable
from tests.unit.policy_cases import ALLOWED, EXAMPLES, REFUSED

API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"
PROMISED = {
    *("jq", "awk", "grep", "sed", "sort", "uniq", "head", "tail", "wc", "cut", "tr", "cat"),
    *("echo", "date", "find", "ls", "python3", "python", "bc", "comm", "diff", "basename"),
    *("dirname", "file", "stat", "tee", "rg"),
}

HOSTILE_UNITS = [
    "a|",
    "a=(",
    "${",
    ")",
    "[[ (",
    "\nf()`>",
    "))]]",
    ">@(",
    "$(",
    "`",
    '"$(',
    "<<E\n",
]
HOSTILE_UNITS += ["&>case x in a", "&>f() case x in"]


def short(command: str) -> str:
    return command if len(command) <= 60 else command[:57] + "..."


@pytest.mark.parametrize("command", EXAMPLES, ids=short)
def test_what_agents_are_shown_is_allowed(command: str) -> None:
    """Every example of the documentation for agents runs under `strict`."""
    assert check(command, STRICT).findings == ()


@pytest.mark.parametrize("command", ALLOWED, ids=short)
def test_harmless_command_is_allowed(command: str) -> None:
    """Whatever the shell's syntax: what runs is on the list."""
    assert check(command, STRICT).findings == ()


@pytest.mark.parametrize(("command", "rule", "named"), REFUSED, ids=lambda one: short(str(one)))
def test_command_is_refused_by_its_rule(command: str, rule: Rule, named: str) -> None:
    """However it is written: the first finding has the rule and names the command."""
    decision = check(command, STRICT)

    assert not decision.allowed
    first = decision.findings[0]
    assert first.rule == rule
    assert not named or first.command == named


@pytest.mark.parametrize(
    "command", [*EXAMPLES, *ALLOWED, *(case[0] for case in REFUSED)], ids=short
)
def test_open_refuses_nothing(command: str) -> None:
    """Under `open` nothing is looked at."""
    assert check(command, OPEN).allowed


def test_first_steps_are_allowed_by_default() -> None:
    """The program in docs/api.md and the self-check work with the default policy."""
    page = API_PAGE.read_text()
    snippet = page.partition("<!-- snippet: quickstart -->")[2].partition("```\n")[0]
    commands: list[str | list[str]] = [*re.findall(r'shell="([^"]+)"', snippet)]
    commands += [re.findall(r'"([^"]*)"', one) for one in re.findall(r"args=\[(.*?)\]", snippet)]
    assert len(commands) >= 3

    for command in [*commands, selfcheck.COMMAND, "date >> visits; cat visits"]:
        assert check(command, STRICT).allowed, command


def test_policy_stands_alone() -> None:
    """A client can use it: nothing of the daemon, or that only the daemon has, comes with it."""
    program = (
        "import sys, sandboxd.policy; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())

    assert {"sandboxd", "tree_sitter", "tree_sitter_bash"} <= loaded
    assert not loaded & {"aiodocker", "click", "google", "grpc", "pydantic", "structlog"}


def test_lists_are_those_agents_are_told() -> None:
    """The allow-list has what is promised, and the forbidden list is exactly what is announced."""
    assert LISTED == PROMISED
    assert STRICT.allow is not None
    assert STRICT.allow >= PROMISED
    assert {"rm", "mv", "dd", "curl", "wget", "ssh", "sudo", "chmod", "chown"} == FORBIDDEN
    assert not STRICT.allow & FORBIDDEN


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_refusal_of_a_forbidden_command_says_what_to_do(name: str) -> None:
    """An agent reads which command it was, and another way."""
    (finding,) = check(f"{name} x", STRICT).findings

    assert f"`{name}` is forbidden" in finding.problem
    assert finding.instead


def test_refusal_of_an_unknown_command_tells_the_list_once() -> None:
    """Two unknown commands, one list of those that are allowed."""
    decision = check("perl x; ruby y", STRICT)

    assert [finding.command for finding in decision.findings] == ["perl", "ruby"]
    assert "Use python3, awk or sed." in decision.explanation
    assert decision.explanation.count("Allowed are awk, basename, bc") == 1


def test_findings_are_few() -> None:
    """A command that is wrong in many ways is told a few of them."""
    decision = check("; ".join(f"x{number} y" for number in range(50)), STRICT)

    assert 1 < len(decision.findings) <= 5


@pytest.mark.parametrize(
    ("argv", "rule"),
    [
        (["ls", "-l"], None),
        (["/bin/cat", "rm"], None),
        (["echo", "$(rm x)", "`rm`", "; rm x"], None),
        (["bash", "-c", "ls | wc -l"], None),
        (["env", "A=1", "python3", "x.py"], None),
        (["find", ".", "-name", "*.py"], None),
        (["rm", "x"], Rule.FORBIDDEN_COMMAND),
        (["/usr/bin/rm", "x"], Rule.FORBIDDEN_COMMAND),
        (["bash", "-c", "rm x"], Rule.FORBIDDEN_COMMAND),
        (["env", "rm", "x"], Rule.FORBIDDEN_COMMAND),
        (["xargs", "rm"], Rule.FORBIDDEN_COMMAND),
        (["find", ".", "-exec", "rm", "{}", ";"], Rule.FORBIDDEN_COMMAND),
        (["bash"], Rule.UNSEEN),
        (["bash", "x.sh"], Rule.UNSEEN),
        (["perl", "-e", "1"], Rule.NOT_ON_ALLOW_LIST),
        (["r''m", "x"], Rule.NOT_ON_ALLOW_LIST),
        (["awk", 'BEGIN { system("rm x") }'], Rule.UNSEEN),
        (["env", "PATH=.", "ls"], Rule.GUARDED_VARIABLE),
        ([""], Rule.UNPARSABLE),
    ],
)
def test_words_without_a_shell_are_checked_alike(argv: list[str], rule: Rule | None) -> None:
    """No quotes to take away, the same rules."""
    findings = check(argv, STRICT).findings

    assert (findings[0].rule if findings else None) == rule


@pytest.mark.parametrize("name", ["PATH", "BASH_ENV", "LD_PRELOAD", "BASH_FUNC_ls%%"])
def test_variables_of_the_request_are_checked(name: str) -> None:
    """What changes the meaning of names is refused beside the command, too."""
    assert check("ls", STRICT, {name: "x"}).findings[0].rule == Rule.GUARDED_VARIABLE
    assert check("ls", STRICT, {"LC_ALL": "C"}).allowed


def test_checker_remembers_and_forgets() -> None:
    """The same answer from memory, and the memory is bounded."""
    checker = CommandChecker(STRICT)

    for number in range(5000):
        assert checker.check(f"echo {number}").allowed
    assert not checker.check("rm x").allowed
    assert checker.check("rm x") is checker.check("rm x")
    assert checker.check("echo " + "x" * 1000).allowed
    assert len(checker._remembered) <= 1024
    assert max(map(len, checker._remembered)) <= 512


def test_long_decisions_are_remembered_by_their_digest() -> None:
    """What took long is known the next time, and its text is not kept."""
    checker = CommandChecker(STRICT)
    for command in ("echo $(" + "ls; " * 120 + ")", ["bash", "-c", "ls; " * 120]):
        assert checker.check_quickly(command) is None
        assert checker.check(command) is checker.check_quickly(command)
    assert max(map(len, checker._remembered)) <= 512


@pytest.mark.parametrize("unit", HOSTILE_UNITS)
def test_work_of_a_quick_check_is_bounded(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a text is, and however deep it is hidden, little of it is parsed."""
    parsed: list[bytes] = []
    monkeypatch.setattr(
        syntax, "parsable", lambda source: parsed.append(source) or parsable(source)
    )
    for count in (8, 64, 512, 4096):
        for command in (unit * count, ["bash", "-c", unit * count], f"bash -c '{unit * count}'"):
            parsed.clear()
            CommandChecker(STRICT).check_quickly(command)
            assert sum(map(len, parsed)) <= QUICK_WORK


def test_variables_are_not_remembered_away() -> None:
    """A command that was allowed is not allowed with any variables."""
    checker = CommandChecker(STRICT)

    assert checker.check("ls").allowed
    assert not checker.check("ls", {"LD_PRELOAD": "x"}).allowed
    assert checker.check("ls").allowed


@pytest.mark.parametrize("unit", HOSTILE_UNITS)
def test_hostile_text_is_answered(unit: str) -> None:
    """At the limit of what is parsed, and far beyond it, there is an answer."""
    within = (unit * MAX_MARKS)[:MAX_MARKS]
    started = time.perf_counter()
    assert not check(within, STRICT).allowed
    print(f"{unit!r} x {len(within)} bytes: {(time.perf_counter() - started) * 1e3:.1f} ms")

    assert check(unit * 60_000, STRICT).findings[0].rule == Rule.TOO_COMPLEX


@pytest.mark.parametrize(
    "command",
    [
        "echo $((x)); echo '" + "[" * 100_000 + "'",
        "awk '/" + "[[:a:]" * 5000 + "'",
        "sed '/" + "[]a]" * 5000 + "'",
        "sed '" + "s/a/b/;" * 10_000 + "e'",
        "".join(f"cat <<'E{number}'\n" for number in range(5000)),
        "echo " + "'" + "x" * 60 + "' '" * 1000,
        "bash -c '" + "a|" * 200 + "'\n" * 100,
    ],
    ids=lambda one: one[:20],
)
def test_hostile_data_is_answered(command: str) -> None:
    """Text that is meant to make patterns run for ever is refused or allowed, but answered."""
    started = time.perf_counter()
    decision = check(command, STRICT)
    print(f"{command[:20]!r}: {(time.perf_counter() - started) * 1e3:.1f} ms, {decision.allowed}")

    assert decision.allowed or decision.explanation


def test_cost_of_short_commands() -> None:
    """The figures of the hot path, for the report."""
    checker = CommandChecker(STRICT)
    for command in ("true", "ls -l", EXAMPLES[12]):
        parsed = sorted(_microseconds(lambda line=command: check(line, STRICT)) for _ in range(500))
        known = sorted(_microseconds(lambda line=command: checker.check(line)) for _ in range(500))
        print(f"{short(command)}: {parsed[250]:.1f} us checked, {known[250]:.2f} us remembered")
        assert checker.check(command).allowed


def _microseconds(work: object) -> float:
    started = time.perf_counter()
    work()  # type: ignore[operator]
    return (time.perf_counter() - started) * 1e6
