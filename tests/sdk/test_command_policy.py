"""Commands that a daemon is certain to refuse are refused before they are sent, and no others."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.daemon.composition import Daemon
from sandboxd.policy import STRICT, Rule, check
from sandboxd.policy.profile import INSTEAD as DAEMONS_INSTEAD
from sandboxd_client import (
    AsyncSandbox,
    AsyncSandboxClient,
    InvalidRequestError,
    PolicyError,
    Sandbox,
)
from sandboxd_client.command_policy import INSTEAD, check_strictly
from sandboxd_client.connection import Connection
from sandboxd_client.methods.execs import RUN
from sandboxd_proto.v1 import exec_service_pb2
from tests.fakes.guest import FakeGuests
from tests.sdk.scripted import TIMEOUTS, Scripted, exited
from tests.sdk.test_auto_retry import opened
from tests.unit.policy_cases import ALLOWED, EXAMPLES
from tests.unit.test_policy_fuzz import ATOMS

StartDaemon = Callable[..., Awaitable[Daemon]]
SEEN = [
    ("rm -rf build", "rm"),
    ("/bin/rm x", "rm"),
    ("'r'm x", "rm"),
    ("echo a && sudo ls", "sudo"),
    ("cat a|ssh host", "ssh"),
    ("echo a\nmv a b", "mv"),
    ("LANG=C dd if=a of=b 2>/dev/null", "dd"),
    (">log curl -s https://example.com/data.json?a=1", "curl"),
    ('while read x; do chmod +x "$x"; done <list', "chmod"),
    ("if ! wget -q https://example.com; then echo no; fi", "wget"),
    (["chown", "root", "x"], "chown"),
    (["/usr/bin/rm", "x"], "rm"),
]
ALLOWED_THERE = [
    "echo rm; echo 'a; rm b'",
    "echo > rm; cat < rm >& rm",
    "cat <<E\nx; rm y\nE",
    "echo a # ; rm b",
    "echo a\\;rm",
    "case x in a | rm) echo;; esac",
    "[[ a && rm ]]",
    "for i in a rm; do echo $i; done",
    "a=(x\nrm\n)",
    "grep rm | sort",
    "rm=1; echo $rm",
    "0A=1/bin/rm",
    "",
    ["echo", "rm"],
    [],
]


def is_refused(command: str | Sequence[str]) -> bool:
    try:
        check_strictly(command)
    except PolicyError:
        return True
    return False


def test_what_is_forbidden_is_what_the_daemon_forbids() -> None:
    """The same names, with the same words about what to do."""
    assert {name: DAEMONS_INSTEAD[name] for name in STRICT.forbid} == INSTEAD


@pytest.mark.parametrize(("command", "name"), SEEN)
def test_plain_command_is_refused(command: str | Sequence[str], name: str) -> None:
    """Wherever it is in a line, with what the daemon would find."""
    with pytest.raises(PolicyError) as caught:
        check_strictly(command)

    found = check(command, STRICT).findings[0]
    assert found.rule == Rule.FORBIDDEN_COMMAND
    assert caught.value.metadata == {
        "policy": STRICT.name,
        "rule": found.rule,
        "command": name,
        "kind": "policy",
    }
    assert caught.value.message.endswith(str(found))


@pytest.mark.parametrize("command", ALLOWED_THERE)
def test_what_only_looks_forbidden_is_sent(command: str | Sequence[str]) -> None:
    """A name is no command where it is an argument, a file, a pattern or text."""
    check_strictly(command)


@pytest.mark.parametrize("command", [*EXAMPLES, *ALLOWED])
def test_what_the_daemon_allows_is_sent(command: str) -> None:
    """Each case of the daemon's own tests."""
    check_strictly(command)


@pytest.mark.parametrize("piece", ["$aa", "'a'", "a", "'\"", '"$a', "a=", "; rm ", ">"])
@pytest.mark.parametrize("start", ["", '"', "'"])
def test_long_lines_take_no_longer_than_their_length(start: str, piece: str) -> None:
    """Whatever comes from a model is decided at once."""
    begin = time.process_time()
    is_refused(start + piece * 20_000)

    assert time.process_time() - begin < 2


NAMES = ["rm", "mv", "'rm'", '"rm"', "/bin/rm", "x/rm", "echo", "cat", "do", "done", "if", "then"]
PLAIN = [*NAMES, "for", "in", "while", "true", "!", "fi", "A=1", "0", "A='x y'", "$A", '"$A"', "-x"]
PLAIN += [" ", " ", " ", "\n", ";", "&", "&&", "|", "||", "|&", ">", ">>", ">&", "2>&1", "<", "&>"]


PLAIN_LINES = st.lists(st.sampled_from(PLAIN), max_size=14).map("".join)
STRANGE_LINES = st.lists(st.sampled_from(PLAIN + ATOMS), max_size=10).map("".join)


@given(PLAIN_LINES | STRANGE_LINES)
def test_daemon_refuses_whatever_is_refused_here(line: str) -> None:
    """The daemon has the last word: nothing is kept from it that it would have allowed."""
    if is_refused(line):
        assert not check(line, STRICT).allowed


@given(st.lists(st.sampled_from([*NAMES, "", "a/", "-c"]), max_size=4))
def test_daemon_refuses_programs_that_are_refused_here(words: list[str]) -> None:
    """The same for a program with its arguments."""
    if is_refused(words):
        assert not check(words, STRICT).allowed


# --- where it is asked for ---


@pytest.fixture
async def strict(start_daemon: StartDaemon) -> Daemon:
    return await start_daemon(command_policy="strict")


async def test_refusal_is_the_daemons_own(strict: Daemon, guests: FakeGuests) -> None:
    """Whoever refuses, a program that handles it sees the same; and a ValueError, as ever."""
    url = f"unix:{strict.config.api_socket}"
    refusals: list[PolicyError] = []
    for policy in (None, "strict"):
        async with AsyncSandboxClient(server_url=url, policy=policy) as client:
            await client.get_or_create_session("ada", "42")
            with pytest.raises(ValueError, match="forbidden-command") as caught:
                await client.execute("echo x; rm x")
            assert isinstance(caught.value, PolicyError)
            refusals.append(caught.value)
    by_daemon, by_client = refusals

    assert type(by_daemon) is type(by_client)
    for name in ("message", "reason", "metadata", "retry_after_seconds", "may_have_begun"):
        assert getattr(by_daemon, name) == getattr(by_client, name)
    assert strict.journal.statistics.failed_calls["Run"] == 1


async def test_every_way_to_run_a_command_is_checked(strict: Daemon, guests: FakeGuests) -> None:
    """In a shell, a terminal or the background; and the daemon hears of none of it."""
    url = f"unix:{strict.config.api_socket}"
    async with await AsyncSandbox.open("ada", "42", server_url=url, policy="strict") as sandbox:
        again = await AsyncSandbox.connect(sandbox.session_id, server_url=url, policy="strict")
        for refused in (
            sandbox.commands.run("rm x", background=True),
            sandbox.commands.run(["rm", "x"], on_stdout=str),
            sandbox.shell().run("rm x"),
            sandbox.pty.create("rm x"),
            again.commands.run("rm x"),
        ):
            with pytest.raises(PolicyError):
                await refused
        assert (await again.commands.run("echo out")).stdout == "out\n"
        await again.aclose()

    assert strict.journal.statistics.failed_calls.total() == 0


async def test_daemon_refuses_what_passes(strict: Daemon) -> None:
    """What is not plain is left to it."""
    url = f"unix:{strict.config.api_socket}"
    async with await AsyncSandbox.open("ada", "42", server_url=url, policy="strict") as sandbox:
        with pytest.raises(PolicyError, match="forbidden-command"):
            await sandbox.commands.run("echo $(rm x)")


def client_on(**settings: Any) -> tuple[AsyncSandboxClient, Scripted]:
    done = exec_service_pb2.RunResponse(exec_id="e1", exit=exited().exited)
    transport = Scripted({"OpenSession": [opened(1, "CREATED")], "Run": [done]})
    client = AsyncSandboxClient(**settings)
    client._connection = Connection(transport, TIMEOUTS)
    return client, transport


async def test_without_a_policy_everything_is_sent() -> None:
    """Daemons have policies of their own, which may allow it."""
    client, transport = client_on()
    await client.get_or_create_session("ada", "42")
    await client.execute("rm x")

    assert len(transport.requests(RUN)) == 1


async def test_function_may_refuse() -> None:
    """It is given each command, and what it raises comes out."""

    def no_python(command: str | Sequence[str]) -> None:
        if "python" in command:
            raise PolicyError("Use awk.")

    client, transport = client_on(policy=no_python)
    await client.get_or_create_session("ada", "42")
    await client.execute("rm x")
    with pytest.raises(PolicyError, match=r"^Use awk\.$"):
        await client.execute("python x.py")

    assert [one.shell for one in transport.requests(RUN)] == ["rm x"]


async def test_unknown_policy_is_told_at_once() -> None:
    """A mistake is no lack of a check."""
    for make in (AsyncSandboxClient, Sandbox.create):
        with pytest.raises(InvalidRequestError, match="policy"):
            make(policy="strikt")  # type: ignore[arg-type]
