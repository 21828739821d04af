"""The command policies, one of which is asked before any command of a session starts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sandboxd.errors import CommandNotAllowed, InvalidRequest, quoted
from sandboxd.execs.long_checks import LongChecks
from sandboxd.execs.spec import ExecSpec
from sandboxd.policy import CommandChecker, Decision, Finding, Policy, Rule


class CheckTakesLong(Exception):
    """The command has to be checked apart from the others, with `CommandPolicy.clear`."""


@dataclass(frozen=True, slots=True)
class Clearance:
    """A command that took long to check, and may run."""

    command: str | Sequence[str]


class CommandPolicy:
    """Refuses the commands that the operator does not allow."""

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self._checker = CommandChecker(policy)
        self._long_checks = LongChecks(policy)
        self.decision = f"allowed by policy {self.name}"
        """Why the commands that were not refused may run, for the audit log."""

    def check(self, spec: ExecSpec, clearance: Clearance | None = None) -> None:
        """CommandNotAllowed unless the command may run. CheckTakesLong if other commands would have
        to wait for the check, and there is no clearance of this command."""
        command = _command(spec)
        env = {**spec.session_env, **spec.env} if spec.session_env else spec.env
        if clearance is not None and clearance.command is command:
            self.check_variables(env)
            return
        decision = self._checker.check_quickly(command, env)
        if decision is None:
            raise CheckTakesLong
        self._refuse_unless_allowed(decision)

    def check_variables(self, names: Iterable[str]) -> None:
        """CommandNotAllowed unless commands may run with these variables."""
        self._refuse_unless_allowed(self._checker.check_variables(names))

    async def clear(self, spec: ExecSpec, user_id: str) -> Clearance:
        """Check a command that takes long; CommandNotAllowed unless it may run."""
        command = _command(spec)
        decision = await self._long_checks.check(command, user_id)
        self._checker.remember(command, decision)
        self._refuse_unless_allowed(decision)
        return Clearance(command)

    async def aclose(self) -> None:
        await self._long_checks.aclose()

    def _refuse_unless_allowed(self, decision: Decision) -> None:
        if decision.allowed:
            return
        first = decision.findings[0]
        raise CommandNotAllowed(
            self.name, rule=first.rule, command=first.command, why=decision.explanation
        )


class _UndefinedPolicy(CommandPolicy):
    """Stands for a policy that the configuration no longer has, and refuses everything."""

    def __init__(self, name: str) -> None:
        super().__init__(Policy(name=name))
        self._refusal = Decision(
            (
                Finding(
                    Rule.UNDEFINED_POLICY,
                    "",
                    "The daemon's configuration no longer has this policy.",
                    "An operator can define it again; or close the session and open a new one.",
                ),
            )
        )

    def check(self, spec: ExecSpec, clearance: Clearance | None = None) -> None:
        self._refuse_unless_allowed(self._refusal)

    def check_variables(self, names: Iterable[str]) -> None:
        self._refuse_unless_allowed(self._refusal)


class CommandPolicies:
    """The policies of a daemon by name, and the one for sessions that ask for no other."""

    def __init__(self, policies: Iterable[Policy], *, default: str, is_chosen: bool = True) -> None:
        self._policies: Mapping[str, CommandPolicy] = {
            policy.name: CommandPolicy(policy) for policy in policies
        }
        self.default = self._policies[default]
        self.is_chosen = is_chosen
        """Whether an operator has set the default, which then clients' defaults do not replace."""

    def __contains__(self, name: str) -> bool:
        return name in self._policies

    def get(self, name: str) -> CommandPolicy:
        """The policy of this name, the default for none. One that the configuration no longer has
        refuses everything: no session gets more rights because its policy is gone."""
        if not name:
            return self.default
        return self._policies.get(name) or _UndefinedPolicy(name)

    def check_known(self, name: str) -> None:
        """InvalidRequest unless the configuration has this policy."""
        if name not in self._policies:
            known = ", ".join(sorted(self._policies))
            raise InvalidRequest(
                "command_policy", f"this daemon has no policy {quoted(name)}; it has {known}"
            )

    async def aclose(self) -> None:
        await asyncio.gather(*(policy.aclose() for policy in self._policies.values()))


def _command(spec: ExecSpec) -> str | Sequence[str]:
    return spec.argv if spec.shell is None else spec.shell
