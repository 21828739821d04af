"""Failures of client commands: message and exit code."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Coroutine
from typing import IO, Any, TypeVar

import click

from sandboxd_client import (
    CallTimeoutError,
    CodeNotAllowedError,
    ConnectionLostError,
    ContextNotFoundError,
    EnvironmentNotFoundError,
    ExecNotFoundError,
    FileTypeNotAllowedError,
    InvalidRequestError,
    MissingFileError,
    NotAuthorizedError,
    PolicyError,
    ProjectNotFoundError,
    SandboxError,
    SessionError,
    SnapshotNotFoundError,
)

FAILED = 1
USAGE = 2
NOT_FOUND = 3
NO_DAEMON = 4
NOT_ALLOWED = 5
OWN_FAULT = 125
"""Exit code of `exec` and `attach` if sandboxd fails; other codes are the command's."""
INTERRUPTED = 130

T = TypeVar("T")
_OPTIONS = {
    "build_wait": "--build-wait",
    "command_policy": "--policy",
    "data_sources": "--data-source",
}
"""What `sandboxd session open` calls the fields of an open."""
_FIELD = re.compile(rf"`({'|'.join(_OPTIONS)})`|\b(command_policy)(?:=\"(\w+)\")?")


class Failure(click.ClickException):
    """A message and an exit code."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click takes it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"sandboxd: {self.message}", file=file, err=file is None)


def call(work: Coroutine[Any, Any, T], *, exit_code: int | None = None) -> T:
    """Run it; report a failure in one line, with the exit code given or that of the error."""
    try:
        return asyncio.run(work)
    except SandboxError as error:
        raise Failure(_with_options(str(error)), exit_code or code_of(error)) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Failure(f"{where}{error.strerror or error}", exit_code or FAILED) from None
    except Failure as failure:
        raise Failure(failure.message, exit_code or failure.exit_code) from None
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _with_options(message: str) -> str:
    """With options of the command line in place of fields, and where those are."""
    context = click.get_current_context(silent=True)
    parameters = context.command.params if context else ()
    own = {name for parameter in parameters for name in parameter.opts}

    def option(field: re.Match[str]) -> str:
        name, value = _OPTIONS[field[1] or field[2]], f" {field[3]}" if field[3] else ""
        return f"`{name}{value}`" + ("" if name in own else " of `sandboxd session open`")

    return _FIELD.sub(option, message)


def code_of(error: SandboxError) -> int:
    match error:
        case ConnectionLostError() | CallTimeoutError():
            return NO_DAEMON
        case NotAuthorizedError() | PolicyError() | FileTypeNotAllowedError():
            return NOT_ALLOWED
        case CodeNotAllowedError():
            return NOT_ALLOWED
        case ContextNotFoundError():
            return NOT_FOUND
        case SessionError() | ExecNotFoundError() | MissingFileError():
            return NOT_FOUND
        case ProjectNotFoundError() | EnvironmentNotFoundError() | SnapshotNotFoundError():
            return NOT_FOUND
        case InvalidRequestError():
            return USAGE
    return FAILED
