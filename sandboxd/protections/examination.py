"""Proves the isolation: attacks a sandbox from inside and reports the outcome of each attempt."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import structlog

from sandboxd.environments.environment import Environment
from sandboxd.errors import SandboxdError
from sandboxd.execs.ending import ExitStatus, Reason
from sandboxd.execs.exec import Exec, ExecDetails, KillCounts
from sandboxd.execs.spec import ExecSpec, new_exec_id
from sandboxd.guest.frames import Stream
from sandboxd.isolation.cgroups import SOCKET_BUFFER_BYTES
from sandboxd.isolation.kernel_memory import MAX_LOCKS, KernelMemoryWatch
from sandboxd.isolation.visibility import masked_paths
from sandboxd.link import LinkClosed
from sandboxd.protections import probe
from sandboxd.protections.report import Finding, Verdict
from sandboxd.sandboxes.container import GUEST_MEMORY, GUEST_PROCESSES
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.tasks import Tasks
from sandboxd.workspaces.disk_template import SLACK_BYTES

log = structlog.get_logger()

DEADLINE_SECONDS = 40.0
PROGRAM_SECONDS = 8.0
LOCK_SECONDS = 20.0
"""Time to take locks and to be found with them, on a busy host."""
GONE_SECONDS = 5.0
RETRY_SECONDS = (5.0, 30.0, 300.0)
MAX_OUTPUT = 64 * 1024
MAX_SEEN = 200
"""Characters of an answer of a sandbox that are repeated in a report."""
MOST_MEMORY = 1 << 30
MOST_PROCESSES = 1024
"""Higher limits are not tested: that would take long, and memory from others."""
MEMORY_MARGIN = 32 << 20
"""Bytes beyond the memory limit that certainly exceed it."""
QUEUED_BYTES = 3 * SOCKET_BUFFER_BYTES
LOCKS_HELD = 2 * MAX_LOCKS
NOT_YET = "the examination is still running"
NOT_ROOT = "the daemon is not root"
NO_COUNTERS = "the kernel's counters cannot be read"

REFUSALS = frozenset(["EPERM", "EACCES", "ENOSYS", "EAFNOSUPPORT"])
"""Errors of a call that is blocked; any other error comes from the call itself."""
UNREACHABLE = frozenset(["ENETUNREACH", "EHOSTUNREACH", "ENETDOWN", *REFUSALS])
SYSTEM_CALLS = (
    "AF_VSOCK",
    "AF_ALG",
    "AF_PACKET",
    "io_uring_setup",
    "open_tree",
    "clone3",
    "memfd_secret",
    "bpf",
    "keyctl",
    "perf_event_open",
    "userfaultfd",
    "ptrace",
    "unshare(NEWUSER)",
    "mount",
    "seccomp",
    "prctl(SET_SECCOMP)",
    "filter on a socket",
    "options that a socket keeps",
    "locks of open files",
)
KILL, FORK, ALLOCATE = "kill(1, SIGKILL)", "fork", "allocate"
MEMORY, REFUSED_FORKS = "memory beyond the limit", "refused forks, counted by the host"
HOST_KILL = "SIGKILL by pid"
QUEUE, BUFFERS = "queue datagrams", "unread datagrams"
TAKE_LOCKS, LOCKS = "take locks", "record locks"
SEEN_BY_THE_HOST = frozenset([MEMORY, REFUSED_FORKS, HOST_KILL, BUFFERS, LOCKS])
"""Attempts whose outcome only the host can report."""


class Check(NamedTuple):
    """An attempt, the protection that it tests, and the outcomes that prove the protection."""

    protection: str
    tried: str
    is_expected: Callable[[str], bool]


def _is(*outcomes: str) -> Callable[[str], bool]:
    return lambda seen: seen in outcomes


def checks(settings: SandboxSettings, environment: Environment, uid: int) -> Sequence[Check]:
    """All attempts on a sandbox with this uid."""
    refused = _is(*REFUSALS)
    read_only = [
        Check("root filesystem", f"write to {directory}", _is("EROFS"))
        for directory in ("/", "/etc", "/.sandboxd")
    ]
    guest = ("open /proc/1/mem", "open /proc/1/environ", "list /proc/1/fd")
    return [
        Check("capabilities", "capabilities", _is("none")),
        Check("capabilities", "no new privileges", _is("yes")),
        Check("capabilities", "setuid programs", lambda seen: seen.endswith(("none", "inert"))),
        *read_only,
        Check("network", "interfaces", _is("lo", "none")),
        Check("network", "connect to 169.254.169.254", _is(*UNREACHABLE)),
        Check("network", "resolver", _is("none")),
        Check("own uid", "uid", _is(str(uid))),
        Check("own uid", "groups", _is(str(uid))),
        Check("user name", "user name", _is(settings.user)),
        Check("system calls", "seccomp mode", _is("2")),
        *(Check("system calls", call, refused) for call in SYSTEM_CALLS),
        *(Check("guest", attempt, refused) for attempt in guest),
        Check("guest", "prlimit(1)", refused),
        Check("guest", "setpriority(1)", refused),
        Check("guest", "connect to the guest's socket", _is("ENOENT", "ECONNREFUSED")),
        Check("guest", KILL, _is("no effect")),
        Check("workspace", "room", lambda seen: _is_bounded(seen, environment)),
        Check("host details", "masked paths", _is("empty")),
        # A container sees its own cgroup as the root; commands are in a child of it.
        Check("host details", "cgroup", _is("/", "/ /cmd", "/cmd")),
        Check("host details", "host name", _is("sandbox")),
        Check("command limits", MEMORY, lambda seen: seen.startswith("killed")),
        Check("command limits", FORK, lambda seen: seen.startswith("EAGAIN")),
        Check("command limits", REFUSED_FORKS, lambda seen: seen != "0"),
        Check("kernel memory", BUFFERS, lambda seen: seen.endswith(("limited", "counted"))),
        Check("kernel memory", LOCKS, lambda seen: "record locks, more than" in seen),
        Check("host kill", HOST_KILL, lambda seen: seen.startswith("gone")),
    ]


def _is_bounded(room: str, environment: Environment) -> bool:
    match = re.fullmatch(r"(\d{1,18}) bytes, (\d{1,18}) files", room, re.ASCII)
    return (
        match is not None
        and 0 < int(match[1]) <= environment.workspace_bytes + SLACK_BYTES
        and int(match[2]) <= environment.workspace_files
    )


class Observations:
    """Outcomes so far. Everything that comes from a sandbox is bounded and made printable."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self.why_not: dict[str, str] = {}
        """Reasons by attempt that was not made, or whose outcome is not known."""

    def note(self, tried: str, seen: str) -> None:
        """Record what the host saw; it replaces what the sandbox reported."""
        self.seen[tried] = printable(seen)

    def read(self, output: bytes) -> None:
        """Record the pairs that a probe wrote, and nothing else."""
        for line in output.splitlines():
            try:
                pair = json.loads(line)
            except (ValueError, RecursionError):
                continue
            match pair:
                case [str(tried), str(seen)] if tried not in SEEN_BY_THE_HOST:
                    self.seen.setdefault(tried, printable(seen))

    def judge(self, made: Sequence[Check], why_unseen: str) -> Sequence[Finding]:
        return [self._finding(check, why_unseen) for check in made]

    def _finding(self, check: Check, why_unseen: str) -> Finding:
        seen = self.seen.get(check.tried)
        if seen is None:
            seen, verdict = self.why_not.get(check.tried, why_unseen), Verdict.UNSEEN
        else:
            verdict = Verdict.HOLDS if check.is_expected(seen) else Verdict.FAILS
        return Finding(protection=check.protection, tried=check.tried, seen=seen, verdict=verdict)


def printable(text: str) -> str:
    cut = text if len(text) <= MAX_SEEN else text[:MAX_SEEN] + "..."
    return "".join(letter if letter.isprintable() else "?" for letter in cut)


async def examine(
    maker: SandboxMaker,
    environment: Environment,
    *,
    program: str | None = None,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Sequence[Finding]:
    """Make a sandbox, attack it and destroy it. Failures on the way become findings.

    `program` replaces the probe.
    """
    observations = Observations()
    why_unseen = "the sandbox did not report an outcome"
    uid = -1
    try:
        text = program or inspect.getsource(probe)
        async with (
            asyncio.timeout(deadline_seconds),
            _temporary_sandbox(maker, environment) as sandbox,
        ):
            uid = sandbox.uid
            inside = _Inside(sandbox, maker.settings, observations, text)
            await _attack(inside, maker.kernel_memory)
    except TimeoutError:
        why_unseen = f"the examination took longer than {deadline_seconds:g} s"
    except (SandboxdError, LinkClosed) as error:
        why_unseen = printable(str(error))
    except Exception:
        # A status without proofs is better than a daemon that fails.
        log.exception("examination.failed")
        why_unseen = "the examination failed; see the daemon's log"
    return observations.judge(checks(maker.settings, environment, uid), why_unseen)


@asynccontextmanager
async def _temporary_sandbox(
    maker: SandboxMaker, environment: Environment
) -> AsyncIterator[Sandbox]:
    sandbox = await maker.make(environment)
    try:
        yield sandbox
    finally:
        # Shielded: neither the deadline nor a shutdown may leave the sandbox behind.
        await asyncio.shield(maker.destroy(sandbox))


async def _attack(inside: _Inside, watch: KernelMemoryWatch | None) -> None:
    sandbox, settings, observations, _ = inside
    environment = sandbox.environment
    places = {"workspace": settings.workspace_dir, "masked": masked_paths()}
    await inside.run("try_all", places, at_stake=KILL)
    if environment.max_processes > MOST_PROCESSES:
        why_not = f"more than {MOST_PROCESSES} processes are not tested"
        observations.why_not |= {FORK: why_not, REFUSED_FORKS: why_not}
    else:
        most = environment.max_processes + GUEST_PROCESSES
        _count_refusals(await inside.run("fork", {"most": most}, at_stake=FORK), observations)
    if environment.memory_bytes > MOST_MEMORY:
        observations.why_not[MEMORY] = f"more than {MOST_MEMORY >> 20} MiB are not tested"
    else:
        size = environment.memory_bytes + GUEST_MEMORY + MEMORY_MARGIN
        status = await inside.run("allocate", {"bytes": size}, at_stake=MEMORY)
        await _check_for_oom(sandbox, status, observations)
    if os.geteuid() == 0:
        _judge_buffers(
            await inside.run("queue", {"bytes": QUEUED_BYTES}, at_stake=BUFFERS), observations
        )
        await _hold_locks(inside, watch)
    else:
        observations.why_not |= {BUFFERS: NOT_ROOT, LOCKS: NOT_ROOT}
    await _kill_from_host(sandbox, observations)


def _judge_buffers(status: ExitStatus, observations: Observations) -> None:
    """They have a limit, or are part of the memory that has one."""
    queued = observations.seen.get(QUEUE, "")
    if not queued.isdecimal():
        return
    if int(queued) < QUEUED_BYTES // 2:
        verdict = "limited"
    elif status.usage is not None and status.usage.peak_memory_bytes > int(queued):
        verdict = "counted"
    else:
        verdict = "neither limited nor counted"
    observations.note(BUFFERS, f"{int(queued) >> 20} of {QUEUED_BYTES >> 20} MiB, {verdict}")


async def _hold_locks(inside: _Inside, watch: KernelMemoryWatch | None) -> None:
    """Hold locks until the daemon has looked at them, however long that takes on a busy host."""
    execution = inside.start("lock", {"most": LOCKS_HELD}, LOCK_SECONDS)
    await execution.until(lambda: inside.has_seen(execution, TAKE_LOCKS))
    if watch is not None:
        await _first_of(watch.verdict(), execution.ended())
    execution.end(Reason.CANCELLED)
    status = await inside.end_of(execution, at_stake=LOCKS)
    if status.reason is Reason.CANCELLED or status.is_success:
        inside.observations.note(LOCKS, f"{LOCKS_HELD} were held")
    elif status.reason is Reason.TIMED_OUT:
        inside.observations.why_not[LOCKS] = f"not decided within {LOCK_SECONDS:g} s"


async def _first_of(*awaited: Coroutine[Any, Any, object]) -> None:
    """Return when one of them does."""
    tasks = [asyncio.ensure_future(one) for one in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _count_refusals(status: ExitStatus, observations: Observations) -> None:
    if status.usage is None:
        observations.why_not[REFUSED_FORKS] = NO_COUNTERS
    else:
        observations.note(REFUSED_FORKS, str(status.usage.refused_forks))


async def _check_for_oom(sandbox: Sandbox, status: ExitStatus, observations: Observations) -> None:
    if sandbox.is_lost:
        return
    if ALLOCATE in observations.seen:
        observations.note(MEMORY, observations.seen[ALLOCATE])
    elif status.usage is None:
        observations.why_not[MEMORY] = NO_COUNTERS
    elif status.usage.oom_kills:
        await sandbox.link.ping()
        observations.note(MEMORY, "killed by the kernel, and the guest survived")


async def _kill_from_host(sandbox: Sandbox, observations: Observations) -> None:
    """The end of a sandbox that held too much is such a kill; another needs one."""
    if sandbox.process is None or (sandbox.is_lost and LOCKS not in observations.seen):
        return
    began = time.monotonic()
    if sandbox.is_lost or sandbox.cut_off("its examination is over"):
        is_gone = await sandbox.process.gone(GONE_SECONDS)
        took = f"{(time.monotonic() - began) * 1000:.0f} ms"
        observations.note(HOST_KILL, f"gone in {took}" if is_gone else f"still there after {took}")
    elif os.geteuid() == 0:
        observations.note(HOST_KILL, "refused")
    else:
        observations.why_not[HOST_KILL] = NOT_ROOT


class _Inside(NamedTuple):
    """Runs the probe in a sandbox and records what it reports."""

    sandbox: Sandbox
    settings: SandboxSettings
    observations: Observations
    program: str

    async def run(self, what: str, arguments: Mapping[str, Any], *, at_stake: str) -> ExitStatus:
        """Run one part of the probe; `at_stake` is the attempt that fails if the guest is lost."""
        return await self.end_of(self.start(what, arguments), at_stake=at_stake)

    def start(
        self, what: str, arguments: Mapping[str, Any], seconds: float = PROGRAM_SECONDS
    ) -> Exec:
        """Start one part of the probe."""
        python = (probe.PYTHON, "-I", "-S", "-c", self.program)
        spec = ExecSpec(
            exec_id=new_exec_id(),
            shell=None,
            argv=(*python, what, json.dumps(arguments)),
            cwd=self.settings.workspace_dir,
            env={},
            timeout_seconds=seconds,
            is_kept=False,
        )
        execution = Exec(
            ExecDetails.from_spec(spec),
            self.sandbox,
            on_ended=lambda _: None,
            kill_counts=KillCounts(),
            spool=None,
            excerpt_bytes=MAX_OUTPUT,
        )
        execution.start(spec.encode(label=""))
        return execution

    def has_seen(self, execution: Exec, tried: str) -> bool:
        """Whether a part that runs has reported an attempt."""
        self.observations.read(execution.output.excerpt(Stream.STDOUT, MAX_OUTPUT).data)
        return tried in self.observations.seen

    async def end_of(self, execution: Exec, *, at_stake: str) -> ExitStatus:
        status = await execution.wait()
        self.observations.read(execution.output.excerpt(Stream.STDOUT, MAX_OUTPUT).data)
        if self.sandbox.is_lost and status.reason is not Reason.TIMED_OUT:
            self.observations.note(at_stake, f"the guest was lost: {self.sandbox.lost_because}")
        return status


class Examiner:
    """Repeats the examination in the background until it has a result, kept in `findings`."""

    def __init__(
        self,
        maker: SandboxMaker,
        environment: Environment,
        *,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
        why_not_yet: str = NOT_YET,
    ) -> None:
        self._maker = maker
        self._environment = environment
        self._retry_seconds = retry_seconds
        self._tasks = Tasks()
        unmade = checks(maker.settings, environment, uid=-1)
        self.findings = Observations().judge(unmade, why_not_yet)

    async def __aenter__(self) -> Examiner:
        self._tasks.spawn(self._examine(), "examination")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._tasks.cancel("examination")
        await self._tasks.finish()

    async def _examine(self) -> None:
        pauses = iter(self._retry_seconds)
        pause = 0.0
        while True:
            self.findings = await examine(self._maker, self._environment)
            if any(finding.verdict is not Verdict.UNSEEN for finding in self.findings):
                break
            pause = next(pauses, pause)
            await asyncio.sleep(pause)
        self._log()

    def _log(self) -> None:
        failed = [finding for finding in self.findings if finding.verdict is Verdict.FAILS]
        for finding in failed:
            log.error(
                "isolation.broken",
                protection=finding.protection,
                tried=finding.tried,
                seen=finding.seen,
            )
        held = sum(finding.verdict is Verdict.HOLDS for finding in self.findings)
        log.info("isolation.examined", held=held, failed=len(failed), tried=len(self.findings))
