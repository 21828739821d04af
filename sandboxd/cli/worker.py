"""`sandboxd worker`: the daemons of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
from google.protobuf import json_format

from sandboxd.cli import drain, table
from sandboxd.cli.failure import call
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client.methods.cluster import FIND_SESSION, LIST_WORKERS
from sandboxd_proto.v1 import cluster_service_pb2 as pb

HEADER = ("WORKER", "STATE", "ADDRESS", "VERSION", "SESSIONS", "WARM", "LEASE")


@click.group("worker")
def command() -> None:
    """List the workers of a cluster, find sessions, and drain a worker."""


@command.command("list")
@target_options
@json_option
def list_(target: Target, as_json: bool) -> None:
    """List the daemons that share sessions; the one that answers has a `*`."""

    async def work() -> pb.ListWorkersResponse:
        async with target.connection() as connection:
            return await connection.call(LIST_WORKERS, pb.ListWorkersRequest())

    found = call(work())
    if as_json:
        table.show_document(
            json_format.MessageToDict(
                found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        )
    else:
        table.show(HEADER, (row(worker, found.answered_by) for worker in found.workers))


@command.command("find")
@click.argument("session")
@target_options
@json_option
def find(session: str, target: Target, as_json: bool) -> None:
    """Print which worker has a SESSION."""

    async def work() -> pb.FindSessionResponse:
        request = pb.FindSessionRequest(session_id=await target.session_id(session))
        async with target.connection() as connection:
            return await connection.call(FIND_SESSION, request)

    found = call(work())
    if as_json:
        table.show_document(
            json_format.MessageToDict(
                found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        )
        return
    for key, value in facts(found).items():
        click.echo(f"{key:<10} {table.printable(value)}")


command.add_command(drain.command)


def state_of(worker: pb.Worker) -> str:
    return pb.WorkerState.Name(worker.state).removeprefix("WORKER_STATE_").lower()


def row(worker: pb.Worker, answered_by: str) -> Sequence[object]:
    return (
        f"{worker.id}*" if worker.id == answered_by else worker.id,
        state_of(worker),
        worker.address or "-",
        worker.version or "-",
        f"{worker.used}/{worker.capacity}",
        worker.warm,
        f"{worker.lease.ToMilliseconds() / 1000:.1f}s" if worker.HasField("lease") else "-",
    )


def facts(found: pb.FindSessionResponse) -> Mapping[str, str]:
    known = {
        "worker": found.worker,
        "address": found.address,
        "state": "parked: any worker can open it" if found.parked else "held",
        "epoch": str(found.epoch),
        "snapshot": str(found.committed_snapshot) if found.committed_snapshot else "none",
    }
    return {key: value for key, value in known.items() if value}
