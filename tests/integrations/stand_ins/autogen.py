"""Stands in for autogen-core."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

MODULES = ("autogen_core", "autogen_core.code_executor")


class CancellationToken:
    def __init__(self):
        self._linked = []

    def link_future(self, future):
        self._linked.append(future)
        return future

    def cancel(self):
        for future in self._linked:
            future.cancel()


@dataclass
class CodeBlock:
    code: str
    language: str


@dataclass
class CodeResult:
    exit_code: int
    output: str


class CodeExecutor(ABC):
    @abstractmethod
    async def execute_code_blocks(self, code_blocks, cancellation_token) -> CodeResult: ...

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    async def restart(self) -> None: ...

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *exc):
        await self.stop()
