"""`sandboxd e2b-gateway`: sandboxes for programs that use E2B's SDK."""

from __future__ import annotations

import click

from sandboxd.cli.failure import USAGE, Failure, call
from sandboxd.cli.mcp import split
from sandboxd.cli.target import Target, target_options
from sandboxd_client.integrations.callers import Callers

DEFAULT_PORT = 5049


@click.command("e2b-gateway")
@click.option(
    "--http", "address", metavar="HOST:PORT", default=f"127.0.0.1:{DEFAULT_PORT}", show_default=True
)
@click.option("--user", metavar="USER", help="All callers are this user, on loopback only.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Further name of this server; *.NAME is all below.",
)
@target_options
def command(address: str, user: str | None, hosts: tuple[str, ...], target: Target) -> None:
    """Serve sandboxes to the official E2B SDKs, which need no change.

    The API key of a program is a token of the daemon; it decides whose sandboxes are used. With
    --user any key is accepted.

    \b
    sandboxd e2b-gateway &
    export E2B_API_URL=http://127.0.0.1:5049 E2B_SANDBOX_URL=http://127.0.0.1:5049
    export E2B_API_KEY=$SANDBOXD_TOKEN
    """
    try:
        from sandboxd_client.integrations.e2b import gateway
    except ModuleNotFoundError as error:
        raise Failure(f"{error}; install it with: pip install 'sandboxd[cli,e2b]'", USAGE) from None
    host, port = split(address, DEFAULT_PORT)
    callers = Callers(target.url, token=target.token, user_id=user)
    call(
        gateway.serve(
            callers,
            host,
            port,
            allowed_hosts=hosts,
            on_start=lambda port: click.echo(f"http://{host}:{port}"),
        )
    )
