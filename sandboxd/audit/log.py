"""Writes the audit log, in a thread of its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from sandboxd.audit.chain import START, Head, encode
from sandboxd.audit.files import audit_files, open_private, path_of, read_tail

log = structlog.get_logger()

COLLECT_SECONDS = 0.2
"""How long entries wait for company. What a killed daemon loses is this much and what is below."""
SYNC_SECONDS = 1.0
"""How often the disk is told to have it, for the case that the host dies."""
BREATH = 8
"""Lines after which the thread lets others run: it would keep the event loop waiting."""
MAX_TORN = 4096
COMPLAIN_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    directory: Path
    file_bytes: int = 16 << 20
    """Size at which the next file begins."""
    total_bytes: int = 256 << 20
    max_files: int = 1000
    max_age_seconds: float = 90 * 86400.0
    max_pending: int = 8192
    """Entries that may wait to be written; further ones are counted and the gap is told."""


class Note:
    """An entry that waits to be written. Its fields are made by the writer's thread."""

    __slots__ = ("at", "fields", "round")

    def __init__(self, fields: Callable[[], Mapping[str, Any]], at: float) -> None:
        self.fields = fields
        self.at = at
        self.round = -1


class AuditLog:
    """Append-only, chained, bounded. `tell` never waits and never fails.

    Use as a context manager; without one nothing is written.
    """

    def __init__(self, settings: AuditSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._pending: list[Note] = []
        self._round = 0
        """Counts how often the writer has taken what was pending."""
        self._lost = 0
        self._is_writing = False
        self._has_work = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._file = _Writer(settings)
        self.written = 0
        self.gaps = 0
        """Entries that were not written, for want of room to wait or of a working disk."""

    def __enter__(self) -> AuditLog:
        try:
            self._file.open()
        except OSError as error:
            # Nobody is refused service for it, but it is told, here and as a gap.
            log.error("audit.not_opened", error=str(error))
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Write what is pending and close."""
        self._closing.set()
        self._has_work.set()
        if self._thread is not None:
            self._thread.join(timeout=10.0)
        self._file.close()

    @property
    def head(self) -> Head:
        """How far the log has come."""
        return self._file.head

    @property
    def is_settled(self) -> bool:
        """Whether all that was told is written."""
        return not self._pending and not self._is_writing

    def tell(
        self, fields: Callable[[], Mapping[str, Any]], *, at: float | None = None
    ) -> Note | None:
        """Have an entry written soon; None if too many wait already.

        The fields are asked for later and in another thread, so they must not change meanwhile.
        """
        note = Note(fields, at if at is not None else time.time())
        with self._lock:
            if len(self._pending) >= self._settings.max_pending:
                self._lost += 1
                return None
            note.round = self._round
            self._pending.append(note)
            is_first = len(self._pending) == 1
        if is_first:
            self._has_work.set()
        return note

    def amend(self, note: Note, fields: Callable[[], Mapping[str, Any]]) -> bool:
        """Say something else instead, if the note is not being written yet."""
        with self._lock:
            if note.round != self._round:
                return False
            note.fields = fields
            return True

    # --- the writer's thread ---

    def _run(self) -> None:
        while not self._closing.is_set():
            self._has_work.wait()
            self._closing.wait(COLLECT_SECONDS)
            self._has_work.clear()
            self._write_pending()
        self._write_pending()

    def _write_pending(self) -> None:
        with self._lock:
            self._is_writing = True
            notes, self._pending = self._pending, []
            lost, self._lost = self._lost, 0
            self._round += 1
        if lost:
            notes.append(Note(lambda: {"action": "audit.gap", "lost": lost}, time.time()))
            self.gaps += lost
        for begin in range(0, len(notes), BREATH):
            some = notes[begin : begin + BREATH]
            written = self._file.write(some)
            self.written += written
            if written < len(some):
                with self._lock:
                    self._lost += len(some) - written
            time.sleep(0)  # lets go of the interpreter
        self._file.settle()
        self._is_writing = False


class _Writer:
    """The file that is written, and those before it. Used by one thread."""

    def __init__(self, settings: AuditSettings) -> None:
        self._settings = settings
        self._descriptor = -1
        self._size = 0
        self._synced_at = 0.0
        self._complained_at = -COMPLAIN_SECONDS
        self.head = START

    def open(self) -> None:
        """Go on where an earlier daemon stopped; what its end left half done is told."""
        self._settings.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = audit_files(self._settings.directory)
        if not files:
            self._begin_file()
            return
        newest = files[-1]
        tail = read_tail(newest.path)
        if tail.head is None:
            self._go_on_after_damage(newest.path)
            return
        self.head = tail.head
        if tail.good_bytes == 0 and newest.first > 1:
            # Killed before the first line of a new file: the one before knows the head.
            before = read_tail(files[-2].path).head if len(files) > 1 else None
            self.head = before or START
        self._descriptor = open_private(newest.path)
        os.ftruncate(self._descriptor, tail.good_bytes)
        self._size = tail.good_bytes
        if tail.torn:
            torn = tail.torn[:MAX_TORN].decode(errors="replace")
            self._append({"action": "audit.repaired", "torn_bytes": len(tail.torn), "torn": torn})

    def _go_on_after_damage(self, path: Path) -> None:
        """The last line is not what was written: leave it for whoever looks into it."""
        with path.open("rb") as file:
            lines = sum(1 for _ in file)
        first = int(path.stem.split("-")[1])
        self.head = START._replace(sequence=first + lines)
        log.error("audit.damaged", file=path.name)
        self._begin_file()
        self._append({"action": "audit.damaged", "file": path.name})

    def write(self, notes: list[Note]) -> int:
        """Append entries; returns how many are in the file."""
        lines, heads = [], []
        head = self.head
        for note in notes:
            line, head = encode(head, note.at, _fields_of(note))
            lines.append(line)
            heads.append(head)
        try:
            if self._descriptor < 0:
                self.open()  # an earlier attempt failed
                return self.write(notes)
            self._put(b"".join(lines))
        except OSError as error:
            self._complain(error)
            return 0
        self.head = heads[-1]
        if self._size >= self._settings.file_bytes:
            self._rotate()
        return len(notes)

    def _put(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            os.ftruncate(self._descriptor, self._size)  # half a line is no line
            raise
        self._size += len(data)

    def _append(self, fields: Mapping[str, Any]) -> None:
        line, head = encode(self.head, time.time(), fields)
        self._put(line)
        self.head = head

    def settle(self) -> None:
        """Have the disk keep it, from time to time."""
        now = time.monotonic()
        if self._descriptor >= 0 and now - self._synced_at >= SYNC_SECONDS:
            self._synced_at = now
            self._sync()

    def _sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._complain(error)

    def _rotate(self) -> None:
        try:
            self._sync()
            os.close(self._descriptor)
            self._begin_file()
            self._prune()
        except OSError as error:
            self._complain(error)

    def _begin_file(self) -> None:
        self._descriptor = -1
        path = path_of(self._settings.directory, self.head.sequence + 1)
        self._descriptor = open_private(path)
        self._size = os.fstat(self._descriptor).st_size
        log.info("audit.file_begun", sequence=self.head.sequence, hash=self.head.hash)

    def _prune(self) -> None:
        """Delete whole files, oldest first, and say so: others that are missing were taken."""
        settings = self._settings
        files = audit_files(settings.directory)
        sizes = [one.path.stat().st_size for one in files]
        horizon = time.time() - settings.max_age_seconds
        deleted = 0
        for number, one in enumerate(files[:-1]):
            is_too_much = sum(sizes[number:]) > settings.total_bytes
            is_too_many = len(files) - number > settings.max_files
            if not (is_too_much or is_too_many or one.path.stat().st_mtime < horizon):
                break
            one.path.unlink()
            deleted = number + 1
        if deleted:
            self._append({"action": "audit.pruned", "up_to": files[deleted].first - 1})

    def _complain(self, error: OSError) -> None:
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_SECONDS:
            self._complained_at = now
            log.error("audit.not_written", error=str(error))

    def close(self) -> None:
        if self._descriptor >= 0:
            self._sync()
            os.close(self._descriptor)
            self._descriptor = -1


def _fields_of(note: Note) -> Mapping[str, Any]:
    try:
        return note.fields()
    except Exception as error:  # a fault of ours must not end the log
        log.error("audit.entry_broke", exc_info=error)
        return {"action": "audit.entry_broke"}
