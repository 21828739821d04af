"""OpenTelemetry traces of calls and of the commands that they start.

Imported only where traces are enabled: it needs the extra `otel`.
"""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sandboxd import __version__
from sandboxd.execs.exec import Exec
from sandboxd.observability.calls import Call, current
from sandboxd.registry.contract import SessionRecord

_CARRIED = ("traceparent", "tracestate")
FLUSH_MILLISECONDS = 2000


class Traces:
    """Begins and ends spans; a thread sends them in batches and drops those beyond its capacity.

    A call continues the trace of its client, named by the request metadata `traceparent`; a command
    is a child span of the call that started it. Spans contain neither commands nor users: those are
    for the audit log alone.
    """

    def __init__(self, exporter: SpanExporter | None = None, *, worker_id: str = "") -> None:
        """Without an exporter, the OTEL_EXPORTER_OTLP_* variables name the destination."""
        resource = Resource.create(
            {
                "service.name": "sandboxd",
                "service.version": __version__,
                "service.instance.id": worker_id,
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("sandboxd", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._execs: dict[Exec, Span] = {}

    def begin_call(self, call: Call, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        carried = {key: str(value) for key, value in metadata if key in _CARRIED}
        span = self._tracer.start_span(
            call.method,
            context=self._propagator.extract(carried),
            kind=SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.method": call.method},
        )
        call.span = span

    def end_call(self, call: Call) -> None:
        span = call.span
        if isinstance(span, Span):
            if call.session_id:
                span.set_attribute("sandboxd.session", call.session_id)
            if call.failure:
                span.set_status(Status(StatusCode.ERROR, call.failure))
            span.end()

    def begin_exec(self, record: SessionRecord, execution: Exec) -> None:
        call = current.get()
        parent = call.span if call is not None else None
        self._execs[execution] = self._tracer.start_span(
            "exec",
            context=set_span_in_context(parent) if isinstance(parent, Span) else None,
            attributes={
                "sandboxd.session": record.session_id,
                "sandboxd.incarnation": record.incarnation,
                "sandboxd.exec": execution.id,
            },
        )

    def end_exec(self, execution: Exec, ending: str) -> None:
        span = self._execs.pop(execution, None)
        status = execution.exit
        if span is None or status is None:
            return
        span.set_attribute("sandboxd.ending", ending)
        span.set_attribute("sandboxd.output_bytes", status.stdout_bytes + status.stderr_bytes)
        if status.code is not None:
            span.set_attribute("process.exit.code", status.code)
        if status.usage is not None:
            span.set_attribute("sandboxd.cpu_seconds", status.usage.cpu_seconds)
            span.set_attribute("sandboxd.peak_memory_bytes", status.usage.peak_memory_bytes)
        if status.code != 0:
            span.set_status(Status(StatusCode.ERROR, ending))
        span.end()

    def flush(self) -> None:
        """Send finished spans."""
        self._provider.force_flush(FLUSH_MILLISECONDS)

    def close(self) -> None:
        """Send finished spans and end the thread."""
        self.flush()
        self._provider.shutdown()
