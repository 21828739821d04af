"""Commands that nobody would write, against the policy and against bash itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sandboxd.policy import STRICT, check
from sandboxd.policy.inert import Compacted
from sandboxd.policy.syntax import parsable
from tests.docker.daemon_process import first_uid
from tests.scale import examples
from tests.unit.policy_cases import ALLOWED, REFUSED, RUNS_RM

ATOMS = [
    *("rm x", "rm", "r", "m", "$(rm x)", "`rm x`", "<(rm x)", "${a:-$(rm x)}", "$'\\x72m'"),
    *("'", '"', "\\", "\n", " ", "  ", "\t", "#", " # ", ";", "&&", "||", "|", "&", "(", ")"),
    *("{ ", "; }", "$", "`", "<<E\n", "<<'E'\n", "\nE\n", "E", "<<-E\n", "\tE\n", "<<<", "\\\n"),
    *(
        "echo ",
        "cat ",
        "true",
        "bash",
        " -c ",
        "eval ",
        "env ",
        "xargs ",
        "a=",
        "a=1 ",
        "a=(",
        "$a",
    ),
    *("[[ ", " ]]", "((", "))", "$((", "=", "!", "{", "}", ",", "if true; then ", "; fi", "time "),
    *("for i in 1; do ", "; done", "case x in x) ", ";; esac", "f() { ", "f ", "exec ", "command "),
    *(
        "\r",
        "\f",
        "\u3000",
        "x",
        "1",
        ">",
        ">>",
        "2>&1",
        "<",
        ">&-",
        "&>",
        "let ",
        "test ",
        "*",
        "~",
    ),
    *("trap ", " EXIT", "declare ", "read ", "function ", "coproc ", "@(", "$[", '$"', "${", "@P"),
    *("awk ", 'BEGIN{system("rm x")}', "sed ", "1e rm x", "find . ", "-exec ", " {} \\;", "+", "-"),
]
SHORT = [command for command in ALLOWED if len(command) < 200]
PROGRAMS = ("bash", "sh", "env", "xargs", "timeout", "nice", "find", "sed", "awk", "cat", "sort")
PROGRAMS += ("diff3", "sleep")

mixtures = st.lists(st.sampled_from(ATOMS), min_size=1, max_size=10).map("".join)
edited = st.tuples(
    st.sampled_from(SHORT), st.integers(0, 200), st.sampled_from(ATOMS), st.integers(0, 3)
).map(lambda it: it[0][: it[1]] + it[2] + it[0][it[1] + it[3] :])
strange = mixtures | edited

Runs = Callable[..., bool]

NOBODY = first_uid() if os.geteuid() == 0 else None
"""Nothing of the host is theirs, and nobody else uses this uid: what is run here was made up, and
may kill everything that its user runs."""


@pytest.fixture
def runs_rm() -> Iterator[Runs]:
    """Whether bash runs `rm` for a command. There is none: what is called so leaves a mark."""
    with tempfile.TemporaryDirectory(prefix="sbx-policy-", dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        programs = directory / "bin"
        programs.mkdir()
        (programs / "rm").write_text('#!/bin/sh\n: > "$MARK"\n')
        (programs / "rm").chmod(0o755)
        other = directory / "other"
        other.mkdir()
        shutil.copy(programs / "rm", other / "ls")
        for program in PROGRAMS:
            (programs / program).symlink_to(str(shutil.which(program)))
        yield partial(_runs_rm, directory)


def _runs_rm(
    directory: Path, command: str, seconds: float = 3, errors: IO[bytes] | int = subprocess.DEVNULL
) -> bool:
    mark, place = directory / "marks" / "mark", directory / "place"
    for own in (mark.parent, place):
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
    (place / "x").write_text("line\n")
    shutil.copytree(directory / "other", place / "1")
    argv = ["/bin/bash", "--norc", "-c", command]
    if NOBODY is not None:
        for path in (mark.parent, place, place / "x"):
            os.chown(path, NOBODY, NOBODY)
        # Not `user=`: it makes Popen fork, and gRPC, which other tests load, has handlers for that.
        setpriv = str(shutil.which("setpriv"))
        argv = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", *argv]
    bash = subprocess.Popen(
        argv,
        env={"PATH": str(directory / "bin"), "MARK": str(mark)},
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
    )
    try:
        bash.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        pass  # a loop that bash was asked for; what it has run by now counts
    finally:
        try:
            os.killpg(bash.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # all of it has ended
        bash.wait()
    # A start file may have set PATH: then it was the real `rm`.
    return mark.exists() or not (place / "x").exists()


def test_rig_sees_what_bash_runs(runs_rm: Runs) -> None:
    """The mark is made by the real shell, however the command is written."""
    assert runs_rm("rm x")
    assert runs_rm("ls x\n\\rm y")
    assert runs_rm("env > out r''m x")
    assert not runs_rm("echo rm x")


@pytest.mark.parametrize("command", [case[0] for case in RUNS_RM])
def test_refused_command_would_have_run_rm(runs_rm: Runs, command: str) -> None:
    """The cases are real: without the policy, bash comes to `rm`."""
    with tempfile.TemporaryFile() as errors:
        has_run = runs_rm(command, 60, errors)
        errors.seek(0)
        assert has_run, errors.read(1000)


@given(strange)
@example("a=(1 2)# rm x")
@example("Ea=(1 2)echo rm x")
@example("true # c\n\\\n rm x")
@example("<<<$ rm")
@example("declare E\n\\\nrm x")
@settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_allowed_command_never_runs_what_is_forbidden(runs_rm: Runs, command: str) -> None:
    """What the policy allows, bash itself may run: it does not come to `rm`."""
    if check(command, STRICT).allowed:
        assert not runs_rm(command)


@pytest.mark.parametrize("command", SHORT)
def test_allowed_cases_do_not_run_rm(runs_rm: Runs, command: str) -> None:
    """The table of allowed commands, run by bash."""
    assert not runs_rm(command)


@given(st.text(max_size=400) | strange)
@settings(max_examples=examples(150), deadline=None)
def test_any_text_is_decided(command: str) -> None:
    """Whatever it is, there is a decision, and a refusal says why."""
    decision = check(command, STRICT)

    assert decision.allowed or decision.explanation
    assert len(decision.findings) <= 5
    assert all(len(finding.command) <= 60 for finding in decision.findings)


@given(st.lists(st.text(max_size=40) | st.sampled_from(ATOMS), max_size=8))
@settings(max_examples=examples(100), deadline=None)
def test_any_words_are_decided(argv: list[str]) -> None:
    """Whatever the words are, there is a decision."""
    decision = check(argv, STRICT)

    assert decision.allowed or decision.explanation


@given(strange, st.sampled_from(["'", '"']))
@example("\\\n#", "'")
@settings(max_examples=examples(100), deadline=None)
def test_long_quoted_text_makes_no_difference(command: str, quote: str) -> None:
    """Data is put aside, not looked at: behind much of it a command is judged as it is alone."""
    data = f"echo {quote}{'some data ' * 100}{quote}\n"
    alone, behind = check(command, STRICT), check(data + command, STRICT)

    assert behind.allowed <= alone.allowed


@given(st.text(max_size=100))
def test_parser_gets_no_character_it_cannot_take(text: str) -> None:
    """What is not ASCII has a stand-in of one byte's range, and nothing moves."""
    source = text.encode(errors="replace")
    given_to_parser = parsable(source)

    assert max(map(ord, given_to_parser.decode()), default=0) < 256
    assert len(given_to_parser) == len(source)
    kept = zip(source, given_to_parser, strict=True)
    assert all(one == other for one, other in kept if one < 128)


def test_characters_of_all_planes_crash_nothing() -> None:
    """A character that the grammar's C code cannot take does not end the process."""
    program = """
from sandboxd.policy import STRICT, check
for before in ("{", "echo {", "${", "echo ${a", "[[ a == {", "(( ", "<<", "~", "echo @("):
    for number in range(0x80, 0x110000, 0x401):
        check(before + chr(number), STRICT)
        check(before + chr(number) + "}", STRICT)
"""
    # As a process of its own: it would take this one with it. Where memory lies differs by process.
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


@given(st.text(alphabet="ab'\"\\$`<#\n E-()", max_size=300))
@settings(max_examples=examples(150), deadline=None)
def test_what_is_put_aside_can_be_put_back(text: str) -> None:
    """Compacting loses nothing."""
    compacted = Compacted(text)

    restored = compacted.text
    for name, original in compacted.stash.items():
        restored = restored.replace(name, original, 1)
    assert restored == text


@pytest.mark.parametrize("command", [case[0] for case in REFUSED if len(case[0]) < 500])
def test_refused_command_is_refused_behind_data(command: str) -> None:
    """A long text before it hides nothing."""
    for quote in ("'", '"'):
        data = f"echo {quote}{'some data ' * 100}{quote}\n"
        assert not check(data + command, STRICT).allowed
    heredoc = "cat > x <<'DATA'\n" + "some data\n" * 300 + "DATA\n"
    assert not check(heredoc + command, STRICT).allowed
