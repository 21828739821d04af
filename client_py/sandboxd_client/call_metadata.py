"""Metadata of a call: the number of the attempt, the turn and the trace it belongs to."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import TypeAlias

Metadata: TypeAlias = tuple[tuple[str, str], ...]

RETRY = "sandboxd-retry"
TURN = "sandboxd-turn-id"

current_turn: ContextVar[str] = ContextVar("sandboxd-turn", default="")
"""Turn that calls of this task or thread belong to; empty if they belong to none."""


def metadata_of(earlier_tries: int) -> Metadata:
    """Metadata of a call with this many earlier attempts; the daemon counts retries."""
    metadata = _trace_context()
    if turn_id := current_turn.get():
        metadata = ((TURN, turn_id), *metadata)
    return ((RETRY, str(earlier_tries)), *metadata) if earlier_tries else metadata


def _trace_context() -> Metadata:
    """The caller's current span, in the form of W3C Trace Context."""
    # A program with a current span has already loaded this module, so we do not import it; and
    # another thread may have loaded only half of it.
    telemetry = sys.modules.get("opentelemetry.trace")
    current_span = getattr(telemetry, "get_current_span", None)
    if current_span is None:
        return ()
    context = current_span().get_span_context()
    if not context.is_valid:
        return ()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state.to_header()
    return (("traceparent", parent), *((("tracestate", state),) if state else ()))
