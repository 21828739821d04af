"""The protections of every sandbox: which are in force, how that was proved, what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol

from sandboxd.isolation.attachment import Possibility, Way
from sandboxd.isolation.cgroups import Cgroups
from sandboxd.isolation.kernel_memory import MAX_LOCKS, MAX_UNREAD_BYTES
from sandboxd.protections.facts import HostFacts

DAEMON_HANDLES = 1024
"""File handles for callers, connections to the engine and logs."""
SANDBOX_HANDLES = 12
"""File handles for link, pidfd, workspace and the kernel's counters of one sandbox."""
KERNEL_MEMORY = "kernel memory"
"""Name of a protection that not every kernel can give; one that fails makes the host weaker."""
UNLESS_PATCHED = ", unless your distribution has backported it"
OWN_KERNEL_RUNTIMES = ("runsc", "kata")
"""Prefixes of the names of runtimes whose sandboxes do not share the kernel of the host."""


class State(Enum):
    IN_FORCE = auto()
    WEAKER = auto()
    MISSING = auto()


@dataclass(frozen=True, kw_only=True)
class Protection:
    name: str
    state: State
    detail: str
    proof: str = ""
    """How it was observed; empty for a setting that the engine only accepted."""


class Verdict(Enum):
    HOLDS = auto()
    FAILS = auto()
    UNSEEN = auto()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The outcome of one attempt to get around a protection."""

    protection: str
    tried: str
    seen: str
    """What happened; for UNSEEN, why the outcome is not known."""
    verdict: Verdict


class EngineFacts(Protocol):
    """What an engine reports about itself."""

    @property
    def version(self) -> str: ...

    @property
    def default_runtime(self) -> str: ...

    @property
    def runtimes(self) -> Sequence[str]: ...

    @property
    def runc_version(self) -> str:
        """Empty if not reported, like `runc_package`."""
        ...

    @property
    def runc_package(self) -> str:
        """Version of the distribution's package, or a commit."""
        ...

    @property
    def security_options(self) -> Sequence[str]: ...

    @property
    def live_restore(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class ProtectionSettings:
    """The settings of this daemon that protections depend on."""

    cgroups: Cgroups | None
    has_disks: bool
    disks_detail: str
    """How the limits of disks were proved, or why there are none."""
    attaching: Possibility
    moving_problem: str
    """Why kept disks cannot be moved into warm sandboxes; empty if they can."""
    doors_problem: str
    """Why the daemon cannot open doors; empty if it can."""
    workspace_bytes: int
    workspace_files: int
    reserve_bytes: int
    seccomp_digest: str | None
    """None where the engine's default filter is used."""
    uid_start: int
    uid_count: int
    user: str
    runtime: str | None
    """OCI runtime of sandboxes; None means the engine's default."""
    max_sandboxes: int
    user_sessions: int
    """Most sessions of one user; 0 where the daemon does not tell users apart."""
    max_open_files: int
    """Limit of one process in a sandbox."""


def assess(
    host: HostFacts,
    settings: ProtectionSettings,
    engine: EngineFacts | None,
    findings: Iterable[Finding],
) -> Sequence[Protection]:
    """The protections of every sandbox; `engine` is None while it does not answer."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.protection, []).append(finding)
    lines = [
        *_always(settings),
        _system_calls(settings, engine),
        _command_limits(host, settings.cgroups),
        _kernel_memory(host),
        _workspace(settings),
        _attaching(settings.attaching),
        _moving(settings),
        _doors(settings.doors_problem),
        _host_kill(host),
        *_engine_lines(host, settings, engine),
        _disk_space(host, settings),
        _file_handles(host, settings),
        *_user_sessions(settings),
    ]
    return [_with_findings(line, found.get(line.name, ())) for line in lines]


def _with_findings(line: Protection, findings: Sequence[Finding]) -> Protection:
    """Add what was observed: an attempt that succeeded outweighs every setting."""
    if line.state is State.MISSING:
        return line
    failed = [finding for finding in findings if finding.verdict is Verdict.FAILS]
    if failed:
        through = "; ".join(f"{finding.tried}: {finding.seen}" for finding in failed)
        state = State.WEAKER if line.name == KERNEL_MEMORY else State.MISSING
        return replace(line, state=state, detail=f"does not hold: {through}", proof="")
    held = [finding for finding in findings if finding.verdict is Verdict.HOLDS]
    unseen = {finding.seen: None for finding in findings if finding.verdict is Verdict.UNSEEN}
    detail = "; not proved: ".join([line.detail, *unseen])
    proof = "; ".join(filter(None, (line.proof, _proof(held))))
    return replace(line, detail=detail, proof=proof)


def _proof(held: Sequence[Finding]) -> str:
    by_outcome: dict[str, list[str]] = {}
    for finding in held:
        by_outcome.setdefault(finding.seen, []).append(finding.tried)
    parts = [
        f"{tried[0]}: {seen}" if len(tried) == 1 else f"{seen} for {', '.join(tried)}"
        for seen, tried in by_outcome.items()
    ]
    return f"seen in a sandbox: {'; '.join(parts)}" if parts else ""


def _line(name: str, state: State, detail: str, proof: str = "") -> Protection:
    return Protection(name=name, state=state, detail=detail, proof=proof)


def _always(settings: ProtectionSettings) -> Sequence[Protection]:
    """What is set for every sandbox on every host."""
    last = settings.uid_start + settings.uid_count - 1
    in_force = {
        "single use": "a used sandbox is destroyed, never given to another session",
        "capabilities": "all dropped, and no program can gain any",
        "root filesystem": "read-only",
        "network": "none: no interface but loopback, no resolver, no hosts file",
        "own uid": f"each sandbox has its own, from {settings.uid_start} to {last}",
        "user name": f"commands run as {settings.user}",
        "guest": "first process, not dumpable; its socket is removed once it has connected",
        "host details": "masked: kernel command line, version, disks, modules, cgroup paths, locks",
    }
    return [_line(name, State.IN_FORCE, detail) for name, detail in in_force.items()]


def _system_calls(settings: ProtectionSettings, engine: EngineFacts | None) -> Protection:
    if engine is not None and not _has_option(engine, "seccomp"):
        state, detail = (
            State.MISSING,
            "the engine does not filter any: its kernel or build lacks seccomp",
        )
    elif settings.seccomp_digest is None:
        state, detail = State.WEAKER, "the engine's default filter"
    else:
        state, detail = (
            State.IN_FORCE,
            f"only those on an allow-list; filter {settings.seccomp_digest}",
        )
    return _line("system calls", state, detail)


def _command_limits(host: HostFacts, cgroups: Cgroups | None) -> Protection:
    if cgroups is None:
        return _line("command limits", State.MISSING, "commands share the limits of the guest")
    state = State.IN_FORCE if cgroups.separates else State.WEAKER
    detail = f"{cgroups.detail} (cgroup v{host.cgroup_version})"
    if host.cgroup_version == 2:
        detail += "; the developers of sandboxd have not tested v2 on a real host"
    return _line("command limits", state, detail)


def _kernel_memory(host: HostFacts) -> Protection:
    if not host.is_root:
        detail = "the daemon is not root: record locks and socket buffers have no limit"
        return _line(KERNEL_MEMORY, State.WEAKER, detail)
    detail = (
        "socket buffers have a limit; a sandbox is ended when it has more than "
        f"{MAX_LOCKS} record locks, or {_size(MAX_UNREAD_BYTES)} unread that are not counted"
    )
    return _line(KERNEL_MEMORY, State.IN_FORCE, detail)


def _workspace(settings: ProtectionSettings) -> Protection:
    size = f"{_size(settings.workspace_bytes)}, {settings.workspace_files} files"
    if settings.has_disks:
        detail = f"a separate filesystem, {size}"
        return _line("workspace", State.IN_FORCE, detail, settings.disks_detail)
    detail = f"in memory, {size}, part of the memory limit: {settings.disks_detail}"
    return _line("workspace", State.WEAKER, detail)


def _attaching(attaching: Possibility) -> Protection:
    if attaching.way is Way.ATTACHED:
        detail = "packages and project files are attached to warm sandboxes, read-only"
        return _line("attaching", State.IN_FORCE, detail, "tried when the daemon started")
    detail = (
        f"packages and project files are {attaching.way}, so such a session needs a new sandbox: "
        f"{attaching.problem}; it takes a kernel since 5.12, root, CAP_SYS_ADMIN, CAP_SYS_CHROOT "
        "and, under systemd, RestrictNamespaces= that allows mnt"
    )
    return _line("attaching", State.WEAKER, detail)


def _moving(settings: ProtectionSettings) -> Protection:
    if not settings.has_disks:
        detail = "workspaces are in memory, so a lost session has no disk"
        return _line("moving", State.WEAKER, detail)
    if not settings.moving_problem and settings.attaching.way is Way.ATTACHED:
        detail = "the disk of a lost session is moved into a warm sandbox"
        return _line("moving", State.IN_FORCE, detail, "tried when the daemon started")
    problem = settings.moving_problem or settings.attaching.problem
    detail = (
        f"a lost session needs a new sandbox for its disk: {problem}; to move it into a warm one "
        "takes what attaching takes, CAP_SETUID, CAP_SETGID, CAP_SETFCAP, unshare of util-linux "
        "and, under systemd, RestrictNamespaces= that allows user"
    )
    return _line("moving", State.WEAKER, detail)


def _doors(problem: str) -> Protection:
    if not problem:
        detail = "the daemon makes sockets inside sandboxes, which have no network"
        return _line("doors", State.IN_FORCE, detail, "tried when the daemon started")
    detail = (
        f"egress, data sources and ports are off: {problem}; they take a kernel since 5.8, root, "
        "CAP_SYS_ADMIN and, under systemd, RestrictNamespaces= that allows net"
    )
    return _line("doors", State.WEAKER, detail)


def _host_kill(host: HostFacts) -> Protection:
    if host.is_root:
        detail = "the daemon kills a sandbox by pid if its guest is late"
        return _line("host kill", State.IN_FORCE, detail)
    detail = "the daemon is not root: only the engine can kill a sandbox"
    return _line("host kill", State.MISSING, detail)


# --- the engine ---


def _has_option(engine: EngineFacts, name: str) -> bool:
    return any(option.split(",")[0] == f"name={name}" for option in engine.security_options)


def _engine_lines(
    host: HostFacts, settings: ProtectionSettings, engine: EngineFacts | None
) -> Sequence[Protection]:
    if engine is None:
        unknown = "unknown: the engine does not answer"
        names = ("engine", "user namespaces", "live restore")
        return [
            _kernel(host, settings.runtime or ""),
            *(_line(name, State.WEAKER, unknown) for name in names),
        ]
    runtime = settings.runtime or engine.default_runtime
    return [
        _kernel(host, runtime),
        _engine(runtime, engine),
        _user_namespaces(engine),
        _live_restore(engine),
    ]


def _user_namespaces(engine: EngineFacts) -> Protection:
    detail = (
        "on in the engine, which sandboxd does not support yet: a daemon that runs as root gives "
        "sockets and disks to uids that the engine maps to others"
        if _has_option(engine, "userns")
        else "off in the engine: a uid in a sandbox is the same uid on the host"
    )
    return _line("user namespaces", State.WEAKER, detail)


def _live_restore(engine: EngineFacts) -> Protection:
    if engine.live_restore:
        detail = "sandboxes survive a restart of the engine"
        return _line("live restore", State.IN_FORCE, detail)
    detail = "off in the engine: its restart kills every sandbox"
    return _line("live restore", State.WEAKER, detail)


def _kernel(host: HostFacts, runtime: str) -> Protection:
    if runtime.startswith(OWN_KERNEL_RUNTIMES):
        detail = f"{runtime} gives sandboxes their own; not tested by the developers of sandboxd"
        return _line("kernel", State.IN_FORCE, detail)
    detail = (
        f"shared with the host ({host.kernel_release}): a kernel flaw that grants root grants it "
        "on the host"
    )
    return _line("kernel", State.WEAKER, detail)


def _engine(runtime: str, engine: EngineFacts) -> Protection:
    if runtime not in engine.runtimes:
        known = ", ".join(engine.runtimes)
        return _line(
            "engine", State.MISSING, f"it does not have the runtime {runtime}, only {known}"
        )
    if "runc" not in runtime:
        return _line("engine", State.IN_FORCE, f"{engine.version}, runtime {runtime}")
    detail = f"{engine.version}, runc {engine.runc_package or engine.runc_version or '?'}"
    weaknesses = known_weaknesses(engine.runc_version, engine.runc_package)
    if weaknesses:
        detail = f"{detail}: {'; '.join(weaknesses)}"
    state = State.WEAKER if weaknesses else State.IN_FORCE
    return _line("engine", state, detail)


def known_weaknesses(version: str, package: str) -> Sequence[str]:
    """Published vulnerabilities of this version of runc."""
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)(?:-rc\.?(\d+))?", version)
    if match is None:
        return ["its version is unknown"]
    number = int(match[1]), int(match[2]), int(match[3])
    candidate = int(match[4]) if match[4] else None
    weaknesses = []
    if number < (1, 1, 12) and not package.startswith("1.1.5+ds1-1+deb12u"):  # patched by Debian
        weaknesses.append(
            f"older than 1.1.12, so without the fix for CVE-2024-21626{UNLESS_PATCHED}"
        )
    is_fixed = number >= (1, 3, 3) or (1, 2, 8) <= number < (1, 3, 0)
    is_early = number == (1, 4, 0) and candidate is not None and candidate < 3
    if not is_fixed or is_early:
        weaknesses.append(
            "older than 1.2.8 or 1.3.3, so without the fixes for CVE-2025-31133, -52565 and -52881"
            f"{UNLESS_PATCHED}; an attacker needs to choose the image or mounts"
        )
    return weaknesses


# --- space, file handles and sessions ---


def _disk_space(host: HostFacts, settings: ProtectionSettings) -> Protection:
    free, reserve = _size(host.free_bytes), _size(settings.reserve_bytes)
    if host.free_bytes < settings.reserve_bytes:
        effect = "no new workspaces until there is more" if settings.has_disks else "free some"
        detail = f"{free} free, less than the reserve of {reserve}: {effect}"
        return _line("disk space", State.WEAKER, detail)
    use = f"workspaces leave {reserve} of it" if settings.has_disks else "workspaces use none"
    return _line("disk space", State.IN_FORCE, f"{free} free, {use}", "read from the filesystem")


def _file_handles(host: HostFacts, settings: ProtectionSettings) -> Protection:
    needed = DAEMON_HANDLES + SANDBOX_HANDLES * settings.max_sandboxes
    detail = f"{host.open_files} for the daemon, {settings.max_open_files} per process in a sandbox"
    problems = []
    if host.open_files < needed:
        problems.append(f"the daemon may need {needed} for {settings.max_sandboxes} sandboxes")
    # The engine usually has the same limit, and a higher one for sandboxes makes every start fail.
    if settings.max_open_files > host.open_files_hard and not host.can_raise_limits:
        problems.append(
            f"more than {host.open_files_hard} per process may exceed the limit of the engine"
        )
    if problems:
        return _line("file handles", State.WEAKER, f"{detail}: {'; '.join(problems)}")
    return _line("file handles", State.IN_FORCE, detail, "read from the kernel")


def _user_sessions(settings: ProtectionSettings) -> Iterator[Protection]:
    most, total = settings.user_sessions, settings.max_sandboxes
    if not most:
        return
    if most < total:
        detail = f"a user has at most {most} of {total} sessions"
        yield _line("sessions of a user", State.IN_FORCE, detail)
    else:
        detail = f"one user may have all {total}; lower SANDBOXD_MAX_USER_SESSIONS"
        yield _line("sessions of a user", State.WEAKER, detail)


def _size(count: int) -> str:
    if count >= 10 << 30:
        return f"{count >> 30} GiB"
    return f"{count >> 20} MiB"
