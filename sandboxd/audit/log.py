"""Writes the audit log, in a separate thread."""

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
"""How long entries are collected for one write. A killed daemon loses the entries of this time."""
SYNC_SECONDS = 1.0
"""How often the file is synced to disk. A host that dies loses the entries of this time."""
BATCH = 8
"""Lines after which the thread yields the interpreter, for which the event loop may wait."""
MAX_TORN = 4096
FAILURE_LOG_SECONDS = 60.0
"""Pause between log lines about a disk that fails."""


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    directory: Path
    file_bytes: int = 16 << 20
    """Size at which the next file begins."""
    total_bytes: int = 256 << 20
    max_files: int = 1000
    max_age_seconds: float = 90 * 86400.0
    max_pending: int = 8192
    """Entries that may wait to be written; further ones are counted and reported as a gap."""


class PendingEntry:
    """An entry that waits to be written. The writer's thread makes its fields."""

    __slots__ = ("at", "fields", "round")

    def __init__(self, fields: Callable[[], Mapping[str, Any]], at: float) -> None:
        self.fields = fields
        self.at = at
        self.round = -1


class AuditLog:
    """Append-only, chained, bounded. `append` never waits and never fails.

    Entries are written while it is open as a context manager.
    """

    def __init__(self, settings: AuditSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._pending: list[PendingEntry] = []
        self._round = 0
        """Number of times that the writer has taken the pending entries."""
        self._lost = 0
        self._is_writing = False
        self._has_work = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._file = _Writer(settings)
        self.written = 0
        self.gaps = 0
        """Entries that were not written because too many waited or the disk failed."""

    def __enter__(self) -> AuditLog:
        try:
            self._file.open()
        except OSError as error:
            # The daemon serves without it; the log and a later gap report what is missing.
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
    def directory(self) -> Path:
        return self._settings.directory

    @property
    def head(self) -> Head:
        """Sequence and hash of the newest line."""
        return self._file.head

    @property
    def is_flushed(self) -> bool:
        """Whether every entry is written."""
        return not self._pending and not self._is_writing

    def append(
        self, fields: Callable[[], Mapping[str, Any]], *, at: float | None = None
    ) -> PendingEntry | None:
        """Write an entry soon; None if too many wait already.

        The fields are made later and in another thread, so they must not change until then.
        """
        entry = PendingEntry(fields, at if at is not None else time.time())
        with self._lock:
            if len(self._pending) >= self._settings.max_pending:
                self._lost += 1
                return None
            entry.round = self._round
            self._pending.append(entry)
            is_first = len(self._pending) == 1
        if is_first:
            self._has_work.set()
        return entry

    def amend(self, entry: PendingEntry, fields: Callable[[], Mapping[str, Any]]) -> bool:
        """Replace the fields of an entry, unless the writer has taken it already."""
        with self._lock:
            if entry.round != self._round:
                return False
            entry.fields = fields
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
            entries, self._pending = self._pending, []
            lost, self._lost = self._lost, 0
            self._round += 1
        if lost:
            entries.append(PendingEntry(lambda: {"action": "audit.gap", "lost": lost}, time.time()))
            self.gaps += lost
        for begin in range(0, len(entries), BATCH):
            some = entries[begin : begin + BATCH]
            written = self._file.write(some)
            self.written += written
            if written < len(some):
                with self._lock:
                    self._lost += len(some) - written
            time.sleep(0)  # yields the interpreter
        self._file.sync_if_due()
        self._is_writing = False


class _Writer:
    """Writes the current file, and prunes older ones. Used by one thread."""

    def __init__(self, settings: AuditSettings) -> None:
        self._settings = settings
        self._descriptor = -1
        self._size = 0
        self._synced_at = 0.0
        self._logged_at = -FAILURE_LOG_SECONDS
        self.head = START

    def open(self) -> None:
        """Continue where an earlier daemon stopped; a line that it left torn is noted."""
        self._settings.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = audit_files(self._settings.directory)
        if not files:
            self._begin_file()
            return
        newest = files[-1]
        tail = read_tail(newest.path)
        if tail.head is None:
            self._continue_after_damage(newest.path)
            return
        self.head = tail.head
        if tail.good_bytes == 0 and newest.first > 1:
            # Killed before the first line of a new file: the head is in the file before.
            before = read_tail(files[-2].path).head if len(files) > 1 else None
            self.head = before or START
        self._descriptor = open_private(newest.path)
        os.ftruncate(self._descriptor, tail.good_bytes)
        self._size = tail.good_bytes
        if tail.torn:
            torn = tail.torn[:MAX_TORN].decode(errors="replace")
            self._append({"action": "audit.repaired", "torn_bytes": len(tail.torn), "torn": torn})

    def _continue_after_damage(self, path: Path) -> None:
        """Leave a file whose last line was changed for an inspection, and begin another."""
        with path.open("rb") as file:
            lines = sum(1 for _ in file)
        first = int(path.stem.split("-")[1])
        self.head = START._replace(sequence=first + lines)
        log.error("audit.damaged", file=path.name)
        self._begin_file()
        self._append({"action": "audit.damaged", "file": path.name})

    def write(self, entries: list[PendingEntry]) -> int:
        """Append entries; returns how many are in the file."""
        lines, heads = [], []
        head = self.head
        for entry in entries:
            line, head = encode(head, entry.at, _fields_of(entry))
            lines.append(line)
            heads.append(head)
        try:
            if self._descriptor < 0:
                self.open()  # an earlier attempt failed
                return self.write(entries)
            self._put(b"".join(lines))
        except OSError as error:
            self._log_failure(error)
            return 0
        self.head = heads[-1]
        if self._size >= self._settings.file_bytes:
            self._rotate()
        return len(entries)

    def _put(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            os.ftruncate(self._descriptor, self._size)  # remove half a line
            raise
        self._size += len(data)

    def _append(self, fields: Mapping[str, Any]) -> None:
        line, head = encode(self.head, time.time(), fields)
        self._put(line)
        self.head = head

    def sync_if_due(self) -> None:
        now = time.monotonic()
        if self._descriptor >= 0 and now - self._synced_at >= SYNC_SECONDS:
            self._synced_at = now
            self._sync()

    def _sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._log_failure(error)

    def _rotate(self) -> None:
        try:
            self._sync()
            os.close(self._descriptor)
            self._begin_file()
            self._prune()
        except OSError as error:
            self._log_failure(error)

    def _begin_file(self) -> None:
        self._descriptor = -1
        path = path_of(self._settings.directory, self.head.sequence + 1)
        self._descriptor = open_private(path)
        self._size = os.fstat(self._descriptor).st_size
        log.info("audit.file_begun", sequence=self.head.sequence, hash=self.head.hash)

    def _prune(self) -> None:
        """Delete whole files, oldest first, and note it: other missing files were removed by
        somebody else."""
        settings = self._settings
        files = audit_files(settings.directory)
        sizes = [file.path.stat().st_size for file in files]
        horizon = time.time() - settings.max_age_seconds
        deleted = 0
        for number, file in enumerate(files[:-1]):
            is_too_much = sum(sizes[number:]) > settings.total_bytes
            is_too_many = len(files) - number > settings.max_files
            if not (is_too_much or is_too_many or file.path.stat().st_mtime < horizon):
                break
            file.path.unlink()
            deleted = number + 1
        if deleted:
            self._append({"action": "audit.pruned", "up_to": files[deleted].first - 1})

    def _log_failure(self, error: OSError) -> None:
        now = time.monotonic()
        if now - self._logged_at >= FAILURE_LOG_SECONDS:
            self._logged_at = now
            log.error("audit.not_written", error=str(error))

    def close(self) -> None:
        if self._descriptor >= 0:
            self._sync()
            os.close(self._descriptor)
            self._descriptor = -1


def _fields_of(entry: PendingEntry) -> Mapping[str, Any]:
    try:
        return entry.fields()
    except Exception as error:  # a fault in one entry must not end the log
        log.error("audit.entry_failed", exc_info=error)
        return {"action": "audit.entry_failed"}
