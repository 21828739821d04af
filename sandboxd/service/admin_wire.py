"""Domain objects to messages of AdminService."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sandboxd.audit import AuditLog
from sandboxd.audit.check import Verdict
from sandboxd.engine.contract import EngineInfo
from sandboxd.execs.exec import KillCounts
from sandboxd.histogram import Histogram
from sandboxd.observability.samples import Sample
from sandboxd.observability.statistics import Statistics
from sandboxd.pool.pool import PoolFigures
from sandboxd.protections.report import Protection, State
from sandboxd.registry.contract import ExecutionFigures
from sandboxd.service import wire
from sandboxd_proto.v1 import admin_service_pb2 as pb

PERCENTILES = (0.5, 0.95, 0.99)
MAX_SENTENCES = 100
"""Problems and notes of a check that are sent."""
_STATES = {
    State.IN_FORCE: pb.PROTECTION_STATE_IN_FORCE,
    State.WEAKER: pb.PROTECTION_STATE_WEAKER,
    State.MISSING: pb.PROTECTION_STATE_MISSING,
}


def protections(found: Sequence[Protection]) -> Sequence[pb.Protection]:
    return [
        pb.Protection(
            name=protection.name,
            state=_STATES[protection.state],
            detail=protection.detail,
            proof=protection.proof,
        )
        for protection in found
    ]


def kill_counts(counts: KillCounts) -> pb.KillCounts:
    return pb.KillCounts(
        by_guest=counts.by_guest, by_host=counts.by_host, by_engine=counts.by_engine
    )


def engine_status(
    info: EngineInfo | None, *, runtime: str | None, image_id: str
) -> pb.EngineStatus:
    """The engine as it describes itself; None if it does not answer."""
    if info is None:
        return pb.EngineStatus(reachable=False)
    return pb.EngineStatus(
        reachable=True,
        name=info.name,
        version=info.version,
        api_version=info.api_version,
        runtime=runtime or info.default_runtime,
        image_id=image_id,
    )


def pool_status(figures: PoolFigures) -> pb.PoolStatus:
    return pb.PoolStatus(
        warm=figures.warm,
        starting=figures.starting,
        in_use=figures.in_use,
        target=figures.target,
        max=figures.maximum,
        hits=figures.hits,
        misses=figures.misses,
        failed_starts=figures.failed_starts,
        last_error=figures.last_error,
        environment=figures.environment,
        min=figures.minimum,
        hit_rate=figures.hit_rate,
        waiting=figures.waiting,
        max_queue=figures.max_queue,
        oldest_wait=wire.duration(figures.oldest_wait_seconds),
        waits=_duration_figures(figures.waits),
        gave_up=figures.gave_up,
        refused=figures.refused,
        concurrency=figures.concurrency,
        starts=_duration_figures(figures.starts),
    )


def session_statistics(statistics: Statistics) -> pb.SessionStatistics:
    return pb.SessionStatistics(
        opens=statistics.opens,
        ends=statistics.session_ends,
        reuse_rate=statistics.reuse_rate,
        open_times=_duration_figures(statistics.open_seconds),
    )


def exec_statistics(statistics: Statistics) -> pb.ExecStatistics:
    return pb.ExecStatistics(
        ends=statistics.exec_ends,
        total=statistics.execs,
        succeeded=statistics.execs_succeeded,
        success_rate=statistics.success_rate,
        durations=_duration_figures(statistics.exec_seconds),
        cpu_time=wire.duration(statistics.exec_cpu_seconds),
        output_bytes=statistics.output_bytes,
        input_bytes=statistics.input_bytes,
        dropped_bytes=statistics.dropped_bytes,
    )


def retry_statistics(statistics: Statistics) -> pb.RetryStatistics:
    return pb.RetryStatistics(
        attempts=statistics.retries,
        succeeded=statistics.retries_succeeded,
        success_rate=statistics.retry_success_rate,
    )


def audit_statistics(audit: AuditLog) -> pb.AuditStatistics:
    return pb.AuditStatistics(
        head_sequence=audit.head.sequence, head_hash=audit.head.hash, lost_entries=audit.gaps
    )


def history_statistics(figures: ExecutionFigures) -> pb.HistoryStatistics:
    p50, p95, p99 = (wire.duration(figures.quantiles[part]) for part in PERCENTILES)
    first = figures.first_started_at
    return pb.HistoryStatistics(
        since=wire.timestamp(first) if first is not None else None,
        ends=figures.ends,
        total=figures.total,
        succeeded=figures.succeeded,
        success_rate=figures.success_rate,
        durations=pb.DurationFigures(
            count=figures.total,
            mean=wire.duration(figures.mean_seconds),
            p50=p50,
            p95=p95,
            p99=p99,
            max=wire.duration(figures.longest_seconds),
        ),
    )


def _duration_figures(histogram: Histogram) -> pb.DurationFigures:
    p50, p95, p99 = (wire.duration(histogram.quantile(part)) for part in PERCENTILES)
    return pb.DurationFigures(
        count=histogram.count,
        mean=wire.duration(histogram.mean_seconds),
        p50=p50,
        p95=p95,
        p99=p99,
        max=wire.duration(histogram.longest_seconds),
    )


def sample(taken: Sample) -> pb.FigureSample:
    return pb.FigureSample(
        time=wire.timestamp(taken.time),
        active_sessions=taken.active_sessions,
        running_execs=taken.running_execs,
        warm=taken.warm,
        starting=taken.starting,
        in_use=taken.in_use,
        waiting=taken.waiting,
        opens=taken.opens,
        execs=taken.execs,
        failed_execs=taken.failed_execs,
        calls=taken.calls,
        failed_calls=taken.failed_calls,
        output_bytes=taken.output_bytes,
        input_bytes=taken.input_bytes,
        exec_time=wire.duration(taken.exec_seconds),
        open_time=wire.duration(taken.open_seconds),
        new_sandboxes=taken.new_sandboxes,
    )


def is_asked_for(request: pb.ListAuditRequest, entry: Mapping[str, Any]) -> bool:
    """Whether a line of the audit log passes the filters of a request."""
    about = (entry.get("who"), entry.get("user"))
    return (
        (not request.who or request.who in about)
        and (not request.session_id or entry.get("session") == request.session_id)
        and str(entry.get("action", "")).startswith(request.action)
    )


def audit_line(entry: Mapping[str, Any]) -> pb.AuditLine:
    fields = {name: value for name, value in entry.items() if name not in ("seq", "prev")}
    return pb.AuditLine(
        sequence=int(entry["seq"]),
        time=wire.timestamp(datetime.fromisoformat(str(entry["time"])).timestamp()),
        action=str(entry.get("action", "")),
        who=str(entry.get("who", "")),
        json=json.dumps(fields),
    )


def audit_verdict(verdict: Verdict) -> pb.VerifyAuditResponse:
    return pb.VerifyAuditResponse(
        whole=verdict.is_whole,
        lines=verdict.lines,
        first_sequence=verdict.first,
        last_sequence=verdict.head.sequence,
        last_hash=verdict.head.hash,
        problems=verdict.problems[:MAX_SENTENCES],
        notes=verdict.notes[:MAX_SENTENCES],
    )
