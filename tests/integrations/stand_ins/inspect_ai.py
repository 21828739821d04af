"""Stands in for inspect-ai."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
MODULES = ("inspect_ai.util",)


@dataclass(frozen=True)
class ExecResult(Generic[T]):
    success: bool
    returncode: int
    stdout: T
    stderr: T


@dataclass
class SandboxConnection:
    type: str
    command: str


class OutputLimitExceededError(Exception):
    def __init__(self, limit_str, truncated_output):
        super().__init__(limit_str)
        self.truncated_output = truncated_output


class SandboxUnavailableError(RuntimeError): ...


class SandboxUserUnsupportedError(RuntimeError): ...


class SandboxEnvironmentLimits:
    MAX_EXEC_OUTPUT_SIZE = 10 << 20
    MAX_EXEC_OUTPUT_SIZE_STR = "10 MiB"
    MAX_READ_FILE_SIZE = 100 << 20
    MAX_READ_FILE_SIZE_STR = "100 MiB"


class SandboxEnvironment(ABC):
    @abstractmethod
    async def exec(self, cmd, **options) -> ExecResult[str]: ...

    @abstractmethod
    async def write_file(self, file, contents) -> None: ...

    @abstractmethod
    async def read_file(self, file, text=True): ...

    @classmethod
    @abstractmethod
    async def sample_cleanup(cls, task_name, config, environments, interrupted) -> None: ...

    def as_type(self, sandbox_cls):
        assert isinstance(self, sandbox_cls)
        return self


def sandboxenv(name):
    return lambda cls: cls
