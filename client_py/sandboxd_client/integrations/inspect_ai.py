"""A sandbox provider for inspect_ai: `sandbox="sandboxd"`; needs the extra `inspect`.

Each sample has a sandbox of its own, from the start of the sample to its end. inspect finds the
provider by its entry point, so nothing has to be imported.

Example:
    Task(dataset=..., solver=..., sandbox="sandboxd")
    Task(dataset=..., solver=..., sandbox=("sandboxd", "data"))
    Task(
        dataset=...,
        solver=...,
        sandbox=SandboxEnvironmentSpec("sandboxd", SandboxdConfig(packages=["rich==14.1.0"])),
    )
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import anyio
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict

from sandboxd_client.client import AsyncSandboxClient
from sandboxd_client.errors import (
    CommandNotStartableError,
    ConnectionLostError,
    InvalidRequestError,
    NotADirectoryInSandboxError,
    OutsideWorkspaceError,
    PolicyError,
    SandboxError,
    SessionError,
    SessionNotFoundError,
    UnavailableError,
)
from sandboxd_client.results import CommandResult
from sandboxd_client.sandbox import AsyncSandbox

T = TypeVar("T")
USER = "inspect"
LABEL = "inspect_task"
NO_PROGRAM_CODE, NOT_EXECUTABLE_CODE = 127, 126
CLEAN_UP_SECONDS = 30.0


class SandboxdConfig(BaseModel, frozen=True):
    """What the sandboxes of a task have. The address and the token of the daemon come from
    SANDBOXD_URL and SANDBOXD_TOKEN, so that no log of an evaluation contains them.

    Example:
        SandboxEnvironmentSpec("sandboxd", SandboxdConfig(environment="data"))
    """

    model_config = ConfigDict(extra="forbid")

    environment: str = ""
    """Name of an environment; empty means the daemon's default."""
    packages: tuple[str, ...] = ()
    """Packages to add to it."""
    env: dict[str, str] = {}
    """Environment variables of commands."""
    command_policy: str = ""
    """Name of the policy that commands are checked with; empty means the daemon's default."""
    build_wait: float = 600.0
    """Seconds to wait until the environment and the packages are built."""
    timeout_minutes: float = 240.0
    """Idle time after which a sandbox expires: a model may have to wait for its turn."""
    user_id: str = USER
    """User that the sessions belong to."""


@sandboxenv(name="sandboxd")
class SandboxdEnvironment(SandboxEnvironment):
    """The sandbox of one sample."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self._sandbox = sandbox

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        wanted = _config(config)
        sandbox = await AsyncSandbox.create(
            user_id=wanted.user_id,
            environment=wanted.environment,
            packages=wanted.packages or None,
            env=wanted.env,
            command_policy=wanted.command_policy,
            build_wait=wanted.build_wait,
            timeout_minutes=wanted.timeout_minutes,
            metadata={LABEL: _label(task_name)},
        )
        return {"default": cls(sandbox)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Any,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        # An interrupted sample is cancelled, and its sandbox must not stay for that.
        with anyio.move_on_after(CLEAN_UP_SECONDS, shield=True):
            for environment in environments.values():
                await environment.as_type(SandboxdEnvironment).close()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """End sessions that evaluations have left open: that of an id, or all."""
        async with AsyncSandboxClient() as client:
            left = await client.list_sessions(state="active")
        for session in left:
            if LABEL in session.metadata and id in (None, session.session_id):
                await AsyncSandbox.kill(session.session_id)

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return SandboxdConfig(**config)

    def default_polling_interval(self) -> float:
        return 0.2

    async def close(self) -> None:
        """End the session and free its connection."""
        try:
            await self._sandbox.kill()
        except SessionNotFoundError:
            pass  # it ended long ago
        finally:
            await self._sandbox.aclose()

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        self._check_user(user)
        if not await self._sandbox.is_running():
            raise ConnectionError("The sandbox of this sample has ended.")
        command = f"sandboxd exec -it {shlex.quote(self._sandbox.session_id)} bash"
        return SandboxConnection(type="sandboxd", command=command)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        self._check_user(user)
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            done = await _available(
                self._sandbox.commands.run(
                    cmd,
                    stdin=input,
                    cwd=cwd,
                    env=env or {},
                    timeout=timeout or 0,
                    max_output_bytes=limit,
                )
            )
        except CommandNotStartableError as error:
            return _not_started(error)
        except PolicyError as error:
            raise PermissionError(str(error)) from error
        if done.reason == "timed_out":
            raise TimeoutError(f"The command did not end within {timeout} s.")
        _check_size(done, limit)
        return ExecResult(done.ok, done.exit_code, done.stdout, done.stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        with _documented(file):
            await _available(self._sandbox.files.write(file, contents))

    async def read_file(self, file: str, text: bool = True) -> Any:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        with _documented(file):
            data = await _available(
                self._sandbox.files.read(file, format="bytes", length=limit + 1)
            )
        if len(data) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode("utf-8") if text else data

    def _check_user(self, user: str | None) -> None:
        if user is not None:
            raise SandboxUserUnsupportedError(
                f"Commands of a sandboxd sandbox run as its one user, not as {user!r}."
            )


def _config(config: Any) -> SandboxdConfig:
    """A text is the name of an environment."""
    if config is None:
        return SandboxdConfig()
    if isinstance(config, str):
        return SandboxdConfig(environment=posixpath.basename(config))
    if isinstance(config, SandboxdConfig):
        return config
    raise InvalidRequestError(
        "sandbox: give sandboxd the name of an environment, or a SandboxdConfig"
    )


def _label(task_name: str) -> str:
    """A name of a task as the value of a label, which is short and printable."""
    return "".join(letter if letter.isprintable() else "?" for letter in task_name)[:60] or "?"


async def _available(call: Awaitable[T]) -> T:
    try:
        return await call
    except (SessionError, UnavailableError, ConnectionLostError) as error:
        raise SandboxUnavailableError(str(error)) from error


def _not_started(error: CommandNotStartableError) -> ExecResult[str]:
    if error.kind == "not_executable":
        raise PermissionError(str(error)) from error
    code = NO_PROGRAM_CODE if error.kind == "no_program" else NOT_EXECUTABLE_CODE
    return ExecResult(False, code, "", str(error))


def _check_size(done: CommandResult, limit: int) -> None:
    for data, omitted in (
        (done.stdout_bytes, done.stdout_omitted_bytes),
        (done.stderr_bytes, done.stderr_omitted_bytes),
    ):
        if omitted:
            shown = data[:limit].decode(errors="replace")
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, shown)


@contextmanager
def _documented(file: str) -> Iterator[None]:
    """Errors of files as the classes that inspect documents; most already are."""
    try:
        yield
    except OSError:
        raise
    except OutsideWorkspaceError as error:
        raise PermissionError(str(error)) from error
    except (NotADirectoryInSandboxError, InvalidRequestError) as error:
        raise FileNotFoundError(str(error)) from error
    except SandboxError as error:
        raise OSError(f"{file}: {error}") from error
