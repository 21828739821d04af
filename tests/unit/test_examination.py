"""The examination: what is believed of a sandbox, and what is left of it afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.environments.environment import Environment
from sandboxd.errors import EngineFailed
from sandboxd.protections.examination import (
    FORK,
    HOST_KILL,
    KILL,
    MAX_SEEN,
    MEMORY,
    MOST_MEMORY,
    MOST_PROCESSES,
    NO_COUNTERS,
    NOT_YET,
    REFUSED_FORKS,
    Examiner,
    Observations,
    checks,
    examine,
)
from sandboxd.protections.report import Finding, Verdict
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.settings import SandboxSettings
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually

UID = 200_000
"""The first that the fixtures give out."""


def program(*steps: str) -> str:
    """What a fake guest does instead of running the probe."""
    return "; " + "; ".join([*steps, "true"])


def telling(*pairs: tuple[str, str]) -> str:
    return program(*(f"echo {json.dumps(pair)}" for pair in pairs))


def finding(findings: Iterable[Finding], tried: str) -> Finding:
    (found,) = [one for one in findings if one.tried == tried]
    return found


def verdicts(findings: Iterable[Finding]) -> set[Verdict]:
    return {one.verdict for one in findings}


def judged(output: bytes, settings: SandboxSettings, environment: Environment) -> Sequence[Finding]:
    observations = Observations()
    observations.read(output)
    return observations.judge(checks(settings, environment, UID), "unseen")


# --- what is believed ---


@pytest.mark.parametrize(
    ("tried", "seen", "verdict"),
    [
        ("capabilities", "none", Verdict.HOLDS),
        ("capabilities", "CapBnd 00000000a80425fb", Verdict.FAILS),
        ("no new privileges", "no", Verdict.FAILS),
        ("setuid programs", "7, inert", Verdict.HOLDS),
        ("setuid programs", "7, effective", Verdict.FAILS),
        ("write to /", "EROFS", Verdict.HOLDS),
        ("write to /", "EACCES", Verdict.FAILS),  # the uid may not write, another could
        ("interfaces", "lo", Verdict.HOLDS),
        ("interfaces", "lo, eth0", Verdict.FAILS),
        ("connect to 169.254.169.254", "ENETUNREACH", Verdict.HOLDS),
        ("connect to 169.254.169.254", "no answer", Verdict.FAILS),
        ("connect to 169.254.169.254", "ECONNREFUSED", Verdict.FAILS),
        ("resolver", "1 servers", Verdict.FAILS),
        ("uid", str(UID), Verdict.HOLDS),
        ("uid", "0", Verdict.FAILS),
        ("groups", f"0 {UID}", Verdict.FAILS),
        ("user name", "sandboxuser", Verdict.HOLDS),
        ("user name", "none", Verdict.FAILS),
        ("seccomp mode", "0", Verdict.FAILS),
        ("AF_VSOCK", "EPERM", Verdict.HOLDS),
        ("AF_VSOCK", "ALLOWED", Verdict.FAILS),
        ("io_uring_setup", "EFAULT", Verdict.FAILS),  # the kernel looked at the arguments
        ("clone3", "ENOSYS", Verdict.HOLDS),
        ("open /proc/1/mem", "EACCES", Verdict.HOLDS),
        ("list /proc/1/fd", "3", Verdict.FAILS),
        ("connect to the guest's socket", "ENOENT", Verdict.HOLDS),
        ("connect to the guest's socket", "ALLOWED", Verdict.FAILS),
        ("room", "1048576 bytes, 16 files", Verdict.HOLDS),
        ("room", "1048576 bytes, 17 files", Verdict.FAILS),
        ("room", "2097152 bytes, 16 files", Verdict.FAILS),
        ("room", "0 bytes, 0 files", Verdict.FAILS),
        ("room", "ENOENT", Verdict.FAILS),
        ("masked paths", "/proc/version", Verdict.FAILS),
        ("cgroup", "/ /cmd", Verdict.HOLDS),
        ("cgroup", "/docker/0123", Verdict.FAILS),
        ("fork", "EAGAIN after 14", Verdict.HOLDS),
        ("fork", "ALLOWED 32 times", Verdict.FAILS),
    ],
)
def test_outcomes_are_judged_on_this_side(
    tried: str,
    seen: str,
    verdict: Verdict,
    sandbox_settings: SandboxSettings,
    environment: Environment,
) -> None:
    """The sandbox tells what happened; what that means is decided by the daemon."""
    findings = judged(json.dumps([tried, seen]).encode(), sandbox_settings, environment)

    assert finding(findings, tried).verdict is verdict


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b'["uid"]',
        b'["uid", 200000]',
        b'["uid", "200000", 1]',
        b'{"uid": "200000"}',
        b'"uid"',
        b'["uid", "200000"',
        b"[" * 100_000,
        b"9" * 10_000,
        b"NaN",
    ],
)
def test_garbage_proves_nothing(
    line: bytes,
    sandbox_settings: SandboxSettings,
    environment: Environment,
) -> None:
    """What is not a pair of strings is passed over, and the next line still counts."""
    findings = judged(line + b'\n["capabilities", "none"]\n', sandbox_settings, environment)

    assert finding(findings, "uid").verdict is Verdict.UNSEEN
    assert finding(findings, "capabilities").verdict is Verdict.HOLDS


@given(output=st.binary(max_size=2000))
def test_any_output_is_survived(output: bytes) -> None:
    """No bytes that a sandbox could write raise anything."""
    Observations().read(output)


@pytest.mark.parametrize("tried", [MEMORY, REFUSED_FORKS, HOST_KILL])
def test_a_sandbox_is_not_believed_about_what_the_host_sees(
    tried: str,
    sandbox_settings: SandboxSettings,
    environment: Environment,
) -> None:
    """Limits and kills are proved by the host's own counters and calls."""
    lie = json.dumps([tried, "killed 5 gone in 0 ms"]).encode()

    assert finding(judged(lie, sandbox_settings, environment), tried).verdict is Verdict.UNSEEN


def test_the_first_word_of_a_sandbox_counts(
    sandbox_settings: SandboxSettings,
    environment: Environment,
) -> None:
    """What runs beside the probe cannot take back what it has told."""
    findings = judged(b'["uid", "0"]\n["uid", "200000"]\n', sandbox_settings, environment)

    assert finding(findings, "uid").verdict is Verdict.FAILS


def test_words_of_a_sandbox_are_bounded_and_printable(
    sandbox_settings: SandboxSettings,
    environment: Environment,
) -> None:
    """A report can be shown on a terminal whatever is in it."""
    hostile = json.dumps(["uid", "\x1b[2J\n" + "x" * 10_000]).encode()

    seen = finding(judged(hostile, sandbox_settings, environment), "uid").seen

    assert seen.isprintable()
    assert len(seen) <= MAX_SEEN + len("...")


# --- the way of an examination ---


async def test_what_a_sandbox_tells_is_found(
    maker: SandboxMaker, environment: Environment, engine: FakeEngine
) -> None:
    """A sandbox is made, asked, killed by the host and destroyed."""
    findings = await examine(
        maker, environment, program=telling(("uid", str(UID)), ("AF_VSOCK", "ALLOWED"))
    )

    assert finding(findings, "uid").verdict is Verdict.HOLDS
    assert finding(findings, "AF_VSOCK").verdict is Verdict.FAILS
    assert finding(findings, HOST_KILL).verdict is Verdict.HOLDS
    assert finding(findings, MEMORY).seen == NO_COUNTERS
    assert engine.live == set()


async def test_memory_that_can_be_had_beyond_the_limit_is_found(
    maker: SandboxMaker, environment: Environment
) -> None:
    """A limit that does not hold is told, also where nothing can be counted."""
    findings = await examine(maker, environment, program=telling(("allocate", "ALLOWED 512 MiB")))

    assert finding(findings, MEMORY).verdict is Verdict.FAILS


async def test_large_limits_are_not_tried(
    maker: SandboxMaker, environment: Environment, guests: FakeGuests
) -> None:
    """An examination must not take the memory that others need."""
    large = replace(environment, memory_bytes=MOST_MEMORY + 1, max_processes=MOST_PROCESSES + 1)

    findings = await examine(maker, large, program=program())

    made = [command.request["argv"][-2] for command in guests.commands]
    assert made == ["try_all", "queue", "lock"]
    for tried in (MEMORY, FORK, REFUSED_FORKS):
        assert finding(findings, tried).verdict is Verdict.UNSEEN
        assert "are not tested" in finding(findings, tried).seen


@pytest.mark.parametrize("step", ["die", "lie unknown kind"])
async def test_a_guest_that_does_not_live_through_it_has_failed(
    step: str, maker: SandboxMaker, environment: Environment, engine: FakeEngine
) -> None:
    """Nothing that runs inside may end the guest or make it lie."""
    findings = await examine(maker, environment, program=program(step))

    assert finding(findings, KILL).verdict is Verdict.FAILS
    assert "the guest was lost" in finding(findings, KILL).seen
    assert finding(findings, "fork").verdict is Verdict.UNSEEN
    assert engine.live == set()


@pytest.mark.parametrize("step", ["sleep", "stubborn", "flood 100000000; sleep"])
async def test_a_sandbox_that_hangs_is_given_up(
    step: str, maker: SandboxMaker, environment: Environment, engine: FakeEngine
) -> None:
    """The deadline holds, what was not seen says so, and the sandbox is gone."""
    async with asyncio.timeout(5):
        findings = await examine(maker, environment, program=program(step), deadline_seconds=0.2)

    assert verdicts(findings) == {Verdict.UNSEEN}
    assert {one.seen for one in findings} == {"the examination took longer than 0.2 s"}
    assert engine.live == set()


async def test_a_program_that_cannot_be_started_is_a_finding(
    maker: SandboxMaker, environment: Environment, engine: FakeEngine
) -> None:
    """An image in which nothing runs proves nothing, and breaks nothing."""
    findings = await examine(maker, environment, program=program("refuse no such program"))

    assert verdicts(findings) == {Verdict.UNSEEN}
    assert "no such program" in findings[0].seen
    assert engine.live == set()


async def test_an_engine_that_fails_is_a_finding(
    maker: SandboxMaker, environment: Environment, engine: FakeEngine
) -> None:
    """Without a sandbox there is no proof, and the reason is told in the engine's words."""
    engine.failures["create"] = EngineFailed("The engine is out of sorts.")

    findings = await examine(maker, environment)

    assert verdicts(findings) == {Verdict.UNSEEN}
    assert {one.seen for one in findings} == {"The engine is out of sorts."}


async def test_an_unforeseen_failure_is_a_finding(
    maker: SandboxMaker, environment: Environment, engine: FakeEngine
) -> None:
    """The daemon does not learn of a mistake in here by an exception."""
    findings = await examine(maker, environment, program=3)  # type: ignore[arg-type]

    assert verdicts(findings) == {Verdict.UNSEEN}
    assert "the daemon's log" in findings[0].seen
    assert engine.live == set()


async def test_a_cancelled_examination_leaves_nothing(
    maker: SandboxMaker,
    environment: Environment,
    engine: FakeEngine,
    guests: FakeGuests,
) -> None:
    """A daemon that stops meanwhile takes the sandbox along."""
    examining = asyncio.create_task(examine(maker, environment, program=program("sleep")))
    await engine.wait_until(lambda: bool(guests.commands))

    examining.cancel()

    with pytest.raises(asyncio.CancelledError):
        await examining
    assert engine.live == set()


# --- in the background ---


async def test_until_the_end_nothing_is_claimed(
    maker: SandboxMaker, environment: Environment, engine: FakeEngine
) -> None:
    """A status asked early says that the proofs are still to come."""
    engine.gates["create"] = asyncio.Event()

    async with Examiner(maker, environment) as examiner:
        await engine.wait_until(lambda: engine.calls["create"] == 1)

        assert {one.seen for one in examiner.findings} == {NOT_YET}
        assert verdicts(examiner.findings) == {Verdict.UNSEEN}
        engine.gates["create"].set()
    assert engine.live == set()


async def test_an_engine_that_comes_back_is_examined(
    maker: SandboxMaker, environment: Environment, engine: FakeEngine
) -> None:
    """An examination that saw nothing is made again; one that did is not."""
    engine.go_away()
    async with Examiner(maker, environment, retry_seconds=(0.01,)) as examiner:
        await engine.wait_until(lambda: engine.calls["image_id"] > 2)
        engine.come_back()

        await eventually(lambda: finding(examiner.findings, HOST_KILL).verdict is Verdict.HOLDS)
        made = engine.calls["create"]
    assert made == engine.calls["create"] == 1
    assert engine.live == set()
