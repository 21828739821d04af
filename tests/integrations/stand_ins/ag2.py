"""Stands in for ag2."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MODULES = ("ag2.tools.sandbox.base",)


@dataclass(slots=True)
class ExecResult:
    output: str
    exit_code: int


class SandboxBase(ABC):
    @property
    @abstractmethod
    def workdir(self) -> PurePosixPath: ...

    @property
    @abstractmethod
    def host_workdir(self) -> Path | None: ...

    @abstractmethod
    async def exec(self, argv, *, env=None, timeout=None) -> ExecResult: ...

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        await self.aclose()
