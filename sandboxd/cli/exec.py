"""`sandboxd exec`: run a command in a session."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from sandboxd.cli import keyboard, table
from sandboxd.cli.failure import INTERRUPTED, OWN_FAULT, USAGE, Failure, call
from sandboxd.cli.pipes import BROKEN_PIPE_CODE
from sandboxd.cli.relay import Left, Relay
from sandboxd.cli.target import Pairs, Target, json_option, target_options
from sandboxd_client import AsyncCommandHandle, AsyncSandbox, CommandResult

KILL_SECONDS = 5.0


@dataclass(frozen=True)
class Wanted:
    """What to run, and how."""

    command: str | Sequence[str] | None
    """None means an interactive shell."""
    cwd: str | None
    env: dict[str, str]
    timeout: float | None
    shell: str | None
    sends_input: bool


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.option("-i", "--interactive", is_flag=True, help="Pass on standard input, line by line.")
@click.option("-t", "--tty", is_flag=True, help="Use a terminal; Ctrl-P Ctrl-Q detaches.")
@click.option("-n", "--no-stdin", is_flag=True, help="Do not pass on standard input.")
@click.option("-d", "--detach", is_flag=True, help="Start it, print its id and return.")
@click.option("-w", "--workdir", metavar="DIR", help="Directory to start in.")
@click.option(
    "-e", "--env", "env", type=Pairs(), multiple=True, help="Environment variable; may be repeated."
)
@click.option("--timeout", type=float, metavar="SECONDS", help="How long it may run.")
@click.option("--shell", metavar="NAME", help="Run it in this named shell, which keeps its state.")
@click.argument("session")
@click.argument("words", metavar="COMMAND...", nargs=-1, type=click.UNPROCESSED)
@target_options
@json_option
def command(
    interactive: bool,
    tty: bool,
    no_stdin: bool,
    detach: bool,
    workdir: str | None,
    env: Sequence[tuple[str, str]],
    timeout: float | None,
    shell: str | None,
    session: str,
    words: Sequence[str],
    target: Target,
    as_json: bool,
) -> None:
    """Run a COMMAND in a SESSION; USER/THREAD is opened if it has no session.

    One word is a command line for bash; several words are a program and its arguments. Piped input
    is passed on. Output is streamed. The exit code is the command's: 128 + n if signal n ended it,
    124 if it timed out, 125 if sandboxd itself failed. Ctrl-C interrupts the command; a second
    Ctrl-C kills it.

    \b
    sandboxd exec ada/42 'ls *.csv | wc -l'
    sandboxd exec ada/42 -- python3 -c 'print(6 * 7)'
    sandboxd exec -it ada/42
    """
    if words[:1] == ("--",):
        words = words[1:]
    if not words and not tty:
        raise click.UsageError(
            "Missing argument 'COMMAND...' (only -t works without one: it starts a shell)."
        )
    if tty and not keyboard.is_terminal():
        raise Failure("-t needs a terminal, but standard input is not one", USAGE)
    wanted = Wanted(
        command=(words[0] if len(words) == 1 else list(words)) if words else None,
        cwd=workdir,
        env=dict(env),
        timeout=timeout,
        shell=shell,
        # Commands of a named shell have no input.
        sends_input=not (no_stdin or shell) and (interactive or tty or not keyboard.is_terminal()),
    )

    async def work() -> int:
        async with target.sandbox(session, opens=True) as sandbox:
            if tty:
                return await _in_terminal(sandbox, wanted)
            if as_json:
                return await _as_document(sandbox, wanted)
            return await _streamed(sandbox, wanted, only_start=detach)

    sys.exit(call(work(), exit_code=OWN_FAULT))


async def _streamed(sandbox: AsyncSandbox, wanted: Wanted, *, only_start: bool) -> int:
    assert wanted.command is not None
    started = await sandbox.commands.run(
        wanted.command,
        background=True,
        cwd=wanted.cwd,
        env=wanted.env,
        timeout=wanted.timeout,
        shell=wanted.shell,
        stdin=wanted.sends_input and not only_start,
    )
    if only_start:
        click.echo(started.exec_id)
        if wanted.timeout is None:
            limit = table.span(sandbox.info.limits.default_exec_timeout.seconds)
            click.echo(
                f"sandboxd: it may run for {limit}; --timeout SECONDS changes that", err=True
            )
        return 0
    return exit_code(await _watched(started, sends_input=wanted.sends_input))


async def _watched(
    started: AsyncCommandHandle, *, sends_input: bool, in_terminal: bool = False
) -> CommandResult | Left:
    """Follow the command to its end; kill it if following fails or is cancelled."""
    try:
        return await Relay(started, in_terminal=in_terminal).run(sends_input=sends_input)
    except BaseException:
        await asyncio.wait([asyncio.create_task(started.kill())], timeout=KILL_SECONDS)
        raise


async def _as_document(sandbox: AsyncSandbox, wanted: Wanted) -> int:
    assert wanted.command is not None
    result = await sandbox.commands.run(
        wanted.command,
        cwd=wanted.cwd,
        env=wanted.env,
        timeout=wanted.timeout,
        shell=wanted.shell,
        stdin=await keyboard.everything() if wanted.sends_input else None,
    )
    details = {name: getattr(result, name) for name in ("exec_id", "reason", "signal", "hint")}
    table.show_document({**result, **details})
    return exit_code(result)


async def _in_terminal(sandbox: AsyncSandbox, wanted: Wanted) -> int:
    rows, columns = keyboard.screen_size()
    # A person uses it, so the default timeout is the longest that a command may have.
    longest = sandbox.info.limits.max_exec_timeout.seconds
    started = await sandbox.pty.create(
        wanted.command,
        rows=rows,
        columns=columns,
        cwd=wanted.cwd,
        env={"TERM": os.environ.get("TERM", "xterm"), **wanted.env},
        timeout=wanted.timeout or longest or None,
    )
    with keyboard.raw():
        ended = await _watched(started, sends_input=wanted.sends_input, in_terminal=True)
    if ended is Left.DETACHED:
        print_how_to_return(sandbox, started.exec_id)
    return exit_code(ended)


def print_how_to_return(sandbox: AsyncSandbox, exec_id: str) -> None:
    click.echo(
        f"\ndetached; the command continues. Return with: "
        f"sandboxd attach {sandbox.session_id} {exec_id}",
        err=True,
    )


def exit_code(ended: CommandResult | Left) -> int:
    match ended:
        case Left.DETACHED:
            return 0
        case Left.INTERRUPTED:
            return INTERRUPTED
        case Left.UNREAD:
            return BROKEN_PIPE_CODE
    assert isinstance(ended, CommandResult)
    # The exit code already reports a signal, which may be the one that the user sent.
    if ended.hint and ended.reason != "signalled":
        click.echo(f"sandboxd: {ended.hint}", err=True)
    return ended.exit_code if ended.exit_code >= 0 else OWN_FAULT
