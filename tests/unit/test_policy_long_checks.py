"""Checks that take long: apart from the daemon, users in turn, and within limits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

import pytest
from tree_sitter import Node

from sandboxd import side_process
from sandboxd.access.shares import POLICY_CHECKS
from sandboxd.errors import ExecLimitReached
from sandboxd.execs.long_checks import LongChecks
from sandboxd.policy import STRICT, CommandChecker, Decision, Rule, check, checker, from_toml
from sandboxd.policy.decision import ALLOWED
from sandboxd.side_process import SideProcess
from tests.unit.policy_cases import REFUSED

LONG = "echo $(" + "ls; " * 120 + ")"


@pytest.fixture
async def checks() -> AsyncIterator[LongChecks]:
    checks = LongChecks(STRICT)
    yield checks
    await checks.aclose()


class Recorded:
    """Takes the place of the process: each check ends when the test lets it."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = asyncio.Semaphore(0)

    async def ask(self, request: bytes) -> bytes:
        self.begun.append(json.loads(request))
        await self.may_end.acquire()
        return b"[]\n"

    async def aclose(self) -> None:
        pass

    async def started(
        self, checks: LongChecks, user_id: str, count: int
    ) -> list[asyncio.Task[Decision]]:
        """Calls of a user, of which the first is being checked."""
        calls = [
            asyncio.create_task(checks.check(f"{user_id}{number}", user_id))
            for number in range(count)
        ]
        while not self.begun:
            await asyncio.sleep(0)
        return calls

    async def end(self, calls: Sequence[asyncio.Task[Decision]]) -> list[Decision]:
        for _ in calls:
            self.may_end.release()
        return await asyncio.gather(*calls)


@pytest.fixture
def recorded(checks: LongChecks, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    recorded = Recorded()
    monkeypatch.setattr(checks, "_worker", recorded)
    return recorded


@pytest.mark.parametrize(
    "command",
    [LONG, ["bash", "-c", LONG], "ls; rm x", "echo 'ü\n\0", *(REFUSED[n][0] for n in range(8))],
)
async def test_process_decides_as_the_check_does(
    command: str | Sequence[str], checks: LongChecks
) -> None:
    """The same findings in the same words."""
    assert await checks.check(command, "ada") == check(command, STRICT)


async def test_process_has_the_policy_of_its_file() -> None:
    """Patterns, files and words about what to do come with it."""
    policy = from_toml(
        'extends = "strict"\nallow = ["git"]\nforbid_patterns = ["git push*"]\n'
        'forbid_writes = ["/a/*"]\ninline_code = false\n[instead]\nrm = "Do not."\n'
    )
    checks = LongChecks(policy)
    for command in ("git push x", "git log > /a/b", "python3 -c 1", "rm x", "git status"):
        assert await checks.check(command, "ada") == check(command, policy)
    await checks.aclose()


async def test_users_take_turns(checks: LongChecks, recorded: Recorded) -> None:
    """However many commands of one user wait, that of another is next or the one after."""
    calls = await recorded.started(checks, "ada", 1)
    calls += [asyncio.create_task(checks.check(f"ada{number}", "ada")) for number in range(1, 20)]
    await asyncio.sleep(0)
    calls += [asyncio.create_task(checks.check(f"bob{number}", "bob")) for number in range(2)]
    await asyncio.sleep(0)
    await recorded.end(calls)

    assert recorded.begun[:5] == ["ada0", "ada1", "bob0", "ada2", "bob1"]


async def test_waiting_commands_of_a_user_are_limited(
    checks: LongChecks, recorded: Recorded
) -> None:
    """Beyond the limit a user is refused at once, and no other user is."""
    calls = await recorded.started(checks, "ada", 1)
    for number in range(POLICY_CHECKS.per_user):
        calls.append(asyncio.create_task(checks.check(f"more{number}", "ada")))
    await asyncio.sleep(0)

    with pytest.raises(ExecLimitReached, match="This user") as refusal:
        await checks.check("one more", "ada")
    assert refusal.value.retry_after_seconds
    calls.append(asyncio.create_task(checks.check("b", "bob")))
    await asyncio.sleep(0)
    assert await recorded.end(calls) == [ALLOWED] * len(calls)


async def test_waiting_commands_of_all_users_are_limited(
    checks: LongChecks, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is their number in all."""
    monkeypatch.setattr(checks._turns, "_queued", 3)
    calls = await recorded.started(checks, "ada", 1)
    calls += [asyncio.create_task(checks.check("x", f"user{number}")) for number in range(3)]
    await asyncio.sleep(0)

    with pytest.raises(ExecLimitReached, match="The daemon"):
        await checks.check("x", "one more")
    await recorded.end(calls)


async def test_command_of_a_caller_who_left_is_not_checked(
    checks: LongChecks, recorded: Recorded
) -> None:
    """A place in the queue ends with the call."""
    calls = await recorded.started(checks, "ada", 3)
    calls.pop(1).cancel()
    await recorded.end(calls)

    assert recorded.begun == ["ada0", "ada2"]


async def test_cancelled_check_ends(checks: LongChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes on for a caller that has left, and the next one has its turn."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(checks._worker, "_module", "tests.unit.endless_worker")
    call = asyncio.create_task(checks.check("endless", "ada"))
    while (process := checks._worker._process) is None:
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call], timeout=30)

    assert call.cancelled()
    assert process.child.returncode is not None
    monkeypatch.undo()
    assert (await checks.check(LONG, "eve")).allowed


@pytest.mark.alone
async def test_check_without_an_end_is_a_refusal(
    checks: LongChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel ends it by its processor time, and the next check has a new process."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(checks._worker, "_module", "tests.unit.endless_worker")

    decision = await checks.check("endless", "ada")

    assert decision.findings[0].rule == Rule.TOO_COMPLEX
    assert decision.findings[0].instead
    monkeypatch.undo()
    assert (await checks.check(LONG, "ada")).allowed


async def test_status_of_an_ended_process_is_known(
    checks: LongChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that the kernel ended is refused, also if it ended before it was asked."""

    async def ask(worker: SideProcess, request: bytes) -> bytes:
        process = await worker._start()
        os.kill(process.child.pid, signal.SIGXCPU)
        await asyncio.to_thread(os.waitid, os.P_PID, process.child.pid, os.WEXITED | os.WNOWAIT)
        return await ask_now(worker, request)

    ask_now = SideProcess._ask
    monkeypatch.setattr(SideProcess, "_ask", ask)

    decision = await checks.check("endless", "ada")

    assert decision.findings[0].rule == Rule.TOO_COMPLEX


async def test_process_that_others_end_is_no_decision(checks: LongChecks) -> None:
    """The caller may try again, with a new process."""
    assert (await checks.check(LONG, "ada")).allowed
    process = checks._worker._process
    assert process is not None
    process.child.kill()
    process.child.wait()

    with pytest.raises(ExecLimitReached, match="try again"):
        await checks.check(LONG, "ada")
    assert (await checks.check(LONG, "ada")).allowed


async def test_process_that_cannot_start_is_no_decision(
    checks: LongChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing runs unchecked because the host has no process left."""
    monkeypatch.setattr(side_process.sys, "executable", "/nowhere/python")

    with pytest.raises(ExecLimitReached, match="try again"):
        await checks.check(LONG, "ada")


async def test_close_leaves_no_process(checks: LongChecks) -> None:
    """Also while it checks, and while others wait: none of them starts another."""
    calls = [asyncio.create_task(checks.check(LONG, "ada")) for _ in range(3)]
    while (process := checks._worker._process) is None:
        await asyncio.sleep(0)
    await checks.aclose()

    assert process.child.returncode is not None
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in ended] == [ExecLimitReached] * 3
    assert checks._worker._process is None


def test_checker_says_what_takes_long() -> None:
    """Short commands are decided at once, long ones are not."""
    checker = CommandChecker(STRICT)

    assert checker.check_quickly("ls | head") == ALLOWED
    assert checker.check_quickly(LONG) is None


def test_words_of_a_command_are_gathered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command with thousands of words takes time in proportion to them: the fuzzer found one that
    was refused because its check took the square of that."""
    gathered: list[int] = []
    words_of = checker._words_of

    def counted(children: Iterable[Node]) -> list[Node]:
        gathered.append(1)
        return words_of(children)

    monkeypatch.setattr(checker, "_words_of", counted)
    counts = []
    for number in (10, 2000):
        gathered.clear()
        assert check("tr" + " ." * number, STRICT).allowed
        counts.append(len(gathered))

    assert counts[0] == counts[1]
