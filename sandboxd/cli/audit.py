"""`sandboxd audit`: read the audit log in the state directory, with or without a daemon."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import Any

import click

from sandboxd.audit.chain import Head
from sandboxd.audit.check import Verdict, check, entries
from sandboxd.audit.files import strangers_directory
from sandboxd.cli.settings import load_or_exit

_STATE_DIR = click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="State directory of the daemon. [default: from the settings]",
)


@click.group()
def audit() -> None:
    """Read and verify the audit log."""


@audit.command()
@_STATE_DIR
@click.option(
    "--expect",
    metavar="SEQUENCE:HASH",
    help="A line that must be in the log, saved earlier, for example from the statistics.",
)
def verify(state_dir: Path | None, expect: str | None) -> None:
    """Report whether the log was changed after it was written.

    Each line has the hash of the previous one, so a changed, removed or inserted line is detected.
    Lines missing at the end are detected only with --expect. The verdict covers the time since the
    oldest line that was not pruned. The log of strangers, if there is one, is verified too. Exit
    code 1 if something is wrong.
    """
    directory = _directory(state_dir)
    verdict = check(directory, _head(expect) if expect else None)
    is_whole = verdict.is_whole
    if (strangers := strangers_directory(directory)).is_dir():
        of_strangers = check(strangers)
        is_whole = is_whole and of_strangers.is_whole
        _report(of_strangers, "strangers: ")
    _report(verdict)
    sys.exit(0 if is_whole else 1)


def _report(verdict: Verdict, prefix: str = "") -> None:
    for note in verdict.notes:
        click.echo(f"{prefix}note: {note}")
    for problem in verdict.problems:
        click.echo(f"{prefix}PROBLEM: {problem}")
    since = f" since {verdict.since} (line {verdict.first})" if verdict.lines else ""
    click.echo(
        f"{prefix}{'whole' if verdict.is_whole else 'NOT WHOLE'}{since}: {verdict.lines} lines in "
        f"{verdict.files} files, head {verdict.head.sequence}:{verdict.head.hash}"
    )


@audit.command()
@_STATE_DIR
@click.option("--user", help="Only entries about this user.")
@click.option("--thread", help="Only entries about this thread.")
@click.option("--session", help="Only entries about this session.")
@click.option("--who", help="Only entries of this caller.")
@click.option("--action", help="Only this action, or all that begin with it: `session`.")
@click.option("--since", metavar="TIME", help="Only entries from this UTC time on: 2026-01-31T12.")
@click.option(
    "-n", "--lines", default=100, show_default=True, help="Number of newest entries; 0 is all."
)
@click.option("--strangers", is_flag=True, help="Read the log of calls without credentials.")
@click.option("--json", "as_json", is_flag=True, help="Print the lines as they are in the log.")
def show(
    state_dir: Path | None,
    lines: int,
    since: str | None,
    strangers: bool,
    as_json: bool,
    **wanted: str | None,
) -> None:
    """Print entries, oldest first."""
    directory = _directory(state_dir)
    found: deque[str] = deque(maxlen=lines or None)
    for entry, line in entries(strangers_directory(directory) if strangers else directory):
        if _is_wanted(entry, wanted) and (since is None or entry["time"] >= since):
            found.append(line.decode().rstrip("\n") if as_json else _shown(entry))
            if not lines:
                click.echo(found.pop())
    for text in found:
        click.echo(text)


def _directory(state_dir: Path | None) -> Path:
    directory = state_dir / "audit" if state_dir else load_or_exit(None).config.audit_dir
    if not directory.is_dir():
        raise click.ClickException(f"{directory.parent} has no audit log; give another --state-dir")
    return directory


def _head(text: str) -> Head:
    sequence, _, digest = text.partition(":")
    if not sequence.isdigit() or len(digest) != 64:
        raise click.BadParameter("write it as SEQUENCE:HASH, with all 64 digits of the hash")
    return Head(int(sequence), digest.lower())


def _is_wanted(entry: dict[str, Any], wanted: dict[str, str | None]) -> bool:
    return all(
        value is None
        or entry.get(name) == value
        or (name == "action" and entry["action"].startswith(f"{value}."))
        for name, value in wanted.items()
    )


def _shown(entry: dict[str, Any]) -> str:
    """One line for people; text from callers is quoted, so that it cannot imitate fields."""
    entry = dict(entry)
    begin = f"{entry.pop('seq'):>8} {entry.pop('time')} {entry.pop('action'):16}"
    del entry["prev"]
    rest = [
        f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}"
        for name, value in entry.items()
        if value is not None
    ]
    return f"{begin} {' '.join(rest)}"
