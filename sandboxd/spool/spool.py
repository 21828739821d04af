"""The spool of one command: its streams, which a new process can reopen."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator
from threading import Lock

from sandboxd.guest.frames import Stream
from sandboxd.spool.budget import SpoolBudget
from sandboxd.spool.preview import Preview, preview_of
from sandboxd.spool.query import SearchQuery, SearchResult
from sandboxd.spool.search import search
from sandboxd.spool.settings import SpoolSettings
from sandboxd.spool.stream import Gap, KeptStream, Piece

_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")
_SUFFIXES = (".stdout", ".stderr", ".events")
"""In the order of Stream."""


class Spool:
    """Keeps the output of one command at its true offsets.

    A stream is only in memory until its part of that is full or `persist` is called. From then on
    every append is on disk when it returns; once the middle was dropped, only at the next `persist`
    or some hundred KiB later. Any thread may call any method; all but `search` are meant for the
    event loop and take microseconds, a preview up to some milliseconds.
    """

    def __init__(self, settings: SpoolSettings, key: str, budget: SpoolBudget) -> None:
        if not _KEY.fullmatch(key):
            raise ValueError(
                "a key has 1 to 200 letters, digits, `_`, `-` or `.`, and does not begin with `.`"
            )
        self._settings = settings
        self._key = key
        self._budget = budget
        # A list and not a dict, because hashing an enum costs more than an append.
        self._streams: list[KeptStream | None] = [None] * len(Stream)
        self._is_deleted = False
        # Held for one step at a time, so that a search in a thread sees a stream between appends.
        self._lock = Lock()

    @classmethod
    def reopen(cls, settings: SpoolSettings, key: str, budget: SpoolBudget) -> Spool | None:
        """The spool that an earlier process made durable under this key; None if there is none."""
        spool = cls(settings, key, budget)
        for stream in Stream:
            kept = KeptStream.reopen(settings, spool._path(stream), budget)
            spool._streams[stream - 1] = kept
        return spool if any(spool._streams) else None

    def __repr__(self) -> str:
        lengths = ", ".join(
            f"{stream.name.lower()} {self.length(stream)} ({self.durable(stream)} durable)"
            for stream in Stream
        )
        return f"<Spool {self._key}: {lengths}>"

    @property
    def problem(self) -> str:
        """Why less is kept than the settings allow; empty if nothing is wrong."""
        with self._lock:
            return next((kept.problem for kept in self._used() if kept.problem), "")

    def append(self, stream: Stream, data: bytes) -> None:
        """Never fails: if the disk does, the middle is dropped and `problem` says why."""
        with self._lock:
            if not self._is_deleted:
                self._kept(stream).append(data)

    def skip(self, stream: Stream, count: int) -> None:
        """Count bytes as dropped that neither the sender nor an earlier process has kept.

        That happens only when the disk failed that process: see `releasable`.
        """
        if count < 1:
            raise ValueError("skip at least one byte")
        with self._lock:
            if not self._is_deleted:
                self._kept(stream).skip(count)

    def persist(self) -> None:
        """Make all streams durable; if the disk fails, `problem` says why."""
        with self._lock:
            for kept in self._used():
                kept.persist()

    def length(self, stream: Stream) -> int:
        """Number of bytes appended."""
        with self._lock:
            kept = self._streams[stream - 1]
            return kept.length if kept else 0

    def durable(self, stream: Stream) -> int:
        """Number of bytes that a new process would find, or find counted as dropped."""
        with self._lock:
            kept = self._streams[stream - 1]
            return kept.durable if kept else 0

    def releasable(self, stream: Stream) -> int:
        """Number of bytes that the sender need not keep: the durable ones, or all of them once the
        disk fails, because a failing disk must not hold up a command."""
        with self._lock:
            kept = self._streams[stream - 1]
            return kept.releasable if kept else 0

    def dropped(self, stream: Stream) -> Gap:
        with self._lock:
            kept = self._streams[stream - 1]
            return kept.gap if kept else Gap(0, 0)

    def read(self, stream: Stream, offset: int, max_bytes: int) -> Piece:
        """The bytes from `offset` on, up to the gap or the end; none at the end.

        Raises SpoolUnreadable if the disk does not give them back.
        """
        if offset < 0 or max_bytes < 1:
            raise ValueError("offset must not be negative, and max_bytes must be at least 1")
        with self._lock:
            kept = self._streams[stream - 1]
            return kept.read(offset, max_bytes) if kept else Piece(offset, b"", 0)

    def preview(self, stream: Stream, *, max_bytes: int, collapse: bool) -> Preview:
        """The beginning and the end in at most `max_bytes`, in whole lines where possible.

        `collapse` shows lines as a terminal would finally show them. Raises SpoolUnreadable.
        """
        if max_bytes < 1:
            raise ValueError("max_bytes must be at least 1")
        with self._lock:
            kept = self._streams[stream - 1]
            if kept is None:
                return Preview(b"", b"", 0, 0)
            return preview_of(kept, max_bytes=max_bytes, collapse=collapse)

    def search(
        self, query: SearchQuery, *, clock: Callable[[], float] = time.monotonic
    ) -> SearchResult:
        """Search what is kept. It runs until its deadline, so run it in a thread."""
        ends = {stream: self.length(stream) for stream in query.streams}
        return search(query, ends, self.read, clock)

    def close(self) -> None:
        """Close the files; the content stays, and a file is opened again when it is needed."""
        with self._lock:
            for kept in self._used():
                kept.close_file()

    def delete(self) -> None:
        """Delete everything; later output is ignored."""
        with self._lock:
            self._is_deleted = True
            for kept in self._used():
                kept.delete()
            self._streams = [None] * len(Stream)

    def _used(self) -> Iterator[KeptStream]:
        return (kept for kept in self._streams if kept)

    def _kept(self, stream: Stream) -> KeptStream:
        kept = self._streams[stream - 1]
        if kept is None:
            kept = KeptStream(self._settings, self._path(stream), self._budget)
            self._streams[stream - 1] = kept
        return kept

    def _path(self, stream: Stream) -> str:
        return f"{self._settings.directory}/{self._key}{_SUFFIXES[stream - 1]}"


def sweep(settings: SpoolSettings, keep: Collection[str]) -> int:
    """Delete the spools whose key is not in `keep`; returns how many.

    Files that are not from a spool are left alone.
    """
    deleted: set[str] = set()
    try:
        entries = list(os.scandir(settings.directory))
    except FileNotFoundError:
        return 0
    for entry in entries:
        key, suffix = os.path.splitext(entry.name)
        if suffix not in _SUFFIXES or not _KEY.fullmatch(key) or key in keep:
            continue
        if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
            os.unlink(entry.path)
            deleted.add(key)
    return len(deleted)
