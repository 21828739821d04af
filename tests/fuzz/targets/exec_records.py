"""What outlives the daemon about commands: labels that guests give back, and files."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import structlog

from sandboxd.execs.ending import Reason
from sandboxd.execs.exec import ExecDetails
from sandboxd.execs.records import ExecRecords, Labels
from sandboxd.guest.frames import MAX_LABEL, Stream
from sandboxd.service import exec_wire, wire
from sandboxd.spool import SearchQuery, Spool, SpoolBudget, SpoolSettings
from sandboxd.spool.record import HEADER_BYTES, SLOT_BYTES, Record, encode_page, encode_slot
from sandboxd.spool.store import SpoolUnreadable
from sandboxd_proto.v1 import exec_pb2
from tests.fuzz.target import Run, Target
from tests.unit.test_exec_records import DETAILS, STATUS, USAGE

MEMORY = Path("/dev/shm")
SANDBOX = "sandbox"
LABELS = Labels(b"secret")
LABEL, END, REASON, SPOOL = range(4)
"""What an input is; its first byte says so."""
GROWING = Record(0, 0, 0, 0, 0, 12, 2)
RING = Record(2048, 2048, 2048, 6000, 352, 8000, 470)


def _record() -> bytes:
    """A record as the daemon writes it."""
    with tempfile.TemporaryDirectory() as name:
        records = ExecRecords(Path(name))
        records.save("s-e", DETAILS, STATUS._replace(usage=USAGE))
        return (Path(name) / "s-e.end").read_bytes()


class Restart:
    """A daemon that starts and finds an input where it left something."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._records = ExecRecords(directory)
        self._settings = SpoolSettings(directory=directory)

    def find(self, what: int, data: bytes) -> Hashable:
        if what == LABEL:
            return self._find_label(data)
        if what == REASON:
            return self._find_reason(data)
        return self._find_record(data) if what == END else self._find_spool(data)

    def _find_label(self, data: bytes) -> Hashable:
        details = LABELS.open(data[:MAX_LABEL], SANDBOX)
        if details is not None:
            _describe(details)
        return details is None

    def _find_reason(self, data: bytes) -> Hashable:
        (self._directory / "s-e.end.reason").write_bytes(data)
        found = self._records.load_reason("s-e")
        assert found is None or isinstance(found, Reason)
        return found

    def _find_record(self, data: bytes) -> Hashable:
        (self._directory / "s-e.end").write_bytes(data)
        found = list(self._records.load("s-"))
        for _, details, status in found:
            _describe(details)
            exec_wire.fill_exit(exec_pb2.ExitStatus(), status)
        return len(found)

    def _find_spool(self, data: bytes) -> Hashable:
        (self._directory / "s-e.stdout").write_bytes(data)
        spool = Spool.reopen(self._settings, "s-e", SpoolBudget(1 << 30))
        if spool is None:
            return "damaged"
        try:
            length = spool.length(Stream.STDOUT)
            for offset in (0, length // 2, max(0, length - 10)):
                assert len(spool.read(Stream.STDOUT, offset, 100).data) <= 100
            spool.preview(Stream.STDOUT, max_bytes=500, collapse=True)
            query = SearchQuery(pattern="a", streams=[Stream.STDOUT], max_matches=5)
            spool.search(query)
            spool.append(Stream.STDOUT, b"more\n" * 1000)
            spool.persist()
        except SpoolUnreadable:
            return "unreadable"
        finally:
            spool.delete()
        return length.bit_length()


def _describe(details: ExecDetails) -> None:
    """As a listing does."""
    exec_pb2.Exec(
        exec_id=details.exec_id,
        command=details.command,
        start_time=wire.timestamp(details.started_at),
        timeout=wire.duration(details.timeout_seconds),
        shell_name=details.shell_name,
        has_terminal=details.has_terminal,
        has_stdin=details.has_stdin or details.has_terminal,
    )
    assert details.elapsed_seconds >= 0


@contextmanager
def restarted() -> Iterator[Run]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(prefix="sbx-fuzz-", dir=MEMORY) as name:
        restart = Restart(Path(name))

        async def run(data: bytes) -> Hashable:
            what = data[0] % 4 if data else 0
            return what, restart.find(what, data[1:])

        yield run


def sealed(data: bytes, random: Random) -> bytes:
    """The same with a right seal or right checksums, as a fault of our own would have them."""
    what, body = data[:1], data[1:]
    if not what or what[0] % 4 == LABEL:
        text = body[32:].decode(errors="replace")
        return what + (LABELS._seal(text, SANDBOX) + text).encode()
    if what[0] % 4 == SPOOL and len(body) >= HEADER_BYTES:
        slot = body[512 : 512 + SLOT_BYTES - 4]
        values = [int.from_bytes(slot[begin : begin + 8], "little") for begin in range(0, 64, 8)]
        fixed = encode_slot(values[0] & ~1, Record(*values[1:]))
        return what + body[:512] + fixed + body[512 + SLOT_BYTES :]
    return data


EXEC_RECORDS = Target(
    name="exec-records",
    open=restarted,
    seeds=[
        bytes([LABEL]) + LABELS.seal(DETAILS, SANDBOX).encode(),
        bytes([LABEL]) + LABELS.seal(DETAILS._replace(command="é" * 90), SANDBOX).encode(),
        bytes([END]) + _record(),
        bytes([REASON]) + b"TIMED_OUT",
        bytes([SPOOL]) + encode_page(0, GROWING) + b"hello\nworld\n",
        bytes([SPOOL]) + encode_page(0, RING) + b"line of the text\n" * 241,
    ],
    words=[b"null", b"true", b"NaN", b"Infinity", b"1e999", b"[]", b"{}", b'"x"', b"-1", b","],
    repair=sealed,
    max_bytes=16 << 10,
    found=[bytes([SPOOL]) + encode_page(0, Record(0, 0, 1, 0, 0, 0, 0)) + b"text"],
)
