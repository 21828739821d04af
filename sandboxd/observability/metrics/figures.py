"""Everything that is measured, as Prometheus metrics, computed when they are scraped.

No label has a value that callers choose: the metrics are served without a token.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from sandboxd import __version__
from sandboxd.cluster.contract import WorkerState
from sandboxd.histogram import Histogram
from sandboxd.observability.journal import KeptJournal
from sandboxd.pool.pool import PoolFigures
from sandboxd.pool.pools import Pools
from sandboxd.sessions.sessions import Sessions

BUCKETS = [
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
]
"""Upper bounds of the histograms' buckets, in seconds."""


@dataclass(frozen=True, eq=False)
class Figures:
    """A collector of prometheus_client."""

    sessions: Sessions
    pools: Pools
    journal: KeptJournal
    started_at: float

    def collect(self) -> Iterator[Metric]:
        self.journal.flush()
        yield from self._daemon_metrics()
        yield from self._session_metrics()
        yield from self._exec_metrics()
        yield from self._call_metrics()
        yield from self._query_metrics()
        yield from self._snapshot_metrics()
        yield from _pool_metrics(self.pools.figures)
        yield from self._record_metrics()
        if self.sessions.ownership.is_shared:
            yield from self._cluster_metrics()

    def _daemon_metrics(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "sandboxd_build_info", "Version of the daemon", labels=["version"]
        )
        build.add_metric([__version__], 1)
        yield build
        yield _gauge(
            "uptime_seconds", "Time since the daemon started", time.monotonic() - self.started_at
        )
        yield _gauge(
            "draining", "1 once new sessions are refused", float(self.sessions.is_draining)
        )

    def _session_metrics(self) -> Iterator[Metric]:
        statistics = self.journal.statistics
        yield _gauge("sessions_active", "Sessions with a sandbox", self.sessions.active_count)
        yield _counts("session_opens", "Opens by outcome", "outcome", statistics.opens)
        yield _counts("session_ends", "Ended sessions by state", "state", statistics.session_ends)
        yield _histogram(
            "session_open_seconds",
            "Duration of opens that got a new sandbox",
            [({}, statistics.open_seconds)],
        )

    def _snapshot_metrics(self) -> Iterator[Metric]:
        statistics, lines = self.journal.statistics, self.sessions.lines
        yield _gauge("sessions_parked", "Sessions without a sandbox", self.sessions.parked_count)
        yield _counter("snapshot_turns", "Automatic snapshots taken", statistics.turns)
        yield _counter(
            "snapshot_turns_failed", "Automatic snapshots that failed", statistics.turns_failed
        )
        yield _gauge(
            "snapshot_turns_paused",
            "Sessions that get no automatic snapshots although they want them",
            self.sessions.paused_count,
        )
        yield _histogram(
            "snapshot_turn_seconds",
            "Duration of automatic snapshots",
            [({}, statistics.turn_seconds)],
        )
        yield _counter("session_rewinds", "Sessions that were rewound", statistics.rewinds)
        yield _counts(
            "snapshot_actions",
            "What callers did with snapshots",
            "action",
            statistics.snapshot_actions,
        )
        if not lines.is_on:
            return
        figures = lines.store.figures()
        yield _counter("snapshots_taken", "Snapshots of any kind taken", figures.taken)
        yield _counter("snapshots_restored", "Snapshots restored", figures.restored)
        yield _counter("snapshots_failed", "Calls about snapshots that failed", figures.failed)
        yield _counter("snapshot_freezes", "Times that writers were stopped", figures.freezes)
        yield _counter(
            "snapshot_stored_bytes", "Bytes added to the store of snapshots", figures.stored_bytes
        )
        yield _counter(
            "snapshot_deduplicated_bytes",
            "Bytes that the store of snapshots had already",
            figures.deduplicated_bytes,
        )
        yield _counter(
            "snapshot_garbage_bytes", "Bytes deleted from the store", figures.garbage_bytes
        )
        yield _counter("snapshot_store_calls", "Calls of the store", figures.store_calls)
        yield _counter(
            "snapshot_store_retries", "Calls of the store that were repeated", figures.store_retries
        )

    def _exec_metrics(self) -> Iterator[Metric]:
        statistics, kill_counts = self.journal.statistics, self.sessions.exec_state.kill_counts
        yield _gauge("execs_running", "Running commands", self.sessions.running_exec_count)
        yield _counts("execs", "Ended commands by ending", "ending", statistics.exec_ends)
        yield _counts("code_runs", "Ended runs of code by status", "status", statistics.code_runs)
        yield _counter("execs_succeeded", "Commands that returned 0", statistics.execs_succeeded)
        yield _histogram("exec_seconds", "Duration of commands", [({}, statistics.exec_seconds)])
        yield _counter("exec_cpu_seconds", "CPU time of commands", statistics.exec_cpu_seconds)
        yield _counter("output_bytes", "Bytes of output and of files sent", statistics.output_bytes)
        yield _counter(
            "input_bytes", "Bytes of input and of files received", statistics.input_bytes
        )
        yield _counter(
            "output_dropped_bytes", "Bytes of output beyond what is kept", statistics.dropped_bytes
        )
        yield _counts(
            "limit_violations",
            "Commands that reached a limit, by limit",
            "limit",
            statistics.violations,
        )
        yield _counts(
            "forced_ends",
            "Commands that had to be ended, by the part that ended them",
            "by",
            {
                "guest": kill_counts.by_guest,
                "host": kill_counts.by_host,
                "engine": kill_counts.by_engine,
            },
        )

    def _call_metrics(self) -> Iterator[Metric]:
        statistics = self.journal.statistics
        yield _counts("calls", "Ended calls by method", "method", statistics.calls)
        yield _counts("call_failures", "Failed calls by method", "method", statistics.failed_calls)
        yield _counts("refusals", "Refused calls by reason", "reason", statistics.refusals)
        yield _counts("doors", "What happened at doors, by action", "action", statistics.doors)
        yield _counter("retries", "Automatic retries of clients", statistics.retries)
        yield _counter(
            "retries_succeeded", "Automatic retries that succeeded", statistics.retries_succeeded
        )

    def _query_metrics(self) -> Iterator[Metric]:
        statistics = self.journal.statistics
        yield _counts(
            "queries", "Queries of data sources by outcome", "outcome", statistics.queries
        )
        yield _counter("query_rows", "Rows that queries returned", statistics.query_rows)
        yield _histogram("query_seconds", "Duration of queries", [({}, statistics.query_seconds)])

    def _cluster_metrics(self) -> Iterator[Metric]:
        ownership = self.sessions.ownership
        workers = GaugeMetricFamily(
            "sandboxd_cluster_workers", "Workers by state, as this one saw them", labels=["state"]
        )
        for state in WorkerState:
            workers.add_metric([state.value], ownership.workers.get(state.value, 0))
        yield workers
        yield _gauge(
            "cluster_serving",
            "1 while this worker may serve its sessions",
            float(ownership.directory.is_serving),
        )
        yield _counts("cluster_claims", "Claims of sessions by origin", "origin", ownership.claims)
        yield _counts(
            "cluster_routed_calls",
            "Calls about sessions of other workers",
            "way",
            self.journal.statistics.routed_calls,
        )

    def _record_metrics(self) -> Iterator[Metric]:
        audit, history = self.journal.audit, self.journal.history
        yield _gauge("audit_sequence", "Newest line of the audit log", audit.head.sequence)
        yield _counter("audit_lost_entries", "Audit entries that were not written", audit.gaps)
        yield _counter(
            "history_lost_records", "History records that were not written", history.lost
        )


def _pool_metrics(pools: Sequence[PoolFigures]) -> Iterator[Metric]:
    sandboxes = GaugeMetricFamily(
        "sandboxd_pool_sandboxes",
        "Sandboxes by state",
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
        "Time that opens waited for a sandbox",
        [({"environment": pool.environment}, pool.waits) for pool in pools],
    )
    yield _histogram(
        "sandbox_start_seconds",
        "Time that warm sandboxes took to start",
        [({"environment": pool.environment}, pool.starts) for pool in pools],
    )


_POOL_GAUGES = {
    "target": "Warm sandboxes that the pool aims at",
    "minimum": "Warm sandboxes that are never reclaimed",
    "maximum": "Limit of sandboxes of all environments together",
    "waiting": "Opens that wait for a sandbox",
    "oldest_wait_seconds": "Time that the longest waiting open has waited",
    "concurrency": "Limit of sandboxes that start at once",
}
_POOL_COUNTERS = {
    "hits": "Opens that got a warm sandbox at once",
    "misses": "Opens that had to wait",
    "gave_up": "Opens that gave up waiting",
    "refused": "Opens refused because the queue was full",
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
