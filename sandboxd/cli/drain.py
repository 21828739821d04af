"""`sandboxd drain`, also `sandboxd worker drain`: move all sessions away from a worker."""

from __future__ import annotations

import click
from google.protobuf.duration_pb2 import Duration

from sandboxd.cli import keyboard
from sandboxd.cli.failure import FAILED, Failure, call
from sandboxd.cli.target import Target, target_options
from sandboxd_client.methods.cluster import DRAIN_WORKER, LIST_WORKERS
from sandboxd_proto.v1 import cluster_service_pb2 as pb

DEFAULT_SECONDS = 300
MAX_SECONDS = 86400
ALONE = (
    "No other worker takes the sessions of this daemon, and it opens no new ones until "
    "`sandboxd drain --cancel`. Drain it?"
)


@click.command("drain")
@click.option(
    "--timeout",
    "seconds",
    type=click.IntRange(1, MAX_SECONDS),
    default=DEFAULT_SECONDS,
    show_default=True,
    help="Seconds that running commands get to end; then they are ended.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask, if there is no other worker.")
@click.option("--cancel", is_flag=True, help="Take new sessions again, and move none away.")
@target_options
def command(seconds: int, yes: bool, cancel: bool, target: Target) -> None:
    """Move all sessions away from the worker that is asked, before it is stopped for good.

    It gets no new sessions. Idle ones are parked at once, so that any worker can open them; others
    when their commands have ended. It stays so until it is stopped, or asked with --cancel.

    At a terminal it asks first, if the daemon shares its sessions with no other one.
    """
    asks = not (yes or cancel) and keyboard.is_terminal()
    last = call(_drain(target, seconds, cancel=cancel, asks=asks))
    if cancel:
        click.echo("ready: takes new sessions")
        return
    click.echo(f"drained: {last.moved} sessions moved, {last.failed} could not be moved")
    if last.failed:
        raise Failure("some sessions are still here; the log of the daemon says why", FAILED)


async def _drain(
    target: Target, seconds: int, *, cancel: bool, asks: bool
) -> pb.DrainWorkerResponse:
    request = pb.DrainWorkerRequest(timeout=Duration(seconds=seconds), cancel=cancel)
    last = pb.DrainWorkerResponse()
    async with target.connection() as connection:
        if asks:
            listed = await connection.call(LIST_WORKERS, pb.ListWorkersRequest())
            # Only a worker of a cluster has a lease.
            if not any(worker.HasField("lease") for worker in listed.workers):
                click.confirm(ALONE, abort=True, err=True)
        async for last in connection.stream(DRAIN_WORKER, request):
            if not cancel:
                click.echo(progress_line(last), err=True)
    return last


def progress_line(now: pb.DrainWorkerResponse) -> str:
    failed = f", {now.failed} could not be moved" if now.failed else ""
    return f"{now.moved} moved, {now.left} left, {now.running} commands running{failed}"
