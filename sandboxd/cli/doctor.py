"""`sandboxd doctor`: report which protections of a running daemon are in force."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from sandboxd.cli.failure import call
from sandboxd.cli.settings import daemon_of, load_or_exit, socket_option
from sandboxd.cli.target import Target, target_options
from sandboxd_proto.v1 import admin_service_pb2 as pb

MISSING_CODE = 1
NO_DAEMON_CODE = 2
NARROWEST = 40
STATES = {
    pb.PROTECTION_STATE_IN_FORCE: "in force",
    pb.PROTECTION_STATE_WEAKER: "weaker",
    pb.PROTECTION_STATE_MISSING: "missing",
}
MARKS = {
    pb.PROTECTION_STATE_IN_FORCE: "ok",
    pb.PROTECTION_STATE_WEAKER: "weaker",
    pb.PROTECTION_STATE_MISSING: "MISSING",
}
UNKNOWN = "unknown"
"""Shown for a state that only a newer daemon knows."""


@click.command()
@socket_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@target_options
def doctor(socket_path: Path | None, as_json: bool, target: Target) -> None:
    """Report which protections are in force, how that was proved, and what is missing.

    The daemon is --url, --socket, SANDBOXD_URL, or that of the settings. Exit code 0 if none is
    missing, 1 if one is, 2 if no daemon answers.
    """
    target = daemon_of(target, socket_path, load_or_exit(None).config)

    async def work() -> Sequence[pb.Protection]:
        async with target.client() as client:
            return (await client.server_status()).protections

    protections = call(work(), exit_code=NO_DAEMON_CODE)
    click.echo(as_document(protections) if as_json else as_table(protections, _width()))
    if any(protection.state == pb.PROTECTION_STATE_MISSING for protection in protections):
        sys.exit(MISSING_CODE)


def summary(protections: Iterable[pb.Protection]) -> str:
    """The counts in one line."""
    states = dict.fromkeys(MARKS, 0)
    proved = total = 0
    for protection in protections:
        total += 1
        states[protection.state] = states.get(protection.state, 0) + 1
        proved += protection.state == pb.PROTECTION_STATE_IN_FORCE and bool(protection.proof)
    parts = [f"{states[pb.PROTECTION_STATE_IN_FORCE]} in force ({proved} proved)"]
    for state in (pb.PROTECTION_STATE_WEAKER, pb.PROTECTION_STATE_MISSING):
        if states[state]:
            parts.append(f"{states[state]} {MARKS[state]}")
    return f"{total} protections: {', '.join(parts)}"


def as_table(protections: Sequence[pb.Protection], width: int | None) -> str:
    """One row per protection; wrapped for a terminal, otherwise one line each."""
    first = max(
        (len(MARKS.get(protection.state, UNKNOWN)) for protection in protections), default=0
    )
    second = max((len(protection.name) for protection in protections), default=0)
    rows = []
    for protection in protections:
        head = f"{MARKS.get(protection.state, UNKNOWN):<{first}}  {protection.name:<{second}}  "
        paragraphs = [
            protection.detail,
            *([f"proved: {protection.proof}"] if protection.proof else []),
        ]
        if width is None:
            rows.append(head + " | ".join(paragraphs))
        else:
            rows += _wrapped(head, paragraphs, width)
    return "\n".join([*rows, "", summary(protections)])


def _wrapped(head: str, paragraphs: Sequence[str], width: int) -> Sequence[str]:
    room = max(width - len(head), NARROWEST)
    lines = [line for text in paragraphs for line in textwrap.wrap(text, room)]
    return [(head if number == 0 else " " * len(head)) + line for number, line in enumerate(lines)]


def as_document(protections: Sequence[pb.Protection]) -> str:
    rows = [
        {
            "name": protection.name,
            "state": STATES.get(protection.state, UNKNOWN),
            "detail": protection.detail,
            "proof": protection.proof,
        }
        for protection in protections
    ]
    return json.dumps({"summary": summary(protections), "protections": rows}, indent=2)


def _width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


if __name__ == "__main__":
    doctor()
