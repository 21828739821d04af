"""The system call filter as the kernel applies it in a container."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import json
import mmap
import os
import platform
import struct
import subprocess
import textwrap
import uuid
from collections.abc import Callable, Iterator, Sequence
from errno import ENOSYS, EPERM, errorcode
from functools import partial
from typing import Any

import aiodocker

from sandboxd.isolation import seccomp

UNCONFINED = "unconfined"
DEADLINE_SECONDS = 60.0

# One attempt: the name of a call, or its number if it is newer than libseccomp, and its arguments.
# A word is the address of what it names: "zeros", or the "vsock" arguments of a socketcall.
Attempt = tuple[str | int, *tuple[int | str, ...]]

GUEST = 1
UPPER_BIT = 1 << 32
CLONE_NEWUSER, CLONE_NEWNS, SIGCHLD = 0x10000000, 0x00020000, 17
PRIO_PROCESS, PRIO_PGRP, PRIO_USER = 0, 1, 2
IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP, IOPRIO_WHO_USER = 1, 2, 3
RLIMIT_CORE = 4
PTRACE_TRACEME, PTRACE_ATTACH = 0, 16
AF_INET, AF_NETLINK, AF_PACKET, AF_ALG, AF_VSOCK = 2, 16, 17, 38, 40
SOCK_STREAM, SOCK_RAW, SOCK_SEQPACKET = 1, 3, 5
IPC_CREAT = 0o1600  # readable and writable for the maker
CLONE_FILES, F_OFD_SETLK, PR_SET_SECCOMP, SOL_SOCKET = 0x400, 37, 22, 1
NOWHERE = -1


def without_arguments(names: str) -> Iterator[Attempt]:
    return ((name, 0, 0, 0, 0) for name in names.split())


# What a kernel without a filter lets anyone do, or refuses with another error for the arguments.
OPEN_TO_ANYONE: list[Attempt] = [
    ("unshare", CLONE_NEWUSER),
    ("setns", NOWHERE, 0),
    ("clone", CLONE_NEWUSER | SIGCHLD),
    ("prlimit64", GUEST, RLIMIT_CORE, "zeros", 0),
    ("setpriority", PRIO_PROCESS, GUEST, 0),
    ("setpriority", PRIO_PGRP, 0, 0),
    ("setpriority", PRIO_USER, 0, 0),
    ("ioprio_set", IOPRIO_WHO_PROCESS, GUEST, 0),
    ("ioprio_set", IOPRIO_WHO_PGRP, 0, 0),
    ("ioprio_set", IOPRIO_WHO_USER, 0, 0),
    ("sched_setscheduler", GUEST, 0, "zeros"),
    ("sched_setparam", GUEST, "zeros"),
    ("sched_setattr", GUEST, "zeros", 0),
    ("sched_setaffinity", GUEST, 8, "zeros"),
    ("ptrace", PTRACE_TRACEME, 0, 0, 0),
    ("process_vm_readv", 0, 0, 0, 0),
    ("process_vm_writev", 0, 0, 0, 0),
    ("process_madvise", NOWHERE, 0, 0, 0),
    ("process_mrelease", NOWHERE, 0),
    ("pidfd_getfd", NOWHERE, 0, 0),
    ("kcmp", 0, 0, 0, 0),
    ("get_robust_list", 0, "zeros", "zeros"),
    ("io_uring_setup", 1, "zeros"),
    ("io_uring_enter", NOWHERE, 0, 0, 0),
    ("io_uring_register", NOWHERE, 0, 0, 0),
    ("userfaultfd", 1),
    ("memfd_secret", 0),
    ("vmsplice", NOWHERE, 0, 0, 0),
    ("remap_file_pages", 0, 0, 0, 0),
    ("keyctl", 0, NOWHERE, 0, 0),
    ("add_key", 0, 0, 0, 0),
    ("request_key", 0, 0, 0, 0),
    ("name_to_handle_at", NOWHERE, "zeros", "zeros", "zeros"),
    ("fanotify_mark", NOWHERE, 1, 0, 0),
    ("get_mempolicy", 0, 0, 0, 0),
    ("set_mempolicy", 0, 0, 0),
    ("mbind", 0, 0, 0, 0),
    ("migrate_pages", 0, 0, 0, 0),
    ("move_pages", 0, 0, 0, 0),
    ("shmget", 0, 4096, IPC_CREAT),
    ("shmat", NOWHERE, 0, 0),
    ("shmctl", NOWHERE, 0, 0),
    ("shmdt", 0),
    ("msgget", 0, IPC_CREAT),
    ("msgsnd", NOWHERE, "zeros", 0, 0),
    ("msgrcv", NOWHERE, "zeros", 0, 0),
    ("msgctl", NOWHERE, 0, 0),
    ("semget", 0, 1, IPC_CREAT),
    ("semop", NOWHERE, "zeros", 1),
    ("semtimedop", NOWHERE, "zeros", 1, 0),
    ("semctl", NOWHERE, 0, 0, 0),
    ("socket", AF_VSOCK, SOCK_STREAM, 0),
    ("socket", AF_ALG, SOCK_SEQPACKET, 0),
    ("socket", AF_INET, SOCK_SEQPACKET, 0),
    ("socket", AF_INET, SOCK_STREAM, 262),  # MPTCP
    ("socket", AF_NETLINK, SOCK_RAW, 4),  # other programs' sockets
    ("socketpair", AF_VSOCK, SOCK_STREAM, 0, "zeros"),
    ("personality", 0x400000),  # READ_IMPLIES_EXEC
    ("personality", 0x40000),  # ADDR_NO_RANDOMIZE
    *(("ioctl", NOWHERE, request, 0) for request in seccomp.FORBIDDEN_IOCTLS.values()),
    ("fcntl", NOWHERE, F_OFD_SETLK, "zeros"),
    ("prctl", PR_SET_SECCOMP, 2, 0, 0, 0),
    *(
        ("setsockopt", NOWHERE, level, option, 0, 0)
        for level, options in seccomp.FORBIDDEN_SOCKET_OPTIONS.items()
        for option in options.values()
    ),
]
OPEN_TO_ANYONE_ON_X86: list[Attempt] = [
    ("modify_ldt", 0, "zeros", 0),
    ("ipc", 23, 0, 4096, IPC_CREAT),  # shmget
]
# The filter compares 64 bits, the kernel reads 32.
WITH_UPPER_BITS: list[Attempt] = [
    ("prlimit64", UPPER_BIT | GUEST, RLIMIT_CORE, "zeros", 0),
    ("sched_setscheduler", UPPER_BIT | GUEST, 0, "zeros"),
    ("setpriority", UPPER_BIT | PRIO_USER, 0, 0),
    ("socket", UPPER_BIT | AF_VSOCK, SOCK_STREAM, 0),
    *(("ioctl", NOWHERE, UPPER_BIT | one, 0) for one in seccomp.FORBIDDEN_IOCTLS.values()),
    ("fcntl", NOWHERE, UPPER_BIT | F_OFD_SETLK, "zeros"),
    ("prctl", UPPER_BIT | PR_SET_SECCOMP, 2, 0, 0, 0),
    *(
        ("setsockopt", NOWHERE, level, UPPER_BIT | option, 0, 0)
        for level, options in seccomp.FORBIDDEN_SOCKET_OPTIONS.items()
        for option in options.values()
    ),
]
# What the kernel keeps from other users as well, by itself or by a usual setting.
PRIVILEGED: list[Attempt] = [
    ("clone", CLONE_NEWNS | SIGCHLD),
    ("ptrace", PTRACE_ATTACH, GUEST, 0, 0),
    ("kcmp", 0, GUEST, 0, 0),
    ("process_vm_readv", GUEST, "zeros", 0, 0),
    ("setpriority", PRIO_PROCESS, GUEST, -20),
    ("socket", AF_PACKET, SOCK_RAW, 0),
    ("perf_event_open", "zeros", 0, NOWHERE, NOWHERE),
    *without_arguments("""
        acct adjtimex bpf chroot clock_adjtime clock_settime delete_module fanotify_init
        finit_module fsconfig fsmount fsopen fspick init_module kexec_file_load kexec_load
        lookup_dcookie mount mount_setattr move_mount open_by_handle_at open_tree pivot_root
        quotactl quotactl_fd reboot setdomainname sethostname settimeofday swapoff swapon syslog
        umount2 vhangup
    """),
]
PRIVILEGED_ON_X86 = [*without_arguments("ioperm iopl nfsservctl stime umount uselib ustat")]

# Calls that must seem to be missing.
SEEMING_ABSENT: list[Attempt] = [
    ("clone3", "zeros", 88),
    ("io_setup", 1, "zeros"),
    ("io_submit", 0, 0, 0),
    ("io_getevents", 0, 0, 0, 0),
    ("io_destroy", 0),
    ("seccomp", 1, 0, 0),
]
SEEMING_ABSENT_ON_X86: list[Attempt] = [("socketcall", 1, "vsock")]
# By number: libseccomp may not know them yet. The last one is nobody's.
NEWER: list[Attempt] = [(number, 0, 0, 0, 0) for number in (*range(450, 470), 600)]

IS_X86 = platform.machine() == "x86_64"
BITING = [*OPEN_TO_ANYONE, *(OPEN_TO_ANYONE_ON_X86 if IS_X86 else ())]
REFUSED = [*BITING, *PRIVILEGED, *(PRIVILEGED_ON_X86 if IS_X86 else ())]
ABSENT = [*SEEMING_ABSENT, *(SEEMING_ABSENT_ON_X86 if IS_X86 else ())]

# --- From here to the next line like this one: what runs inside, with the standard library alone.


def system_calls() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def call_natively(number: int, arguments: Sequence[int]) -> int:
    """Make the call; its errno, or 0."""
    padded = (number, *arguments, 0, 0, 0, 0, 0, 0)[:7]
    result = system_calls().syscall(*map(ctypes.c_long, padded))
    return ctypes.get_errno() if result == -1 else 0


def call_as_32_bit(number: int, arguments: Sequence[int]) -> int:
    """Make the call as a 32-bit program does, through interrupt 0x80."""
    # push rbx; eax, ebx, ecx, edx, esi = the five arguments; int 0x80; pop rbx; ret
    code = bytes.fromhex("53 89f8 89f3 4189d1 89ca 4489c9 4489c6 cd80 5b c3")
    memory = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint32] * 5)(address)
    padded = [value & 0xFFFFFFFF for value in (number, *arguments, 0, 0, 0, 0)]
    result: int = function(*padded[:5])
    return -result if -4096 < result < 0 else 0


def in_own_process(call: Callable[[], int]) -> int:
    """The call's errno, or minus the signal that ended the process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, bytes([call()]))
        finally:
            os._exit(0)
    os.close(writer)
    answer = os.read(reader, 1)
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    return answer[0] if answer else -os.WTERMSIG(status)


def low_memory(content: bytes) -> tuple[mmap.mmap, int]:
    """Memory that 32 bits can address, and where it is."""
    map_32_bit = 0x40
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | map_32_bit
    memory = mmap.mmap(-1, 4096, flags=flags)
    memory.write(content)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def number_of(call: str | int, *, architecture: int) -> int:
    """Negative if the architecture has no such call."""
    x32 = 0x4000003E
    if isinstance(call, int):
        # x32 has calls with higher numbers than the newest, which runc therefore takes for old.
        return -1 if architecture == x32 else call
    library = ctypes.CDLL("libseccomp.so.2")
    resolve = library.seccomp_syscall_resolve_name_arch
    return int(resolve(ctypes.c_uint32(architecture), call.encode()))


def attempt_each(attempts: Sequence[Attempt]) -> dict[str, list[int | None]]:
    """For every interface of the kernel the answers, None where there is no such call."""
    zeros, zeros_at = low_memory(b"")
    vsock, vsock_at = low_memory(struct.pack("III", 40, 1, 0))
    words = {"zeros": zeros_at, "vsock": vsock_at}
    interfaces: dict[str, tuple[int, Callable[[int, Sequence[int]], int]]]
    interfaces = {"native": (0, call_natively)}
    if platform.machine() == "x86_64":
        interfaces |= {
            "int 0x80": (0x40000003, call_as_32_bit),
            "x32": (0x4000003E, call_natively),
        }
    answers: dict[str, list[int | None]] = {}
    for interface, (architecture, make) in interfaces.items():
        answers[interface] = []
        for call, *arguments in attempts:
            number = number_of(call, architecture=architecture)
            values = [words[value] if isinstance(value, str) else value for value in arguments]
            is_there = number >= 0
            answer = in_own_process(partial(make, number, values)) if is_there else None
            answers[interface].append(answer)
    del zeros, vsock
    return answers


def attempt_beside_the_guest(attempts: Sequence[Attempt]) -> dict[str, list[int | None]]:
    """As `attempt_each`, from a child of a PID 1 that has closed itself as the guest does."""
    pr_set_dumpable = 4
    assert os.getpid() == 1
    system_calls().prctl(pr_set_dumpable, 0, 0, 0, 0)
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status))
    system_calls().prctl(pr_set_dumpable, 1, 0, 0, 0)
    return attempt_each(attempts)


def unknown_names(names: Sequence[str]) -> list[str]:
    """Names that are a call of no architecture."""
    unknown = -1
    return [name for name in names if number_of(name, architecture=0) == unknown]


def failed_programs(programs: dict[str, list[str]]) -> dict[str, str]:
    """What those that do not end well had to say."""
    failures = {}
    for name, argv in programs.items():
        ended = subprocess.run(argv, capture_output=True, check=False, text=True, timeout=50)
        if ended.returncode != 0:
            failures[name] = f"{ended.returncode}: {ended.stdout[-200:]} {ended.stderr[-1000:]}"
    return failures


RUNS_INSIDE: tuple[Callable[..., Any], ...] = (
    system_calls,
    call_natively,
    call_as_32_bit,
    in_own_process,
    low_memory,
    number_of,
    attempt_each,
    attempt_beside_the_guest,
    unknown_names,
    failed_programs,
)

# ---


def program_of(entry: Callable[[Any], object]) -> str:
    imports = "ctypes", "json", "mmap", "os", "platform", "struct", "subprocess", "sys"
    return "\n".join(
        (
            "from __future__ import annotations",
            "from functools import partial",
            *(f"import {name}" for name in imports),
            *(inspect.getsource(function) for function in RUNS_INSIDE),
            f"print(json.dumps({entry.__name__}(json.loads(sys.argv[1]))))",
        )
    )


def container_config(argv: Sequence[str], *, filter: str) -> dict[str, Any]:
    return {
        "Image": "sandbox-secure:latest",
        "Entrypoint": list(argv),
        "Cmd": [],
        "User": "210001:210001",
        "WorkingDir": "/workspace",
        "Env": ["HOME=/workspace"],
        "Labels": {"sandboxd.test": "seccomp"},
        "NetworkDisabled": True,
        "HostConfig": {
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", f"seccomp={filter}"],
            "PidsLimit": 128,
            "Memory": 256 << 20,
            "Tmpfs": {"/tmp": "size=16m,mode=1777", "/workspace": "size=16m,uid=210001"},
            "LogConfig": {"Type": "json-file"},
        },
    }


async def run_inside(
    docker: aiodocker.Docker, entry: Callable[[Any], object], argument: object, *, filter: str
) -> Any:
    """What the function returns when it runs in a container of its own."""
    argv = ["python3", "-c", program_of(entry), json.dumps(argument)]
    name = f"sandboxd-test-seccomp-{uuid.uuid4().hex[:12]}"
    config = container_config(argv, filter=filter)
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            container = await docker.containers.create(config, name=name)
            await container.start()
            ended = await container.wait()
            output = "".join(await container.log(stdout=True))
            errors = "".join(await container.log(stderr=True))
    finally:
        async with asyncio.timeout(DEADLINE_SECONDS):
            # By its name: a create that was cut short may have made it all the same.
            await remove(docker, name)
    assert ended["StatusCode"] == 0, errors
    return json.loads(output)


async def remove(docker: aiodocker.Docker, name: str) -> None:
    try:
        await docker.containers.container(name).delete(force=True, v=True)
    except aiodocker.DockerError as error:
        if error.status != 404:
            raise


async def answers_to(
    docker: aiodocker.Docker, attempts: Sequence[Attempt], *, filter: str
) -> dict[tuple[str, Attempt], str]:
    """The name of each attempt's errno, "none" if it passed, by interface."""
    answers = await run_inside(docker, attempt_beside_the_guest, attempts, filter=filter)
    return {
        (interface, attempt): errorcode.get(answer, f"signal {-answer}") if answer else "none"
        for interface in answers
        for attempt, answer in zip(attempts, answers[interface], strict=True)
        if answer is not None
    }


def unlike(expected: int, answers: dict[tuple[str, Attempt], str]) -> dict[Any, str]:
    return {key: answer for key, answer in answers.items() if answer != errorcode[expected]}


def attempts_in(answers: dict[tuple[str, Attempt], str]) -> set[Attempt]:
    return {attempt for _, attempt in answers}


async def test_forbidden_calls_are_refused(docker: aiodocker.Docker) -> None:
    """None gets through, neither natively nor as a 32-bit or x32 program would make it."""
    answers = await answers_to(docker, REFUSED, filter=seccomp.profile())

    assert unlike(EPERM, answers) == {}
    assert not IS_X86 or attempts_in(answers) == set(REFUSED)


async def test_upper_bits_do_not_hide_an_argument(docker: aiodocker.Docker) -> None:
    """A value that the kernel would cut down to a forbidden one is refused too."""
    answers = await answers_to(docker, WITH_UPPER_BITS, filter=seccomp.profile())

    assert unlike(EPERM, answers) == {}


async def test_calls_with_another_way_seem_absent(docker: aiodocker.Docker) -> None:
    """Programs are told that the kernel has no such call, so that they use the older one."""
    answers = await answers_to(docker, [*ABSENT, *NEWER], filter=seccomp.profile())

    assert unlike(ENOSYS, answers) == {}
    assert not IS_X86 or attempts_in(answers) == {*ABSENT, *NEWER}


async def test_kernel_alone_refuses_none_of_them(docker: aiodocker.Docker) -> None:
    """It is the filter that refuses: without one, the same calls pass or fail for other reasons."""
    attempts = [*BITING, *WITH_UPPER_BITS, *ABSENT]

    answers = await answers_to(docker, attempts, filter=UNCONFINED)

    refusals = {**dict.fromkeys(attempts, "EPERM"), **dict.fromkeys(ABSENT, "ENOSYS")}
    not_biting = {
        (interface, attempt): answer
        for (interface, attempt), answer in answers.items()
        # Most kernels have no x32, and say so.
        if interface != "x32" and answer == refusals[attempt]
    }
    assert not_biting == {}
    passed = {attempt[0] for (_, attempt), answer in answers.items() if answer == "none"}
    assert {"prlimit64", "ptrace", "setpriority", "sched_setscheduler", "ioprio_set"} <= passed


async def test_ptrace_can_be_allowed_without_reaching_the_guest(docker: aiodocker.Docker) -> None:
    """With the filter for debuggers a process may be traced, but not one that is not dumpable."""
    filter = seccomp.profile(allow_ptrace=True)

    answers = await answers_to(docker, REFUSED, filter=filter)

    assert answers["native", ("ptrace", PTRACE_TRACEME, 0, 0, 0)] == "none"
    assert answers["native", ("ptrace", PTRACE_ATTACH, GUEST, 0, 0)] == "EPERM"
    assert {attempt[0] for _, attempt in unlike(EPERM, answers)} == {"ptrace"}


async def test_names_are_those_of_system_calls(docker: aiodocker.Docker) -> None:
    """A name that libseccomp does not know is ignored by engines, so a slip would go unnoticed."""
    content = json.loads(seccomp.profile())
    names = sorted({name for entry in content["syscalls"] for name in entry["names"]})

    unknown = await run_inside(docker, unknown_names, names, filter=seccomp.profile())

    assert set(unknown) <= set(seccomp.ABSENT["newer than Linux 5.16"])


SHELL_LINES = {
    "pipes": "[ $(seq 1000 | sort -rn | head -n 1) = 1000 ]",
    "jobs": "{ true & } && wait $! && [ $(cat <(echo here)) = here ]",
    "coprocess": "coproc cat; echo x >&${COPROC[1]}; read -u ${COPROC[0]} line; [ $line = x ]",
    "fifo": "mkfifo f && { echo through > f & } && [ $(cat f) = through ]",
    "archive": "echo a > a && tar -czf a.tgz a && tar -xzOf a.tgz | grep -qx a",
    "sort in files": "seq 99999 | sort -S 1M --parallel=2 -T . -rn | grep -m 1 . | grep 99999",
    "find and xargs": "find /usr/bin -name 'p*' -print0 | xargs -0 -n 20 -P 4 ls -l > /dev/null",
    "jq": "[ $(echo '{\"a\": 1}' | jq .a) = 1 ]",
    "perl": "perl -e 'exit(fork() ? (wait() > 0 ? $? : 1) : 0)'",
    "links and modes": "echo > m && ln m n && ln -s n o && chmod 600 o && touch -d @0 m && sync m",
    "own limits": "ulimit -n 50 && [ $(ulimit -n) = 50 ] && prlimit --nofile=40 true",
    "own priority": "[ $(nice -n 5 nice) = 5 ] && ionice -c 3 true && chrt --batch 0 true",
    "own CPUs": "taskset -c 0 true",
    "own kind": 'setarch "$(uname -m)" true && linux32 true',
    "terminal": "script -qec 'stty size' /dev/null",
    "lock": "flock lock true",
    "time limit": "timeout 20 true && ! timeout 0.1 tail -f /dev/null",
    "compressors": "seq 9 | gzip | gunzip | xz -T2 | unxz | bzip2 | bunzip2 | grep -q 9",
}
PYTHON_PROGRAMS = {
    "subprocess": """
        import subprocess
        assert subprocess.run(["echo", "x"], capture_output=True, check=True).stdout == b"x\\n"
        subprocess.run(["true"], preexec_fn=lambda: None, start_new_session=True, check=True)
    """,
    "threads": """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(abs, range(-100, 0))) == 5050
    """,
    "multiprocessing": """
        import multiprocessing
        with multiprocessing.Pool(2) as pool:
            assert pool.map(abs, [-1, -2]) == [1, 2]
    """,
    "shared memory": """
        from multiprocessing.shared_memory import SharedMemory
        memory = SharedMemory(create=True, size=99)
        memory.close()
        memory.unlink()
    """,
    "asyncio": """
        import asyncio
        async def main():
            async def echo(reader, writer):
                writer.write(await reader.read(9))
                writer.close()
            async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                writer.write(b"hello")
                assert await reader.read() == b"hello"
                writer.close()
            process = await asyncio.create_subprocess_exec("true")
            assert await process.wait() == 0
        asyncio.run(main())
    """,
    "sockets": """
        import socket
        for family in (socket.AF_INET, socket.AF_UNIX):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                socket.socket(family, kind | socket.SOCK_NONBLOCK).close()
        left, right = socket.socketpair()
        left.send(b"x")
        assert socket.getaddrinfo("127.0.0.1", 80, flags=socket.AI_ADDRCONFIG)
        assert (1, "lo") in socket.if_nameindex()
    """,
    "database": """
        import sqlite3
        with sqlite3.connect("db") as connection:
            connection.execute("pragma journal_mode=wal")
            connection.execute("create table t (a)")
            connection.executemany("insert into t values (?)", [(n,) for n in range(1000)])
        assert sqlite3.connect("db").execute("select count(*) from t").fetchone() == (1000,)
    """,
    "limits and priority": """
        import os, resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        assert os.nice(3) == 3
        os.setpriority(os.PRIO_PROCESS, 0, 4)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        os.getpriority(os.PRIO_PROCESS, 1)
    """,
    "what the guest does": """
        import fcntl, os, select, signal, socket
        reader, writer = os.pipe()
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 256 * 1024)
        pid = os.posix_spawn(
            "/bin/sleep", ["sleep", "1000"], {}, setsid=True, setsigmask=[], setsigdef=[2]
        )
        os.close(os.open(f"/proc/{pid}/mem", os.O_WRONLY))
        pidfd = os.pidfd_open(pid)
        poll = select.epoll()
        poll.register(pidfd, select.EPOLLIN)
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        assert poll.poll(20) == [(pidfd, select.EPOLLIN)]
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    """,
    "files": """
        import mmap, os, shutil, tempfile
        with tempfile.TemporaryFile() as file:
            file.truncate(4096)
            mmap.mmap(file.fileno(), 4096)[0:1] = b"x"
            os.posix_fallocate(file.fileno(), 0, 8192)
            os.fsync(file.fileno())
        shutil.copytree("/etc/apt", "copied")
        os.write(os.memfd_create("m"), b"x")
    """,
}


async def test_ordinary_programs_work(docker: aiodocker.Docker) -> None:
    """Shell, archive tools and Python's usual modules do not notice the filter."""
    programs = {
        **{name: ["bash", "-c", line] for name, line in SHELL_LINES.items()},
        **{
            f"Python: {name}": ["python3", "-c", textwrap.dedent(text)]
            for name, text in PYTHON_PROGRAMS.items()
        },
    }

    failures = await run_inside(docker, failed_programs, programs, filter=seccomp.profile())

    assert failures == {}
