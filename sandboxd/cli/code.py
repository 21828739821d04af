"""`sandboxd code`: run and debug code, and look after its contexts."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from sandboxd.cli import table
from sandboxd.cli.code_debug import debug_screen
from sandboxd.cli.failure import INTERRUPTED, NOT_ALLOWED, OWN_FAULT, USAGE, Failure, call
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client import (
    AsyncSandbox,
    CodeHelp,
    CodeLog,
    CodeRun,
    ContextInfo,
    Display,
    Variables,
)

CONTEXT_HEADER = ("CONTEXT", "STATE", "LANGUAGE", "RUNS", "GENERATION", "POLICY", "RUN")
VARIABLE_HEADER = ("NAME", "TYPE", "SIZE", "VALUE")
STANDARD = "-"
TIMED_OUT = 124
IMAGES = {"image/png": "png", "image/jpeg": "jpg", "image/svg+xml": "svg"}

session_option = click.option(
    "-s", "--session", metavar="SESSION", help="Session to use; without it, one for this call."
)
context_option = click.option(
    "--context", default="main", metavar="NAME", help="Context, which keeps its variables."
)


@click.group("code")
def command() -> None:
    """Run and debug code in contexts that keep their variables."""


@command.command("run")
@click.argument("file", required=False)
@click.option("-c", "text", metavar="CODE", help="Code to run, instead of a file.")
@session_option
@context_option
@click.option("--language", type=click.Choice(["python", "javascript"]), help="Default: python.")
@click.option("--timeout", type=float, metavar="SECONDS", help="How long it may run.")
@click.option("--save", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@target_options
@json_option
def run(
    file: str | None,
    text: str | None,
    session: str | None,
    context: str,
    language: Any,
    timeout: float | None,
    save: Path | None,
    target: Target,
    as_json: bool,
) -> None:
    """Run a FILE, the CODE of -c, or standard input (-).

    Output is streamed; the value of the last expression follows it. Images go to the directory of
    --save. The exit code is 0, 1 after an exception (or what sys.exit was given), 124 after a
    time-out, 5 if the policy refuses the code, 125 if the context was lost.

    \b
    sandboxd code run -c '6 * 7'
    sandboxd code run -s ada/42 analysis.py
    """
    code = _source(file, text)

    async def work() -> int:
        async with target.sandbox_or_new(session) as sandbox:
            if as_json:
                found = await sandbox.code.run(
                    code, context=context, language=language, timeout=timeout
                )
                table.show_document(document(found))
                return _exit_code(found)
            return await _streamed(sandbox, code, context, language, timeout, save)

    sys.exit(call(work(), exit_code=OWN_FAULT))


@command.command("debug")
@click.argument("file", required=False)
@click.option("-c", "text", metavar="CODE", help="Code to debug, instead of a file.")
@session_option
@context_option
@click.option("-b", "breakpoints", type=int, multiple=True, metavar="LINE", help="Breakpoint.")
@click.option("--timeout", type=float, metavar="SECONDS", help="With all pauses; default: 600.")
@target_options
def debug(
    file: str | None,
    text: str | None,
    session: str | None,
    context: str,
    breakpoints: Sequence[int],
    timeout: float | None,
    target: Target,
) -> None:
    """Go through a FILE line by line: n next, s step in, o step out, c continue, q quit, h help.

    \b
    sandboxd code debug analysis.py
    sandboxd code debug -s ada/42 -b 12 analysis.py
    """
    if file == STANDARD:
        raise Failure("commands are read from standard input, so the code has to be a file", USAGE)
    code = _source(file, text)

    async def work() -> int:
        async with target.sandbox_or_new(session) as sandbox:
            debugger = sandbox.code.debug(
                code,
                context=context,
                breakpoints=list(breakpoints),
                timeout=timeout,
                on_stdout=_write_out,
                on_stderr=_write_err,
            )
            ended = await debug_screen(debugger, code)
            return INTERRUPTED if ended is None else _finish(ended)

    sys.exit(call(work(), exit_code=OWN_FAULT))


@command.command("contexts")
@click.argument("session")
@target_options
@json_option
def contexts(session: str, target: Target, as_json: bool) -> None:
    """List the contexts of a SESSION."""

    async def work() -> Sequence[ContextInfo]:
        async with target.sandbox(session) as sandbox:
            return await sandbox.code.contexts()

    _show_contexts(call(work()), as_json)


@command.command("state")
@click.argument("session")
@click.argument("context", default="main")
@target_options
@json_option
def state(session: str, context: str, target: Target, as_json: bool) -> None:
    """List the variables of a CONTEXT (default: main). No code runs."""

    async def work() -> Variables:
        async with target.sandbox(session) as sandbox:
            return await sandbox.code.state(context)

    found = call(work())
    if as_json:
        table.show_document([vars(variable) for variable in found])
        return
    rows = [(one.name, one.type, table.size(one.size_bytes), one.value) for one in found]
    table.show(VARIABLE_HEADER, rows)
    if found.left_out:
        click.echo(f"and {found.left_out} more")


@command.command("interrupt")
@click.argument("session")
@click.argument("context", default="main")
@target_options
def interrupt(session: str, context: str, target: Target) -> None:
    """Interrupt the run of a CONTEXT (default: main) as Ctrl-C would."""

    async def work() -> bool:
        async with target.sandbox(session) as sandbox:
            return await sandbox.code.interrupt(context)

    click.echo("interrupted" if call(work()) else "the context was idle")


@command.command("restart")
@click.argument("session")
@click.argument("context", default="main")
@target_options
@json_option
def restart(session: str, context: str, target: Target, as_json: bool) -> None:
    """Give a CONTEXT (default: main) a fresh process; its variables are gone."""

    async def work() -> ContextInfo:
        async with target.sandbox(session) as sandbox:
            return await sandbox.code.restart(context)

    _show_contexts([call(work())], as_json)


@command.command("delete")
@click.argument("session")
@click.argument("names", nargs=-1, required=True, metavar="CONTEXT...")
@target_options
def delete(session: str, names: Sequence[str], target: Target) -> None:
    """End each CONTEXT and forget it."""

    async def work() -> None:
        async with target.sandbox(session) as sandbox:
            for name in names:
                await sandbox.code.delete_context(name)

    call(work())


@command.command("check")
@click.argument("file", required=False)
@click.option("-c", "text", metavar="CODE", help="Code to check, instead of a file.")
@session_option
@context_option
@target_options
def check(
    file: str | None, text: str | None, session: str | None, context: str, target: Target
) -> None:
    """Check code against the code policy without running it; exit code 5 if it is refused."""
    code = _source(file, text)

    async def work() -> int:
        async with target.sandbox_or_new(session) as sandbox:
            found = await sandbox.code.check(code, context=context)
        for one in found.violations:
            click.echo(f"line {one.line}: {table.printable(one.message)} [{one.rule}]")
        return 0 if found.allowed else NOT_ALLOWED

    sys.exit(call(work()))


@command.command("functions")
@click.argument("session", required=False)
@context_option
@target_options
@json_option
def functions(session: str | None, context: str, target: Target, as_json: bool) -> None:
    """List what code can call besides the language's own, allowed modules and limits."""

    async def work() -> CodeHelp:
        async with target.sandbox_or_new(session) as sandbox:
            return await sandbox.code.functions(context)

    found = call(work())
    if as_json:
        table.show_document(_help_document(found))
        return
    for function in found.functions:
        click.echo(f"{function.signature}\n    {function.description}")
    click.echo(f"policy {found.policy}; modules: {', '.join(found.allowed_modules) or 'all'}")
    if found.blocked_calls:
        click.echo(f"refused: {', '.join(found.blocked_calls)}")
    limits = vars(found.limits)
    click.echo("limits: " + ", ".join(f"{k} {v:g}" for k, v in limits.items() if v is not None))


def document(found: CodeRun) -> Mapping[str, Any]:
    """A run with all details, for programs; images are base64."""
    details = ("exec_id", "exit_code", "reason", "hint", "outcome", "generation", "is_state_kept")
    return {
        **found,
        "value": None if found.value is None else _display_document(found.value),
        "displays": [_display_document(display) for display in found.displays],
        "conversions": [vars(conversion) for conversion in found.conversions],
        **{name: getattr(found, name) for name in details},
    }


def _display_document(display: Display) -> Mapping[str, str]:
    return {
        kind: base64.b64encode(data).decode() if isinstance(data, bytes) else data
        for kind, data in display.items()
    }


def _help_document(found: CodeHelp) -> Mapping[str, Any]:
    return {
        "functions": [vars(function) for function in found.functions],
        "allowed_modules": found.allowed_modules,
        "blocked_calls": found.blocked_calls,
        "limits": vars(found.limits),
        "policy": found.policy,
        "examples": [vars(example) for example in found.examples],
    }


def _source(file: str | None, text: str | None) -> str:
    if (file is None) == (text is None):
        raise Failure("give a file, - for standard input, or -c CODE", USAGE)
    if text is not None:
        return text
    try:
        raw = sys.stdin.buffer.read() if file == STANDARD else Path(str(file)).read_bytes()
        return raw.decode()
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}", USAGE) from None
    except UnicodeDecodeError:
        raise Failure(f"{file}: the code is not UTF-8 text", USAGE) from None


async def _streamed(
    sandbox: AsyncSandbox,
    code: str,
    context: str,
    language: Any,
    timeout: float | None,
    save: Path | None,
) -> int:
    pictures = _Pictures(save)
    found = await sandbox.code.run(
        code,
        context=context,
        language=language,
        timeout=timeout,
        on_stdout=_write_out,
        on_stderr=_write_err,
        on_display=pictures.show,
        on_log=_write_log,
    )
    return _finish(found)


class _Pictures:
    """Shows what code displays: text as text, images as files."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._count = 0

    def show(self, display: Display) -> None:
        kind = next((kind for kind in IMAGES if kind in display), None)
        if kind is not None:
            self._keep(kind, display[kind])
        elif display.text is not None and (display.text != "None" or not display.is_value):
            click.echo(display.text)

    def _keep(self, kind: str, data: str | bytes) -> None:
        self._count += 1
        if self._directory is None:
            click.echo(f"[{kind}; --save DIR writes it to a file]", err=True)
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"figure-{self._count}.{IMAGES[kind]}"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        click.echo(f"[{path}]", err=True)


def _write_out(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _write_err(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _write_log(line: CodeLog) -> None:
    shown = f"{line.variable}: {line.type} = {line.value}" if line.variable else line.message
    click.echo(f"{line.level} {table.printable(shown)}", err=True)


def _finish(found: CodeRun) -> int:
    if found.error is not None and found.error.type != "SystemExit":
        click.echo(found.error.traceback.rstrip("\n"), err=True)
    for note in found.notes:
        click.echo(f"sandboxd: {table.printable(note)}", err=True)
    if found.hint:
        click.echo(f"sandboxd: {table.printable(found.hint)}", err=True)
    return _exit_code(found)


def _exit_code(found: CodeRun) -> int:
    codes = {
        "ok": 0,
        "interrupted": INTERRUPTED,
        "timed_out": TIMED_OUT,
        "refused": NOT_ALLOWED,
        "context_lost": OWN_FAULT,
    }
    return codes.get(found.status, _raised_code(found))


def _raised_code(found: CodeRun) -> int:
    """What `sys.exit` was given, as Python takes it; 1 for any other exception."""
    if found.error is None or found.error.type != "SystemExit":
        return 1
    if found.error.message in ("", "None"):
        return 0
    is_code = found.error.message.isdigit() and int(found.error.message) < 256
    return int(found.error.message) if is_code else 1


def _show_contexts(found: Sequence[ContextInfo], as_json: bool) -> None:
    if as_json:
        table.show_document(found)
        return
    rows = [
        (
            one.name,
            one.state,
            f"{one.language} {one.version}".strip(),
            one.runs,
            one.generation,
            one.policy,
            one.exec_id or "-",
        )
        for one in found
    ]
    table.show(CONTEXT_HEADER, rows)
