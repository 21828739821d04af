"""What is recorded of each query, and the latest of them."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_SQL = 4096
"""Characters of a statement that are recorded."""
MAX_KEPT = 2000


@dataclass(frozen=True, kw_only=True)
class QueryRecord:
    """One query that has ended, refused ones too."""

    query_id: str
    started_at: float
    """Seconds since the epoch."""
    user_id: str
    session_id: str
    is_from_inside: bool
    """Whether the code of a sandbox asked, not a caller of the API."""
    source: str
    operation: str
    sql: str
    """The statement, shortened."""
    sql_sha256: str
    kind: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Types of the parameters by name; their values only if the source is configured so."""
    rows: int = 0
    bytes: int = 0
    changed_rows: int = 0
    seconds: float = 0.0
    outcome: str = "OK"
    """OK, or the reason of the error."""
    truncated: str = ""
    sqlstate: str = ""
    rule: str = ""


def shortened(sql: bytes) -> tuple[str, str]:
    """A statement as it is recorded, and the hash of all of it."""
    text = sql[: 4 * MAX_SQL].decode(errors="replace")
    return text[:MAX_SQL], hashlib.sha256(sql).hexdigest()


class LatestQueries:
    """The latest queries of this daemon, in memory; the audit log has all of them."""

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._records: deque[QueryRecord] = deque(maxlen=most)

    def add(self, record: QueryRecord) -> None:
        self._records.append(record)

    def find(
        self, *, user_id: str = "", session_id: str = "", source: str = ""
    ) -> Iterable[QueryRecord]:
        """Newest first."""
        for record in reversed(self._records):
            if (
                user_id in ("", record.user_id)
                and session_id in ("", record.session_id)
                and source in ("", record.source)
            ):
                yield record
