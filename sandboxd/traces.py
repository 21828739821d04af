"""Traces of calls and of the commands they start, in the manner of OpenTelemetry.

Imported only where traces are wanted: it needs the extra `otel`.
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
from sandboxd.calls import Call, current
from sandboxd.execs import Exec
from sandboxd.registry.contract import SessionRecord

_CARRIED = ("traceparent", "tracestate")
FLUSH_MILLISECONDS = 2000


class Traces:
    """Begins and ends spans; a thread sends them in batches, and drops what it cannot keep up with.

    A call goes on with the trace of its client, which comes as request metadata `traceparent`; a
    command is a span below the call that started it. What commands are, and who runs them, is not
    told: that is for the audit log.
    """

    def __init__(self, exporter: SpanExporter | None = None, *, worker_id: str = "") -> None:
        """Sends to where the OTEL_EXPORTER_OTLP_* variables say, unless told otherwise."""
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
        if call.session_id:
            span.set_attribute("sandboxd.session", call.session_id)
        call.span = span

    def end_call(self, call: Call) -> None:
        span = call.span
        if isinstance(span, Span):
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
        """Send what is finished."""
        self._provider.force_flush(FLUSH_MILLISECONDS)

    def close(self) -> None:
        """Send what is finished, end the thread."""
        self.flush()
        self._provider.shutdown()
