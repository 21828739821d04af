"""Everything that is measured, in Prometheus' form. Made when somebody asks, so it costs no call.

No label ever has a value that callers choose: what is told here needs no token.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from sandboxd import __version__
from sandboxd.histogram import Histogram
from sandboxd.journal import KeptJournal
from sandboxd.pool import PoolFigures, WarmPool
from sandboxd.sessions import Sessions

BUCKETS = [
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
]
"""Upper bounds of what histograms tell, in seconds."""


@dataclass(frozen=True, eq=False)
class Figures:
    """A collector of prometheus_client."""

    sessions: Sessions
    pools: Mapping[str, WarmPool]
    journal: KeptJournal
    started_at: float

    def collect(self) -> Iterator[Metric]:
        yield from self._of_daemon()
        yield from self._of_sessions()
        yield from self._of_execs()
        yield from self._of_calls()
        yield from _of_pools([pool.figures for pool in self.pools.values()])
        yield from self._of_memories()

    def _of_daemon(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "sandboxd_build_info", "Version of the daemon", labels=["version"]
        )
        build.add_metric([__version__], 1)
        yield build
        yield _gauge(
            "uptime_seconds", "Time since the daemon started", time.monotonic() - self.started_at
        )
        yield _gauge(
            "draining", "1 once no new sessions are taken", float(self.sessions.is_draining)
        )

    def _of_sessions(self) -> Iterator[Metric]:
        statistics = self.journal.statistics
        yield _gauge("sessions_active", "Sessions with a sandbox", self.sessions.active_count)
        yield _counts(
            "session_opens", "Opens by how the session was got", "outcome", statistics.opens
        )
        yield _counts("session_ends", "Sessions that ended", "state", statistics.session_ends)
        yield _histogram(
            "session_open_seconds",
            "How long opens took that got a sandbox",
            [({}, statistics.open_seconds)],
        )

    def _of_execs(self) -> Iterator[Metric]:
        statistics, ladder = self.journal.statistics, self.sessions.house.ladder
        yield _gauge("execs_running", "Commands that run", self.sessions.running_exec_count)
        yield _counts("execs", "Commands that ended", "ending", statistics.exec_ends)
        yield _counter("execs_succeeded", "Commands that returned 0", statistics.execs_succeeded)
        yield _histogram("exec_seconds", "How long commands took", [({}, statistics.exec_seconds)])
        yield _counter(
            "exec_cpu_seconds", "Processor time of commands", statistics.exec_cpu_seconds
        )
        yield _counter(
            "output_bytes", "Bytes from commands and of files sent", statistics.output_bytes
        )
        yield _counter(
            "input_bytes", "Bytes to commands and of files taken", statistics.input_bytes
        )
        yield _counter(
            "output_dropped_bytes", "Output beyond what is kept", statistics.dropped_bytes
        )
        yield _counts(
            "limit_violations", "Limits that commands reached", "limit", statistics.violations
        )
        yield _counts(
            "forced_ends",
            "Commands that had to be ended, by who did it in the end",
            "by",
            {"guest": ladder.by_guest, "host": ladder.by_host, "engine": ladder.by_engine},
        )

    def _of_calls(self) -> Iterator[Metric]:
        statistics = self.journal.statistics
        yield _counts("calls", "Calls of the API", "method", statistics.calls)
        yield _counts(
            "call_failures", "Calls that failed, for any reason", "method", statistics.failed_calls
        )
        yield _counts("refusals", "Calls that were refused", "reason", statistics.refusals)
        yield _counter("retries", "Calls that clients repeated by themselves", statistics.retries)
        yield _counter(
            "retries_succeeded", "Of those, the ones that succeeded", statistics.retries_succeeded
        )

    def _of_memories(self) -> Iterator[Metric]:
        audit, history = self.journal.audit, self.journal.history
        yield _gauge("audit_sequence", "Newest line of the audit log", audit.head.sequence)
        yield _counter("audit_lost_entries", "Entries that could not be written", audit.gaps)
        yield _counter("history_lost_records", "Records that could not be written", history.lost)


def _of_pools(pools: list[PoolFigures]) -> Iterator[Metric]:
    sandboxes = GaugeMetricFamily(
        "sandboxd_pool_sandboxes",
        "Sandboxes by what they do",
        labels=["environment", "state"],
    )
    for pool in pools:
        for state in ("warm", "starting", "in_use"):
            sandboxes.add_metric([pool.environment, state], getattr(pool, state))
    yield sandboxes
    for name, text in _POOL_GAUGES.items():
        gauge = GaugeMetricFamily(f"sandboxd_pool_{name}", text, labels=["environment"])
        for pool in pools:
            gauge.add_metric([pool.environment], getattr(pool, name))
        yield gauge
    for name, text in _POOL_COUNTERS.items():
        counter = CounterMetricFamily(f"sandboxd_pool_{name}", text, labels=["environment"])
        for pool in pools:
            counter.add_metric([pool.environment], getattr(pool, name))
        yield counter
    failing = GaugeMetricFamily(
        "sandboxd_pool_failing", "1 while the last start failed", labels=["environment"]
    )
    for pool in pools:
        failing.add_metric([pool.environment], float(bool(pool.last_error)))
    yield failing
    yield _histogram(
        "pool_wait_seconds",
        "How long openers waited for a sandbox",
        [({"environment": pool.environment}, pool.waits) for pool in pools],
    )
    yield _histogram(
        "sandbox_start_seconds",
        "How long warm sandboxes took to start",
        [({"environment": pool.environment}, pool.starts) for pool in pools],
    )


_POOL_GAUGES = {
    "target": "Warm sandboxes the pool aims at",
    "minimum": "Warm sandboxes that stay",
    "maximum": "Sandboxes there may be in all",
    "waiting": "Openers that wait",
    "oldest_wait_seconds": "How long the first of them has waited",
    "concurrency": "Sandboxes that may be started at once",
}
_POOL_COUNTERS = {
    "hits": "Openers that got a warm sandbox at once",
    "misses": "Openers that had to wait",
    "gave_up": "Openers that waited in vain",
    "refused": "Openers for whom there was no place to wait",
    "failed_starts": "Sandboxes that could not be started",
}


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"sandboxd_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"sandboxd_{name}", text, value=value)


def _counts(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"sandboxd_{name}", text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


def _histogram(
    name: str, text: str, series: Iterable[tuple[Mapping[str, str], Histogram]]
) -> Metric:
    series = list(series)
    labels = list(series[0][0]) if series else []
    family = HistogramMetricFamily(f"sandboxd_{name}", text, labels=labels)
    for values, histogram in series:
        counts = [float(count) for count in histogram.within(BUCKETS)]
        buckets = [(str(float(bound)), count) for bound, count in zip(BUCKETS, counts, strict=True)]
        family.add_metric(
            [values[label] for label in labels],
            [*buckets, ("+Inf", float(histogram.count))],
            histogram.sum_seconds,
        )
    return family
