"""Copies of the records that a sandbox or kept files depend on, each in a separate file.

They replace records that a damaged database has lost: without its record, a running sandbox would
belong to no session.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

import structlog

from sandboxd.registry.contract import SessionRecord, SessionState

log = structlog.get_logger()

_SUFFIX = ".json"
_UNFINISHED = ".part"
_MAX_FILE = 1 << 20


class RecordCopies:
    """Copies of sessions that are active, or that were lost or parked and keep their files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, exist_ok=True)
        for left in directory.glob(f"*{_UNFINISHED}"):  # by a daemon that was killed
            left.unlink(missing_ok=True)

    def save(self, record: SessionRecord) -> None:
        has_files = record.disk_id or record.project_id or record.parked_number
        if record.state != SessionState.ACTIVE and not has_files:
            self.delete([record.session_id])
            return
        path = self._path(record.session_id)
        unfinished = path.with_suffix(_UNFINISHED)
        try:
            unfinished.write_text(json.dumps(vars(record)))
            unfinished.rename(path)
        except OSError as error:  # the database has the record; the copy is only a precaution
            log.warning("registry.no_copy", session_id=record.session_id, error=str(error))

    def delete(self, session_ids: Collection[str]) -> None:
        for session_id in session_ids:
            self._path(session_id).unlink(missing_ok=True)

    def load(self) -> Sequence[SessionRecord]:
        """Every readable copy, in no particular order."""
        return [
            record
            for path in self._directory.glob(f"*{_SUFFIX}")
            if (record := _read(path)) is not None
        ]

    def find(self, session_id: str) -> SessionRecord | None:
        return _read(self._path(session_id))

    def _path(self, session_id: str) -> Path:
        # An id from a damaged database may be any text.
        return self._directory / f"{session_id.replace('/', '_')[:64]}{_SUFFIX}"


def tuple_or_none(values: Sequence[str] | None) -> Sequence[str] | None:
    """A list of JSON as records have it."""
    return None if values is None else tuple(values)


def _read(path: Path) -> SessionRecord | None:
    try:
        with path.open() as file:
            fields = json.loads(file.read(_MAX_FILE))
        fields["state"] = SessionState(fields["state"])
        for name in ("packages", "data_sources"):
            fields[name] = tuple(fields.get(name, ()))
        fields["egress"] = tuple_or_none(fields.get("egress"))
        return SessionRecord(**fields)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("registry.copy_unreadable", file=path.name, error=str(error))
        return None
