"""`sandboxd selfcheck`: wait until a daemon is ready, use it once, show how to use it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shlex
import shutil
import ssl
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import click

from sandboxd.cli.doctor import summary
from sandboxd.cli.environments import environments_of
from sandboxd.cli.failure import Failure, call
from sandboxd.cli.settings import daemon_of, load_or_exit, socket_option
from sandboxd.cli.target import Target, target_options
from sandboxd.config import Config
from sandboxd.protections.examination import NOT_YET
from sandboxd_client import AsyncSandboxClient, CallTimeoutError, ConnectionLostError
from sandboxd_client.errors import ConsoleOffError
from sandboxd_client.settings import UNIX_SCHEME
from sandboxd_proto.v1.admin_service_pb2 import PROTECTION_STATE_MISSING, GetStatusResponse
from sandboxd_proto.v1.environment_pb2 import ENVIRONMENT_STATE_NOT_BUILT, Environment

COMMAND = 'echo "hello from $(uname -s), uid $UID"'
TRY_COMMAND = "date >> visits; cat visits"
LOOK_SECONDS = 0.2
REPORT_SECONDS = 5.0
HTTP_SECONDS = 5.0


@click.command()
@socket_option
@click.option(
    "--wait",
    "wait_seconds",
    default=180.0,
    show_default=True,
    help="Seconds to wait for it to be ready.",
)
@click.option("--no-session", is_flag=True, help="Only print the status and how to use it.")
@target_options
def selfcheck(
    socket_path: Path | None, wait_seconds: float, no_session: bool, target: Target
) -> None:
    """Wait until the daemon is ready, run one session through its API, and show how to use it.

    The daemon is --url, --socket, SANDBOXD_URL, or that of the settings.
    """
    config = load_or_exit(None).config
    target = daemon_of(target, socket_path, config)

    async def work() -> tuple[GetStatusResponse, Sequence[Environment], str]:
        async with target.client() as client:
            status = await _wait_until_ready(client, wait_seconds, needs_pool=not no_session)
            if not no_session:
                await _run_session(client)
            return status, await environments_of(target), await _console_link(client)

    status, environments, console = call(work())
    show_status(status)
    show_unbuilt(environments)
    show_addresses(target, config)
    if console:
        click.echo("The web console (valid for a minute; `sandboxd console` prints another link):")
        click.echo(f"\n{console}\n")


async def _console_link(client: AsyncSandboxClient) -> str:
    """Empty if the daemon serves no console."""
    try:
        return await client.console_link()
    except ConsoleOffError:
        return ""


async def _wait_until_ready(
    client: AsyncSandboxClient, wait_seconds: float, *, needs_pool: bool
) -> GetStatusResponse:
    """Wait for an answer, and for a warm pool if it is needed; print the progress."""
    started = reported = time.monotonic()
    progress, why = "no answer", ""
    while (elapsed := time.monotonic() - started) < wait_seconds or not why:
        try:
            status = await client.server_status()
        except (ConnectionLostError, CallTimeoutError) as error:
            why = str(error)
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                click.echo(f"[{elapsed:3.0f}s] {progress} yet")
            await asyncio.sleep(LOOK_SECONDS)
            continue
        if not needs_pool:
            return status
        pool = status.pool
        before, progress = progress, f"pool {pool.warm}/{pool.target}"
        if pool.last_error:
            progress += f", the last start failed: {pool.last_error}"
        if progress != before:
            click.echo(f"[{elapsed:3.0f}s] {progress}")
        is_examined = not any(NOT_YET in protection.detail for protection in status.protections)
        if pool.warm >= pool.target and (is_examined or elapsed > wait_seconds / 4):
            return status
        why = progress
        await asyncio.sleep(LOOK_SECONDS)
    raise Failure(f"not ready after {wait_seconds:.0f} s: {why}")


async def _run_session(client: AsyncSandboxClient) -> None:
    """Open a session, run a command, show both with the time they took, and close it."""
    started = time.perf_counter()
    # A random thread, so that the session is new.
    await client.get_or_create_session("selfcheck", secrets.token_hex(8))
    click.echo(f"\nself-check: session opened in {_ms_since(started):.1f} ms")
    try:
        started = time.perf_counter()
        done = await client.execute(COMMAND)
        run_ms = _ms_since(started)
        click.echo(f"  $ {COMMAND}")
        for line in (done.stdout + done.stderr).splitlines():
            click.echo(f"  {line}")
        if not done.ok:
            raise Failure(f"the command did not succeed: exit code {done.exit_code} {done.hint}")
        click.echo(f"  exit 0 in {run_ms:.1f} ms\n")
    finally:
        await client.close_session()


def show_status(status: GetStatusResponse) -> None:
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
        if protection.state == PROTECTION_STATE_MISSING:
            click.echo(f"  MISSING    {protection.name}: {protection.detail}")


def show_unbuilt(environments: Sequence[Environment]) -> None:
    unbuilt = [one.name for one in environments if one.state == ENVIRONMENT_STATE_NOT_BUILT]
    if unbuilt:
        click.echo(
            f"  not built  {', '.join(unbuilt)}: the first session in one waits for that, or "
            "`sandboxd environments build NAME` does it now"
        )


def show_addresses(target: Target, config: Config) -> None:
    """Print the daemon's addresses, and lines to paste."""
    assert target.url is not None
    click.echo(f"  address    {target.url}")
    path = target.url.removeprefix(UNIX_SCHEME)
    is_own = path == str(config.api_socket)
    if is_own and config.host:
        host = f"[{config.host}]" if ":" in config.host else config.host
        click.echo(f"  address    {host}:{config.port or ' with the port in its log'}")
    if is_own and config.http_address:
        click.echo(f"  http       {_over_http(config)}")
    click.echo("\nTo try in another terminal:\n")
    if target.url.startswith(UNIX_SCHEME):
        click.echo(
            f"{_program('buf')} curl --protocol grpc --http2-prior-knowledge --unix-socket {path}"
            ' -d \'{"user_id": "me", "thread_id": "first"}\''
            " http://localhost/sandboxd.v1.SessionService/OpenSession\n"
        )
    where = f', server_url="{target.url}"'
    program = (
        "from sandboxd_client import Sandbox; "
        f'sandbox = Sandbox.open("me", "first"{where}); '
        f'print(sandbox.commands.run("{TRY_COMMAND}").stdout); sandbox.close()'
    )
    click.echo(f"{_program('python')} -c {shlex.quote(program)}\n")


def _over_http(config: Config) -> str:
    """Where the API is over HTTP; it is not if another program had the port first."""
    if config.http_address.startswith("unix:"):
        return config.http_address
    scheme = "http" if config.tls_cert is None else "https"
    url = f"{scheme}://{config.http_address}"
    if config.tls_client_ca or _is_daemon(f"{url}/health"):
        return f"{url}, described at {url}/docs"
    return f"not served: {config.http_address} is not this daemon's; see SANDBOXD_HTTP_ADDRESS"


def _is_daemon(url: str) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        with urlopen(url, timeout=HTTP_SECONDS, context=context) as answer:
            return "version" in json.load(answer)
    except HTTPError as error:
        return error.headers.get_content_type() == "application/problem+json"
    except (OSError, ValueError):
        return False


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
