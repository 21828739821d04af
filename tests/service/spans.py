"""Spans that a daemon would send to a collector."""

from __future__ import annotations

import asyncio

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sandboxd.daemon.composition import Daemon

PATIENCE = 60.0


async def finished(
    daemon: Daemon, exporter: InMemorySpanExporter, *names: str
) -> dict[str, ReadableSpan]:
    """By name, the last of each; waits for those that are named: a caller has its answer before
    the span of the call ends."""
    assert daemon.journal.traces is not None
    async with asyncio.timeout(PATIENCE):
        while True:
            daemon.journal.traces.flush()
            spans = {span.name: span for span in exporter.get_finished_spans()}
            if spans.keys() >= set(names):
                return spans
            await asyncio.sleep(0.02)
