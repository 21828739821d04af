"""The attacks, one row each: what is run, and what has to come of it.

R cases exhaust something, E cases attack the guest or try to get out. Those on uploads, downloads,
listings and archives (R22, R29, R34) are not here: they need an API for files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sandboxd.workspaces.disk_template import SLACK_BYTES
from sandboxd_proto.v1 import exec_pb2, session_pb2

SHM_BYTES = 16 << 20
Reasons: TypeAlias = "frozenset[exec_pb2.ExitReason.ValueType]"

EXITED: Reasons = frozenset({exec_pb2.EXIT_REASON_EXITED})
SIGNALLED: Reasons = frozenset({exec_pb2.EXIT_REASON_SIGNALLED})
TIMED_OUT: Reasons = frozenset({exec_pb2.EXIT_REASON_TIMED_OUT})
OUT_OF_MEMORY: Reasons = frozenset({exec_pb2.EXIT_REASON_OUT_OF_MEMORY})
PROCESS_LIMIT: Reasons = frozenset({exec_pb2.EXIT_REASON_PROCESS_LIMIT})
DISK_FULL: Reasons = frozenset({exec_pb2.EXIT_REASON_DISK_FULL})

DENIED = frozenset({"EPERM"})
DENIED_OR_ABSENT = frozenset({"EPERM", "ENOSYS"})
UNREADABLE = frozenset({"EACCES", "EPERM"})
UNWRITABLE = frozenset({"EACCES", "EPERM", "EROFS", "ENOENT"})
NOT_SHOWN = frozenset({"empty", "EACCES", "EPERM", "ENOENT", "EINVAL", "EIO"})
UNREACHABLE = frozenset({"ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"})

END_BACKGROUND = "kill -9 -1 2>/dev/null; true"
"""What a session can do about processes that one of its commands left running."""
HOST_FILE = "{host_file}"
"""In a command: the path of a file that only the host has."""
UPWARDS = ("", ".", "..", "../..", "../../..", "../../../../../..")
MEMORY_IS_BACK = "bin/memory take 150"

_ATTEMPT = re.compile(r"([^:]+): (\w+)")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one run of an attack ended, as its caller saw it."""

    exit: exec_pb2.ExitStatus
    stdout: bytes
    omitted_bytes: int = 0
    messages: int = 1

    @property
    def attempts(self) -> list[tuple[str, str]]:
        """What the program said of each thing it tried."""
        lines = self.stdout.decode(errors="replace").splitlines()
        return [(match[1], match[2]) for match in map(_ATTEMPT.fullmatch, lines) if match]

    def number(self, what: str) -> int:
        return int(dict(self.attempts).get(what, "-1"))


Check = Callable[[Outcome, session_pb2.SessionLimits], Iterable[str]]
"""Complaints about an outcome."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """An attack."""

    id: str
    title: str
    command: str
    reasons: Reasons
    timeout: float = 10.0
    attempts: int = 0
    """Lines of the form `what: result` that the program prints, if it prints such."""
    every: frozenset[str] = frozenset()
    """Results that each attempt may have; empty means any."""
    but: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Attempts with other results."""
    hint: str = ""
    """A word that the hint has to have."""
    check: Check | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwds: Sequence[str] = ("",)
    """Directories to run it in, one after the other. Any but the workspace may be refused."""
    at_once: int = 1
    meanwhile: str = ""
    """A command to start over and over while the attack lasts; it may be refused."""
    is_streamed: bool = False
    first: str = ""
    """A command that makes ready what the attack needs."""
    afterwards: str = "true"
    """A further command of the same session, which has to succeed."""
    says: str = ""
    """What it has to print, if anything in particular."""

    def complaints(self, outcome: Outcome, limits: session_pb2.SessionLimits) -> Iterator[str]:
        if outcome.exit.reason not in self.reasons:
            yield f"ended as {name_of(outcome.exit)}: {outcome.stdout[-300:]!r}"
        if self.hint and self.hint not in outcome.exit.hint.lower():
            yield f"the hint does not speak of {self.hint}: {outcome.exit.hint!r}"
        if len(outcome.attempts) < self.attempts:
            yield f"{len(outcome.attempts)} attempts instead of {self.attempts}"
        for what, result in outcome.attempts:
            allowed = self.but.get(what, self.every)
            if allowed and result not in allowed:
                yield f"{what}: {result}"
        if self.check is not None:
            yield from self.check(outcome, limits)


def name_of(exit_status: exec_pb2.ExitStatus) -> str:
    return exec_pb2.ExitReason.Name(exit_status.reason).removeprefix("EXIT_REASON_")


# --- checks ---


def counted_refused_forks(outcome: Outcome, limits: session_pb2.SessionLimits) -> Iterator[str]:
    usage = outcome.exit.usage
    if not usage.refused_forks:
        yield "no refused fork was counted"
    # The guest starts shells beside the limit and has them moved.
    if usage.peak_processes > limits.max_processes + 8:
        yield f"{usage.peak_processes} processes at one time"


def counted_oom_kills(outcome: Outcome, limits: session_pb2.SessionLimits) -> Iterator[str]:
    usage = outcome.exit.usage
    if not usage.oom_kills:
        yield "no process killed for its memory was counted"
    # The kernel charges in batches, so that the peak it tells can be a little above the limit.
    most = limits.memory_bytes + (1 << 20)
    if not limits.memory_bytes // 2 < usage.peak_memory_bytes <= most:
        yield f"{usage.peak_memory_bytes} bytes at one time"


def filled_the_workspace(outcome: Outcome, limits: session_pb2.SessionLimits) -> Iterator[str]:
    written = outcome.number("bytes")
    # The rest went to what was there before and to the filesystem's own tables.
    if not limits.workspace_bytes * 0.98 < written <= limits.workspace_bytes:
        yield f"{written} bytes could be written"


def filled_up_with_files(outcome: Outcome, limits: session_pb2.SessionLimits) -> Iterator[str]:
    files = outcome.number("before") + outcome.number("files")
    if files != limits.workspace_files:
        yield f"{files} files instead of {limits.workspace_files}"


def stayed_within_their_sizes(outcome: Outcome, limits: session_pb2.SessionLimits) -> Iterator[str]:
    """/tmp, then /var/tmp, then /dev/shm."""
    sizes = [limits.tmp_bytes + SLACK_BYTES] * 2 + [SHM_BYTES]
    for most, (what, written) in zip(
        sizes, [one for one in outcome.attempts if one[0] == "bytes"], strict=True
    ):
        if not 0 < int(written) <= most:
            yield f"{written} {what}"


def made_as_many_temporary_files_as_promised(
    outcome: Outcome, limits: session_pb2.SessionLimits
) -> Iterator[str]:
    made = [int(number) for what, number in outcome.attempts if what == "files"]
    if made != [limits.tmp_files, 0]:
        yield f"{made} files instead of {limits.tmp_files}"


def at_most(what: str, most: int) -> Check:
    def check(outcome: Outcome, limits: session_pb2.SessionLimits) -> Iterator[str]:
        if not 0 <= outcome.number(what) <= most:
            yield f"{outcome.number(what)} {what}"

    return check


def was_cut(outcome: Outcome, limits: session_pb2.SessionLimits) -> Iterator[str]:
    if len(outcome.stdout) > limits.max_run_output_bytes:
        yield f"{len(outcome.stdout)} bytes returned"
    if outcome.exit.stdout_bytes != len(outcome.stdout) + outcome.omitted_bytes:
        yield "what was left out was not counted"


def came_in_few_messages(outcome: Outcome, limits: session_pb2.SessionLimits) -> Iterator[str]:
    seconds = outcome.exit.duration.seconds + outcome.exit.duration.nanos / 1e9
    if outcome.messages > 5000 * seconds:
        yield f"{outcome.messages} messages in {seconds:.1f} s"
    if outcome.exit.stdout_bytes != len(outcome.stdout):
        yield "output is missing"


def prints(pattern: str) -> Check:
    def check(outcome: Outcome, limits: session_pb2.SessionLimits) -> Iterator[str]:
        if not re.fullmatch(pattern, outcome.stdout.decode(errors="replace"), re.DOTALL):
            yield f"it printed {outcome.stdout[:300]!r}"

    return check


# --- exhaustion ---

RUNAWAYS = (
    Case(
        id="R01",
        title="endless loop",
        command="while :; do :; done",
        timeout=1,
        reasons=TIMED_OUT,
    ),
    Case(
        id="R02",
        title="60 spinning threads",
        command="bin/processes spinning-threads",
        timeout=1,
        reasons=TIMED_OUT,
        attempts=1,
        every=frozenset({"ok"}),
    ),
    Case(
        id="R03",
        title="fork bomb",
        command="bin/processes fork-bomb",
        timeout=2,
        reasons=TIMED_OUT,
        hint="process limit",
        check=counted_refused_forks,
    ),
    Case(
        id="R04",
        title="fork bomb that ignores all signals",
        command="bin/processes deaf-fork-bomb",
        timeout=2,
        reasons=TIMED_OUT,
        hint="process limit",
        check=counted_refused_forks,
    ),
    Case(
        id="R05",
        title="fork bomb, each process in a session of its own",
        command="bin/processes setsid-bomb",
        timeout=2,
        reasons=TIMED_OUT,
        hint="process limit",
        check=counted_refused_forks,
    ),
    Case(
        id="R06",
        title="chain of processes that each live for a moment",
        command="bin/processes chain",
        timeout=1,
        reasons=TIMED_OUT,
    ),
    Case(
        id="R06b",
        title="the same, left running in the background",
        command="bin/processes loose-chain",
        reasons=EXITED,
        afterwards=END_BACKGROUND,
    ),
    Case(
        id="R07",
        title="fork bomb of the shell",
        command=":(){ :|:& };: ; exec sleep 60",
        timeout=2,
        reasons=TIMED_OUT,
        hint="process limit",
        check=counted_refused_forks,
    ),
    Case(
        id="R07b",
        title="fork bomb left running in the background",
        command="bin/processes deaf-fork-bomb >/dev/null 2>&1 &",
        reasons=EXITED,
        afterwards=END_BACKGROUND,
    ),
    Case(
        id="R08",
        title="storm of vfork and exec",
        command="bin/processes exec-storm",
        timeout=2,
        reasons=TIMED_OUT,
        hint="process limit",
        check=counted_refused_forks,
    ),
    Case(
        id="R09",
        title="as many threads as there can be",
        command="bin/processes waiting-threads",
        reasons=PROCESS_LIMIT,
        hint="process limit",
        attempts=2,
        but={"thread": frozenset({"EAGAIN"})},
        check=counted_refused_forks,
    ),
    Case(
        id="R32",
        title="daemon that holds the output open",
        command="bin/processes loose-daemon",
        reasons=EXITED,
        afterwards=END_BACKGROUND,
    ),
    Case(
        id="R32b",
        title="output without end, from a process left behind",
        command="yes & sleep 0.1",
        reasons=EXITED,
        check=was_cut,
    ),
    Case(
        id="R33",
        title="process that stops itself and its group",
        command="bin/processes stop-all & wait",
        timeout=1,
        reasons=TIMED_OUT,
    ),
    Case(
        id="R35",
        title="kills whatever it can, over and over",
        command="while :; do kill -9 -1; done",
        timeout=1,
        reasons=TIMED_OUT,
    ),
)

MEMORY = (
    Case(
        id="R10",
        title="malloc bomb",
        command="bin/memory malloc",
        reasons=OUT_OF_MEMORY,
        hint="memory",
        check=counted_oom_kills,
        afterwards=MEMORY_IS_BACK,
    ),
    Case(
        id="R10b",
        title="malloc bomb with 8 threads",
        command="bin/memory threads",
        reasons=OUT_OF_MEMORY,
        hint="memory",
        check=counted_oom_kills,
        afterwards=MEMORY_IS_BACK,
    ),
    Case(
        id="R10c",
        title="malloc bomb in a shell started for it",
        command="exec bin/memory malloc",
        env={"BASH_ENV": "/dev/null"},
        reasons=OUT_OF_MEMORY,
        hint="memory",
        check=counted_oom_kills,
        afterwards=MEMORY_IS_BACK,
    ),
    Case(
        id="R10d",
        title="6 malloc bombs at once",
        command="bin/memory malloc",
        reasons=OUT_OF_MEMORY,
        at_once=6,
        hint="memory",
        check=counted_oom_kills,
        afterwards=MEMORY_IS_BACK,
    ),
    Case(
        id="R11",
        title="shared memory bomb",
        command="bin/memory shared",
        reasons=OUT_OF_MEMORY,
        hint="memory",
        check=counted_oom_kills,
        afterwards=MEMORY_IS_BACK,
    ),
    Case(
        id="R12",
        title="memfd bomb",
        command="bin/memory memfd",
        reasons=OUT_OF_MEMORY,
        hint="memory",
        check=counted_oom_kills,
        afterwards=MEMORY_IS_BACK,
    ),
    Case(
        id="R13",
        title="SysV segments that belong to no process",
        command="bin/memory sysv",
        reasons=EXITED,
        attempts=1,
        every=DENIED_OR_ABSENT,
        afterwards=MEMORY_IS_BACK,
    ),
    Case(
        id="R14",
        title="110 small processes, no more killable than others",
        command="bin/memory small",
        timeout=4,
        reasons=OUT_OF_MEMORY | TIMED_OUT,
        hint="memory",
        check=counted_oom_kills,
        afterwards=MEMORY_IS_BACK,
    ),
    Case(
        id="R15",
        title="small processes that come back",
        command="bin/memory respawning",
        timeout=2,
        reasons=OUT_OF_MEMORY | TIMED_OUT,
        hint="memory",
        check=counted_oom_kills,
        afterwards=MEMORY_IS_BACK,
    ),
    Case(
        id="R16",
        title="full socket buffers",
        command="bin/memory sockets",
        reasons=OUT_OF_MEMORY,
        hint="memory",
        check=counted_oom_kills,
        afterwards=MEMORY_IS_BACK,
    ),
    Case(
        id="R17",
        title="full pipe buffers",
        command="bin/memory pipes",
        reasons=EXITED | OUT_OF_MEMORY,
        afterwards=MEMORY_IS_BACK,
    ),
)

STORAGE = (
    Case(
        id="R18",
        title="/tmp, /var/tmp and /dev/shm filled with bytes",
        command="for d in /tmp /var/tmp /dev/shm; do bin/storage bytes $d; rm -f $d/large; done",
        reasons=EXITED,
        attempts=6,
        but={"write": frozenset({"ENOSPC"})},
        check=stayed_within_their_sizes,
        afterwards=MEMORY_IS_BACK,
    ),
    Case(
        id="R19",
        title="/tmp and /var/tmp filled with files",
        command="bin/storage files /tmp; bin/storage files /var/tmp; "
        "find /tmp -name 'file-*' -delete",
        reasons=EXITED,
        attempts=4,
        but={"create": frozenset({"ENOSPC"})},
        check=made_as_many_temporary_files_as_promised,
    ),
    Case(
        id="R38",
        title="/tmp filled and left full",
        command="exec bin/storage bytes /tmp",
        reasons=DISK_FULL,
        hint="/tmp",
        attempts=2,
        but={"write": frozenset({"ENOSPC"})},
        afterwards="echo room > note && cat note && rm note /tmp/large",
        says="room\n",
    ),
    Case(
        id="R20",
        title="workspace filled with bytes",
        command="bin/storage bytes .",
        reasons=DISK_FULL,
        hint="disk full",
        attempts=2,
        but={"write": frozenset({"ENOSPC"})},
        check=filled_the_workspace,
        afterwards="rm large && echo room > note && cat note && rm note",
        says="room\n",
    ),
    Case(
        id="R21",
        title="workspace filled with files",
        # The three directories of a new workspace do not count.
        command="mkdir full; echo before: $(($(find /workspace -mindepth 1 | wc -l) - 3)); "
        "exec bin/storage files full",
        reasons=DISK_FULL,
        hint="disk full",
        attempts=3,
        but={"create": frozenset({"ENOSPC"})},
        check=filled_up_with_files,
        afterwards="rm -r full && echo room > note && cat note && rm note",
        says="room\n",
    ),
    Case(
        id="R28",
        title="small writes, each made to reach the disk",
        command="bin/storage sync-storm .",
        timeout=2,
        reasons=TIMED_OUT,
        afterwards="rm storm",
    ),
    Case(
        id="R36",
        title="workspace made inaccessible or moved away",
        command="exec 2>/dev/null; chmod 000 . /workspace; rmdir /workspace; mv -T /workspace /w; "
        "mv project_files x; rmdir project_files; touch project_files/x; true",
        reasons=EXITED,
        afterwards="pwd; ls -d project_files; ls -A project_files",
        says="/workspace\nproject_files\n",
    ),
    Case(
        id="R30",
        title="file names that are no text",
        command="mkdir odd && cd odd && touch -- $'new\\nline' $'\\xff\\xfe' -rf '$(id)' ' ' "
        "\"$(printf 'x%.0s' {1..255})\" && ls -b | wc -l",
        reasons=EXITED,
        check=prints("6\n"),
        afterwards="rm -r odd && ls -d odd 2>/dev/null | wc -l",
        says="0\n",
    ),
    Case(
        id="R31",
        title="core dump",
        command="ulimit -c unlimited 2>/dev/null; exec python3 -c 'import os; os.abort()'",
        reasons=SIGNALLED,
        afterwards="find /workspace /tmp -name '*core*' | wc -l",
        says="0\n",
    ),
)

OUTPUT = (
    Case(
        id="R23",
        title="output without end",
        command="yes",
        timeout=2,
        reasons=TIMED_OUT,
        check=was_cut,
    ),
    Case(
        id="R24",
        title="output of single bytes",
        command="dd if=/dev/zero bs=1 count=10000000 status=none",
        timeout=2,
        is_streamed=True,
        reasons=TIMED_OUT,
        check=came_in_few_messages,
    ),
    Case(
        id="R25",
        title="100 MB of output in one line",
        command="head -c 100000000 /dev/zero",
        timeout=20,
        reasons=EXITED,
        check=was_cut,
    ),
)

QUOTAS = (
    Case(
        id="R26",
        title="all inotify instances, queues and queued signals",
        command="for what in inotify mqueue signals; do bin/quotas $what; done",
        reasons=EXITED,
        attempts=6,
        but={
            "inotify": frozenset({"EMFILE"}),
            "mqueue": frozenset({"EMFILE"}),
            "signals": frozenset({"EAGAIN"}),
        },
    ),
    Case(
        id="R37",
        title="compiled filters, which are one budget of the host",
        command="bin/kernel_memory filters",
        reasons=EXITED,
        attempts=6,
        every=DENIED_OR_ABSENT,
    ),
    Case(
        id="R27",
        title="all descriptors",
        command="bin/quotas descriptors",
        reasons=EXITED,
        attempts=2,
        but={"descriptors": frozenset({"EMFILE"})},
        check=at_most("descriptors taken", 1024),
    ),
)

# --- the guest ---

GUEST = (
    Case(
        id="E01",
        title="every signal to PID 1 and its threads",
        command="bin/guest signals",
        reasons=EXITED,
        attempts=1,
    ),
    Case(
        id="E02",
        title="a thousand interrupts to PID 1",
        command="bin/guest interrupt",
        reasons=EXITED,
        attempts=1,
    ),
    Case(
        id="E03",
        title="debugger and memory calls on PID 1",
        command="bin/guest inside",
        reasons=EXITED,
        attempts=8,
        every=DENIED,
    ),
    Case(
        id="E04",
        title="files of PID 1 in /proc",
        command="bin/guest files",
        reasons=EXITED,
        attempts=22,
        every=UNREADABLE,
    ),
    Case(
        id="E05",
        title="limits of PID 1",
        command="bin/guest limits",
        reasons=EXITED,
        attempts=8,
        every=DENIED,
    ),
    Case(
        id="E06",
        title="limits of PID 1 through 32-bit calls",
        command="bin/kernel foreign-limits",
        reasons=EXITED,
        attempts=2,
        every=DENIED_OR_ABSENT | {"SEGV"},
    ),
    Case(
        id="E07",
        title="priority and processors of PID 1",
        command="bin/guest slow-down",
        reasons=EXITED,
        attempts=13,
        every=DENIED,
        afterwards="cut -d' ' -f19 /proc/1/stat",
        says="0\n",
    ),
    Case(
        id="E08",
        title="the guest's own socket",
        command="bin/guest socket /.sandboxd/link/guest.sock",
        reasons=EXITED,
        attempts=2,
        every=frozenset({"ENOENT", "EROFS"}),
        but={"connect": frozenset({"ENOENT"})},
    ),
    Case(
        id="E21",
        title="variables that load code, meant for the guest",
        first="echo 'echo sourced >> /workspace/loaded' > loaded.sh",
        command="/bin/cat /dev/null; /bin/cat /dev/null",
        env={
            "LD_PRELOAD": "/workspace/bin/preload.so",
            "BASH_ENV": "/workspace/loaded.sh",
            "ENV": "/workspace/loaded.sh",
            "PYTHONSTARTUP": "/workspace/loaded.sh",
            "PYTHONPATH": "/workspace",
        },
        reasons=EXITED,
        # Loaded into the command, as asked; not into PID 1, nor into what runs later.
        afterwards="before=$(wc -l < loaded); cat /dev/null; after=$(wc -l < loaded); "
        "echo $(grep -c sourced loaded) $(($(grep -vc sourced loaded) > 1)) $((after - before)) "
        "$(grep -cx 1 loaded); rm loaded loaded.sh",
        says="1 1 0 0\n",
    ),
    Case(
        id="E24",
        title="stops the shell that waits for the next command",
        command="bin/guest stop-shell",
        reasons=EXITED,
        attempts=1,
        every=frozenset({"ok"}),
    ),
    Case(
        id="E25",
        title="stops it and fills the pipe that the guest writes to",
        command="bin/guest clog-shell",
        reasons=EXITED,
        attempts=3,
        but={"stop": frozenset({"ok"})},
    ),
)

# --- ways out ---

ESCAPES = (
    Case(
        id="E09",
        title="new namespaces",
        command="bin/kernel namespaces",
        reasons=EXITED,
        attempts=8,
        every=DENIED,
        but={"clone3 user": frozenset({"ENOSYS"})},
    ),
    Case(
        id="E10",
        title="mounts",
        command="bin/kernel mounts",
        reasons=EXITED,
        attempts=12,
        every=DENIED_OR_ABSENT,
    ),
    Case(
        id="E11",
        title="parts of the kernel that no command needs",
        command="bin/kernel calls",
        reasons=EXITED,
        attempts=26,
        every=DENIED_OR_ABSENT,
    ),
    Case(
        id="E12",
        title="sockets of other families",
        command="bin/kernel families",
        reasons=EXITED,
        attempts=17,
        every=DENIED,
    ),
    Case(
        id="E13",
        title="connections to anywhere",
        command="bin/kernel network; getent hosts example.com | wc -l",
        reasons=EXITED,
        attempts=10,
        every=UNREACHABLE,
        but={"tcp 127.0.0.1": frozenset({"ECONNREFUSED", "ENETUNREACH"})},
        check=prints(".*\n0\n"),
    ),
    Case(
        id="E14",
        title="kernel settings and memory in /proc",
        command="bin/kernel writes /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe "
        "/proc/sys/vm/drop_caches /proc/sys/fs/binfmt_misc/register /proc/sysrq-trigger "
        "/proc/irq/default_smp_affinity; bin/kernel reads /proc/kcore /proc/keys /proc/timer_list "
        "/proc/kallsyms /proc/kmsg /proc/sched_debug /proc/config.gz /proc/slabinfo",
        reasons=EXITED,
        attempts=26,
        every=UNWRITABLE | NOT_SHOWN,
    ),
    Case(
        id="E15",
        title="control groups",
        command="exec 2>/dev/null; find / -xdev -name release_agent; find /sys/fs -mindepth 1; "
        "bin/kernel writes /sys/fs/cgroup/release_agent /sys/fs/cgroup/memory/cgroup.procs "
        "/sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/pids/pids.max; "
        "cat /proc/self/cgroup | grep -cE '[0-9a-f]{12}'",
        reasons=EXITED,
        attempts=12,
        every=UNWRITABLE,
        check=prints("(write|unlink|create) /sys.*\n0\n"),
    ),
    Case(
        id="E16",
        title="set-id programs and capabilities",
        command="find / -xdev -perm /6000 2>/dev/null; bin/kernel privileges; "
        "cp /usr/bin/id bin/id; chmod 6755 bin/id; bin/id -u | grep -cx 0; rm bin/id; "
        "echo $(grep -E '^(CapEff|CapPrm|CapBnd|CapAmb|NoNewPrivs)' /proc/self/status)",
        reasons=EXITED,
        attempts=8,
        every=DENIED,
        but={"nice": frozenset({"EACCES", "EPERM"})},
        check=prints("setuid.*\n0\nCapPrm: 0+ CapEff: 0+ CapBnd: 0+ CapAmb: 0+ NoNewPrivs: 1\n"),
    ),
    Case(
        id="E17",
        title="devices",
        command="bin/kernel devices; grep -cE ' /workspace [^ ]*nosuid,nodev' /proc/self/mountinfo",
        reasons=EXITED,
        attempts=8,
        every=frozenset({"EPERM", "ENOENT"}),
        check=prints(".*\n1\n"),
    ),
    Case(
        id="E18",
        title="sockets that have a name but no file",
        command="bin/kernel abstract connect /containerd-shim/moby/x.sock; "
        "bin/kernel abstract connect docker; grep -c @ /proc/net/unix",
        reasons=EXITED,
        attempts=2,
        every=frozenset({"ECONNREFUSED"}),
        check=prints(".*\n0\n"),
    ),
    Case(
        id="E19",
        title="sockets of the engine or the daemon",
        command="find / -xdev \\( -name '*.sock' -o -type s \\) 2>/dev/null; "
        "find /run /var/run /.sandboxd /workspace -type s; echo none",
        reasons=EXITED,
        check=prints("none\n"),
    ),
    Case(
        id="E20",
        title="a directory of the host as working directory",
        first="ln -s / way-out",
        command=f"cat {' '.join(up + HOST_FILE for up in UPWARDS)} 2>/dev/null; echo none",
        cwds=("way-out", "/proc/1/cwd", *(f"/proc/self/fd/{number}" for number in range(3, 20))),
        reasons=EXITED,
        # Nothing at all where the command could not enter the directory.
        check=prints("(none\n)?"),
        afterwards="rm way-out",
    ),
    Case(
        id="E22",
        title="programs that others run",
        command="bin/kernel writes /usr/bin/python3 /usr/bin/bash /.sandboxd/bin/python3.11 "
        "/.sandboxd/guest/pid1.py /.sandboxd/lib/libc.so.6 /etc/passwd /etc/ld.so.preload",
        reasons=EXITED,
        attempts=21,
        every=UNWRITABLE | {"EBUSY"},
    ),
    Case(
        id="E23",
        title="denied calls as 32-bit and x32 calls",
        command="bin/kernel foreign-calls",
        reasons=EXITED,
        attempts=18,
        every=DENIED_OR_ABSENT | {"SEGV", "SYS"},
    ),
)

# --- a guest that has to compete ---

STARVATION = (
    Case(
        id="R02b",
        title="60 spinning threads while commands are started",
        command="bin/processes spinning-threads",
        timeout=2,
        meanwhile="true",
        reasons=TIMED_OUT,
    ),
    Case(
        id="R02c",
        title="100 spinning processes while commands are started",
        command="for i in {1..100}; do while :; do :; done & done; wait",
        timeout=2,
        meanwhile="true",
        reasons=TIMED_OUT,
    ),
    Case(
        id="R03b",
        title="fork bomb while commands are started",
        command="bin/processes deaf-fork-bomb",
        timeout=2,
        meanwhile="true",
        reasons=TIMED_OUT,
        hint="process limit",
        check=counted_refused_forks,
    ),
    Case(
        id="R15b",
        title="small processes that come back, likewise",
        command="bin/memory respawning",
        timeout=3,
        meanwhile="true",
        reasons=OUT_OF_MEMORY | TIMED_OUT,
        hint="memory",
        check=counted_oom_kills,
        afterwards=MEMORY_IS_BACK,
    ),
)
"""With a small share of the processor."""

CASES = (*RUNAWAYS, *MEMORY, *STORAGE, *OUTPUT, *QUOTAS, *GUEST, *ESCAPES)
