"""`sandboxd top`: the daemon and its sessions, live."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import click

from sandboxd.cli import keyboard, table
from sandboxd.cli.failure import call
from sandboxd.cli.status import summary
from sandboxd.cli.target import Target, target_options, warn_of_missing, without_missing
from sandboxd_client import AsyncSandboxClient, SessionInfo, SessionList
from sandboxd_proto.v1.admin_service_pb2 import GetStatusResponse

HEADER = ("SESSION", "USER", "THREAD", "RUN", "CPU", "MEM", "PROCS", "DISK", "AGE", "EXPIRES")
RATE_SECONDS = 0.5
"""Time between the two samples that a rate needs."""
OTHER_SCREEN, FIRST_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, TO_END_OF_LINE, TO_END = "\x1b[H", "\x1b[K", "\x1b[J"


@click.command("top")
@click.option("--once", is_flag=True, help="Print once and exit.")
@click.option(
    "-d",
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between refreshes.",
)
@target_options
def command(once: bool, interval: float, target: Target) -> None:
    """Show the daemon and its active sessions, the busiest first, until q or Ctrl-C."""
    call(_watch(target, interval, is_once=once or not sys.stdout.isatty()))


async def _watch(target: Target, interval: float, *, is_once: bool) -> None:
    async with target.client() as client:
        view = View(client)
        if is_once:
            await view.look()
            await asyncio.sleep(RATE_SECONDS)
            look = await view.look()
            warn_of_missing(look.sessions)
            click.echo("\n".join(view.lines(look, table.width())))
            return
        with keyboard.single_keys() if keyboard.is_terminal() else nullcontext():
            sys.stdout.write(OTHER_SCREEN)
            try:
                await _refresh(view, interval)
            finally:
                sys.stdout.write(FIRST_SCREEN)
                sys.stdout.flush()


async def _refresh(view: View, interval: float) -> None:
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
            look = await view.look()
            lines = _warned(look, view.lines(look, size.columns), size.columns)[: size.lines - 1]
            sys.stdout.write(HOME + "".join(f"{line}{TO_END_OF_LINE}\n" for line in lines) + TO_END)
            sys.stdout.flush()
            try:
                async with asyncio.timeout(interval):
                    await quits.wait()
            except TimeoutError:
                pass  # time for the next look
    finally:
        loop.remove_reader(keyboard.STDIN)


def _warned(look: Look, lines: list[str], columns: int) -> list[str]:
    """With a first line that says which workers are missing; there is no stderr on this screen."""
    if missing := look.sessions.missing_workers:
        return [f"warning: {without_missing(missing)}"[:columns], *lines]
    return lines


class Look(NamedTuple):
    """The daemon and its sessions at one moment."""

    moment: float
    status: GetStatusResponse
    sessions: SessionList
    rates: Mapping[str, float]
    """CPU time per second since the previous look, by session; new sessions have none."""


class View:
    """Queries the daemon repeatedly and computes rates between the looks."""

    def __init__(self, client: AsyncSandboxClient) -> None:
        self._client = client
        self._before: Look | None = None

    async def look(self) -> Look:
        status, sessions = await asyncio.gather(
            self._client.server_status(),
            self._client.list_sessions(state="active", with_usage=True),
        )
        moment = time.monotonic()
        look = Look(moment, status, sessions, self._rates(moment, sessions))
        self._before = look
        return look

    def _rates(self, moment: float, sessions: Sequence[SessionInfo]) -> Mapping[str, float]:
        before = self._before
        if before is None:
            return {}
        known = {(session.session_id, session.incarnation): session for session in before.sessions}
        rates = {}
        for session in sessions:
            earlier = known.get((session.session_id, session.incarnation))
            if earlier is not None and earlier.usage is not None and session.usage is not None:
                spent = _cpu_seconds(session) - _cpu_seconds(earlier)
                rates[session.session_id] = max(0.0, spent) / max(moment - before.moment, 0.001)
        return rates

    @staticmethod
    def lines(look: Look, columns: int | None) -> list[str]:
        """The whole screen, the busiest sessions first."""

        def order(session: SessionInfo) -> tuple[float, int, str]:
            return (
                -look.rates.get(session.session_id, 0.0),
                -session.running_execs,
                session.created_at,
            )

        rows = [_row(session, look.rates) for session in sorted(look.sessions, key=order)]
        head = [line if columns is None else line[:columns] for line in summary(look.status)]
        return [*head, "", *table.lines(HEADER, rows, columns)]


def _row(session: SessionInfo, rates: Mapping[str, float]) -> Sequence[object]:
    used: tuple[object, ...] = ("-", "-", "-")
    if session.usage is not None:
        usage = session.usage
        used = table.size(usage.memory_bytes), usage.processes, table.size(usage.workspace_bytes)
    rate = rates.get(session.session_id)
    return (
        session.session_id,
        session.user_id,
        session.thread_id,
        session.running_execs,
        "-" if rate is None else f"{rate:.0%}",
        *used,
        table.since(session.created_at),
        table.until(session.expires_at),
    )


def _cpu_seconds(session: SessionInfo) -> float:
    assert session.usage is not None
    return session.usage.cpu_time.seconds + session.usage.cpu_time.nanos / 1e9
