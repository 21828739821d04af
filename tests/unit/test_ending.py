"""How a command ended: every reason is known everywhere, and hints say what to do."""

from __future__ import annotations

from signal import SIGXFSZ

import pytest

from sandboxd.execs.ending import (
    HINTS,
    NOT_STARTED,
    VIOLATED_LIMITS,
    Circumstances,
    ExitStatus,
    Reason,
    hint,
    is_killed,
    passed_limits,
    reached_limit,
    reason_of,
)
from sandboxd.isolation.meter import Usage
from sandboxd.service.exec_wire import EXIT_REASONS
from sandboxd_proto.v1.exec_pb2 import ExitReason

QUIET = Usage(peak_memory_bytes=1, cpu_seconds=0.5, peak_processes=2, oom_kills=0, refused_forks=0)
STARVED = QUIET._replace(oom_kills=1)
CROWDED = QUIET._replace(refused_forks=3)
PLAIN = Circumstances(timeout_seconds=30.0, no_output_seconds=2.5)


def a_status(reason: Reason, code: int | None = None) -> ExitStatus:
    return ExitStatus(reason, 1.0, stdout_bytes=0, stderr_bytes=0, hint="", code=code)


@pytest.mark.parametrize("table", [EXIT_REASONS, VIOLATED_LIMITS, HINTS])
def test_table_covers_every_reason(table: dict[Reason, object]) -> None:
    """A new reason cannot be half added: wire, statistics and hints all have to name it."""
    assert set(table) == set(Reason)


def test_wire_uses_every_value_of_the_proto_once() -> None:
    """A caller can tell all reasons apart, and none is declared in vain."""
    declared = set(ExitReason.values()) - {ExitReason.EXIT_REASON_UNSPECIFIED}

    assert sorted(EXIT_REASONS.values()) == sorted(declared)


def test_each_violated_limit_has_one_reason() -> None:
    """Statistics of a limit never mix two causes."""
    limits = [limit for limit in VIOLATED_LIMITS.values() if limit is not None]

    assert len(limits) == len(set(limits))


@pytest.mark.parametrize("reason", Reason)
def test_hint_is_a_finished_sentence(reason: Reason) -> None:
    """Whatever ended a command, no placeholder is left; only a plain exit needs no words."""
    text = hint(reason, PLAIN._replace(signal=9, loss="it died"))

    assert not set("{}") & set(text)
    assert bool(text) == (reason is not Reason.EXITED)


def test_hint_names_the_limits_that_were_asked_for() -> None:
    """A deadline is repeated in the words of the request."""
    assert "after 30 s" in hint(Reason.TIMED_OUT, PLAIN)
    assert "for 2.5 s" in hint(Reason.NO_OUTPUT, PLAIN)
    assert "(it died)" in hint(Reason.SANDBOX_LOST, PLAIN._replace(loss="it died"))
    assert "(it had not begun)" in hint(Reason.SESSION_CLOSED, PLAIN)


def test_hint_of_a_refused_command_is_the_refusal() -> None:
    """What never began did not exit, so nothing else is said of it."""
    text = hint(Reason.EXITED, PLAIN._replace(refusal="no such directory"))

    assert text == "The command was not started: no such directory."


@pytest.mark.parametrize(("code", "signal"), [(None, SIGXFSZ), (128 + SIGXFSZ, None)])
def test_hint_explains_the_limit_of_a_file(code: int | None, signal: int | None) -> None:
    """A file that grew too large is explained once, by a signal of the command or of its shell."""
    reason = Reason.SIGNALLED if signal else Reason.EXITED
    text = hint(reason, PLAIN._replace(code=code, signal=signal))

    assert text.count("SIGXFSZ") == 1
    assert "which sandboxd did not send" not in text


def test_hint_after_the_loss_of_a_sandbox_says_how_to_go_on() -> None:
    """Where the kernel took the guest, more than memory has to be freed."""
    text = hint(Reason.OUT_OF_MEMORY, PLAIN._replace(loss="it died", usage=STARVED))

    assert text.startswith("Out of memory")
    assert text.endswith("open the session again.")


@pytest.mark.parametrize(
    ("usage", "is_full", "reason"),
    [
        (None, False, None),
        (QUIET, False, None),
        (STARVED, True, Reason.OUT_OF_MEMORY),
        (CROWDED, True, Reason.PROCESS_LIMIT),
        (CROWDED._replace(oom_kills=1), False, Reason.OUT_OF_MEMORY),
        (QUIET, True, Reason.DISK_FULL),
        (None, True, Reason.DISK_FULL),
    ],
)
def test_reached_limit_is_the_most_certain_one(
    usage: Usage | None, is_full: bool, reason: Reason | None
) -> None:
    """A kill by the kernel says more than a refused fork, and that more than a full disk."""
    assert reached_limit(usage, lambda: is_full, was_killed=False) is reason


@pytest.mark.parametrize(
    ("code", "signal", "reason"),
    [
        (1, None, None),
        (137, None, Reason.OUT_OF_MEMORY),
        (None, 9, Reason.OUT_OF_MEMORY),
        (None, 15, None),
    ],
)
def test_command_beside_others_is_out_of_memory_only_if_it_was_killed(
    code: int | None, signal: int | None, reason: Reason | None
) -> None:
    """The kernel counts kills for the whole session: another command may have lost the process."""
    was_killed = is_killed(code, signal)
    shared = STARVED._replace(is_shared=True)

    assert reached_limit(shared, lambda: False, was_killed=was_killed) is reason
    assert "other commands" in passed_limits(Reason.EXITED, shared)
    assert "other commands" not in passed_limits(Reason.EXITED, STARVED)


@pytest.mark.parametrize("reason", Reason)
def test_passed_limits_are_mentioned_unless_they_are_the_reason(reason: Reason) -> None:
    """A limit that was reached along the way is named, and never a second time."""
    ended_otherwise = {Reason.EXITED, Reason.TIMED_OUT, Reason.NO_OUTPUT, Reason.CANCELLED}
    text = passed_limits(reason, STARVED._replace(refused_forks=1))

    assert bool(text) == (reason in ended_otherwise)
    assert bool(text) == ("memory limit" in text and "process limit" in text)
    assert passed_limits(reason, QUIET) == passed_limits(reason, None) == ""


@pytest.mark.parametrize("reason", Reason)
def test_ending_leads_back_to_its_reason(reason: Reason) -> None:
    """History keeps endings by name, and reads them back as they were."""
    assert reason_of(a_status(reason, code=1).ending) is reason


def test_command_that_was_not_started_has_an_ending_of_its_own() -> None:
    """What never ran is neither a success nor an exit in the figures."""
    status = a_status(Reason.EXITED)

    assert (status.ending, status.is_success) == (NOT_STARTED, False)
    assert reason_of(NOT_STARTED) is Reason.EXITED


def test_success_is_an_exit_with_code_zero() -> None:
    """Neither another code nor another reason with code 0 counts."""
    statuses = [a_status(Reason.EXITED, 0), a_status(Reason.EXITED, 1), a_status(Reason.SWEPT, 0)]

    assert [status.is_success for status in statuses] == [True, False, False]
