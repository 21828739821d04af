"""The zygote's loop: one context is forked ahead and waits for the settings that make it one."""

from __future__ import annotations

import gc
import sys
from _json import make_scanner
from _socket import AF_UNIX, MSG_CMSG_CLOEXEC, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket
from _struct import unpack
from asyncio import new_event_loop
from json import dumps
from posix import _exit, close, fork, getpid, getppid, pipe, read, setsid, waitpid
from select import POLLHUP, POLLIN, poll
from time import sleep
from types import SimpleNamespace
from typing import Any

from . import figures
from .javascript import become_node
from .protocol import MAX_SETTINGS, VERSION, ZYGOTE_DESCRIPTOR

DESCRIPTORS = 5
_PAUSE_MS = 5
"""The first run of a new context goes before the fork of the next one."""

_scan = make_scanner(
    SimpleNamespace(  # type: ignore[arg-type]
        strict=False,
        object_hook=None,
        object_pairs_hook=None,
        parse_float=float,
        parse_int=int,
        parse_constant=float,
        memo={},
    )
)


def loads(text: bytes) -> Any:
    """JSON of PID 1 or the daemon, without the Python half of `json`."""
    return _scan(text.decode(), 0)[0]


def serve(preload: list[str]) -> None:
    """Fork contexts until PID 1 closes the socket."""
    from .context import Context  # loaded before the fork

    figures.install()
    preloaded = [name for name in preload if _preload(name)]
    zygote = socket(AF_UNIX, SOCK_SEQPACKET, 0, fileno=ZYGOTE_DESCRIPTOR)
    facts = {
        "version": VERSION,
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "executable": sys.executable,
        "preloaded": preloaded,
    }
    zygote.send(dumps(facts).encode())
    gc.collect()
    gc.freeze()
    while True:
        taken = _fork_ahead(zygote, Context)
        if not _wait(taken):
            _exit(0)


def _preload(name: str) -> bool:
    try:
        __import__(name)
    except BaseException:
        return False
    return True


def _fork_ahead(zygote: socket, context: Any) -> int:
    """Fork a context whose parent is PID 1. It writes to the pipe when it is taken."""
    taken, held = pipe()
    while True:
        try:
            child = fork()
            break
        except OSError:
            sleep(0.05)  # no process is free at the moment
    if child == 0:
        try:
            between = getpid()
            if fork():
                _exit(0)
            close(taken)
            while getppid() == between:
                sleep(0.0005)  # until PID 1 is the parent
            _become(zygote, held, context)
        finally:
            _exit(70)
    close(held)
    waitpid(child, 0)
    return taken


def _wait(taken: int) -> bool:
    """Wait until the spare context is taken or gone. Returns False if PID 1 is."""
    watch = poll()
    watch.register(taken, POLLIN)
    watch.register(ZYGOTE_DESCRIPTOR, 0)
    ready = dict(watch.poll())
    if ready.get(ZYGOTE_DESCRIPTOR, 0) & POLLHUP:
        return False
    was_taken = read(taken, MAX_SETTINGS)
    close(taken)
    asked = poll()
    asked.register(ZYGOTE_DESCRIPTOR, POLLIN)
    if was_taken:
        asked.poll(_PAUSE_MS)
        for name in was_taken[1:].decode().split():
            _preload(name)  # those that it asked for: further contexts have them already
    else:
        sleep(0.02)
    return True


def _become(zygote: socket, held: int, context: Any) -> None:
    """Wait for settings and run as the context that they describe."""
    loop = new_event_loop()  # now, because later code may have used up all descriptors
    space = 4 * DESCRIPTORS + 16
    body, extra, _, _ = zygote.recvmsg(MAX_SETTINGS, space, MSG_CMSG_CLOEXEC)
    if not body:
        _exit(0)
    setsid()  # PID 1 knows by the session what belongs to this context
    zygote.detach()
    close(ZYGOTE_DESCRIPTOR)
    found = [
        unpack("%si" % (len(data) // 4), data)
        for level, kind, data in extra
        if (level, kind) == (SOL_SOCKET, SCM_RIGHTS)
    ]
    descriptors = found[0] if found else ()
    if len(descriptors) != DESCRIPTORS:
        _exit(71)
    settings = loads(body)
    if settings.get("language") == "javascript":
        become_node(body.decode(), settings, descriptors, held)
    context(settings, descriptors, held, loop).serve()
