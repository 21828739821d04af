"""A process that has imported everything and forks daemons: importing is most of a daemon's start.

One line of JSON on its standard input starts a daemon; lines on its standard output say which pid
it has, and later how it ended.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys

READ_BYTES = 1 << 16
STARTED, ENDED = "started", "ended"


def main() -> None:
    from sandboxd.cli.program import program
    from sandboxd.daemon import composition, serving  # noqa: F401  # what `serve` would import

    gc.freeze()
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    pending = b""
    poll = select.poll()
    for descriptor in (0, woken):
        poll.register(descriptor, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == woken:
                _drain(woken)
                _report_ended()
                continue
            data = os.read(0, READ_BYTES)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    _become_daemon(request)
                    program(args=["serve"], prog_name="sandboxd")
                _say(STARTED, pid)


def _become_daemon(request: dict[str, str | dict[str, str]]) -> None:
    """Nothing of this process is left but what it has imported."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(str(request["log"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.closerange(3, 64)
    environment = request["environment"]
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)


def _report_ended() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _say(ENDED, pid, os.waitstatus_to_exitcode(status))


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, READ_BYTES):
            pass
    except BlockingIOError:
        pass


def _say(*words: str | int) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


if __name__ == "__main__":
    main()
    sys.exit(0)
