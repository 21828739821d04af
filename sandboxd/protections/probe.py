"""Tries, inside a sandbox, what a sandbox must not be able to do. Standard library only.

The guest's own Python runs the text of this file, as `python -c <text> <what> <arguments>`, so it
works in any image. It judges nothing: every line of output is a JSON pair of an attempt and its
outcome, which is `ALLOWED` or the name of an error.
"""

import ctypes
import errno
import fcntl
import json
import os
import platform
import pwd
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

PYTHON = "/.sandboxd/bin/python3.11"
GUEST_SOCKET = "/.sandboxd/link/guest.sock"
METADATA_SERVICE = ("169.254.169.254", 80)
"""Address where clouds hand out credentials of the machine."""
CONNECT_SECONDS = 1.0
ALLOWED = "ALLOWED"
PIECE = 8 << 20

_AF_ALG, _AF_PACKET, _AF_VSOCK = 38, 17, 40
_CLONE_NEWUSER = 0x10000000
_PTRACE_TRACEME = 0
_PRIO_PROCESS = 0
_RLIMIT_NOFILE = 7
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_SO_ATTACH_FILTER = 26
_IPV6_2292PKTOPTIONS = 6
_F_OFD_GETLK = 36
DATAGRAM = 32 << 10
DATAGRAMS_PER_SOCKET = 6
"""As many as the receive buffer of a socket has room for by default."""
LOCKED_FILES = 20

# Calls without a function in libc; from 424 on all architectures share the numbers.
_NUMBERS = {"io_uring_setup": 425, "open_tree": 428, "clone3": 435, "memfd_secret": 447}
_OLDER_NUMBERS = {
    "x86_64": {
        "bpf": 321,
        "keyctl": 250,
        "perf_event_open": 298,
        "seccomp": 317,
        "userfaultfd": 323,
    },
    "aarch64": {
        "bpf": 280,
        "keyctl": 219,
        "perf_event_open": 241,
        "seccomp": 277,
        "userfaultfd": 282,
    },
}

Attempt = Callable[[], str]


def main() -> None:
    if sys.executable != PYTHON:
        raise SystemExit("this program runs only inside a sandbox")
    what, arguments = sys.argv[1], json.loads(sys.argv[2])
    match what:
        case "try_all":
            try_all(arguments["workspace"], arguments["masked"])
        case "fork":
            fork_beyond(arguments["most"])
        case "allocate":
            allocate_beyond(arguments["bytes"])
        case "queue":
            queue_datagrams(arguments["bytes"])
        case "lock":
            hold_locks(arguments["most"])


def try_all(workspace: str, masked: Sequence[str]) -> None:
    for name, attempt in _attempts(workspace, masked):
        report(name, outcome(attempt))
    # Last, and reported only after it had time to work: it would end the whole sandbox.
    os.kill(1, signal.SIGKILL)
    time.sleep(0.02)
    report("kill(1, SIGKILL)", "no effect")


def report(name: str, seen: str) -> None:
    os.write(1, json.dumps([name, seen]).encode() + b"\n")


def outcome(attempt: Attempt) -> str:
    try:
        return attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def _attempts(workspace: str, masked: Sequence[str]) -> Iterator[tuple[str, Attempt]]:
    status = _status()
    yield "capabilities", lambda: _capabilities(status)
    yield "no new privileges", lambda: "yes" if status["NoNewPrivs"] == "1" else "no"
    yield "setuid programs", lambda: _setuid_programs(status)
    for directory in ("/", "/etc", "/.sandboxd"):
        yield f"write to {directory}", partial(_create, directory)
    yield "interfaces", _interfaces
    yield "connect to 169.254.169.254", _connect_out
    yield "resolver", _resolver
    yield "uid", lambda: str(os.getuid())
    yield "groups", lambda: " ".join(map(str, sorted({os.getgid(), *os.getgroups()})))
    yield "user name", _user_name
    yield "seccomp mode", lambda: status.get("Seccomp", "0")
    yield from _system_calls()
    yield "open /proc/1/mem", lambda: _open("/proc/1/mem")
    yield "open /proc/1/environ", lambda: _open("/proc/1/environ")
    yield "list /proc/1/fd", lambda: str(len(os.listdir("/proc/1/fd")))
    yield "prlimit(1)", lambda: _called(_libc.prlimit(1, _RLIMIT_NOFILE, None, None))
    yield "setpriority(1)", lambda: _called(_libc.setpriority(_PRIO_PROCESS, 1, 0))
    yield "connect to the guest's socket", _connect_to_guest
    yield "room", lambda: _room(workspace)
    yield "masked paths", lambda: _readable(masked)
    yield "cgroup", _cgroup
    yield "host name", lambda: os.uname().nodename


def _system_calls() -> Iterator[tuple[str, Attempt]]:
    for name, family in (("VSOCK", _AF_VSOCK), ("ALG", _AF_ALG), ("PACKET", _AF_PACKET)):
        yield f"AF_{name}", partial(_socket, family)
    # Invalid arguments on purpose: a call that is not blocked fails for them, not with EPERM.
    numbers = {**_NUMBERS, **_OLDER_NUMBERS.get(platform.machine(), {})}
    for name, number in numbers.items():
        yield name, partial(_in_a_child, partial(_system_call, number))
    yield "ptrace", lambda: _in_a_child(lambda: _called(_libc.ptrace(_PTRACE_TRACEME, 0, 0, 0)))
    yield "unshare(NEWUSER)", lambda: _in_a_child(lambda: _called(_libc.unshare(_CLONE_NEWUSER)))
    yield "mount", lambda: _in_a_child(lambda: _called(_mount()))
    yield "prctl(SET_SECCOMP)", lambda: _in_a_child(_set_seccomp)
    yield "filter on a socket", _filter_a_socket
    yield "options that a socket keeps", _keep_options
    yield "locks of open files", _lock_an_open_file


_libc = ctypes.CDLL(None, use_errno=True)


def _called(result: int) -> str:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return ALLOWED


def _system_call(number: int) -> str:
    return _called(_libc.syscall(number, 0, None, 0, 0, 0))


def _in_a_child(attempt: Attempt) -> str:
    """Make an attempt that would change this process if it were allowed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, outcome(attempt).encode())
        os._exit(0)
    os.close(writing)
    seen = os.read(reading, 256).decode()
    os.close(reading)
    os.waitpid(pid, 0)
    return seen or "killed"


def _mount() -> int:
    result: int = _libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)
    return result


def _set_seccomp() -> str:
    return _called(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, None, 0, 0))


def _filter_a_socket() -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unconnected:
        unconnected.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, b"")
    return ALLOWED


def _keep_options() -> str:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as unconnected:
        unconnected.setsockopt(socket.IPPROTO_IPV6, _IPV6_2292PKTOPTIONS, b"")
    return ALLOWED


def _lock_an_open_file() -> str:
    with open("/etc/passwd", "rb") as file:
        fcntl.fcntl(file, _F_OFD_GETLK, bytes(32))
    return ALLOWED


def _status() -> Mapping[str, str]:
    with open("/proc/self/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def _capabilities(status: Mapping[str, str]) -> str:
    sets = {name: status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    held = [f"{name} {value}" for name, value in sets.items() if int(value, 16)]
    return ", ".join(held) or "none"


def _setuid_programs(status: Mapping[str, str]) -> str:
    """Count those in the usual directories: scanning a whole image would take long."""
    count = 0
    for directory in ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin"):
        if os.path.isdir(directory) and not os.path.islink(directory):
            with os.scandir(directory) as entries:
                count += sum(bool(_mode(entry) & 0o6000) for entry in entries)
    if not count:
        return "none"
    return f"{count}, {'inert' if status['NoNewPrivs'] == '1' else 'effective'}"


def _mode(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat(follow_symlinks=False).st_mode
    except OSError:
        return 0


def _create(directory: str) -> str:
    path = os.path.join(directory, "sandboxd-probe")
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.unlink(path)
    return ALLOWED


def _open(path: str) -> str:
    os.close(os.open(path, os.O_RDONLY))
    return ALLOWED


def _socket(family: int) -> str:
    socket.socket(family, socket.SOCK_STREAM).close()
    return ALLOWED


def _interfaces() -> str:
    return ", ".join(name for _, name in socket.if_nameindex()) or "none"


def _connect_out() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_SECONDS)
        try:
            connection.connect(METADATA_SERVICE)
        except TimeoutError:
            return "no answer"
    return ALLOWED


def _connect_to_guest() -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(GUEST_SOCKET)
    return ALLOWED


def _resolver() -> str:
    try:
        with open("/etc/resolv.conf") as file:
            servers = [line for line in file if line.startswith("nameserver")]
    except FileNotFoundError:
        servers = []
    return f"{len(servers)} servers" if servers else "none"


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "none"


def _room(workspace: str) -> str:
    state = os.statvfs(workspace)
    return f"{state.f_bavail * state.f_frsize} bytes, {state.f_favail} files"


def _readable(masked: Sequence[str]) -> str:
    """The paths that are not empty."""
    found = [path for path in masked if outcome(partial(_content, path)) == ALLOWED]
    return ", ".join(found) or "empty"


def _content(path: str) -> str:
    if os.path.isdir(path):
        return ALLOWED if os.listdir(path) else ""
    with open(path, "rb") as file:
        return ALLOWED if file.read(1) else ""


def _cgroup() -> str:
    with open("/proc/self/cgroup") as file:
        return " ".join(sorted({line.rstrip("\n").split(":", 2)[2] for line in file}))


def fork_beyond(most: int) -> None:
    """Try to have `most` processes at once."""
    children: list[int] = []
    try:
        while len(children) < most:
            child = os.fork()
            if child == 0:
                while True:
                    signal.pause()
            children.append(child)
        report("fork", f"{ALLOWED} {len(children)} times")
    except OSError as error:
        report("fork", f"{errno.errorcode.get(error.errno or 0)} after {len(children)}")
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def allocate_beyond(size: int) -> None:
    """Try to use `size` bytes of memory; reports only success, as failure kills this process."""
    held: list[bytes] = []
    while len(held) * PIECE < size:
        held.append(b"x" * PIECE)
    report("allocate", f"{ALLOWED} {len(held) * PIECE >> 20} MiB")


def queue_datagrams(size: int) -> None:
    """Try to have `size` bytes wait in sockets; reports how many did."""
    sockets = []
    for _ in range(size // (DATAGRAM * DATAGRAMS_PER_SOCKET)):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind(("127.0.0.1", 0))
        receiver.connect(receiver.getsockname())
        receiver.setblocking(False)
        for _ in range(DATAGRAMS_PER_SOCKET):
            outcome(partial(_send, receiver))
        sockets.append(receiver)
    report("queue datagrams", str(sum(map(_received, sockets))))


def _send(to: socket.socket) -> str:
    return str(to.send(bytes(DATAGRAM)))


def _received(receiver: socket.socket) -> int:
    size = 0
    while piece := outcome(lambda: str(len(receiver.recv(DATAGRAM)))):
        if not piece.isdigit():
            return size
        size += int(piece)
    return size


def hold_locks(most: int) -> None:
    """Take locks on single bytes and hold them: the sandbox should not survive that."""
    for _ in range(LOCKED_FILES):
        file = os.memfd_create("locked")
        # Downwards: the kernel looks for the place of each from the beginning.
        for position in range(most // LOCKED_FILES, 0, -1):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * position)
    report("take locks", ALLOWED)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
