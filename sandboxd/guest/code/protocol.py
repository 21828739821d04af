"""What PID 1, a zygote and its contexts say to one another.

The zygote is `python3 zygote.py [module to preload ...]` with a SOCK_SEQPACKET socket on
ZYGOTE_DESCRIPTOR. When it is ready it sends one packet of JSON facts: `version` of this protocol,
`python`, `executable`, `preloaded`. Each packet to it is the JSON of Settings with the
descriptors of a new context, in the order of Descriptors. The context is not the zygote's child:
double fork, so that PID 1 reaps it. A context forked ahead waits on the same socket and takes the
packet itself.

A context of another language is made in the same way: the process that takes the packet becomes
the interpreter of that language, with CONTROL, INPUT and EVENTS from FIRST_DESCRIPTOR on, and its
settings in the variable SETTINGS_VARIABLE. If there is no interpreter, it ends before its HELLO.

On the control socket (a stream) the context sends fixed REPORTs: HELLO once, DONE at the end of
each run, and SYNC. The kernel adds its pid if PID 1's end has SO_PASSCRED. PID 1 sends ORDERs:
RUN with a body of encode_run, and SYNCED for a SYNC.

SYNC asks PID 1 to read standard output, standard error and then events up to what was in the
pipes, and to answer with how many bytes of output this run has written. A context sends it before
and after a record whose place among the output matters, if the run's options allow it.

All records of a run are in the events pipe, and all of its own output in the other two, before
DONE.

What comes for the input of a run (commands of the debugger, each made by encode_command) goes to
the input socket as it is, in pieces behind a header of PIECE that names the run: what is left
over from a run does not reach the next one.
"""

from __future__ import annotations

from json import dumps
from struct import Struct

VERSION = 1
ZYGOTE_DESCRIPTOR = 3
FIRST_DESCRIPTOR = 3
SETTINGS_VARIABLE = "SANDBOXD_CODE_SETTINGS"
MAX_SETTINGS = 128 << 10
"""Bytes of settings in a packet: it has to fit into a socket's buffer."""
MAX_CODE = 512 << 10
MAX_OPTIONS = 256 << 10
MAX_COMMAND = 64 << 10

REPORT = Struct("!BBI")
"""From a context: kind, status, number."""
ORDER = Struct("!BII")
"""To a context: kind, number, size of the body."""
OFFSETS = Struct("!QQ")
"""Body of SYNCED: bytes of standard output and standard error of this run so far."""
PIECE = Struct("!II")
"""Before each piece of input: number of the run, size."""
SIZE = Struct("!I")
GREETING = Struct("!BBBB")
"""The number of HELLO: major, minor and micro version of the interpreter, and VERSION."""


class Descriptors:
    """Order of the descriptors of a new context."""

    CONTROL, INPUT, STDOUT, STDERR, EVENTS = range(5)


class Reports:
    HELLO = 1  # number: GREETING
    DONE = 2  # status: one of Statuses; number: of the run
    SYNC = 3  # number: comes back with SYNCED


class Orders:
    RUN = 1  # number: of the run, from 1, grows; body: encode_run
    SYNCED = 2  # number: of the SYNC; body: OFFSETS


class Statuses:
    """How a run ended."""

    OK, RAISED, INTERRUPTED, REFUSED = range(4)


class Modes:
    """What a run is for; the option `mode`."""

    RUN = "run"
    STATE = "state"  # reports the variables in one ANSWER of command 0; there is no code
    CHECK = "check"  # reports what the policy refuses in VIOLATION records; nothing is run
    DEBUG = "debug"  # options: breakpoints, run_to_breakpoint, ignore_exceptions
    STEPS = "steps"  # StepThrough; options: max_steps, step_into_functions


def encode_settings(
    *,
    name: str = "main",
    cwd: str = "/",
    env: dict[str, str] | None = None,
    policy: dict[str, object] | None = None,
    limits: dict[str, int] | None = None,
    preload: list[str] | None = None,
    language: str = "python",
) -> bytes:
    """The packet that makes a context.

    `env` is added to the zygote's environment. `policy` is {} or {"name": "off"} for none, else
    {"name": str, "allowed_modules": [str], "blocked_calls": [str]} where a missing list means that
    of the built-in policy. `limits` may have `open_files`. `language` is python or javascript.
    """
    settings = {
        "name": name,
        "cwd": cwd,
        "env": env or {},
        "policy": policy or {},
        "limits": limits or {},
        "preload": preload or [],
        "language": language,
    }
    return dumps(settings).encode()


def encode_run(code: str, **options: object) -> bytes:
    """The body of RUN. Options: `mode`, `sync` (PID 1 answers SYNC), and those of the mode."""
    head = dumps(options).encode()
    return SIZE.pack(len(head)) + head + code.encode("utf-8", "surrogatepass")


def encode_order(kind: int, number: int, body: bytes = b"") -> bytes:
    return ORDER.pack(kind, number, len(body)) + body


def encode_piece(number: int, data: bytes) -> bytes:
    return PIECE.pack(number, len(data)) + data


def encode_command(number: int, do: str, **arguments: object) -> bytes:
    """A command of the debugger, for the input of a run.

    set_breakpoint(file, line, condition, function), clear_breakpoint(id), pause(), quit(),
    resume(mode: continue, step_in, step_over or step_out), evaluate(expression, frame),
    stack(max_frames), variables(frame, handle, globals, offset).
    """
    body = dumps({"command": number, "do": do, **arguments}).encode()
    return SIZE.pack(len(body)) + body
