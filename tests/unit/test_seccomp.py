"""The system call filter, read as the engine reads it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.isolation import seccomp

FORBIDDEN = """
    acct add_key adjtimex bpf chroot clock_adjtime clock_settime delete_module fanotify_init
    fanotify_mark finit_module fsconfig fsmount fsopen fspick get_mempolicy get_robust_list
    init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl ipc kcmp kexec_file_load
    kexec_load keyctl lookup_dcookie mbind memfd_secret migrate_pages modify_ldt mount mount_setattr
    move_mount move_pages msgctl msgget msgrcv msgsnd name_to_handle_at nfsservctl open_by_handle_at
    open_tree perf_event_open pidfd_getfd pivot_root process_madvise process_mrelease
    process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot remap_file_pages
    request_key semctl semget semop semtimedop set_mempolicy setdomainname sethostname setns
    settimeofday shmat shmctl shmdt shmget stime swapoff swapon syscall syslog umount umount2
    unshare uselib userfaultfd ustat vhangup vmsplice
"""
# What they may do depends on their arguments.
CONDITIONAL = """
    clone fcntl fcntl64 ioctl ioprio_set personality prctl prlimit64 sched_setaffinity
    sched_setattr sched_setparam sched_setscheduler setpriority setsockopt socket socketpair
"""
UPPER_BIT = 1 << 32
NEW_USER_NAMESPACE = 0x10000000
SIGCHLD = 17


def answer(call: str, *arguments: int) -> int:
    """What the filter answers: 0 if the call may pass, or an errno."""
    content = json.loads(seccomp.profile())
    assert content["defaultAction"] == "SCMP_ACT_ERRNO"
    for entry in content["syscalls"]:
        if call in entry["names"] and all(_holds(one, arguments) for one in entry.get("args", ())):
            return 0 if entry["action"] == "SCMP_ACT_ALLOW" else int(entry["errnoRet"])
    return errno.EPERM


def _holds(condition: dict[str, Any], arguments: tuple[int, ...]) -> bool:
    given = arguments[condition["index"]]
    if condition["op"] == "SCMP_CMP_EQ":
        return bool(given == condition["value"])
    assert condition["op"] == "SCMP_CMP_MASKED_EQ"
    return bool(given & condition["value"] == condition["valueTwo"])


def entries(*, with_arguments: bool) -> list[dict[str, Any]]:
    content = json.loads(seccomp.profile())
    return [entry for entry in content["syscalls"] if ("args" in entry) == with_arguments]


def test_same_filter_in_every_process() -> None:
    """The text, and so its digest, depends on nothing but the source."""
    program = "from sandboxd.isolation import seccomp; print(seccomp.profile(), end='')"
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
            timeout=30,
        ).stdout
        for seed in ("1", "2")
    }

    assert texts == {seccomp.profile()}


def test_operators_see_the_filter_that_is_used() -> None:
    """What the module prints is the profile, made readable."""
    printed = subprocess.run(
        [sys.executable, "-m", "sandboxd.isolation.seccomp"],
        capture_output=True,
        check=True,
        text=True,
        timeout=30,
    ).stdout

    assert json.loads(printed) == json.loads(seccomp.profile())
    assert printed.count("\n") > 100


def test_digest_tells_filters_apart() -> None:
    """A report that shows a digest says which filter is in force."""
    plain = seccomp.digest(seccomp.profile())

    assert plain == seccomp.digest(seccomp.profile())
    assert plain != seccomp.digest(seccomp.profile(allow_ptrace=True))
    assert len(plain) == 12
    assert int(plain, 16)


def test_each_call_is_decided_in_one_place() -> None:
    """No call is in two groups, or in a group and a rule: one of them would not count."""
    conditional = {name for entry in entries(with_arguments=True) for name in entry["names"]}
    groups = [*seccomp.ALLOWED.values(), *seccomp.ABSENT.values(), tuple(conditional)]

    counts = Counter(name for group in groups for name in group)

    assert [name for name, count in counts.items() if count > 1] == []


def test_forbidden_calls_are_named_nowhere() -> None:
    """What a sandbox must never do has no way through the filter, whatever its arguments."""
    content = json.loads(seccomp.profile())
    named = {name for entry in content["syscalls"] for name in entry["names"]}

    assert named & set(FORBIDDEN.split()) == set()


def test_conditional_calls_are_those_we_know() -> None:
    """Every call with conditions has them in all its rules."""
    conditional = {name for entry in entries(with_arguments=True) for name in entry["names"]}

    assert conditional == set(CONDITIONAL.split())


def test_conditions_are_such_that_the_engine_keeps_them() -> None:
    """Each says "equals", and each argument has one: runc would let any of two suffice."""
    for entry in entries(with_arguments=True):
        indexes = [condition["index"] for condition in entry["args"]]
        assert indexes == sorted(set(indexes))
        assert set(indexes) <= set(range(6))
        for condition in entry["args"]:
            assert condition["op"] in ("SCMP_CMP_EQ", "SCMP_CMP_MASKED_EQ")
            assert 0 <= condition["value"] < 1 << 64
            bits_outside_the_mask = condition.get("valueTwo", 0) & ~condition["value"]
            assert bits_outside_the_mask == 0


def test_programs_of_32_bits_are_filtered_too() -> None:
    """The filter of an architecture covers the others that its kernel runs."""
    content = json.loads(seccomp.profile())

    assert {one["architecture"]: one["subArchitectures"] for one in content["archMap"]} == {
        "SCMP_ARCH_X86_64": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "SCMP_ARCH_AARCH64": ["SCMP_ARCH_ARM"],
    }


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("prlimit64", (0, 7)),
        ("setpriority", (0, 0, 5)),
        ("ioprio_set", (1, 0, 0)),
        ("sched_setaffinity", (0, 8)),
        ("sched_setscheduler", (0, 3)),
        ("clone", (SIGCHLD,)),
        ("clone", (0x3D0F00,)),  # a thread of glibc
        ("clone", (0x4100 | SIGCHLD,)),  # vfork
        ("fcntl", (0, 1)),  # F_GETFD
        ("fcntl", (0, 6)),  # F_SETLK
        ("fcntl64", (0, 13)),  # F_SETLK64
        ("fcntl", (0, 16)),  # F_GETOWN_EX
        ("fcntl", (0, 1030)),  # F_DUPFD_CLOEXEC
        ("fcntl", (0, 1034)),  # F_GET_SEALS
        ("prctl", (15, 0)),  # PR_SET_NAME
        ("prctl", (38, 1)),  # PR_SET_NO_NEW_PRIVS
        ("setsockopt", (3, 1, 2)),  # SO_REUSEADDR
        ("setsockopt", (3, 1, 15)),  # SO_REUSEPORT
        ("setsockopt", (3, 6, 1)),  # TCP_NODELAY
        ("setsockopt", (3, 1, 67)),  # SO_SNDTIMEO of 64 bits
        ("setsockopt", (3, 6, 13)),  # TCP_CONGESTION
        ("setsockopt", (3, 6, 23)),  # TCP_FASTOPEN
        ("setsockopt", (3, 6, 30)),  # TCP_FASTOPEN_CONNECT
        ("setsockopt", (3, 17, 103)),  # UDP_SEGMENT
        ("setsockopt", (3, 41, 26)),  # IPV6_V6ONLY
        ("setsockopt", (3, 41, 29)),  # IPV6_MULTICAST_ALL, which Java sets
        ("setsockopt", (3, 41, 49)),  # IPV6_RECVPKTINFO
        ("setsockopt", (3, 41, 67)),  # IPV6_TCLASS
        ("setsockopt", (3, 0, 1)),  # IP_TOS
        ("setsockopt", (3, 0, 10)),  # IP_MTU_DISCOVER
        ("setsockopt", (3, 0, 33)),  # IP_MULTICAST_TTL
        ("setsockopt", (3, 0, 36)),  # IP_DROP_MEMBERSHIP
        ("setsockopt", (3, 0, 49)),  # IP_MULTICAST_ALL, which Java sets
        ("setsockopt", (3, 270, 11)),  # NETLINK_EXT_ACK
        ("socket", (1, 5, 0)),
        ("socket", (2, 1, 0)),
        ("socket", (2, 1 | 0o2000000 | 0o4000, 6)),
        ("socket", (10, 2, 17)),
        ("socket", (2, 2, 1)),
        ("socket", (16, 3, 0)),
        ("socketpair", (1, 1, 0)),
        ("personality", (0xFFFFFFFF,)),
        ("personality", (8,)),
    ],
)
def test_ordinary_arguments_pass(call: str, arguments: tuple[int, ...]) -> None:
    """A process may change itself, start others and talk over the usual sockets."""
    assert answer(call, *arguments) == 0


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("prlimit64", (1, 7)),
        ("prlimit64", (UPPER_BIT, 7)),
        ("setpriority", (0, 1, 5)),
        ("setpriority", (1, 0, 5)),
        ("setpriority", (2, 0, 5)),
        ("ioprio_set", (1, 1, 0)),
        ("ioprio_set", (2, 0, 0)),
        ("ioprio_set", (3, 0, 0)),
        ("sched_setaffinity", (1, 8)),
        ("sched_setattr", (1, 0)),
        ("sched_setparam", (1, 0)),
        ("sched_setscheduler", (1, 3)),
        ("sched_setscheduler", (UPPER_BIT | 1, 3)),
        ("clone", (NEW_USER_NAMESPACE | SIGCHLD,)),
        ("clone", (0x00020000,)),
        ("clone", (0x400 | SIGCHLD,)),  # a process with the descriptors of another
        ("clone", (0x400 | 0x10000 | NEW_USER_NAMESPACE,)),
        ("fcntl", (0, 36)),  # F_OFD_GETLK
        ("fcntl", (0, 37)),  # F_OFD_SETLK
        ("fcntl64", (0, 38)),  # F_OFD_SETLKW
        ("fcntl", (0, UPPER_BIT | 37)),
        ("prctl", (22, 2)),  # PR_SET_SECCOMP
        ("prctl", (UPPER_BIT | 22, 2)),
        ("setsockopt", (3, 1, 26)),  # SO_ATTACH_FILTER
        ("setsockopt", (3, 1, 50)),  # SO_ATTACH_BPF
        ("setsockopt", (3, 1, 51)),  # SO_ATTACH_REUSEPORT_CBPF
        ("setsockopt", (3, 1, UPPER_BIT | 26)),
        ("setsockopt", (3, UPPER_BIT | 1, 26)),
        *(
            ("setsockopt", (3, level, option))
            for level, options in seccomp.FORBIDDEN_SOCKET_OPTIONS.items()
            for option in options.values()
        ),
        ("setsockopt", (3, 41, UPPER_BIT | 6)),  # IPV6_2292PKTOPTIONS
        ("setsockopt", (3, UPPER_BIT | 41, 6)),
        ("setsockopt", (3, 41, 0x80 | 26)),  # none that there is
        ("setsockopt", (3, 41, 0x80000000 | 26)),
        ("setsockopt", (3, 255, 0)),  # SOL_RAW
        ("setsockopt", (3, 132, 0)),  # SOL_SCTP
        ("socket", (40, 1, 0)),  # AF_VSOCK
        ("socket", (17, 3, 0)),  # AF_PACKET
        ("socket", (38, 5, 0)),  # AF_ALG
        ("socket", (2, 6, 33)),  # DCCP
        ("socket", (2, 5, 0)),  # SCTP, unnamed
        ("socket", (2, 1, 132)),  # SCTP
        ("socket", (2, 1, 262)),  # MPTCP
        ("socket", (16, 3, 12)),  # netfilter
        ("socketpair", (30, 1, 0)),  # TIPC
        ("personality", (0x400000,)),
        ("personality", (0x40000,)),
    ],
)
def test_other_arguments_are_refused(call: str, arguments: tuple[int, ...]) -> None:
    """Others' limits and priorities, namespaces and rare sockets are out of reach."""
    assert answer(call, *arguments) == errno.EPERM


@pytest.mark.parametrize(
    "call", ["clone3", "socketcall", "io_setup", "fchmodat2", "file_setattr", "seccomp"]
)
def test_calls_with_another_way_seem_absent(call: str) -> None:
    """Programs get the answer after which they go on with an older call."""
    assert answer(call) == errno.ENOSYS


@pytest.mark.parametrize("request_number", seccomp.FORBIDDEN_IOCTLS.values())
def test_forbidden_ioctl_is_refused_in_every_disguise(request_number: int) -> None:
    """The kernel reads 32 bits of the request, so the others make no difference."""
    for upper in (0, 1, 1 << 31, (1 << 32) - 1):
        assert answer("ioctl", 0, upper << 32 | request_number) == errno.EPERM


@pytest.mark.parametrize("request_number", seccomp.FORBIDDEN_IOCTLS.values())
def test_ioctl_next_to_a_forbidden_one_passes(request_number: int) -> None:
    """One differing bit makes it another request."""
    neighbours = {request_number ^ 1 << bit for bit in range(32)}

    refused = {number for number in neighbours if answer("ioctl", 0, number) != 0}

    assert refused == neighbours & set(seccomp.FORBIDDEN_IOCTLS.values())


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_every_other_ioctl_passes(number: int) -> None:
    """Terminals, files and sockets keep all their requests but the forbidden ones."""
    is_forbidden = number % (1 << 32) in seccomp.FORBIDDEN_IOCTLS.values()

    assert answer("ioctl", 0, number) == (errno.EPERM if is_forbidden else 0)


def test_allowing_ptrace_allows_nothing_else() -> None:
    """The filter for debuggers differs in one name."""
    strict = json.loads(seccomp.profile())
    relaxed = json.loads(seccomp.profile(allow_ptrace=True))

    relaxed["syscalls"][0]["names"].remove("ptrace")

    assert relaxed == strict
