"""Traces from a client's call to the command it started."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable

import grpc
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sandboxd.daemon.composition import Daemon
from sandboxd.observability import traces as traces_module
from tests.service.client import Api, events, exec_request, refused
from tests.service.spans import finished

StartDaemon = Callable[..., Awaitable[Daemon]]
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
METADATA = (("traceparent", f"00-{TRACE}-{PARENT}-01"),)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Takes what would be sent to a collector."""
    kept = InMemorySpanExporter()
    monkeypatch.setattr(traces_module, "OTLPSpanExporter", lambda: kept)
    return kept


@pytest.fixture
async def traced(start_daemon: StartDaemon, exporter: InMemorySpanExporter) -> Daemon:
    return await start_daemon(traces=True)


def hexadecimal(number: int, digits: int) -> str:
    return f"{number:0{digits}x}"


async def test_one_trace_from_the_client_to_the_command(
    traced: Daemon, exporter: InMemorySpanExporter
) -> None:
    """The call is a span below the client's, the command one below the call's."""
    async with Api(traced.config.api_socket) as api:
        session_id = await api.open_id()
        await api.execs.Run(
            exec_request(session_id, "echo hi; exit 3", exec_id="e1"), metadata=METADATA
        )
    spans = await finished(traced, exporter, "Run", "exec")
    call, command = spans["Run"], spans["exec"]

    assert call.context is not None
    assert call.parent is not None
    assert command.context is not None
    assert command.parent is not None
    assert hexadecimal(call.context.trace_id, 32) == TRACE
    assert hexadecimal(call.parent.span_id, 16) == PARENT
    assert command.context.trace_id == call.context.trace_id
    assert command.parent.span_id == call.context.span_id
    assert (
        dict(command.attributes or {}).items()
        >= {
            "sandboxd.session": session_id,
            "sandboxd.exec": "e1",
            "sandboxd.ending": "EXITED",
            "process.exit.code": 3,
            "sandboxd.output_bytes": 3,
        }.items()
    )


async def test_command_that_outlives_its_call_is_still_in_the_trace(
    traced: Daemon, exporter: InMemorySpanExporter
) -> None:
    """A detached command's span ends when the command does."""
    async with Api(traced.config.api_socket) as api:
        session_id = await api.open_id()
        request = exec_request(session_id, "sleep", exec_id="e1")
        await api.execs.StartExec(request, metadata=METADATA)
        assert "exec" not in await finished(traced, exporter)
        await api.close(session_id)
    command = (await finished(traced, exporter, "exec"))["exec"]

    assert command.context
    assert hexadecimal(command.context.trace_id, 32) == TRACE
    assert (command.attributes or {})["sandboxd.ending"] == "SESSION_CLOSED"


async def test_failed_call_and_stream_are_told(
    traced: Daemon, exporter: InMemorySpanExporter
) -> None:
    """A refused call has its reason as status; a stream is a span up to its end."""
    async with Api(traced.config.api_socket) as api:
        with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
            await api.run("ses_none", "true")
        call = api.exec(await api.open_id(), "echo hi")
        _ = [event async for event in events(call)]
    spans = await finished(traced, exporter, "Run", "Exec")

    assert spans["Run"].status.description == "SESSION_NOT_FOUND"
    assert spans["Exec"].status.is_unset


async def test_trace_does_not_tell_what_ran(traced: Daemon, exporter: InMemorySpanExporter) -> None:
    """Commands and users are for the audit log; traces go to other places."""
    async with Api(traced.config.api_socket) as api:
        await api.run(await api.open_id("zoe", "t1"), "echo secret")
    await finished(traced, exporter, "Run", "exec")
    told = " ".join(span.to_json() for span in exporter.get_finished_spans())

    assert "secret" not in told
    assert "zoe" not in told


@pytest.mark.parametrize("parent", ["", "nonsense", "00-zz-zz-01"])
async def test_unreadable_parent_begins_a_trace_of_its_own(
    parent: str, traced: Daemon, exporter: InMemorySpanExporter
) -> None:
    """What a client sends as its trace cannot make a call fail."""
    async with Api(traced.config.api_socket) as api:
        request = exec_request(await api.open_id(), "true")
        await api.execs.Run(request, metadata=(("traceparent", parent),))

    assert (await finished(traced, exporter, "Run"))["Run"].parent is None


async def test_traces_reach_a_collector(
    start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the usual variables set, what is finished is sent to the collector they name."""
    received: list[bytes] = []

    async def take(request: web.Request) -> web.Response:
        received.append(await request.read())
        return web.Response()

    collector = web.Application()
    collector.router.add_post("/v1/traces", take)
    async with TestServer(collector) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", str(server.make_url("")))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        daemon = await start_daemon(traces=True)
        async with Api(daemon.config.api_socket) as api:
            request = exec_request(await api.open_id(), "true")
            await api.execs.Run(request, metadata=METADATA)
        assert daemon.journal.traces is not None
        await asyncio.to_thread(daemon.journal.traces.flush)

    sent = b"".join(received)
    assert bytes.fromhex(TRACE) in sent
    assert b"sandboxd.exec" in sent


def test_telemetry_is_not_imported_unless_wanted() -> None:
    """The daemon neither needs nor loads OpenTelemetry by itself."""
    program = (
        "import sys; import sandboxd.daemon.composition; "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
