"""`sandboxd port-forward`: reach a port of a session from this host."""

from __future__ import annotations

import asyncio

import click

from sandboxd.cli.failure import Failure, call
from sandboxd.cli.target import Target, target_options

LOOK_SECONDS = 0.5


@click.command("port-forward")
@click.argument("session")
@click.argument("port", type=click.IntRange(1, 65535))
@click.option(
    "--local-port",
    type=click.IntRange(0, 65535),
    help="Port of this host, not the same as PORT; 0 for any free one.",
)
@click.option("--preview", "is_preview", is_flag=True, help="Print a URL for a browser instead.")
@click.option(
    "--ttl",
    type=click.FloatRange(1, 86_400),
    default=3600.0,
    metavar="SECONDS",
    help="How long the URL is valid, not 1 hour.",
)
@target_options
def command(
    session: str, port: int, local_port: int | None, is_preview: bool, ttl: float, target: Target
) -> None:
    """Make a PORT of a SESSION a port of this host, until Ctrl-C.

    With --preview, print a URL that works on the daemon's host and is a secret.
    """
    if is_preview:
        call(_print_url(target, session, port, ttl))
    else:
        call(_forward(target, session, port, port if local_port is None else local_port))


async def _print_url(target: Target, session: str, port: int, ttl: float) -> None:
    async with target.sandbox(session) as sandbox:
        preview = await sandbox.ports.preview(port, ttl=ttl)
        click.echo(preview.url)
        click.echo(f"or {preview.path_url}, until {preview.expires_at}", err=True)


async def _forward(target: Target, session: str, port: int, local_port: int) -> None:
    async with target.sandbox(session) as sandbox:
        try:
            forward = await sandbox.ports.forward(port, local_port=local_port)
        except OSError as error:
            raise Failure(
                f"port {local_port} of this host cannot be used ({error.strerror}); choose another "
                "with --local-port"
            ) from None
        async with forward:
            click.echo(f"127.0.0.1:{forward.local_port} -> {session} port {port}; Ctrl-C ends it")
            shown = ""
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                if forward.last_error != shown:
                    shown = forward.last_error
                    click.echo(f"sandboxd: {shown}", err=True)
