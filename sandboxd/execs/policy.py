"""The command policy, asked before any command of a session starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sandboxd.errors import CommandNotAllowed
from sandboxd.execs.long_checks import LongChecks
from sandboxd.execs.spec import ExecSpec
from sandboxd.policy import CommandChecker, Decision


class CheckTakesLong(Exception):
    """The command has to be checked apart from the others, with `CommandPolicy.clear`."""


@dataclass(frozen=True, slots=True)
class Clearance:
    """A command that took long to check, and may run."""

    command: str | Sequence[str]


class CommandPolicy:
    """Refuses the commands that the operator does not allow."""

    def __init__(self, checker: CommandChecker) -> None:
        self._checker = checker
        self._long_checks = LongChecks(checker.policy)
        self.decision = f"allowed by policy {checker.policy.name}"
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
            self._checker.policy.name,
            rule=first.rule,
            command=first.command,
            why=decision.explanation,
        )


def _command(spec: ExecSpec) -> str | Sequence[str]:
    return spec.argv if spec.shell is None else spec.shell
