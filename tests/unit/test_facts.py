"""The facts of a host, and the lines that the report makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sandboxd.isolation.attachment import Possibility, Way
from sandboxd.isolation.cgroups import CommandGroup, CommandLimits
from sandboxd.protections.facts import HostFacts, read_host_facts
from sandboxd.protections.report import (
    EngineFacts,
    Finding,
    Protection,
    ProtectionSettings,
    State,
    Verdict,
    assess,
    known_weaknesses,
)

MIB = 1 << 20
NAMES = [
    "single use",
    "capabilities",
    "root filesystem",
    "network",
    "own uid",
    "user name",
    "guest",
    "host details",
    "system calls",
    "command limits",
    "kernel memory",
    "workspace",
    "attaching",
    "moving",
    "doors",
    "host kill",
    "kernel",
    "engine",
    "user namespaces",
    "live restore",
    "disk space",
    "file handles",
]
ALL_CAPABILITIES = 0x1FFFFFFFFFF
WITHOUT_SYS_RESOURCE = 0x1FFFEFFFFFF


@dataclass
class FakeCgroups:
    version: int = 1
    separates: bool = True
    detail: str = "commands have limits of their own"

    def open(self, pid: int, limits: CommandLimits) -> CommandGroup:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class FakeEngineFacts:
    version: str = "27.1"
    default_runtime: str = "runc"
    runtimes: Sequence[str] = ("runc", "runsc")
    runc_version: str = "1.3.3"
    runc_package: str = "v1.3.3-0-gd842d771"
    security_options: Sequence[str] = ("name=seccomp,profile=builtin", "name=userns")
    live_restore: bool = True


HOST = HostFacts(
    kernel_release="6.1.0",
    cgroup_version=1,
    is_root=True,
    can_raise_limits=True,
    open_files=20_000,
    open_files_hard=20_000,
    free_bytes=50 << 30,
)
SETTINGS = ProtectionSettings(
    cgroups=FakeCgroups(),
    has_disks=True,
    disks_detail="a write beyond the end of one was refused",
    attaching=Possibility(Way.ATTACHED),
    moving_problem="",
    doors_problem="",
    workspace_bytes=500 * MIB,
    workspace_files=1000,
    reserve_bytes=1024 * MIB,
    seccomp_digest="0123456789ab",
    uid_start=200_000,
    uid_count=4096,
    user="sandboxuser",
    runtime=None,
    max_sandboxes=80,
    user_sessions=0,
    max_open_files=1024,
)
ENGINE = FakeEngineFacts()


def line(
    name: str,
    *,
    host: HostFacts = HOST,
    settings: ProtectionSettings = SETTINGS,
    engine: EngineFacts | None = ENGINE,
    findings: Sequence[Finding] = (),
) -> Protection:
    """The one line of this name."""
    (found,) = [one for one in assess(host, settings, engine, findings) if one.name == name]
    return found


def finding(verdict: Verdict, *, seen: str = "EPERM", tried: str = "mount") -> Finding:
    return Finding(protection="system calls", tried=tried, seen=seen, verdict=verdict)


# --- facts ---


def proc_of(directory: Path, *, capabilities: int, mounts: str) -> Path:
    (directory / "self").mkdir()
    (directory / "self" / "status").write_text(
        f"Name:\tx\nCapPrm:\t{0:016x}\nCapEff:\t{capabilities:016x}\n"
    )
    (directory / "self" / "mountinfo").write_text(mounts)
    return directory


V2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "".join(
    f"{number} 23 0:{number} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
    for number, name in enumerate(("memory", "pids", "cpu", "cpuacct"), start=30)
)


@pytest.mark.parametrize(
    ("capabilities", "can_raise"), [(ALL_CAPABILITIES, True), (WITHOUT_SYS_RESOURCE, False)]
)
@pytest.mark.parametrize(("mounts", "version"), [(V1, 1), (V2, 2)])
def test_facts_are_read_from_the_kernel(
    tmp_path: Path, capabilities: int, can_raise: bool, mounts: str, version: int
) -> None:
    """Root may lack the right to raise limits, and either version of cgroups may be there."""
    facts = read_host_facts(
        tmp_path, proc=proc_of(tmp_path, capabilities=capabilities, mounts=mounts)
    )

    assert (facts.can_raise_limits, facts.cgroup_version) == (can_raise, version)


def test_facts_of_this_host_are_plausible(tmp_path: Path) -> None:
    """They can be read here, without any right."""
    facts = read_host_facts(tmp_path)

    assert facts.kernel_release
    assert 0 < facts.open_files <= facts.open_files_hard
    assert facts.free_bytes > 0


# --- the report ---


def test_there_is_one_line_per_protection_with_a_lasting_name() -> None:
    """Programs may look a protection up by its name."""
    assert [one.name for one in assess(HOST, SETTINGS, ENGINE, [])] == NAMES


def test_a_host_that_cannot_attach_is_weaker() -> None:
    """The line names the step that failed and what it takes."""
    assert line("attaching").state is State.IN_FORCE
    bound = replace(SETTINGS, attaching=Possibility(Way.BOUND, "cannot enter a mount namespace"))

    told = line("attaching", settings=bound)

    assert told.state is State.WEAKER
    assert "bound at start" in told.detail
    assert "cannot enter a mount namespace; it takes" in told.detail
    assert "CAP_SYS_CHROOT" in told.detail


def test_a_host_that_cannot_move_disks_is_weaker() -> None:
    """The line names what failed and what it takes; without attaching, and without disks, there is
    no moving either."""
    assert line("moving").state is State.IN_FORCE
    problems = {
        "cannot map the owner": replace(SETTINGS, moving_problem="cannot map the owner"),
        "cannot enter": replace(SETTINGS, attaching=Possibility(Way.BOUND, "cannot enter")),
        "in memory": replace(SETTINGS, has_disks=False, moving_problem="no disks"),
    }
    for problem, settings in problems.items():
        told = line("moving", settings=settings)

        assert told.state is State.WEAKER
        assert problem in told.detail
        assert ("CAP_SETFCAP" in told.detail) == settings.has_disks


def test_a_host_that_cannot_open_doors_is_weaker() -> None:
    """The line says what is off, why, and what it takes."""
    assert line("doors").state is State.IN_FORCE
    problem = "cannot enter a network namespace: Operation not permitted"

    told = line("doors", settings=replace(SETTINGS, doors_problem=problem))

    assert told.state is State.WEAKER
    assert f"egress, data sources and ports are off: {problem}; they take" in told.detail
    assert "CAP_SYS_ADMIN" in told.detail


def test_a_setting_alone_is_no_proof() -> None:
    """A line says that something was seen only if it was."""
    assert line("capabilities").state is State.IN_FORCE
    assert line("capabilities").proof == ""


def test_what_was_seen_is_the_proof() -> None:
    """Attempts with the same outcome are told together."""
    seen = [
        finding(Verdict.HOLDS, tried="mount"),
        finding(Verdict.HOLDS, tried="ptrace"),
        finding(Verdict.HOLDS, tried="clone3", seen="ENOSYS"),
    ]

    told = line("system calls", findings=seen)

    assert told.state is State.IN_FORCE
    assert told.proof == "seen in a sandbox: EPERM for mount, ptrace; clone3: ENOSYS"


def test_an_attempt_that_got_through_outweighs_the_settings() -> None:
    """One hole makes a protection missing, and the line names it and claims no proof."""
    seen = [finding(Verdict.HOLDS), finding(Verdict.FAILS, tried="ptrace", seen="ALLOWED")]

    told = line("system calls", findings=seen)

    assert (told.state, told.proof) == (State.MISSING, "")
    assert told.detail.endswith("ptrace: ALLOWED")


def test_what_could_not_be_tried_is_told_once() -> None:
    """A protection that was not proved says why, and stays what the settings say."""
    unseen = [finding(Verdict.UNSEEN, tried=name, seen="too slow") for name in ("mount", "bpf")]

    told = line("system calls", findings=unseen)

    assert (told.state, told.proof) == (State.IN_FORCE, "")
    assert told.detail.count("not proved: too slow") == 1


def test_a_missing_protection_says_why_rather_than_what_was_seen() -> None:
    """That a daemon without rights cannot kill is no news."""
    refused = Finding(
        protection="host kill", tried="SIGKILL", seen="refused", verdict=Verdict.FAILS
    )

    told = line("host kill", host=replace(HOST, is_root=False), findings=[refused])

    assert told.state is State.MISSING
    assert "not root" in told.detail


@pytest.mark.parametrize(
    ("digest", "options", "state"),
    [
        pytest.param("0123456789ab", ("name=seccomp,profile=default",), State.IN_FORCE, id="own"),
        pytest.param(None, ("name=seccomp,profile=default",), State.WEAKER, id="the engine's"),
        pytest.param("0123456789ab", ("name=apparmor",), State.MISSING, id="no seccomp"),
    ],
)
def test_system_calls_are_as_strong_as_the_filter(
    digest: str | None, options: Sequence[str], state: State
) -> None:
    """A filter that the engine cannot apply is none."""
    told = line(
        "system calls",
        settings=replace(SETTINGS, seccomp_digest=digest),
        engine=FakeEngineFacts(security_options=options),
    )

    assert told.state is state
    assert digest is None or state is State.MISSING or digest in told.detail


@pytest.mark.parametrize(
    ("cgroups", "state"),
    [
        pytest.param(FakeCgroups(), State.IN_FORCE, id="apart"),
        pytest.param(FakeCgroups(separates=False, detail="not root"), State.WEAKER, id="shared"),
        pytest.param(None, State.MISSING, id="none"),
    ],
)
def test_command_limits_are_as_strong_as_the_cgroups(
    cgroups: FakeCgroups | None, state: State
) -> None:
    """Commands that share the guest's limits are told as weaker."""
    assert line("command limits", settings=replace(SETTINGS, cgroups=cgroups)).state is state


def test_cgroups_of_version_two_are_told_as_untried() -> None:
    """Nobody should take for tried what was not."""
    told = line(
        "command limits",
        host=replace(HOST, cgroup_version=2),
        settings=replace(SETTINGS, cgroups=FakeCgroups(version=2)),
    )

    assert "not tested v2 on a real host" in told.detail


def test_workspace_on_a_disk_is_proved_by_the_disk() -> None:
    """The proof of the disks stands beside what a sandbox saw."""
    seen = Finding(protection="workspace", tried="room", seen="5 bytes", verdict=Verdict.HOLDS)

    told = line("workspace", findings=[seen])

    assert told.state is State.IN_FORCE
    assert told.proof == f"{SETTINGS.disks_detail}; seen in a sandbox: room: 5 bytes"


def test_workspace_in_memory_says_why() -> None:
    """A workspace that eats the memory limit is weaker, and the reason is there."""
    told = line("workspace", settings=replace(SETTINGS, has_disks=False, disks_detail="no loop"))

    assert (told.state, told.proof) == (State.WEAKER, "")
    assert "no loop" in told.detail


@pytest.mark.parametrize(
    ("is_root", "state"), [(True, State.IN_FORCE), (False, State.MISSING)], ids=["root", "user"]
)
def test_host_kill_takes_root(is_root: bool, state: State) -> None:
    """Without root only the engine can end a sandbox."""
    assert line("host kill", host=replace(HOST, is_root=is_root)).state is state


@pytest.mark.parametrize(
    ("is_root", "state"), [(True, State.IN_FORCE), (False, State.WEAKER)], ids=["root", "user"]
)
def test_limits_on_kernel_memory_take_root(is_root: bool, state: State) -> None:
    """Without root nobody can look at the locks and sockets of a sandbox."""
    assert line("kernel memory", host=replace(HOST, is_root=is_root)).state is state


def test_kernel_that_cannot_limit_its_memory_makes_the_host_weaker() -> None:
    """It is named, and no reason not to use the host at all."""
    unlimited = Finding(
        protection="kernel memory",
        tried="unread datagrams",
        seen="48 of 48 MiB, neither limited nor counted",
        verdict=Verdict.FAILS,
    )

    told = line("kernel memory", findings=[unlimited])

    assert told.state is State.WEAKER
    assert told.detail.endswith("neither limited nor counted")


@pytest.mark.parametrize(
    ("runtime", "state"),
    [(None, State.WEAKER), ("runc", State.WEAKER), ("runsc", State.IN_FORCE)],
)
def test_a_shared_kernel_is_told_as_weaker(runtime: str | None, state: State) -> None:
    """Only a runtime with a kernel of its own is more than a container."""
    assert line("kernel", settings=replace(SETTINGS, runtime=runtime)).state is state


def test_a_runtime_that_the_engine_does_not_have_is_missing() -> None:
    """A name that nothing stands behind must not look like protection."""
    told = line("engine", settings=replace(SETTINGS, runtime="kata"))

    assert told.state is State.MISSING
    assert "runc, runsc" in told.detail


def test_another_runtime_is_not_judged_by_runc() -> None:
    """What is known against runc says nothing about others."""
    told = line(
        "engine",
        settings=replace(SETTINGS, runtime="runsc"),
        engine=FakeEngineFacts(runc_version="1.0.0"),
    )

    assert told.state is State.IN_FORCE


@pytest.mark.parametrize(
    ("version", "package", "count"),
    [
        pytest.param("1.1.5", "v1.1.5-0-gf19387a6", 2, id="old"),
        pytest.param("1.1.5+ds1", "1.1.5+ds1-1+deb12u1", 1, id="old, patched once by Debian"),
        pytest.param("1.1.5+ds1", "1.1.5+ds1-1", 2, id="Debian's before its patch"),
        pytest.param("1.1.12", "v1.1.12-0-g51d5e946", 1, id="leaked descriptors fixed"),
        pytest.param("1.2.7", "", 1, id="last weak 1.2"),
        pytest.param("1.2.8", "", 0, id="first good 1.2"),
        pytest.param("1.3.2", "", 1, id="last weak 1.3"),
        pytest.param("1.3.3", "", 0, id="first good 1.3"),
        pytest.param("1.4.0-rc.2", "", 1, id="early 1.4"),
        pytest.param("1.4.0-rc.3", "", 0, id="candidate of 1.4"),
        pytest.param("1.4.0", "", 0, id="1.4"),
        pytest.param("2.0.0", "", 0, id="later"),
        pytest.param("", "", 1, id="not told"),
        pytest.param("UNKNOWN", "N/A", 1, id="no version"),
    ],
)
def test_known_weaknesses_of_runc_are_told(version: str, package: str, count: int) -> None:
    """A version without a public fix is told as weaker, with the names of the flaws."""
    weaknesses = known_weaknesses(version, package)
    told = line("engine", engine=FakeEngineFacts(runc_version=version, runc_package=package))

    assert len(weaknesses) == count
    assert told.state is (State.WEAKER if count else State.IN_FORCE)
    assert all(weakness in told.detail for weakness in weaknesses)


@pytest.mark.parametrize("options", [(), ("name=userns",), ("name=userns,x=y",)])
def test_user_namespaces_are_not_claimed(options: Sequence[str]) -> None:
    """They are off, or on and not supported; either way nothing is promised."""
    told = line("user namespaces", engine=FakeEngineFacts(security_options=options))

    assert told.state is State.WEAKER
    assert told.detail.startswith("on" if options else "off")


@pytest.mark.parametrize(("is_on", "state"), [(True, State.IN_FORCE), (False, State.WEAKER)])
def test_live_restore_is_told(is_on: bool, state: State) -> None:
    """Without it a restart of the engine ends every sandbox."""
    assert line("live restore", engine=FakeEngineFacts(live_restore=is_on)).state is state


def test_an_engine_that_does_not_answer_is_told() -> None:
    """What it would say is not known, and the rest of the report is still there."""
    lines = assess(HOST, SETTINGS, None, [])

    unknown = [one.name for one in lines if "does not answer" in one.detail]
    assert [one.name for one in lines] == NAMES
    assert unknown == ["engine", "user namespaces", "live restore"]


@pytest.mark.parametrize(("has_disks", "told"), [(True, "no new workspaces"), (False, "free some")])
def test_a_full_disk_is_told(has_disks: bool, told: str) -> None:
    """Below the reserve the line says what that means."""
    low = line(
        "disk space",
        host=replace(HOST, free_bytes=100 * MIB),
        settings=replace(SETTINGS, has_disks=has_disks),
    )

    assert low.state is State.WEAKER
    assert "100 MiB free" in low.detail
    assert told in low.detail


def test_room_on_the_disk_is_told_in_figures() -> None:
    """Free and reserved space are there to be compared."""
    assert line("disk space").detail == "50 GiB free, workspaces leave 1024 MiB of it"


def test_user_who_may_have_the_whole_pool_is_told() -> None:
    """Where users are told apart, and an operator has given each too much."""
    usual = line("sessions of a user", settings=replace(SETTINGS, user_sessions=40))
    assert (usual.state, usual.detail) == (
        State.IN_FORCE,
        "a user has at most 40 of 80 sessions",
    )
    told = line("sessions of a user", settings=replace(SETTINGS, user_sessions=80))
    assert told.state is State.WEAKER
    assert "SANDBOXD_MAX_USER_SESSIONS" in told.detail


def test_few_file_handles_are_told() -> None:
    """A daemon that cannot hold all its sandboxes says so before it fails."""
    told = line("file handles", host=replace(HOST, open_files=1024))

    assert told.state is State.WEAKER
    assert "80 sandboxes" in told.detail


@pytest.mark.parametrize(
    ("can_raise", "state"), [(True, State.IN_FORCE), (False, State.WEAKER)], ids=["can", "cannot"]
)
def test_more_handles_inside_than_the_host_has_are_told(can_raise: bool, state: State) -> None:
    """A limit beyond the engine's own would make every start fail."""
    told = line(
        "file handles",
        host=replace(HOST, can_raise_limits=can_raise),
        settings=replace(SETTINGS, max_open_files=1 << 20),
    )

    assert told.state is state
