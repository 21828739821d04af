"""What a START frame asks for."""

import os
from collections.abc import Mapping

from .. import frames
from .shell import Command
from .terminal import Size


def command_of(request: Mapping[str, object], workspace: str) -> Command:
    shell, argv, cwd, env = (request.get(key) for key in ("shell", "argv", "cwd", "env"))
    assert isinstance(cwd, str)
    assert isinstance(env, dict)
    return Command(
        shell=shell if isinstance(shell, str) else None,
        argv=argv if isinstance(argv, list) else [],
        cwd=os.path.normpath(os.path.join(workspace, cwd)) if cwd else workspace,
        env=env,
        has_cwd=bool(cwd),
        has_stdin=request.get("stdin") is True,
        merges_stderr=request.get("merge_stderr") is True,
        terminal=_terminal_size(request.get("terminal")),
        shell_name=_shell_name(request.get("shell_state")),
    )


def label_of(request: Mapping[str, object]) -> bytes:
    label = str(request.get("label") or "").encode()
    if len(label) > frames.MAX_LABEL:
        raise frames.ProtocolError("a label over the limit")
    return label


def size_of(request: Mapping[str, object]) -> int:
    """Characters of its words and variables, which is most of what it takes in memory."""
    command = command_of(request, "")
    code = request.get("code")
    words = (command.shell or "", *command.argv, *command.env, *command.env.values())
    return sum(map(len, words)) + (len(code) if isinstance(code, str) else 0)


def seconds_of(request: Mapping[str, object]) -> float:
    """The time that the command has; infinity if the daemon does not say, as older ones do not."""
    seconds = request.get("timeout")
    return seconds if isinstance(seconds, float | int) else float("inf")


def _terminal_size(given: object) -> Size | None:
    return Size(given["rows"], given["columns"]) if isinstance(given, dict) else None


def _shell_name(given: object) -> str | None:
    return str(given["name"]) if isinstance(given, dict) else None
