"""`sandboxd status`: what the daemon is doing."""

from __future__ import annotations

import click
from google.protobuf import json_format

from sandboxd.cli import table
from sandboxd.cli.failure import call
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_proto.v1.admin_service_pb2 import (
    PROTECTION_STATE_MISSING,
    PROTECTION_STATE_WEAKER,
    GetStatusResponse,
    PoolStatus,
)


@click.command("status")
@target_options
@json_option
def command(target: Target, as_json: bool) -> None:
    """Print what the daemon is doing: pool, engine, sessions, isolation."""
    status = call(_ask(target))
    if as_json:
        table.show_document(
            json_format.MessageToDict(
                status,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            )
        )
    else:
        click.echo("\n".join(summary(status)))


async def _ask(target: Target) -> GetStatusResponse:
    async with target.client() as client:
        return await client.server_status()


def summary(status: GetStatusResponse) -> list[str]:
    pool, engine = status.pool, status.engine
    name = f" {status.worker_id}" if status.worker_id else ""
    draining = ", draining" if status.draining else ""
    answers = f"{engine.name} {engine.version}, runtime {engine.runtime}"
    lines = [
        f"sandboxd {status.version}{name}, up {table.span(status.uptime.seconds)}{draining}",
        f"sessions   {status.active_sessions} active, {status.running_execs} commands running",
        f"pool       {_pool(pool)}, at most {pool.max} in all",
        *(
            f"           {other.environment}: {_pool(other)}"
            for other in status.pools
            if other.environment != pool.environment
        ),
        f"engine     {answers if engine.reachable else 'does not answer'}",
        f"isolation  {_isolation(status)}",
    ]
    for failing in status.pools:
        if failing.last_error:
            error = table.printable(failing.last_error)
            lines.append(f"           last start of {failing.environment} failed: {error}")
    return lines


def _pool(pool: PoolStatus) -> str:
    return (
        f"{pool.warm} of {pool.target} warm, {pool.starting} starting, {pool.in_use} in use; "
        f"{pool.hits} hits, {pool.misses} misses"
    )


def _isolation(status: GetStatusResponse) -> str:
    states = [protection.state for protection in status.protections]
    missing = states.count(PROTECTION_STATE_MISSING)
    weaker = states.count(PROTECTION_STATE_WEAKER)
    in_force = len(states) - missing - weaker
    counts = [f"{in_force} in force"]
    counts += [f"{weaker} weaker"] if weaker else []
    counts += [f"{missing} MISSING"] if missing else []
    return f"{', '.join(counts)}; `sandboxd doctor` lists them"
