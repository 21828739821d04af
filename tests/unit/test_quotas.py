"""What one user may use at a time, and all of them together."""

from __future__ import annotations

import pytest

from sandboxd.access import Quotas, UserLimits
from sandboxd.errors import ExecLimitReached, SessionLimitReached


def test_no_limit_refuses_nothing() -> None:
    """Limits are the operator's choice; without them users take what there is."""
    quotas = Quotas(UserLimits())
    for _ in range(100):
        quotas.check_exec("ada")
        quotas.add_exec("ada")

    quotas.check_sessions(1000)


def test_sessions_up_to_the_limit_are_allowed() -> None:
    """The limit itself is allowed, and the refusal names it."""
    quotas = Quotas(UserLimits(sessions=2))
    quotas.check_sessions(2)

    with pytest.raises(SessionLimitReached) as caught:
        quotas.check_sessions(3)
    assert caught.value.metadata["limit"] == "2"


def test_commands_of_a_user_are_counted_apart() -> None:
    """A user at the limit waits for their own commands, and no one else for them."""
    quotas = Quotas(UserLimits(running_execs=1))
    quotas.add_exec("ada")

    with pytest.raises(ExecLimitReached, match="This user already runs 1") as caught:
        quotas.check_exec("ada")
    assert caught.value.retry_after_seconds
    quotas.check_exec("bob")
    quotas.remove_exec("ada")
    quotas.check_exec("ada")


def test_commands_of_all_users_are_counted_together() -> None:
    """The daemon's own limit holds whoever runs the commands."""
    quotas = Quotas(UserLimits(running_execs=5, running_execs_in_all=2))
    for user in ("ada", "bob"):
        quotas.add_exec(user)

    with pytest.raises(ExecLimitReached, match="The daemon already runs 2"):
        quotas.check_exec("eve")
    quotas.remove_exec("ada")
    quotas.check_exec("eve")


def test_command_of_an_earlier_daemon_counts_beyond_the_limit() -> None:
    """What runs already is counted, not refused; new commands wait until there is room."""
    quotas = Quotas(UserLimits(running_execs=1, running_execs_in_all=1))
    for _ in range(3):
        quotas.add_exec("ada")
    assert quotas.running_execs == 3

    for _ in range(2):
        quotas.remove_exec("ada")
        with pytest.raises(ExecLimitReached):
            quotas.check_exec("ada")
    quotas.remove_exec("ada")
    quotas.check_exec("ada")
