"""Stands in for google-adk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

MODULES = ("google.adk.environment",)


@dataclass
class ExecutionResult:
    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False


class BaseEnvironment(ABC):
    is_initialized = False

    @property
    @abstractmethod
    def working_dir(self) -> Path: ...

    @abstractmethod
    async def execute(self, command, *, timeout=None) -> ExecutionResult: ...

    @abstractmethod
    async def read_file(self, path) -> bytes: ...

    @abstractmethod
    async def write_file(self, path, content) -> None: ...
