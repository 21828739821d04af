"""Stands in for pydantic-ai-slim."""

from __future__ import annotations

from dataclasses import dataclass

MODULES = ("pydantic_ai.messages", "pydantic_ai.workspaces")


@dataclass(kw_only=True)
class WorkspaceRef:
    provider: str
    id: str


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    name: str
    path: str
    is_dir: bool
    size: int | None


class WorkspaceUnavailableError(RuntimeError): ...


class WorkspaceTimeoutError(RuntimeError, TimeoutError):
    def __init__(self, message, *, stdout="", stderr=""):
        super().__init__(message)
        self.stdout, self.stderr = stdout, stderr


class WorkspaceOutputLimitError(RuntimeError):
    def __init__(self, message, *, limit, stdout="", stderr=""):
        super().__init__(message)
        self.limit, self.stdout, self.stderr = limit, stdout, stderr
