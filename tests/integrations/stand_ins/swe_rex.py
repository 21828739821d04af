"""Stands in for swe-rex."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

MODULES = (
    "swerex.deployment.abstract",
    "swerex.deployment.hooks.abstract",
    "swerex.exceptions",
    "swerex.runtime.abstract",
    "swerex.utils.log",
)
get_logger = logging.getLogger


class SwerexException(RuntimeError): ...


class CommandTimeoutError(SwerexException): ...


class DeploymentNotStartedError(SwerexException): ...


class NonZeroExitCodeError(SwerexException): ...


class SessionDoesNotExistError(SwerexException): ...


class SessionExistsError(SwerexException): ...


@dataclass
class _Session:
    session: str = "default"


@dataclass
class CreateSessionRequest(_Session):
    startup_source: list[str] = field(default_factory=list)


class CloseSessionRequest(_Session): ...


@dataclass
class Action(_Session):
    command: str = ""
    timeout: float | None = None
    is_interactive_command: bool = False
    is_interactive_quit: bool = False
    check: str = "raise"
    error_msg: str = ""
    expect: list[str] = field(default_factory=list)


class BashInterruptAction(Action): ...


@dataclass
class Command:
    command: str | list[str]
    timeout: float | None = None
    shell: bool = False
    check: bool = False
    error_msg: str = ""
    env: dict[str, str] | None = None
    cwd: str | None = None
    merge_output_streams: bool = False


@dataclass
class Observation:
    output: str = ""
    exit_code: int | None = None


@dataclass
class CommandResponse:
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None


@dataclass
class IsAliveResponse:
    is_alive: bool
    message: str = ""


@dataclass
class _Answer:
    content: str = ""
    output: str = ""


@dataclass
class _Request:
    path: str = ""
    content: str = ""
    encoding: str | None = None
    errors: str | None = None
    source_path: str = ""
    target_path: str = ""


BashAction, BashObservation = Action, Observation
CreateBashSessionRequest, CloseBashSessionRequest = CreateSessionRequest, CloseSessionRequest
ReadFileRequest = WriteFileRequest = UploadRequest = _Request
ReadFileResponse = WriteFileResponse = UploadResponse = CloseResponse = _Answer
CreateSessionResponse = CreateBashSessionResponse = _Answer
CloseSessionResponse = CloseBashSessionResponse = _Answer


class DeploymentHook: ...


class CombinedDeploymentHook(DeploymentHook):
    def add_hook(self, hook): ...

    def on_custom_step(self, message): ...


class AbstractRuntime(ABC):
    @abstractmethod
    async def is_alive(self, *, timeout=None) -> IsAliveResponse: ...

    @abstractmethod
    async def create_session(self, request) -> Any: ...

    @abstractmethod
    async def run_in_session(self, action) -> Observation: ...

    @abstractmethod
    async def close_session(self, request) -> Any: ...

    @abstractmethod
    async def execute(self, command) -> CommandResponse: ...

    @abstractmethod
    async def read_file(self, request) -> Any: ...

    @abstractmethod
    async def write_file(self, request) -> Any: ...

    @abstractmethod
    async def upload(self, request) -> Any: ...

    @abstractmethod
    async def close(self) -> Any: ...


class AbstractDeployment(ABC):
    @abstractmethod
    def add_hook(self, hook): ...

    @abstractmethod
    async def is_alive(self, *, timeout=None) -> IsAliveResponse: ...

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def stop(self) -> None: ...

    @property
    @abstractmethod
    def runtime(self) -> AbstractRuntime: ...
