"""Which system calls a sandbox may make; `python -m sandboxd.isolation.seccomp` prints the filter.

Calls that are not listed fail with EPERM. Commands have the same uid as the guest, so the kernel
alone would let them change its limits and priority: such calls may affect only the caller.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# A 64-bit kernel also serves 32-bit programs, whose calls are filtered by the same names. Leaving
# an architecture out would not open a hole, but its programs would be killed.
_ARCHITECTURES = {
    "SCMP_ARCH_X86_64": ("SCMP_ARCH_X86", "SCMP_ARCH_X32"),
    "SCMP_ARCH_AARCH64": ("SCMP_ARCH_ARM",),
}


@dataclass(frozen=True, kw_only=True)
class Equals:
    """A condition on one argument: the bits of `mask` have to be those of `value`.

    There is no "differs from": the filter sees 64 bits where the kernel mostly reads 32, so the
    forbidden value with any upper bit set would pass.
    """

    argument: int
    value: int
    mask: int | None = None
    """Mask of the compared bits; None means all 64."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Allows calls if all conditions hold; a call may have several rules."""

    calls: tuple[str, ...]
    conditions: tuple[Equals, ...]


def _calls(names: str) -> tuple[str, ...]:
    return tuple(names.split())


ALLOWED = {
    "run programs": _calls("""
        arch_prctl execve execveat exit exit_group fork get_thread_area getpgid getpgrp getpid
        getppid getsid gettid restart_syscall rseq set_robust_list set_thread_area
        set_tid_address setpgid setsid vfork wait4 waitid waitpid
    """),
    # Clearing an instruction cache and naming the thread's storage are system calls on 32-bit ARM.
    "run programs on ARM": _calls("breakpoint cacheflush set_tls"),
    "threads": _calls("futex futex_time64 futex_waitv getcpu membarrier sched_yield"),
    # PID 1 of a container receives no signal from inside that it does not handle.
    "signals": _calls("""
        kill pause pidfd_open pidfd_send_signal rt_sigaction rt_sigpending rt_sigprocmask
        rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64
        rt_tgsigqueueinfo sigaction sigaltstack signal signalfd signalfd4 sigpending sigprocmask
        sigreturn sigsuspend tgkill tkill
    """),
    # Counted in the memory limit; RLIMIT_MEMLOCK bounds locked memory as well.
    "memory": _calls("""
        brk madvise memfd_create mincore mlock mlock2 mlockall mmap mmap2 mprotect mremap msync
        munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect
    """),
    "open files": _calls("""
        _llseek arm_fadvise64_64 arm_sync_file_range close close_range copy_file_range dup dup2 dup3
        fadvise64 fadvise64_64 fallocate fdatasync flock fsync ftruncate ftruncate64
        getdents getdents64 lseek pipe pipe2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read
        readahead readdir readv sendfile sendfile64 splice sync sync_file_range sync_file_range2
        syncfs tee write writev
    """),
    # Device nodes need a capability that no sandbox has.
    "paths": _calls("""
        access chdir chmod chown chown32 creat faccessat faccessat2 fchdir fchmod fchmodat fchown
        fchown32 fchownat getcwd lchown lchown32 link linkat mkdir mkdirat mknod mknodat open openat
        openat2 readlink readlinkat rename renameat renameat2 rmdir symlink symlinkat truncate
        truncate64 umask unlink unlinkat
    """),
    "file attributes": _calls("""
        fgetxattr flistxattr fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64
        futimesat getxattr lgetxattr listxattr llistxattr lremovexattr lsetxattr lstat lstat64
        newfstatat removexattr setxattr stat stat64 statfs statfs64 statx utime utimensat
        utimensat_time64 utimes
    """),
    # Inotify instances and message queues are counted per uid, and every sandbox has its own uid.
    "waiting for events": _calls("""
        _newselect epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd
        eventfd2 inotify_add_watch inotify_init inotify_init1 inotify_rm_watch poll ppoll
        ppoll_time64 pselect6 pselect6_time64 select
    """),
    "POSIX message queues": _calls("""
        mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend
        mq_timedsend_time64 mq_unlink
    """),
    # On existing sockets; the rules below say which kinds can be created.
    "sockets": _calls("""
        accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg
        recvmmsg_time64 recvmsg send sendmmsg sendmsg sendto shutdown
    """),
    "clocks and timers": _calls("""
        alarm clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep
        clock_nanosleep_time64 getitimer gettimeofday nanosleep setitimer time timer_create
        timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64
        timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times
    """),
    # Changing to another user needs a capability; programs that set their own user again do not.
    "own identity": _calls("""
        capget capset getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32
        getresgid getresgid32 getresuid getresuid32 getuid getuid32 setfsgid setfsgid32 setfsuid
        setfsuid32 setgid setgid32 setgroups setgroups32 setregid setregid32 setresgid setresgid32
        setresuid setresuid32 setreuid setreuid32 setuid setuid32
    """),
    "own limits": _calls("getrlimit getrusage nice setrlimit ugetrlimit"),
    "reading priorities": _calls("""
        getpriority ioprio_get sched_get_priority_max sched_get_priority_min sched_getaffinity
        sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
        sched_rr_get_interval_time64
    """),
    # For programs that confine themselves: these calls only remove permissions.
    "further confinement": _calls("""
        landlock_add_rule landlock_create_ruleset landlock_restrict_self
    """),
    "about the system": _calls("getrandom sysinfo uname"),
}

# Refused with ENOSYS, because programs then use another call; EPERM would make them fail.
ABSENT = {
    # Its flags are in memory, which filters cannot read. libc and Go fall back to clone.
    "clone with hidden flags": _calls("clone3"),
    # Likewise on 32-bit x86: the socket's family is in memory. libseccomp cannot express the rules
    # for socket here and would allow every family.
    "socket with hidden family": _calls("socketcall"),
    # Contexts come from one budget for the whole host (fs.aio-max-nr).
    "asynchronous input and output": _calls("""
        io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit
    """),
    # Compiled filters come from one budget for the whole host (net.core.bpf_jit_limit), and without
    # it no sandbox could start. Programs that confine themselves take this for an older kernel.
    "filters of their own": _calls("seccomp"),
    # Not needed by programs that run on older kernels. runc does the same for even newer calls:
    # those with numbers beyond the highest in a filter.
    "newer than Linux 5.16": _calls("""
        cachestat fchmodat2 file_getattr file_setattr futex_requeue futex_wait futex_wake getxattrat
        listmount listxattrat lsm_get_self_attr lsm_list_modules lsm_set_self_attr map_shadow_stack
        mseal open_tree_attr removexattrat set_mempolicy_home_node setxattrat statmount
    """),
}

# The guest and its threads have the uid of the commands. Zero is the calling thread; any other
# number may be a thread of the guest, and a process group or user may include it.
_PRIO_PROCESS = 0
_IOPRIO_WHO_PROCESS = 1
CALLER_ONLY = (
    Rule(
        calls=_calls("prlimit64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler"),
        conditions=(Equals(argument=0, value=0),),
    ),
    Rule(
        calls=("setpriority",),
        conditions=(Equals(argument=0, value=_PRIO_PROCESS), Equals(argument=1, value=0)),
    ),
    Rule(
        calls=("ioprio_set",),
        conditions=(Equals(argument=0, value=_IOPRIO_WHO_PROCESS), Equals(argument=1, value=0)),
    ),
)

# In a new user namespace, a program is root for kernel code that was written for root only.
_CLONE_NEW_NAMESPACES = 0x7E020000
# Record locks belong to a table of descriptors. Only threads of one process may share it, so that
# the kernel's list of locks names a process that exists (see kernel_memory.py).
_CLONE_FILES, _CLONE_THREAD = 0x400, 0x10000
PROCESSES_WITHOUT_NAMESPACES = tuple(
    Rule(calls=("clone",), conditions=(Equals(argument=0, value=value, mask=mask),))
    for mask, value in (
        (_CLONE_NEW_NAMESPACES | _CLONE_FILES, 0),
        (_CLONE_NEW_NAMESPACES | _CLONE_THREAD, _CLONE_THREAD),
    )
)

# The upper bits count: the kernel reads commands and options as 32 bits.
_ALL_BUT_4_BITS = 0xFFFFFFF0
# All but the locks of open files (36 to 38): the kernel's list names no process for them.
FILE_COMMANDS = tuple(
    Rule(
        calls=("fcntl", "fcntl64"),
        conditions=(Equals(argument=1, value=value, mask=_ALL_BUT_4_BITS),),
    )
    for value in (0, 16, 1024)
)

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
# Not set in stream, datagram or raw sockets (the last need a capability). Set in SOCK_SEQPACKET and
# others: over IP that is SCTP, even if no protocol is named.
_SOCK_OTHER_KINDS = 0xC
_ANY, _TCP, _UDP, _ICMP, _ICMP6 = 0, 6, 17, 1, 58
_NETLINK_ROUTE = 0


def _internet_sockets(family: int, *, protocols: Iterable[int]) -> Iterator[Rule]:
    for protocol in protocols:
        yield Rule(
            calls=("socket",),
            conditions=(
                Equals(argument=0, value=family),
                Equals(argument=1, value=0, mask=_SOCK_OTHER_KINDS),
                Equals(argument=2, value=protocol),
            ),
        )


# Other families and protocols (SCTP, MPTCP ...) are code that ordinary programs never use, and
# AF_VSOCK leads to the hypervisor and is not confined by a network namespace.
SOCKETS = (
    Rule(calls=("socket", "socketpair"), conditions=(Equals(argument=0, value=_AF_UNIX),)),
    *_internet_sockets(_AF_INET, protocols=(_ANY, _TCP, _UDP, _ICMP)),
    *_internet_sockets(_AF_INET6, protocols=(_ANY, _TCP, _UDP, _ICMP6)),
    # libc lists network interfaces with it; Node.js raises an error if that fails.
    Rule(
        calls=("socket",),
        conditions=(
            Equals(argument=0, value=_AF_NETLINK),
            Equals(argument=2, value=_NETLINK_ROUTE),
        ),
    ),
)

# Queries (0xFFFFFFFF), 32-bit programs and programs for Linux 2.6. Other values make memory
# executable, or its layout predictable.
HARMLESS_PERSONALITIES = tuple(
    Rule(calls=("personality",), conditions=(Equals(argument=0, value=value),))
    for value in (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
)

# They type into a terminal, for the next process that reads from it.
FORBIDDEN_IOCTLS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C}
_REQUEST_BITS = 32


def _all_but(forbidden: Iterable[int], *, bits: int) -> Iterator[tuple[int, int]]:
    """(mask, value) pairs that match every number of `bits` bits except the forbidden ones.

    Each pair matches the first n bits of a forbidden number, followed by a bit that differs.
    """
    leading = {0}
    for position in reversed(range(bits)):
        mask = (1 << bits) - (1 << position)
        followed = {number & mask for number in forbidden}
        ways = {way for value in leading for way in (value, value | 1 << position)}
        yield from ((mask, value) for value in sorted(ways - followed))
        leading = followed


OTHER_IOCTLS = tuple(
    Rule(calls=("ioctl",), conditions=(Equals(argument=1, value=value, mask=mask),))
    for mask, value in _all_but(FORBIDDEN_IOCTLS.values(), bits=_REQUEST_BITS)
)

# Another way to load a filter; see ABSENT.
_PR_SET_SECCOMP = 22
OTHER_PROCESS_OPTIONS = tuple(
    Rule(calls=("prctl",), conditions=(Equals(argument=0, value=value, mask=mask),))
    for mask, value in _all_but([_PR_SET_SECCOMP], bits=_REQUEST_BITS)
)

_SOL_IP, _SOL_SOCKET, _SOL_TCP, _SOL_UDP, _SOL_IPV6, _SOL_NETLINK = 0, 1, 6, 17, 41, 270
FORBIDDEN_SOCKET_OPTIONS: Mapping[int, Mapping[str, int]] = {
    # Filters of sockets are compiled as well, and come from the same budget.
    _SOL_SOCKET: {
        "SO_ATTACH_FILTER": 26,
        "SO_ATTACH_BPF": 50,
        "SO_ATTACH_REUSEPORT_CBPF": 51,
        "SO_ATTACH_REUSEPORT_EBPF": 52,
    },
    # For these a socket keeps up to 128 KiB that no limit counts, or takes from what all sockets of
    # the host share. They are about other machines, of which a sandbox has none.
    _SOL_IP: {
        "IP_OPTIONS": 4,
        "IP_IPSEC_POLICY": 16,
        "IP_XFRM_POLICY": 17,
        "IP_ADD_MEMBERSHIP": 35,
        "IP_BLOCK_SOURCE": 38,
        "IP_ADD_SOURCE_MEMBERSHIP": 39,
        "IP_MSFILTER": 41,
        "MCAST_JOIN_GROUP": 42,
        "MCAST_BLOCK_SOURCE": 43,
        "MCAST_JOIN_SOURCE_GROUP": 46,
        "MCAST_MSFILTER": 48,
    },
    _SOL_TCP: {
        "TCP_MD5SIG": 14,
        "TCP_ULP": 31,
        "TCP_MD5SIG_EXT": 32,
        "TCP_FASTOPEN_KEY": 33,
        "TCP_AO_ADD_KEY": 38,
        "TCP_AO_DEL_KEY": 39,
    },
    _SOL_UDP: {"UDP_ENCAP": 100},
    _SOL_IPV6: {
        "IPV6_2292PKTOPTIONS": 6,
        "IPV6_ADD_MEMBERSHIP": 20,
        "IPV6_JOIN_ANYCAST": 27,
        "IPV6_FLOWLABEL_MGR": 32,
        "IPV6_IPSEC_POLICY": 34,
        "IPV6_XFRM_POLICY": 35,
        "MCAST_JOIN_GROUP": 42,
        "MCAST_BLOCK_SOURCE": 43,
        "MCAST_JOIN_SOURCE_GROUP": 46,
        "MCAST_MSFILTER": 48,
        "IPV6_HOPOPTS": 54,
        "IPV6_RTHDRDSTOPTS": 55,
        "IPV6_RTHDR": 57,
        "IPV6_DSTOPTS": 59,
    },
    _SOL_NETLINK: {},
}
_OPTION_BITS = 7
"""All options of Linux are below 128; what is above may be anything in a later one."""
_BEYOND_OPTIONS = 0xFFFFFF80
SOCKET_OPTIONS = tuple(
    Rule(
        calls=("setsockopt",),
        conditions=(
            Equals(argument=1, value=level),
            Equals(argument=2, value=value, mask=_BEYOND_OPTIONS | mask),
        ),
    )
    for level, forbidden in FORBIDDEN_SOCKET_OPTIONS.items()
    for mask, value in _all_but(forbidden.values(), bits=_OPTION_BITS)
)

RULES = (
    *CALLER_ONLY,
    *PROCESSES_WITHOUT_NAMESPACES,
    *FILE_COMMANDS,
    *SOCKETS,
    *SOCKET_OPTIONS,
    *OTHER_PROCESS_OPTIONS,
    *HARMLESS_PERSONALITIES,
    *OTHER_IOCTLS,
)


def profile(*, allow_ptrace: bool = False) -> str:
    """The filter as compact JSON, for the engine's security option `seccomp=`.

    With ptrace, debuggers work. They cannot reach the guest, which is not dumpable.
    """
    debugging = ("ptrace",) if allow_ptrace else ()
    allowed = sorted({*debugging, *(name for names in ALLOWED.values() for name in names)})
    absent = sorted(name for names in ABSENT.values() for name in names)
    content = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [
            {"architecture": native, "subArchitectures": compatible}
            for native, compatible in _ARCHITECTURES.items()
        ],
        "syscalls": [
            {"names": allowed, "action": "SCMP_ACT_ALLOW"},
            {"names": absent, "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
            *(_rule_entry(rule) for rule in RULES),
        ],
    }
    return json.dumps(content, separators=(",", ":"))


def digest(profile: str) -> str:
    """Short hash that identifies a filter in a report."""
    return hashlib.sha256(profile.encode()).hexdigest()[:12]


def _rule_entry(rule: Rule) -> dict[str, Any]:
    return {
        "names": rule.calls,
        "action": "SCMP_ACT_ALLOW",
        "args": [_argument_entry(condition) for condition in rule.conditions],
    }


def _argument_entry(condition: Equals) -> dict[str, int | str]:
    if condition.mask is None:
        return {"index": condition.argument, "value": condition.value, "op": "SCMP_CMP_EQ"}
    return {
        "index": condition.argument,
        "value": condition.mask,
        "valueTwo": condition.value,
        "op": "SCMP_CMP_MASKED_EQ",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the system call filter of sandboxes.")
    parser.add_argument(
        "--allow-ptrace", action="store_true", help="print the filter for debuggers"
    )
    options = parser.parse_args()
    content = json.loads(profile(allow_ptrace=options.allow_ptrace))
    sys.stdout.write(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
