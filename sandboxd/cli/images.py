"""`sandboxd images`: the images that sandboxes are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from sandboxd.cli import table
from sandboxd.cli.failure import call
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client.methods.admin import GET_STATUS
from sandboxd_client.methods.environments import LIST_ENVIRONMENTS
from sandboxd_proto.v1.admin_service_pb2 import GetStatusRequest, GetStatusResponse, PoolStatus
from sandboxd_proto.v1.environment_service_pb2 import (
    ListEnvironmentsRequest,
    ListEnvironmentsResponse,
)

HEADER = ("ENVIRONMENT", "IMAGE", "WARM", "IN USE", "PROBLEM")
SHORT_ID = 12


@click.command("images")
@target_options
@json_option
def command(target: Target, as_json: bool) -> None:
    """List the environments of the daemon, their images and their warm sandboxes."""

    async def work() -> tuple[GetStatusResponse, ListEnvironmentsResponse]:
        async with target.connection() as connection:
            return (
                await connection.call(GET_STATUS, GetStatusRequest()),
                await connection.call(LIST_ENVIRONMENTS, ListEnvironmentsRequest()),
            )

    status, listed = call(work())
    images = {environment.name: environment.image_id for environment in listed.environments}
    # What new sandboxes get now; the name may have been given to another image since.
    images[status.pool.environment] = status.engine.image_id
    rows = [_row(pool, images) for pool in status.pools]
    if as_json:
        names = ("environment", "image_id", "warm", "in_use", "problem")
        table.show_document([dict(zip(names, row, strict=True)) for row in rows])
        return
    table.show(HEADER, ([row[0], _short(row[1]), *row[2:]] for row in rows))


def _row(pool: PoolStatus, images: Mapping[str, str]) -> Sequence[object]:
    image = images.get(pool.environment, "")
    return pool.environment, image, pool.warm, pool.in_use, pool.last_error


def _short(image_id: object) -> str:
    return str(image_id).removeprefix("sha256:")[:SHORT_ID] or "-"
