"""What isolation is in force: one line per protection, how it was seen or why it is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol

from sandboxd.isolation.cgroups import Cgroups
from sandboxd.isolation.facts import HostFacts

HANDLES_OF_THE_DAEMON = 1024
"""Callers, connections to the engine, logs."""
HANDLES_PER_SANDBOX = 12
"""Link, pidfd, workspace and the kernel's counters."""
UNLESS_PATCHED = " unless your distribution has patched it"
OWN_KERNEL_RUNTIMES = ("runsc", "kata")
"""How the names of runtimes begin that put a kernel of their own between sandbox and host."""


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
    """How it was seen; empty when it is only a setting that the engine accepted."""


class Verdict(Enum):
    HOLDS = auto()
    FAILS = auto()
    UNSEEN = auto()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What came of one attempt to get around a protection."""

    protection: str
    tried: str
    seen: str
    """What happened; for UNSEEN why nothing did."""
    verdict: Verdict


class EngineFacts(Protocol):
    """What an engine says of itself."""

    @property
    def version(self) -> str: ...

    @property
    def default_runtime(self) -> str: ...

    @property
    def runtimes(self) -> Sequence[str]: ...

    @property
    def runc_version(self) -> str:
        """Empty if it does not tell, like the next one."""
        ...

    @property
    def runc_package(self) -> str:
        """The distribution's version of it, or its commit."""
        ...

    @property
    def security_options(self) -> Sequence[str]: ...

    @property
    def live_restore(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What this daemon has set up."""

    cgroups: Cgroups | None
    has_disks: bool
    disks_say: str
    """How disks were proved, or why there are none."""
    workspace_bytes: int
    workspace_files: int
    reserve_bytes: int
    seccomp_digest: str | None
    """Absent where the engine's own filter is used."""
    uid_start: int
    uid_count: int
    user: str
    runtime: str | None
    """The OCI runtime of sandboxes; absent means the engine's default."""
    max_sandboxes: int
    max_open_files: int
    """Of one process in a sandbox."""


def assess(
    host: HostFacts,
    measures: Measures,
    engine: EngineFacts | None,
    findings: Iterable[Finding],
) -> Sequence[Protection]:
    """The protections of every sandbox; `engine` is None while it does not answer."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.protection, []).append(finding)
    lines = [
        *_always(measures),
        _system_calls(measures, engine),
        _command_limits(host, measures.cgroups),
        _workspace(measures),
        _host_kill(host),
        *_of_the_engine(host, measures, engine),
        _disk_space(host, measures),
        _file_handles(host, measures),
    ]
    return [_weighed(line, found.get(line.name, ())) for line in lines]


def _weighed(line: Protection, findings: Sequence[Finding]) -> Protection:
    """The line after what was seen: an attempt that got through outweighs every setting."""
    if line.state is State.MISSING:
        return line
    failed = [one for one in findings if one.verdict is Verdict.FAILS]
    if failed:
        through = "; ".join(f"{one.tried}: {one.seen}" for one in failed)
        return replace(
            line, state=State.MISSING, detail=f"not as it should be: {through}", proof=""
        )
    held = [one for one in findings if one.verdict is Verdict.HOLDS]
    unseen = {one.seen: None for one in findings if one.verdict is Verdict.UNSEEN}
    detail = "; not proved: ".join([line.detail, *unseen])
    proof = "; ".join(filter(None, (line.proof, _proof(held))))
    return replace(line, detail=detail, proof=proof)


def _proof(held: Sequence[Finding]) -> str:
    by_outcome: dict[str, list[str]] = {}
    for one in held:
        by_outcome.setdefault(one.seen, []).append(one.tried)
    parts = [
        f"{tried[0]}: {seen}" if len(tried) == 1 else f"{seen} for {', '.join(tried)}"
        for seen, tried in by_outcome.items()
    ]
    return f"seen in a sandbox: {'; '.join(parts)}" if parts else ""


def _line(name: str, state: State, detail: str, proof: str = "") -> Protection:
    return Protection(name=name, state=state, detail=detail, proof=proof)


def _always(measures: Measures) -> Sequence[Protection]:
    """What holds for every sandbox on every host."""
    last = measures.uid_start + measures.uid_count - 1
    in_force = {
        "single use": "a used sandbox is destroyed, never given to another session",
        "capabilities": "all dropped, and no program can gain any",
        "root filesystem": "read-only",
        "network": "none: no interface but loopback, no resolver, no hosts file",
        "own uid": f"each sandbox has one of its own from {measures.uid_start} to {last}",
        "user name": f"commands see themselves as {measures.user}",
        "guest": "first process, not dumpable; its socket is gone once it has connected",
        "host details": "masked: kernel command line, version, devices, modules, cgroup paths",
    }
    return [_line(name, State.IN_FORCE, detail) for name, detail in in_force.items()]


def _system_calls(measures: Measures, engine: EngineFacts | None) -> Protection:
    if engine is not None and not _has_option(engine, "seccomp"):
        state, detail = State.MISSING, "the engine filters none: its kernel or build lacks seccomp"
    elif measures.seccomp_digest is None:
        state, detail = State.WEAKER, "the engine's default filter"
    else:
        state, detail = State.IN_FORCE, f"only listed ones; filter {measures.seccomp_digest}"
    return _line("system calls", state, detail)


def _command_limits(host: HostFacts, cgroups: Cgroups | None) -> Protection:
    if cgroups is None:
        return _line("command limits", State.MISSING, "commands share the limits of their guest")
    state = State.IN_FORCE if cgroups.separates else State.WEAKER
    detail = f"{cgroups.detail} (cgroup v{host.cgroup_version})"
    if host.cgroup_version == 2:
        detail += "; v2 has not been tried on a real host by the makers of sandboxd"
    return _line("command limits", state, detail)


def _workspace(measures: Measures) -> Protection:
    size = f"{_size(measures.workspace_bytes)}, {measures.workspace_files} files"
    if measures.has_disks:
        detail = f"a filesystem of its own, {size}"
        return _line("workspace", State.IN_FORCE, detail, measures.disks_say)
    detail = f"in memory, {size}, counted into the memory limit: {measures.disks_say}"
    return _line("workspace", State.WEAKER, detail)


def _host_kill(host: HostFacts) -> Protection:
    if host.is_root:
        detail = "the daemon ends a sandbox by pid when its guest is late"
        return _line("host kill", State.IN_FORCE, detail)
    detail = "the daemon is not root: only the engine can end a sandbox"
    return _line("host kill", State.MISSING, detail)


# --- the engine ---


def _has_option(engine: EngineFacts, name: str) -> bool:
    return any(option.split(",")[0] == f"name={name}" for option in engine.security_options)


def _of_the_engine(
    host: HostFacts, measures: Measures, engine: EngineFacts | None
) -> Sequence[Protection]:
    if engine is None:
        unknown = "not known: the engine does not answer"
        names = ("engine", "user namespaces", "live restore")
        return [
            _kernel(host, measures.runtime or ""),
            *(_line(name, State.WEAKER, unknown) for name in names),
        ]
    runtime = measures.runtime or engine.default_runtime
    return [
        _kernel(host, runtime),
        _engine(runtime, engine),
        _user_namespaces(engine),
        _live_restore(engine),
    ]


def _user_namespaces(engine: EngineFacts) -> Protection:
    detail = (
        "on in the engine, which sandboxd does not support yet: a daemon that is root gives "
        "sockets and disks to uids that the engine maps elsewhere"
        if _has_option(engine, "userns")
        else "off in the engine: a uid inside is the same uid of the host"
    )
    return _line("user namespaces", State.WEAKER, detail)


def _live_restore(engine: EngineFacts) -> Protection:
    if engine.live_restore:
        detail = "sandboxes outlive a restart of the engine"
        return _line("live restore", State.IN_FORCE, detail)
    detail = "off in the engine: a restart of it ends every sandbox"
    return _line("live restore", State.WEAKER, detail)


def _kernel(host: HostFacts, runtime: str) -> Protection:
    if runtime.startswith(OWN_KERNEL_RUNTIMES):
        detail = f"{runtime} puts one of its own between; not tried by the makers of sandboxd"
        return _line("kernel", State.IN_FORCE, detail)
    detail = (
        f"shared with the host ({host.kernel_release}): a flaw in it that gives root gives the host"
    )
    return _line("kernel", State.WEAKER, detail)


def _engine(runtime: str, engine: EngineFacts) -> Protection:
    if runtime not in engine.runtimes:
        known = ", ".join(engine.runtimes)
        return _line("engine", State.MISSING, f"it has no runtime {runtime}, only {known}")
    if "runc" not in runtime:
        return _line("engine", State.IN_FORCE, f"{engine.version}, runtime {runtime}")
    detail = f"{engine.version}, runc {engine.runc_package or engine.runc_version or '?'}"
    weaknesses = known_weaknesses(engine.runc_version, engine.runc_package)
    if weaknesses:
        detail = f"{detail}: {'; '.join(weaknesses)}"
    state = State.WEAKER if weaknesses else State.IN_FORCE
    return _line("engine", state, detail)


def known_weaknesses(version: str, package: str) -> Sequence[str]:
    """What is publicly known against this version of runc."""
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)(?:-rc\.?(\d+))?", version)
    if match is None:
        return ["its version is not known"]
    number = int(match[1]), int(match[2]), int(match[3])
    candidate = int(match[4]) if match[4] else None
    weaknesses = []
    if number < (1, 1, 12) and not package.startswith("1.1.5+ds1-1+deb12u"):  # patched by Debian
        weaknesses.append(
            f"older than 1.1.12, so without the fix of CVE-2024-21626{UNLESS_PATCHED}"
        )
    is_fixed = number >= (1, 3, 3) or (1, 2, 8) <= number < (1, 3, 0)
    is_early = number == (1, 4, 0) and candidate is not None and candidate < 3
    if not is_fixed or is_early:
        weaknesses.append(
            "older than 1.2.8 or 1.3.3, so without the fixes of CVE-2025-31133, -52565 and -52881"
            f"{UNLESS_PATCHED}; they take an image or mounts of the attacker's choice"
        )
    return weaknesses


# --- room ---


def _disk_space(host: HostFacts, measures: Measures) -> Protection:
    free, reserve = _size(host.free_bytes), _size(measures.reserve_bytes)
    if host.free_bytes < measures.reserve_bytes:
        effect = "no new workspaces until there is more" if measures.has_disks else "make room"
        detail = f"{free} free, less than the reserve of {reserve}: {effect}"
        return _line("disk space", State.WEAKER, detail)
    kept = f"of which workspaces leave {reserve}" if measures.has_disks else "workspaces take none"
    return _line("disk space", State.IN_FORCE, f"{free} free, {kept}", "read from the filesystem")


def _file_handles(host: HostFacts, measures: Measures) -> Protection:
    needed = HANDLES_OF_THE_DAEMON + HANDLES_PER_SANDBOX * measures.max_sandboxes
    detail = f"{host.open_files} for the daemon, {measures.max_open_files} for a process inside"
    problems = []
    if host.open_files < needed:
        problems.append(f"{measures.max_sandboxes} sandboxes may take {needed} of the daemon's")
    # The engine mostly runs under the same limit, and one beyond it makes every start fail.
    if measures.max_open_files > host.open_files_hard and not host.can_raise_limits:
        problems.append(f"more than {host.open_files_hard} inside may be more than the engine can")
    if problems:
        return _line("file handles", State.WEAKER, f"{detail}: {'; '.join(problems)}")
    return _line("file handles", State.IN_FORCE, detail, "read from the kernel")


def _size(count: int) -> str:
    if count >= 10 << 30:
        return f"{count >> 30} GiB"
    return f"{count >> 20} MiB"
