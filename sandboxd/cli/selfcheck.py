"""`sandboxd selfcheck`: wait until a daemon is ready, use it once, show how to use it."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from pathlib import Path

import click
import grpc

from sandboxd.cli.doctor import REFUSALS, summary
from sandboxd.cli.identity import call_metadata
from sandboxd.cli.settings import load_or_exit
from sandboxd.config import Config
from sandboxd.protections.examination import NOT_YET
from sandboxd_proto.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    exec_service_pb2,
    exec_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
)

COMMAND = 'echo "hello from $(uname -s), uid $UID"'
CALL_SECONDS = 40.0
"""Longer than any wait of the daemon, so that its own error message arrives."""
# The first attempts happen while the daemon is still starting.
CHANNEL_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
TRY_PYTHON = (
    "import grpc; "
    "from sandboxd_proto.v1 import exec_service_pb2 as e, exec_service_pb2_grpc as eg,"
    " session_service_pb2 as s, session_service_pb2_grpc as sg; "
    'channel = grpc.insecure_channel("unix:{socket}"); '
    "session = sg.SessionServiceStub(channel)"
    '.OpenSession(s.OpenSessionRequest(user_id="me", thread_id="first")).session; '
    "done = eg.ExecServiceStub(channel)"
    '.Run(e.ExecRequest(session_id=session.session_id, shell="date >> visits; cat visits")); '
    "print(done.stdout.data.decode())"
)


@click.command()
@click.option(
    "--socket", "socket_path", type=click.Path(path_type=Path), help="Unix socket of the API."
)
@click.option(
    "--wait",
    "wait_seconds",
    default=180.0,
    show_default=True,
    help="Seconds to wait for it to be ready.",
)
@click.option("--no-session", is_flag=True, help="Only print the status and how to use it.")
def selfcheck(socket_path: Path | None, wait_seconds: float, no_session: bool) -> None:
    """Wait until the daemon is ready, run one session through its API, and show how to use it."""
    config = load_or_exit(None).config
    path = socket_path or config.api_socket
    with grpc.insecure_channel(f"unix:{path}", options=CHANNEL_OPTIONS) as channel:
        try:
            if no_session:
                status = get_status(channel)
            else:
                status = wait_until_ready(channel, wait_seconds)
                run_session(channel)
        except grpc.RpcError as error:
            # Every RpcError of a call is a grpc.Call too, which is what carries code and details.
            call: grpc.Call = error  # type: ignore[assignment]
            raise click.ClickException(f"{call.code().name}: {call.details()}") from None
    show_status(status)
    show_addresses(path, config)


def get_status(channel: grpc.Channel) -> admin_service_pb2.GetStatusResponse:
    stub = admin_service_pb2_grpc.AdminServiceStub(channel)
    return stub.GetStatus(
        admin_service_pb2.GetStatusRequest(), timeout=CALL_SECONDS, metadata=call_metadata()
    )


def wait_until_ready(
    channel: grpc.Channel, wait_seconds: float
) -> admin_service_pb2.GetStatusResponse:
    """Wait for an answer and a warm pool, and print the progress."""
    started = time.monotonic()
    stub = admin_service_pb2_grpc.AdminServiceStub(channel)
    progress = "no answer on the socket"
    while (elapsed := time.monotonic() - started) < wait_seconds:
        try:
            status = stub.GetStatus(
                admin_service_pb2.GetStatusRequest(),
                timeout=5.0,
                wait_for_ready=True,
                metadata=call_metadata(),
            )
        except grpc.RpcError as error:
            call: grpc.Call = error  # type: ignore[assignment]
            if call.code() in REFUSALS:
                raise
            click.echo(f"[{elapsed:3.0f}s] {progress} yet")
            continue
        pool = status.pool
        before, progress = progress, f"pool {pool.warm}/{pool.target}"
        if pool.last_error:
            progress += f", the last start failed: {pool.last_error}"
        if progress != before:
            click.echo(f"[{elapsed:3.0f}s] {progress}")
        is_examined = not any(NOT_YET in protection.detail for protection in status.protections)
        if pool.warm >= pool.target and (is_examined or elapsed > wait_seconds / 4):
            return status
        time.sleep(0.2)
    raise click.ClickException(f"not ready after {wait_seconds:.0f} s: {progress}")


def run_session(channel: grpc.Channel) -> None:
    """Open a session, run a command, show both with the time they took, and close it."""
    sessions = session_service_pb2_grpc.SessionServiceStub(channel)
    execs = exec_service_pb2_grpc.ExecServiceStub(channel)
    # A random thread, so that the session is new.
    request = session_service_pb2.OpenSessionRequest(
        user_id="selfcheck", thread_id=secrets.token_hex(8)
    )
    started = time.perf_counter()
    session = sessions.OpenSession(request, timeout=CALL_SECONDS, metadata=call_metadata()).session
    click.echo(f"\nself-check: session opened in {_ms_since(started):.1f} ms")
    try:
        started = time.perf_counter()
        done = execs.Run(
            exec_service_pb2.ExecRequest(session_id=session.session_id, shell=COMMAND),
            timeout=CALL_SECONDS,
            metadata=call_metadata(),
        )
        run_ms = _ms_since(started)
        click.echo(f"  $ {COMMAND}")
        for line in (done.stdout.data + done.stderr.data).decode(errors="replace").splitlines():
            click.echo(f"  {line}")
        if done.exit.WhichOneof("outcome") != "code" or done.exit.code != 0:
            raise click.ClickException(f"the command did not succeed: {done.exit}")
        click.echo(f"  exit 0 in {run_ms:.1f} ms\n")
    finally:
        sessions.CloseSession(
            session_service_pb2.CloseSessionRequest(session_id=session.session_id),
            timeout=CALL_SECONDS,
            metadata=call_metadata(),
        )


def show_status(status: admin_service_pb2.GetStatusResponse) -> None:
    pool, engine = status.pool, status.engine
    uptime = status.uptime.seconds
    click.echo(
        f"sandboxd {status.version}, up {uptime // 3600}:{uptime // 60 % 60:02}:{uptime % 60:02}: "
        f"{pool.warm} of {pool.target} sandboxes warm, {status.active_sessions} sessions, "
        f"{status.running_execs} commands running"
    )
    if engine.reachable:
        click.echo(f"  engine     {engine.name} {engine.version}, runtime {engine.runtime}")
    else:
        click.echo("  engine     does not answer")
    click.echo(f"  isolation  {summary(status.protections)}; `sandboxd doctor` lists them")
    for protection in status.protections:
        if protection.state == admin_service_pb2.PROTECTION_STATE_MISSING:
            click.echo(f"  MISSING    {protection.name}: {protection.detail}")


def show_addresses(path: Path, config: Config) -> None:
    click.echo(f"  address    unix:{path}")
    if config.host:
        host = f"[{config.host}]" if ":" in config.host else config.host
        click.echo(f"  address    {host}:{config.port or ' with the port in its log'}")
    click.echo("\nTo try in another terminal:\n")
    click.echo(
        f"{_program('buf')} curl --protocol grpc --http2-prior-knowledge --unix-socket {path}"
        ' -d \'{"user_id": "me", "thread_id": "first"}\''
        " http://localhost/sandboxd.v1.SessionService/OpenSession\n"
    )
    click.echo(f"{_program('python')} -c '{TRY_PYTHON.format(socket=path)}'\n")


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _program(name: str) -> str:
    """Path of a program of this environment, as the user would type it."""
    program = Path(sys.executable).with_name(name)
    if not program.exists():
        return shutil.which(name) or name
    return os.path.relpath(program) if program.is_relative_to(Path.cwd()) else str(program)


if __name__ == "__main__":
    selfcheck()
