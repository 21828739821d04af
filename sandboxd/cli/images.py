"""`sandboxd images`: the images that sandboxes are made of."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sandboxd.cli import table
from sandboxd.cli.failure import call
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_proto.v1.admin_service_pb2 import GetStatusResponse, PoolStatus

HEADER = ("ENVIRONMENT", "IMAGE", "WARM", "IN USE", "PROBLEM")
SHORT_ID = 12


@click.command("images")
@target_options
@json_option
def command(target: Target, as_json: bool) -> None:
    """List the environments of the daemon, their images and their warm sandboxes."""

    async def work() -> GetStatusResponse:
        async with target.client() as client:
            return await client.server_status()

    status = call(work())
    rows = [_row(pool, status) for pool in status.pools]
    if as_json:
        names = ("environment", "image_id", "warm", "in_use", "problem")
        table.show_document([dict(zip(names, row, strict=True)) for row in rows])
        return
    table.show(HEADER, ([row[0], _short(row[1]), *row[2:]] for row in rows))


def _row(pool: PoolStatus, status: GetStatusResponse) -> Sequence[object]:
    is_default = pool.environment == status.pool.environment
    image = status.engine.image_id if is_default else ""
    return pool.environment, image, pool.warm, pool.in_use, pool.last_error


def _short(image_id: object) -> str:
    return str(image_id).removeprefix("sha256:")[:SHORT_ID] or "-"
