"""`sandboxd mcp`: sandboxes as tools over the Model Context Protocol."""

from __future__ import annotations

import getpass
from pathlib import Path

import click

from sandboxd.cli.failure import USAGE, Failure, call
from sandboxd.cli.target import Target, target_options
from sandboxd_client.integrations.callers import Callers

DEFAULT_PORT = 5080


@click.command("mcp")
@click.option("--http", "address", metavar="HOST:PORT", help="Serve HTTP instead of stdio.")
@click.option("--user", metavar="USER", help="User of the sandboxes; with --http, of all callers.")
@click.option("--thread", metavar="THREAD", help="Conversation; by default a new one.")
@click.option(
    "--tools", type=click.Choice(["all", "basic"]), default="all", help="Which tools to offer."
)
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="Further name of this server."
)
@click.option(
    "--share",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="Directory whose files the agent may copy to and from the sandbox; stdio only.",
)
@target_options
def command(
    address: str | None,
    user: str | None,
    thread: str | None,
    tools: str,
    hosts: tuple[str, ...],
    share: str | None,
    target: Target,
) -> None:
    """Serve sandboxes to agents over the Model Context Protocol.

    Over standard input and output it serves one conversation: USER's THREAD. Over HTTP, each
    request carries a token of the daemon as its bearer token, which decides whose sandboxes it
    uses; the conversation is named by the header X-Sandboxd-Thread, by the address
    /mcp/t/THREAD, by the client's MCP session, or by the tool open_workspace. With --user no token
    is needed, on a loopback address only.

    \b
    sandboxd mcp --user ada --thread notes
    sandboxd mcp --http 127.0.0.1:5080
    """
    try:
        from sandboxd_client.integrations.mcp import local_files, server
    except ModuleNotFoundError as error:
        raise Failure(f"{error}; install it with: pip install 'sandboxd[cli,mcp]'", USAGE) from None
    is_basic = tools == "basic"
    if address is None:
        callers = Callers(target.url, token=target.token, user_id=user or getpass.getuser())
        shared = None if share is None else local_files.SharedDirectory(Path(share))
        thread = thread or server.new_thread()
        call(server.serve_stdio(callers, thread, is_basic=is_basic, shared=shared))
        return
    if share is not None:
        raise Failure("--share is for stdio; callers over HTTP have no files here", USAGE)
    if thread is not None:
        raise Failure("--thread is for stdio; over HTTP each client names its thread", USAGE)
    host, port = split(address)
    call(
        server.serve_http(
            Callers(target.url, token=target.token, user_id=user),
            host,
            port,
            is_basic=is_basic,
            allowed_hosts=hosts,
            on_start=lambda port: click.echo(f"http://{host}:{port}{server.PATH}"),
        )
    )


def split(address: str, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    """Host and port of HOST:PORT, HOST, :PORT or [IPV6]:PORT."""
    host, colon, port = address.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = address, str(default_port)
    if not port.isdecimal() or int(port) > 65535:
        raise Failure(f"{address!r} is not a valid address: use HOST:PORT", USAGE)
    return host.strip("[]") or "127.0.0.1", int(port)
