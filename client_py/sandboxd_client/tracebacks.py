"""Tracebacks of the SDK's errors: they end in the caller's line, and not deep inside the SDK."""

from __future__ import annotations

import logging
from types import TracebackType

from sandboxd_client.errors import SandboxError

_log = logging.getLogger("sandboxd_client")
_PACKAGE = __name__.partition(".")[0]


class _Edge:
    """Takes the SDK's own lines out of a typed error that leaves the block; those of callbacks of
    the caller stay. The log has all of them, at level DEBUG."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, SandboxError):
            _log.debug("%s", kind, exc_info=error)
            # Python adds no line for the function around the block: the error only passes by.
            error.__traceback__ = _without_ours(traceback)


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    lines: list[TracebackType] = []
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__"))
        if module.partition(".")[0] != _PACKAGE:
            lines.append(traceback)
        traceback = traceback.tb_next
    kept = None
    for line in reversed(lines):
        kept = TracebackType(kept, line.tb_frame, line.tb_lasti, line.tb_lineno)
    return kept


edge = _Edge()
"""Surrounds what the caller's code calls."""
