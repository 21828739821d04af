"""Proves the isolation: attacks a sandbox of its own from inside and tells what came of it."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import structlog

from sandboxd.errors import SandboxdError
from sandboxd.exec_spec import ExecSpec, new_exec_id
from sandboxd.execs import Exec, ExitStatus, Facts, Ladder, Reason
from sandboxd.guest.frames import Stream
from sandboxd.isolation import probe
from sandboxd.isolation.disk_template import SLACK_BYTES
from sandboxd.isolation.report import Finding, Verdict
from sandboxd.isolation.visibility import MASKED_PATHS
from sandboxd.link import LinkClosed
from sandboxd.sandbox import GUEST_MEMORY, GUEST_PROCESSES, Sandbox, SandboxMaker, SandboxSettings
from sandboxd.tasks import Tasks

log = structlog.get_logger()

DEADLINE_SECONDS = 20.0
PROGRAM_SECONDS = 8.0
GONE_SECONDS = 5.0
RETRY_SECONDS = (5.0, 30.0, 300.0)
MAX_OUTPUT = 64 * 1024
MAX_SEEN = 200
"""Characters of what a sandbox says that are repeated in a report."""
MOST_MEMORY = 1 << 30
MOST_PROCESSES = 1024
"""Limits beyond these are not tried out: it would take long, and memory from others."""
PLENTY = 32 << 20
"""So much beyond a limit on memory that it is reached in any case."""
NOT_YET = "the examination has not ended yet"
NO_COUNTERS = "the kernel's counters cannot be read"

REFUSALS = frozenset(["EPERM", "EACCES", "ENOSYS", "EAFNOSUPPORT"])
"""What a call gives that is not let through; any other error comes from the call itself."""
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
)
KILL, FORK, ALLOCATE = "kill(1, SIGKILL)", "fork", "allocate"
MEMORY, REFUSED_FORKS = "memory beyond the limit", "forks refused by the host's count"
HOST_KILL = "SIGKILL by pid"
SEEN_BY_THE_HOST = frozenset([MEMORY, REFUSED_FORKS, HOST_KILL])
"""What no sandbox is believed about."""


class Check(NamedTuple):
    """An attempt, the protection it belongs to, and what shows that the protection holds."""

    protection: str
    tried: str
    is_right: Callable[[str], bool]


def _is(*outcomes: str) -> Callable[[str], bool]:
    return lambda seen: seen in outcomes


def checks(settings: SandboxSettings, uid: int) -> Sequence[Check]:
    """All attempts, for a sandbox with this uid."""
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
        Check("workspace", "room", lambda seen: _is_bounded(seen, settings)),
        Check("host details", "masked paths", _is("empty")),
        # A container's own cgroup is the root of what it sees; commands are in a child of it.
        Check("host details", "cgroup", _is("/", "/ /cmd", "/cmd")),
        Check("host details", "host name", _is("sandbox")),
        Check("command limits", MEMORY, lambda seen: seen.startswith("killed")),
        Check("command limits", FORK, lambda seen: seen.startswith("EAGAIN")),
        Check("command limits", REFUSED_FORKS, lambda seen: seen != "0"),
        Check("host kill", HOST_KILL, lambda seen: seen.startswith("gone")),
    ]


def _is_bounded(room: str, settings: SandboxSettings) -> bool:
    match = re.fullmatch(r"(\d{1,18}) bytes, (\d{1,18}) files", room, re.ASCII)
    return (
        match is not None
        and 0 < int(match[1]) <= settings.workspace_bytes + SLACK_BYTES
        and int(match[2]) <= settings.workspace_files
    )


class Observations:
    """What was seen so far. All that comes from a sandbox is bounded and made printable."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self.why_not: dict[str, str] = {}
        """Attempts that were not made, or whose outcome could not be seen."""

    def note(self, tried: str, seen: str) -> None:
        """Take down what this side saw, whatever the sandbox said."""
        self.seen[tried] = printable(seen)

    def read(self, output: bytes) -> None:
        """Take the pairs that a probe wrote, and nothing else."""
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
            verdict = Verdict.HOLDS if check.is_right(seen) else Verdict.FAILS
        return Finding(protection=check.protection, tried=check.tried, seen=seen, verdict=verdict)


def printable(text: str) -> str:
    cut = text if len(text) <= MAX_SEEN else text[:MAX_SEEN] + "..."
    return "".join(letter if letter.isprintable() else "?" for letter in cut)


async def examine(
    maker: SandboxMaker,
    settings: SandboxSettings,
    *,
    program: str | None = None,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> Sequence[Finding]:
    """Attack one sandbox that no session gets, and destroy it. What fails becomes a finding.

    With another program than the probe, what that one tells is judged.
    """
    observations = Observations()
    why_unseen = "the sandbox gave no answer to it"
    uid = -1
    try:
        text = program or inspect.getsource(probe)
        async with asyncio.timeout(deadline_seconds), _sandbox_of_its_own(maker) as sandbox:
            uid = sandbox.uid
            await _attack(_Inside(sandbox, settings, observations, text))
    except TimeoutError:
        why_unseen = f"the examination took longer than {deadline_seconds:g} s"
    except (SandboxdError, LinkClosed) as error:
        why_unseen = printable(str(error))
    except Exception:
        # A status without proofs is better than a daemon that does not start.
        log.exception("examination.failed")
        why_unseen = "the examination failed; the daemon's log says how"
    return observations.judge(checks(settings, uid), why_unseen)


@asynccontextmanager
async def _sandbox_of_its_own(maker: SandboxMaker) -> AsyncIterator[Sandbox]:
    sandbox = await maker.make()
    try:
        yield sandbox
    finally:
        # Shielded: neither the deadline nor a shutdown may leave the sandbox behind.
        await asyncio.shield(maker.destroy(sandbox))


async def _attack(inside: _Inside) -> None:
    sandbox, settings, observations, _ = inside
    places = {"workspace": settings.workspace_dir, "masked": MASKED_PATHS}
    await inside.run("look", places, at_stake=KILL)
    if settings.max_processes > MOST_PROCESSES:
        why_not = f"more than {MOST_PROCESSES} processes are not tried"
        observations.why_not |= {FORK: why_not, REFUSED_FORKS: why_not}
    else:
        most = settings.max_processes + GUEST_PROCESSES
        _count_refusals(await inside.run("fork", {"most": most}, at_stake=FORK), observations)
    if settings.memory_bytes > MOST_MEMORY:
        observations.why_not[MEMORY] = f"more than {MOST_MEMORY >> 20} MiB are not tried"
    else:
        size = settings.memory_bytes + GUEST_MEMORY + PLENTY
        status = await inside.run("allocate", {"bytes": size}, at_stake=MEMORY)
        await _look_for_oom(sandbox, status, observations)
    await _kill_from_host(sandbox, observations)


def _count_refusals(status: ExitStatus, observations: Observations) -> None:
    if status.usage is None:
        observations.why_not[REFUSED_FORKS] = NO_COUNTERS
    else:
        observations.note(REFUSED_FORKS, str(status.usage.refused_forks))


async def _look_for_oom(sandbox: Sandbox, status: ExitStatus, observations: Observations) -> None:
    if sandbox.is_lost:
        return
    if ALLOCATE in observations.seen:
        observations.note(MEMORY, observations.seen[ALLOCATE])
    elif status.usage is None:
        observations.why_not[MEMORY] = NO_COUNTERS
    elif status.usage.oom_kills:
        await sandbox.link.ping()
        observations.note(MEMORY, "killed by the kernel, and the guest lives")


async def _kill_from_host(sandbox: Sandbox, observations: Observations) -> None:
    if sandbox.process is None or sandbox.is_lost:
        return
    began = time.monotonic()
    if sandbox.cut_off("its examination is over"):
        is_gone = await sandbox.process.gone(GONE_SECONDS)
        took = f"{(time.monotonic() - began) * 1000:.0f} ms"
        observations.note(HOST_KILL, f"gone in {took}" if is_gone else f"still there after {took}")
    elif os.geteuid() == 0:
        observations.note(HOST_KILL, "refused")
    else:
        observations.why_not[HOST_KILL] = "the daemon is not root"


class _Inside(NamedTuple):
    """Runs the probe in a sandbox and takes down what it saw."""

    sandbox: Sandbox
    settings: SandboxSettings
    observations: Observations
    program: str

    async def run(self, what: str, arguments: Mapping[str, Any], *, at_stake: str) -> ExitStatus:
        """With the attempt that has failed if the guest does not live through this."""
        python = (probe.PYTHON, "-I", "-S", "-c", self.program)
        spec = ExecSpec(
            exec_id=new_exec_id(),
            shell=None,
            argv=(*python, what, json.dumps(arguments)),
            cwd=self.settings.workspace_dir,
            env={},
            timeout_seconds=PROGRAM_SECONDS,
            is_kept=False,
        )
        execution = Exec(
            Facts.of(spec),
            self.sandbox,
            on_ended=lambda _: None,
            ladder=Ladder(),
            spool=None,
            capture_bytes=MAX_OUTPUT,
        )
        execution.start(spec.encode(label=""))
        status = await execution.wait()
        self.observations.read(execution.captured[Stream.STDOUT].data)
        if self.sandbox.is_lost and status.reason is not Reason.TIMED_OUT:
            self.observations.note(at_stake, f"the guest was lost: {self.sandbox.lost_because}")
        return status


class Examiner:
    """Examines in the background until something was seen; `findings` is what is known by then."""

    def __init__(
        self,
        maker: SandboxMaker,
        settings: SandboxSettings,
        *,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
        until_then: str = NOT_YET,
    ) -> None:
        self._maker = maker
        self._settings = settings
        self._retry_seconds = retry_seconds
        self._tasks = Tasks()
        self.findings = Observations().judge(checks(settings, uid=-1), until_then)

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
            self.findings = await examine(self._maker, self._settings)
            if any(finding.verdict is not Verdict.UNSEEN for finding in self.findings):
                break
            pause = next(pauses, pause)
            await asyncio.sleep(pause)
        self._log()

    def _log(self) -> None:
        failed = [one for one in self.findings if one.verdict is Verdict.FAILS]
        for one in failed:
            log.error("isolation.broken", protection=one.protection, tried=one.tried, seen=one.seen)
        held = sum(one.verdict is Verdict.HOLDS for one in self.findings)
        log.info("isolation.examined", held=held, failed=len(failed), tried=len(self.findings))
