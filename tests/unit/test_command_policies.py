"""The policies of a daemon, by name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sandboxd.errors import CommandNotAllowed, InvalidRequest
from sandboxd.execs.policy import CommandPolicies
from sandboxd.execs.spec import ExecSpec
from sandboxd.policy import OPEN, STRICT, STRICT_NODE, InvalidPolicy, check, from_table


def command(line: str, **env: str) -> ExecSpec:
    return ExecSpec(exec_id="e", shell=line, argv=(), cwd="", env=env, timeout_seconds=1.0)


@pytest.fixture
async def policies() -> AsyncIterator[CommandPolicies]:
    made = CommandPolicies([STRICT, OPEN], default="strict")
    yield made
    await made.aclose()


async def test_each_name_has_its_rules(policies: CommandPolicies) -> None:
    """And no name is the default."""
    assert policies.get("") is policies.default
    with pytest.raises(CommandNotAllowed, match="`strict`"):
        policies.get("").check(command("rm x"))
    policies.get("open").check(command("rm x"))
    assert ("open" in policies, "lax" in policies) == (True, False)


async def test_policy_that_is_not_defined_refuses_everything(policies: CommandPolicies) -> None:
    """What a session may do does not grow because its policy was removed."""
    gone = policies.get("gone")
    for work in (
        lambda: gone.check(command("true")),
        lambda: gone.check_variables(()),
    ):
        with pytest.raises(CommandNotAllowed, match="no longer has this policy") as caught:
            work()
        assert caught.value.metadata["policy"] == "gone"
        assert caught.value.metadata["rule"] == "undefined-policy"


async def test_unknown_name_is_refused_with_those_there_are(policies: CommandPolicies) -> None:
    """For a caller that asks for one."""
    policies.check_known("open")
    with pytest.raises(InvalidRequest, match="no policy 'lax'; it has open, strict"):
        policies.check_known("lax")


def test_policy_for_node_allows_what_strict_does_and_node() -> None:
    """It takes the place of `strict` where that would forbid the main program."""
    assert not check("node x.js", STRICT).allowed
    for line in ("node x.js", "tsc x.ts", "grep a b"):
        assert check(line, STRICT_NODE).allowed
    for line in ("rm x", "npm install x", "curl x"):
        assert not check(line, STRICT_NODE).allowed


def test_table_of_the_settings_is_a_policy_of_its_name() -> None:
    """With the keys of a policy file."""
    made = from_table("ci", {"extends": "strict", "allow": ["git"]})

    assert made.name == "ci"
    assert check("git status", made).allowed
    with pytest.raises(InvalidPolicy, match="not a setting of a policy"):
        from_table("ci", {"allows": ["git"]})
