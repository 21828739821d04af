"""What a daemon learns about a call besides its request: repetitions, and the caller's trace."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    TraceState,
    use_span,
)

from sandboxd.config import Config
from sandboxd.daemon.composition import Daemon, running
from sandboxd.observability import traces as traces_module
from sandboxd.service.transport.guard import RETRY_METADATA
from sandboxd_client import AsyncSandbox, AsyncSandboxClient, Sandbox
from sandboxd_client.call_metadata import RETRY, metadata_of
from sandboxd_client.connection import Connection
from sandboxd_client.local import LocalTransport
from sandboxd_client.methods.admin import GET_STATUS
from sandboxd_client.settings import Timeouts
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.sdk.cutting_proxy import cutting_proxy
from tests.service.client import Api
from tests.service.spans import finished

StartDaemon = Callable[..., Awaitable[Daemon]]
TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
CALLER = NonRecordingSpan(
    SpanContext(TRACE, SPAN, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
)


def test_both_ends_mean_the_same() -> None:
    """The daemon counts by the name that clients send."""
    assert RETRY == RETRY_METADATA
    assert metadata_of(0) == ()
    assert metadata_of(2) == ((RETRY, "2"),)


async def test_daemon_counts_what_is_repeated(daemon: Daemon, short_dir: Path) -> None:
    """A stream that goes on after a cut, and a command run in a reopened session; nothing else."""
    async with (
        Api(daemon.config.api_socket) as api,
        cutting_proxy(short_dir, daemon.config.api_socket) as proxy,
        AsyncSandboxClient(server_url=proxy.url) as client,
    ):
        await client.get_or_create_session("ada", "42")
        command = await client.sandbox.commands.run("echo hi; cat", background=True, stdin=True)
        async with command.stream() as events:
            await anext(events)
            assert (await api.statistics()).retries.attempts == 0
            proxy.cut()
            await command.close_stdin()
            assert [event async for event in events] == []
        after_cut = (await api.statistics()).retries
        await client.execute("die")
        assert (await client.execute("echo hi")).session is not None
        after_loss = (await api.statistics()).retries

    assert after_cut.attempts >= 1
    assert after_loss.attempts > after_cut.attempts
    assert after_loss.succeeded > after_cut.succeeded >= 1


@asynccontextmanager
async def daemon_in_process(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> AsyncIterator[tuple[Daemon, Connection]]:
    """A daemon without a listener, and a connection to it."""
    composed: list[Daemon] = []

    @asynccontextmanager
    async def compose() -> AsyncIterator[Daemon]:
        async with running(config, engine=engine, maker=guests.maker, listen=False) as daemon:
            composed.append(daemon)
            yield daemon

    transport = LocalTransport(compose)
    await transport.start()
    try:
        yield composed[0], Connection(transport, Timeouts())
    finally:
        await transport.aclose()


async def test_daemon_in_the_process_counts_too(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """There is no wire, and the same is told."""
    async with daemon_in_process(config, engine, guests) as (daemon, connection):
        for one in (connection, connection.repeating()):
            await one.call(GET_STATUS, GET_STATUS.request())

        assert daemon.journal.statistics.retries == 1
        assert daemon.journal.statistics.retries_succeeded == 1


# --- traces ---


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Takes what the daemon would send to a collector."""
    kept = InMemorySpanExporter()
    monkeypatch.setattr(traces_module, "OTLPSpanExporter", lambda: kept)
    return kept


def is_below_caller(span: ReadableSpan) -> bool:
    return span.parent is not None and (span.parent.trace_id, span.parent.span_id) == (TRACE, SPAN)


def is_in_trace(span: ReadableSpan) -> bool:
    return span.context is not None and span.context.trace_id == TRACE


async def test_one_trace_from_the_program_to_the_command(
    start_daemon: StartDaemon, exporter: InMemorySpanExporter
) -> None:
    """Calls and streams are spans below the current one of the program, commands below them."""
    daemon = await start_daemon(traces=True)
    url = f"unix:{daemon.config.api_socket}"
    async with await AsyncSandbox.open("ada", "42", server_url=url) as sandbox:
        with use_span(CALLER):
            await sandbox.commands.run("echo hi")
            await sandbox.commands.run("echo hi", on_stdout=str)
            await sandbox.files.write("a", "b")
        await sandbox.refresh()
    used = ("Run", "StartExec", "AttachExec", "UploadFile")
    spans = await finished(daemon, exporter, *used, "exec", "OpenSession", "GetSession")

    for method in used:
        assert is_below_caller(spans[method])
    assert is_in_trace(spans["exec"])
    for method in ("OpenSession", "GetSession"):
        assert spans[method].parent is None


async def test_sync_face_takes_the_trace_along(
    start_daemon: StartDaemon, exporter: InMemorySpanExporter
) -> None:
    """The span is that of the thread that calls, not of the one with the event loop."""
    daemon = await start_daemon(traces=True)
    url = f"unix:{daemon.config.api_socket}"

    def work() -> None:
        with Sandbox.open("ada", "42", server_url=url) as sandbox, use_span(CALLER):
            sandbox.commands.run("echo hi")

    await asyncio.to_thread(work)
    assert is_below_caller((await finished(daemon, exporter, "Run"))["Run"])


async def test_trace_goes_on_in_the_process(
    config: Config, engine: FakeEngine, guests: FakeGuests, exporter: InMemorySpanExporter
) -> None:
    """A daemon in the process has its spans in the program's trace."""
    config = config.model_copy(update={"traces": True})
    async with daemon_in_process(config, engine, guests) as (daemon, connection):
        with use_span(CALLER):
            await connection.call(GET_STATUS, GET_STATUS.request())

        assert is_below_caller((await finished(daemon, exporter, "GetStatus"))["GetStatus"])


@pytest.mark.parametrize(
    ("flags", "shown"), [(TraceFlags.DEFAULT, "00"), (TraceFlags.SAMPLED, "01")]
)
def test_trace_is_told_as_the_standard_wants_it(flags: int, shown: str) -> None:
    """With what other vendors have put in, and also whether it is recorded at all."""
    state = TraceState([("vendor", "x"), ("other", "y")])
    span = SpanContext(0xAB, 0xCD, is_remote=True, trace_flags=TraceFlags(flags), trace_state=state)
    parent = f"00-{'ab':0>32}-{'cd':0>16}-{shown}"

    with use_span(NonRecordingSpan(span)):
        assert metadata_of(1) == (
            (RETRY, "1"),
            ("traceparent", parent),
            ("tracestate", "vendor=x,other=y"),
        )
    assert metadata_of(0) == ()


def test_telemetry_is_never_imported() -> None:
    """A program without it does not pay for it, though it is installed."""
    program = (
        "import sys, sandboxd_client, sandboxd_client.remote\n"
        "from sandboxd_client.call_metadata import metadata_of\n"
        "assert metadata_of(0) == ()\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
