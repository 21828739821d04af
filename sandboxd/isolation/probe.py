"""Tries, inside a sandbox, what a sandbox must not be able to do. Standard library only.

The text of this file is run by the guest's own Python, as `python -c <text> <what> <arguments>`, so
it works in any image. It judges nothing: every line of output is a JSON pair of what was tried and
what came of it, `ALLOWED` or the name of an error.
"""

import ctypes
import errno
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
"""Where clouds give out credentials of the machine."""
CONNECT_SECONDS = 1.0
ALLOWED = "ALLOWED"
PIECE = 8 << 20

_AF_ALG, _AF_PACKET, _AF_VSOCK = 38, 17, 40
_CLONE_NEWUSER = 0x10000000
_PTRACE_TRACEME = 0
_PRIO_PROCESS = 0
_RLIMIT_NOFILE = 7

# Calls without a function in libc; from 424 on all architectures share the numbers.
_NUMBERS = {"io_uring_setup": 425, "open_tree": 428, "clone3": 435, "memfd_secret": 447}
_OLDER_NUMBERS = {
    "x86_64": {"bpf": 321, "keyctl": 250, "perf_event_open": 298, "userfaultfd": 323},
    "aarch64": {"bpf": 280, "keyctl": 219, "perf_event_open": 241, "userfaultfd": 282},
}

Attempt = Callable[[], str]


def main() -> None:
    if sys.executable != PYTHON:
        raise SystemExit("this is only to be run inside a sandbox")
    what, arguments = sys.argv[1], json.loads(sys.argv[2])
    match what:
        case "look":
            look(arguments["workspace"], arguments["masked"])
        case "fork":
            fork_beyond(arguments["most"])
        case "allocate":
            allocate_beyond(arguments["bytes"])


def look(workspace: str, masked: Sequence[str]) -> None:
    for name, attempt in _attempts(workspace, masked):
        tell(name, outcome(attempt))
    # Last, and told only after it had time to work: a sandbox without its first process is gone.
    os.kill(1, signal.SIGKILL)
    time.sleep(0.02)
    tell("kill(1, SIGKILL)", "no effect")


def tell(name: str, seen: str) -> None:
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
    # Arguments that are wrong on purpose: a call that is let through fails by them, not with EPERM.
    numbers = {**_NUMBERS, **_OLDER_NUMBERS.get(platform.machine(), {})}
    for name, number in numbers.items():
        yield name, partial(_in_a_child, partial(_system_call, number))
    yield "ptrace", lambda: _in_a_child(lambda: _called(_libc.ptrace(_PTRACE_TRACEME, 0, 0, 0)))
    yield "unshare(NEWUSER)", lambda: _in_a_child(lambda: _called(_libc.unshare(_CLONE_NEWUSER)))
    yield "mount", lambda: _in_a_child(lambda: _called(_mount()))


_libc = ctypes.CDLL(None, use_errno=True)


def _called(result: int) -> str:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return ALLOWED


def _system_call(number: int) -> str:
    return _called(_libc.syscall(number, 0, None, 0, 0, 0))


def _in_a_child(attempt: Attempt) -> str:
    """For what would change this process if it were allowed."""
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


def _status() -> Mapping[str, str]:
    with open("/proc/self/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def _capabilities(status: Mapping[str, str]) -> str:
    sets = {name: status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    held = [f"{name} {value}" for name, value in sets.items() if int(value, 16)]
    return ", ".join(held) or "none"


def _setuid_programs(status: Mapping[str, str]) -> str:
    """Only where programs usually are: looking through a whole image would take long."""
    count = 0
    for directory in ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin"):
        if os.path.isdir(directory) and not os.path.islink(directory):
            with os.scandir(directory) as entries:
                count += sum(bool(_mode(entry) & 0o6000) for entry in entries)
    if not count:
        return "none"
    return f"{count}, {'inert' if status['NoNewPrivs'] == '1' else 'at work'}"


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
    """Those that show anything."""
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
    """Have more processes than that, for a moment."""
    children: list[int] = []
    try:
        while len(children) < most:
            child = os.fork()
            if child == 0:
                while True:
                    signal.pause()
            children.append(child)
        tell("fork", f"{ALLOWED} {len(children)} times")
    except OSError as error:
        tell("fork", f"{errno.errorcode.get(error.errno or 0)} after {len(children)}")
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def allocate_beyond(size: int) -> None:
    """Use more memory than that; told only if it was possible."""
    held: list[bytes] = []
    while len(held) * PIECE < size:
        held.append(b"x" * PIECE)
    tell("allocate", f"{ALLOWED} {len(held) * PIECE >> 20} MiB")


if __name__ == "__main__":
    main()
