"""`sandboxd doctor`: ask a running daemon which protections are in force."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import grpc

from sandboxd.cli.identity import call_metadata
from sandboxd.cli.settings import load_or_exit
from sandboxd_proto.v1 import admin_service_pb2 as pb
from sandboxd_proto.v1 import admin_service_pb2_grpc

ANSWER_SECONDS = 30.0
"""More than the daemon gives the engine to describe itself."""
MISSING_CODE = 1
NO_DAEMON_CODE = 2
NARROWEST = 40
REFUSALS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
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
"""A state that only a newer daemon knows."""


@click.command()
@click.option(
    "--socket", "socket_path", type=click.Path(path_type=Path), help="Unix socket of the API."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def doctor(socket_path: Path | None, as_json: bool) -> None:
    """Tell which protections are in force, how they were seen, and what is missing.

    Exit code 0 if none is missing, 1 if one is, 2 if no daemon tells.
    """
    path = socket_path or load_or_exit(None).config.api_socket
    try:
        protections = ask(path)
    except grpc.RpcError as error:
        # Every RpcError of a call is a grpc.Call too, which is what carries code and details.
        call: grpc.Call = error  # type: ignore[assignment]
        if call.code() in REFUSALS:
            click.echo(f"sandboxd doctor: {call.details()} SANDBOXD_TOKEN may hold it.", err=True)
            sys.exit(NO_DAEMON_CODE)
        click.echo(
            f"sandboxd doctor: no daemon answers on {path}; start one with ./scripts/run or "
            "`sandboxd serve`, or name its socket with --socket",
            err=True,
        )
        sys.exit(NO_DAEMON_CODE)
    click.echo(as_document(protections) if as_json else as_table(protections, _width()))
    if any(one.state == pb.PROTECTION_STATE_MISSING for one in protections):
        sys.exit(MISSING_CODE)


def ask(path: Path) -> Sequence[pb.Protection]:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        stub = admin_service_pb2_grpc.AdminServiceStub(channel)
        answer = stub.GetStatus(
            pb.GetStatusRequest(), timeout=ANSWER_SECONDS, metadata=call_metadata()
        )
        return answer.protections


def summary(protections: Iterable[pb.Protection]) -> str:
    """All of it in one line."""
    states = dict.fromkeys(MARKS, 0)
    proved = total = 0
    for one in protections:
        total += 1
        states[one.state] = states.get(one.state, 0) + 1
        proved += one.state == pb.PROTECTION_STATE_IN_FORCE and bool(one.proof)
    parts = [f"{states[pb.PROTECTION_STATE_IN_FORCE]} in force ({proved} proved)"]
    for state in (pb.PROTECTION_STATE_WEAKER, pb.PROTECTION_STATE_MISSING):
        if states[state]:
            parts.append(f"{states[state]} {MARKS[state]}")
    return f"{total} protections: {', '.join(parts)}"


def as_table(protections: Sequence[pb.Protection], width: int | None) -> str:
    """One row each; wrapped for a terminal, one line for programs."""
    first = max((len(MARKS.get(one.state, UNKNOWN)) for one in protections), default=0)
    second = max((len(one.name) for one in protections), default=0)
    rows = []
    for one in protections:
        head = f"{MARKS.get(one.state, UNKNOWN):<{first}}  {one.name:<{second}}  "
        paragraphs = [one.detail, *([f"proved: {one.proof}"] if one.proof else [])]
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
            "name": one.name,
            "state": STATES.get(one.state, UNKNOWN),
            "detail": one.detail,
            "proof": one.proof,
        }
        for one in protections
    ]
    return json.dumps({"summary": summary(protections), "protections": rows}, indent=2)


def _width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


if __name__ == "__main__":
    doctor()
