"""`sandboxd top`: the daemon and its sessions, live."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext

import click

from sandboxd.cli import keyboard, table
from sandboxd.cli.failure import call
from sandboxd.cli.session import HEADER, row
from sandboxd.cli.status import summary
from sandboxd.cli.target import Target, target_options
from sandboxd_client import AsyncSandboxClient, SessionInfo
from sandboxd_proto.v1.admin_service_pb2 import GetStatusResponse

OTHER_SCREEN, FIRST_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, TO_END_OF_LINE, TO_END = "\x1b[H", "\x1b[K", "\x1b[J"


@click.command("top")
@click.option("--once", is_flag=True, help="Print it once.")
@click.option(
    "-d",
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@target_options
def command(once: bool, interval: float, target: Target) -> None:
    """Show the daemon and its active sessions, the busiest first, until q or Ctrl-C."""
    call(_watch(target, interval, is_once=once or not sys.stdout.isatty()))


async def _watch(target: Target, interval: float, *, is_once: bool) -> None:
    async with target.client() as client:
        if is_once:
            click.echo("\n".join(await _look(client, table.width())))
            return
        with keyboard.single_keys() if keyboard.is_terminal() else nullcontext():
            sys.stdout.write(OTHER_SCREEN)
            try:
                await _refresh(client, interval)
            finally:
                sys.stdout.write(FIRST_SCREEN)
                sys.stdout.flush()


async def _refresh(client: AsyncSandboxClient, interval: float) -> None:
    loop = asyncio.get_running_loop()
    quits = asyncio.Event()

    def look_at_key() -> None:
        if os.read(keyboard.STDIN, 1) in (b"q", b"Q", b""):
            quits.set()

    if keyboard.is_terminal():
        loop.add_reader(keyboard.STDIN, look_at_key)
    try:
        while not quits.is_set():
            size = shutil.get_terminal_size()
            lines = (await _look(client, size.columns))[: size.lines - 1]
            sys.stdout.write(HOME + "".join(f"{line}{TO_END_OF_LINE}\n" for line in lines) + TO_END)
            sys.stdout.flush()
            try:
                async with asyncio.timeout(interval):
                    await quits.wait()
            except TimeoutError:
                pass  # time for the next look
    finally:
        loop.remove_reader(keyboard.STDIN)


async def _look(client: AsyncSandboxClient, columns: int | None) -> list[str]:
    status, sessions = await asyncio.gather(
        client.server_status(), client.list_sessions(state="active")
    )
    return screen(status, sessions, columns)


def screen(
    status: GetStatusResponse, sessions: Sequence[SessionInfo], columns: int | None
) -> list[str]:
    """All lines of it."""
    busiest = sorted(sessions, key=lambda one: (-one.running_execs, one.created_at))
    head = [line if columns is None else line[:columns] for line in summary(status)]
    return [*head, "", *table.lines(HEADER, map(row, busiest), columns)]
