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
from sandboxd.cli.relay import BROKEN_PIPE_CODE, Left, Relay
from sandboxd.cli.target import Pairs, Target, json_option, target_options
from sandboxd_client import AsyncCommandHandle, AsyncSandbox, CommandResult, ExecEndedError

KILL_SECONDS = 5.0


@dataclass(frozen=True)
class Wanted:
    """What is to be run, and how."""

    command: str | Sequence[str] | None
    """None is an interactive shell."""
    cwd: str | None
    env: dict[str, str]
    timeout: float | None
    shell: str | None
    sends_input: bool


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.option("-i", "--interactive", is_flag=True, help="Pass on what is typed, line by line.")
@click.option("-t", "--tty", is_flag=True, help="In a terminal; Ctrl-P Ctrl-Q leaves it running.")
@click.option("-n", "--no-stdin", is_flag=True, help="Pass on no input.")
@click.option("-d", "--detach", is_flag=True, help="Only start it, and print its id.")
@click.option("-w", "--workdir", metavar="DIR", help="Directory to start in.")
@click.option("-e", "--env", "env", type=Pairs(), multiple=True, help="Variable; repeat.")
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
    """Run a COMMAND in a SESSION; that of USER/THREAD is opened if there is none.

    One word is a line for bash, several are a program and its arguments. Input that is piped in is
    passed on. Output streams; the exit code is the command's, 128 + n if signal n ended it, 124 if
    it timed out, 125 if sandboxd itself failed. Ctrl-C interrupts the command, twice kills it.

    \b
    sandboxd exec ada/42 'ls *.csv | wc -l'
    sandboxd exec ada/42 -- python3 -c 'print(6 * 7)'
    sandboxd exec -it ada/42
    """
    if words[:1] == ("--",):
        words = words[1:]
    if not words and not tty:
        raise click.UsageError("Missing argument 'COMMAND...' (with -t it is a shell).")
    if tty and not keyboard.is_terminal():
        raise Failure("-t needs a terminal, and standard input is none", USAGE)
    wanted = Wanted(
        command=(words[0] if len(words) == 1 else list(words)) if words else None,
        cwd=workdir,
        env=dict(env),
        timeout=timeout,
        shell=shell,
        sends_input=not no_stdin and (interactive or tty or not keyboard.is_terminal()),
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
    )
    if only_start or not wanted.sends_input:
        try:
            await started.close_stdin()
        except ExecEndedError:
            pass  # it was quicker
    if only_start:
        click.echo(started.exec_id)
        return 0
    return exit_code(await _watched(started, sends_input=wanted.sends_input))


async def _watched(
    started: AsyncCommandHandle, *, sends_input: bool, in_terminal: bool = False
) -> CommandResult | Left:
    """Watch it; if that fails or is cut short, nobody is there for the command any more."""
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
    # Somebody sits there: as long as a command may run at all.
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
        tell_how_to_return(sandbox, started.exec_id)
    return exit_code(ended)


def tell_how_to_return(sandbox: AsyncSandbox, exec_id: str) -> None:
    click.echo(
        f"\ndetached; it runs on. Go back with: sandboxd attach {sandbox.session_id} {exec_id}",
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
    # A signal is told by the code, and may well be the one that was asked for.
    if ended.hint and ended.reason != "signalled":
        click.echo(f"sandboxd: {ended.hint}", err=True)
    return ended.exit_code if ended.exit_code >= 0 else OWN_FAULT
