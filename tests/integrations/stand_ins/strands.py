"""Stands in for strands-agents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

MODULES = ("strands.sandbox",)


@dataclass
class StreamChunk:
    data: str
    stream_type: str = "stdout"


@dataclass
class ExecutionResult:
    exit_code: int
    stdout: str
    stderr: str


@dataclass
class FileInfo:
    name: str
    is_dir: bool | None = None
    size: int | None = None


class Sandbox(ABC):
    @abstractmethod
    def execute_streaming(self, command, **options): ...

    @abstractmethod
    def execute_code_streaming(self, code, language, **options): ...

    @abstractmethod
    async def read_file(self, path, **options) -> bytes: ...

    @abstractmethod
    async def write_file(self, path, content, **options) -> None: ...

    @abstractmethod
    async def remove_file(self, path, **options) -> None: ...

    @abstractmethod
    async def list_files(self, path, **options) -> list[FileInfo]: ...
