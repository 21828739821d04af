"""`sandboxd audit`: reads the audit log of the state directory, whether the daemon runs or not."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import Any

import click

from sandboxd.audit.chain import Head
from sandboxd.audit.check import check, entries
from sandboxd.config import Config

_STATE_DIR = click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="State directory of the daemon; by default that of the settings.",
)


@click.group()
def audit() -> None:
    """Look at the audit log."""


@audit.command()
@_STATE_DIR
@click.option(
    "--expect",
    metavar="SEQUENCE:HASH",
    help="A line known from elsewhere, for example from GetStatistics; it must be in the log.",
)
def verify(state_dir: Path | None, expect: str | None) -> None:
    """Tell whether the log is as it was written.

    Each line has the hash of the one before, so a line that was changed, removed or put in between
    shows. Lines missing at the end show only with --expect. Exits with 1 if something is wrong.
    """
    verdict = check(_directory(state_dir), _head(expect) if expect else None)
    for note in verdict.notes:
        click.echo(f"note: {note}")
    for problem in verdict.problems:
        click.echo(f"PROBLEM: {problem}")
    click.echo(
        f"{'whole' if verdict.is_whole else 'NOT WHOLE'}: {verdict.lines} lines in "
        f"{verdict.files} files, head {verdict.head.sequence}:{verdict.head.hash}"
    )
    sys.exit(0 if verdict.is_whole else 1)


@audit.command()
@_STATE_DIR
@click.option("--user", help="Only entries about this user.")
@click.option("--thread", help="Only entries about this thread.")
@click.option("--session", help="Only entries about this session.")
@click.option("--who", help="Only what this caller did.")
@click.option("--action", help="Only this action, or those that begin with it: `session`.")
@click.option("--since", metavar="TIME", help="Only entries from this UTC time on: 2026-01-31T12.")
@click.option("-n", "--lines", default=100, show_default=True, help="The newest so many; 0 is all.")
@click.option("--json", "as_json", is_flag=True, help="The lines as they are in the log.")
def show(
    state_dir: Path | None, lines: int, since: str | None, as_json: bool, **wanted: str | None
) -> None:
    """Print entries, oldest first."""
    found: deque[str] = deque(maxlen=lines or None)
    for entry, line in entries(_directory(state_dir)):
        if _is_wanted(entry, wanted) and (since is None or entry["time"] >= since):
            found.append(line.decode().rstrip("\n") if as_json else _shown(entry))
            if not lines:
                click.echo(found.pop())
    for text in found:
        click.echo(text)


def _directory(state_dir: Path | None) -> Path:
    directory = state_dir / "audit" if state_dir else Config().audit_dir
    if not directory.is_dir():
        raise click.ClickException(f"there is no audit log in {directory.parent}; use --state-dir")
    return directory


def _head(text: str) -> Head:
    sequence, _, digest = text.partition(":")
    if not sequence.isdigit() or len(digest) != 64:
        raise click.BadParameter("write it as SEQUENCE:HASH, with 64 digits of the hash")
    return Head(int(sequence), digest.lower())


def _is_wanted(entry: dict[str, Any], wanted: dict[str, str | None]) -> bool:
    return all(
        value is None
        or entry.get(name) == value
        or (name == "action" and entry["action"].startswith(f"{value}."))
        for name, value in wanted.items()
    )


def _shown(entry: dict[str, Any]) -> str:
    """One line for people; what callers wrote is quoted, so that it cannot pass for more."""
    entry = dict(entry)
    begin = f"{entry.pop('seq'):>8} {entry.pop('time')} {entry.pop('action'):16}"
    del entry["prev"]
    rest = [
        f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}"
        for name, value in entry.items()
        if value is not None
    ]
    return f"{begin} {' '.join(rest)}"
