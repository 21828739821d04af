"""Stands in for openai-agents."""

from __future__ import annotations

import posixpath
import shlex
import sys
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from pathlib import PurePosixPath
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

Options = TypeVar("Options")
MODULES = (
    "agents.sandbox",
    "agents.sandbox.errors",
    "agents.sandbox.files",
    "agents.sandbox.manifest",
    "agents.sandbox.session",
    "agents.sandbox.session.base_sandbox_session",
    "agents.sandbox.session.pty_types",
    "agents.sandbox.snapshot",
    "agents.sandbox.types",
)
errors = sys.modules[__name__]
OpName = str
SnapshotBase = SnapshotSpec = Any
PTY_PROCESSES_MAX = 64


class ErrorCode(StrEnum):
    SANDBOX_CONFIG_INVALID = "sandbox_config_invalid"


class _Error(Exception):
    def __init__(self, *args, **fields):
        super().__init__(*args, fields)


class ConfigurationError(_Error): ...


class ExecNonZeroError(_Error): ...


class ExecTimeoutError(_Error): ...


class ExecTransportError(_Error): ...


class ExposedPortUnavailableError(_Error): ...


class InvalidManifestPathError(_Error): ...


class MountConfigError(_Error): ...


class PtySessionNotFoundError(_Error): ...


class WorkspaceArchiveReadError(_Error): ...


class WorkspaceArchiveWriteError(_Error): ...


class WorkspaceReadNotFoundError(_Error): ...


class WorkspaceStartError(_Error): ...


class WorkspaceWriteTypeError(_Error): ...


class EntryKind(Enum):
    FILE, DIRECTORY, SYMLINK, OTHER = "file", "directory", "symlink", "other"


@dataclass
class Permissions:
    owner: int
    group: int
    other: int
    directory: bool


@dataclass
class FileEntry:
    path: str
    permissions: Permissions
    owner: str
    group: str
    size: int
    kind: EntryKind


@dataclass
class User:
    name: str


@dataclass
class ExecResult:
    stdout: bytes
    stderr: bytes
    exit_code: int

    def ok(self):
        return self.exit_code == 0


@dataclass
class ExposedPortEndpoint:
    host: str
    port: int


@dataclass
class PtyExecUpdate:
    process_id: int | None
    output: bytes
    exit_code: int | None
    original_token_count: int | None


def allocate_pty_process_id(used):
    return max(used, default=1000) + 1


def process_id_to_prune_from_meta(meta):
    return meta[0][0]


def truncate_text_by_tokens(text, max_output_tokens):
    return text, None


def clamp_pty_yield_time_ms(yield_time_ms):
    return max(250, yield_time_ms)


def resolve_pty_write_yield_time_ms(*, yield_time_ms, input_empty):
    return max(250, yield_time_ms)


def resolve_snapshot(spec, snapshot_id):
    return None


class Environment(dict):
    async def resolve(self):
        return self


@dataclass
class Manifest:
    root: str = "/workspace"
    environment: Any = field(default_factory=dict)
    users: tuple = ()
    groups: tuple = ()

    def __post_init__(self):
        self.environment = Environment(self.environment.get("value", {}))

    def mount_targets(self):
        return []


class _Paths:
    def __init__(self, root):
        self._root = PurePosixPath(root)

    def sandbox_root(self):
        return self._root

    def normalize_sandbox_path(self, path, *, for_write=False):
        full = PurePosixPath(posixpath.normpath(self._root / path))
        if not full.is_relative_to(self._root):
            raise InvalidManifestPathError(rel=path, reason="escape_root")
        return full

    def validate_recursive_remove(self, path): ...


class BaseSandboxClientOptions(BaseModel):
    model_config = ConfigDict(frozen=True)


class SandboxSessionState(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    session_id: uuid.UUID
    manifest: Manifest
    snapshot: Any
    exposed_ports: tuple[int, ...] = ()
    workspace_root_ready: bool = False

    def assert_path_grants_rebound(self): ...


class BaseSandboxSession(ABC):
    async def start(self):
        try:
            await self._ensure_backend_started()
            await self._prepare_backend_workspace()
        except Exception as error:
            await self._after_start_failed()
            raise self._wrap_start_error(error) from error
        await self._after_start()

    async def aclose(self):
        await self.pty_terminate_all()
        await self.shutdown()

    async def shutdown(self):
        await self._shutdown_backend()

    async def exec(self, *command, timeout=None, shell=True, user=None):
        words = self._prepare_exec_command(*command, shell=shell, user=user)
        return await self._exec_internal(*words, timeout=timeout)

    async def resolve_exposed_port(self, port):
        return await self._resolve_exposed_port(port)

    async def read_bounded(self, path, *, max_bytes):
        return await self._read_bounded(path, max_bytes=max_bytes)

    def _prepare_exec_command(self, *command, shell, user):
        return ["sh", "-lc", command[0] if len(command) == 1 else shlex.join(command)]

    def _set_start_state_preserved(self, workspace):
        self.is_preserved = workspace

    def _workspace_path_policy(self):
        return _Paths(self.state.manifest.root)

    def _persist_workspace_skip_relpaths(self):
        return set()

    @abstractmethod
    async def _exec_internal(self, *command, timeout=None) -> ExecResult: ...

    @abstractmethod
    async def read(self, path, *, user=None): ...

    @abstractmethod
    async def write(self, path, data, *, user=None): ...

    @abstractmethod
    async def running(self) -> bool: ...

    @abstractmethod
    async def persist_workspace(self): ...

    @abstractmethod
    async def hydrate_workspace(self, data): ...


class SandboxSession:
    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)


class BaseSandboxClient(ABC, Generic[Options]):
    def _validate_manifest_for_create(self, manifest): ...

    def _wrap_session(self, inner):
        return SandboxSession(inner)

    @staticmethod
    def _deserialize_session_state_payload(payload, state_class):
        return state_class.model_validate(payload)

    @abstractmethod
    async def create(self, *, snapshot=None, manifest=None, options): ...

    @abstractmethod
    async def delete(self, session): ...

    @abstractmethod
    async def resume(self, state): ...

    @abstractmethod
    def deserialize_session_state(self, payload): ...
