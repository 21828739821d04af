"""Checks of commands that take long: in a process of their own, the users in turn.

Refused commands start nothing, so no other limit applies to them. What one user sends delays the
long checks of others by one check, and short checks not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandboxd.access.shares import POLICY_CHECKS
from sandboxd.access.turns import Turns
from sandboxd.errors import ExecLimitReached
from sandboxd.policy import Decision, Finding, Policy, Rule, worker
from sandboxd.side_process import SideProcess, SideProcessFailed

MAX_SECONDS = 30.0
"""Time of one check on a busy host; the worker itself limits the processor time."""
RETRY_SECONDS = 1.0
_TOO_LONG = Decision(
    (
        Finding(
            Rule.TOO_COMPLEX,
            "",
            "The command takes too long to check.",
            "Split it, or put data into single quotes.",
        ),
    )
)


class LongChecks:
    """Checks commands of all users, one at a time."""

    def __init__(self, policy: Policy) -> None:
        greeting = worker.encode_policy(policy)
        self._worker = SideProcess(worker.__name__, seconds=MAX_SECONDS, greeting=greeting)
        self._turns = Turns.of(POLICY_CHECKS, refusal=_too_many)

    async def check(self, command: str | Sequence[str], user_id: str) -> Decision:
        """ExecLimitReached if the user has too many commands waiting, or no process can start."""
        async with self._turns.turn(user_id):
            try:
                return worker.decode_decision(
                    await self._worker.ask(worker.encode_command(command))
                )
            except SideProcessFailed as failed:
                if failed.is_too_much:
                    return _TOO_LONG
                raise ExecLimitReached(
                    "The command could not be checked in time; try again later.",
                    retry_after_seconds=RETRY_SECONDS,
                ) from None

    async def aclose(self) -> None:
        await self._worker.aclose()


def _too_many(who: str) -> ExecLimitReached:
    return ExecLimitReached(
        f"{who} already has too many long commands that wait for a check by the command policy; "
        "try again.",
        retry_after_seconds=RETRY_SECONDS,
    )
