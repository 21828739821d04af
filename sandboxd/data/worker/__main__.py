"""A worker: one process with one connection, which runs one query at a time.

No driver bounds the size of one value, a function of SQLite cannot be interrupted, and the parser
is C code that reads hostile text. Here that costs a process; the daemon does not grow, and it ends
a worker that does not answer in time. The credentials arrive on the channel: they are neither an
argument nor a variable.
"""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import sys

from sandboxd.data.frames import HEADER, Kind, Request, decode_request, frame
from sandboxd.data.source import Engine, Source, WorkerSettings
from sandboxd.data.worker import grammar, parameters
from sandboxd.data.worker.answer import Answer
from sandboxd.data.worker.failure import Cancelled, QueryFailure, out_of_memory
from sandboxd.data.worker.grammar import GrammarMissing
from sandboxd.data.worker.postgres import PostgresSource
from sandboxd.data.worker.sqlite import SqliteSource
from sandboxd.errors import SandboxdError

NOBODY = 65534
MAX_DEPTH = 3000
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_SET_PDEATHSIG = 4, 38, 1


class Channel:
    """The socket to the daemon."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self._is_cancelled = False

    def receive(self) -> tuple[int, bytes]:
        """The next frame; the process ends with the daemon."""
        self._is_cancelled = False
        kind, size = HEADER.unpack(self._read(HEADER.size))
        return kind, self._read(size)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                sys.exit()
            data += part
        return bytes(data)

    def is_cancelled(self) -> bool:
        """Whether the daemon wants no more of the query that runs, or is gone."""
        if self._is_cancelled:
            return True
        try:
            data = self.socket.recv(HEADER.size, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        # While a query runs, nothing else is sent.
        self._is_cancelled = not data or data[0] == Kind.CANCEL
        return self._is_cancelled


class Worker:
    def __init__(self, channel: Channel, settings: WorkerSettings) -> None:
        self._channel = channel
        self._source = settings.source
        make = PostgresSource if settings.source.engine is Engine.POSTGRESQL else SqliteSource
        self._database: PostgresSource | SqliteSource = make(
            settings.source,
            watch=channel.socket.fileno(),
            is_cancelled=channel.is_cancelled,
            is_checked=settings.is_checked,
        )

    def serve(self) -> None:
        while True:
            kind, payload = self._channel.receive()
            if kind == Kind.REQUEST:
                self._answer(decode_request(payload))
                self._database.clean()

    def _answer(self, request: Request) -> None:
        limits = self._source.limits
        answer = Answer(
            self._channel.socket,
            max_rows=min(request.max_rows or limits.rows, limits.rows),
            max_bytes=min(request.max_bytes or limits.bytes, limits.bytes),
        )
        params = parameters.describe(request.params, with_values=self._source.log_values)
        try:
            fields = self._database.run(request, answer)
            answer.end(**fields, params=params, remarks=self._database.remarks)
        except QueryFailure as failure:
            answer.fail(failure, params)
        except Cancelled:
            answer.fail(QueryFailure("CANCELLED", "the query was cancelled"), params)
        except MemoryError:
            # What was being read is larger than this process may be, so start afresh.
            answer.fail(out_of_memory(), {}, Kind.LAST_ERROR)
            sys.exit(1)


def confine(settings: WorkerSettings) -> None:
    """Give up what a worker does not need."""
    libc = ctypes.CDLL(None, use_errno=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = _address_space() + settings.memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    if os.geteuid() == 0:
        _change_user(settings.source)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


def _change_user(source: Source) -> None:
    """As nobody, or for a file as its owner."""
    uid = gid = NOBODY
    if source.engine is Engine.SQLITE:
        try:
            found = os.stat(source.dsn)
            uid, gid = found.st_uid, found.st_gid
        except OSError:
            pass  # to open it will fail, and be reported
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def _address_space() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def main() -> None:
    sys.setrecursionlimit(MAX_DEPTH)
    channel = Channel(int(sys.argv[1]))
    kind, payload = channel.receive()
    assert kind == Kind.SETTINGS
    settings = WorkerSettings.decode(payload)
    try:
        if settings.is_checked and settings.source.engine is Engine.POSTGRESQL:
            grammar.load()  # while it can be read: nobody may not see where Python is
        confine(settings)
        worker = Worker(channel, settings)
    except GrammarMissing as error:
        channel.socket.sendall(frame(Kind.ERROR, str(error).encode()))
        return
    channel.socket.sendall(frame(Kind.READY))
    try:
        worker.serve()
    except (BrokenPipeError, ConnectionResetError, SandboxdError):
        pass  # the daemon is gone, or sends what it never should


if __name__ == "__main__":
    main()
