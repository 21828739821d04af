"""A deployment for SWE-ReX; needs the extra `swe-rex`.

Example:
    from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
    from sandboxd_client.integrations.swe_rex import SandboxdDeployment

    deployment = SandboxdDeployment()
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    print(await deployment.runtime.run_in_session(BashAction(command="pwd")))
    await deployment.stop()
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import uuid
from pathlib import Path
from typing import Any

from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import (
    CommandTimeoutError,
    DeploymentNotStartedError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
    SwerexException,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    Action,
    BashAction,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionResponse,
    CloseResponse,
    CloseSessionRequest,
    CloseSessionResponse,
    Command,
    CommandResponse,
    CreateBashSessionResponse,
    CreateSessionRequest,
    CreateSessionResponse,
    IsAliveResponse,
    Observation,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)
from swerex.utils.log import get_logger

from sandboxd_client.errors import SandboxError
from sandboxd_client.integrations.owned import opened_for
from sandboxd_client.results import CommandResult
from sandboxd_client.sandbox import AsyncSandbox
from sandboxd_client.terminals import AsyncShell


class SandboxdRuntime(AbstractRuntime):
    """Sessions are named shells of a sandbox; a command that exceeds its time is killed."""

    def __init__(self, sandbox: AsyncSandbox, logger: logging.Logger | None = None) -> None:
        self.logger = logger or get_logger("rex-runtime")
        self.sandbox = sandbox
        self._shells: dict[str, AsyncShell] = {}

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        try:
            is_alive = await self.sandbox.is_running()
        except SandboxError as error:
            return IsAliveResponse(is_alive=False, message=str(error))
        return IsAliveResponse(is_alive=is_alive, message="" if is_alive else "It has ended.")

    async def create_session(self, request: CreateSessionRequest) -> CreateSessionResponse:
        if request.session in self._shells:
            raise SessionExistsError(f"session {request.session} already exists")
        lines = [f"source {shlex.quote(path)}" for path in request.startup_source]
        # A shell keeps its state under its name, and a new session has none.
        shell = self.sandbox.shell(f"rex-{uuid.uuid4().hex[:12]}")
        done = await shell.run(" && ".join(lines) or ":", merge_stderr=True)
        self._shells[request.session] = shell
        return CreateBashSessionResponse(output=done.stdout)

    async def run_in_session(self, action: Action) -> Observation:
        shell = self._shell(action.session)
        if isinstance(action, BashInterruptAction):
            return await self._interrupt(shell)
        if action.is_interactive_command or action.is_interactive_quit or action.expect:
            raise SwerexException(
                "Interactive programs and `expect` are not offered; run the program with its input "
                "on standard input instead."
            )
        done = await shell.run(action.command, timeout=action.timeout or 0, merge_stderr=True)
        _check_time(done, action.timeout)
        if action.check == "ignore":
            return BashObservation(output=done.stdout)
        if action.check == "raise":
            _check_code(done, action)
        return BashObservation(output=done.stdout, exit_code=done.exit_code)

    async def close_session(self, request: CloseSessionRequest) -> CloseSessionResponse:
        await self._interrupt(self._shell(request.session))
        del self._shells[request.session]
        return CloseBashSessionResponse()

    async def execute(self, command: Command) -> CommandResponse:
        line = command.command
        done = await self.sandbox.commands.run(
            [line] if isinstance(line, str) and not command.shell else line,
            cwd=command.cwd,
            env=command.env,
            timeout=command.timeout or 0,
            merge_stderr=command.merge_output_streams,
        )
        _check_time(done, command.timeout)
        if command.check:
            _check_code(done, command)
        return CommandResponse(stdout=done.stdout, stderr=done.stderr, exit_code=done.exit_code)

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        content = await self.sandbox.files.read(request.path, format="bytes")
        text = content.decode(request.encoding or "utf-8", request.errors or "strict")
        return ReadFileResponse(content=text)

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        await self.sandbox.files.write(request.path, request.content)
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        if await asyncio.to_thread(Path(request.source_path).is_dir):
            await self.sandbox.files.upload_dir(request.source_path, request.target_path)
        else:
            await self.sandbox.files.upload(request.source_path, request.target_path)
        return UploadResponse()

    async def close(self) -> CloseResponse:
        self._shells.clear()
        return CloseResponse()

    def _shell(self, session: str) -> AsyncShell:
        if session not in self._shells:
            raise SessionDoesNotExistError(f"session {session!r} does not exist")
        return self._shells[session]

    async def _interrupt(self, shell: AsyncShell) -> BashObservation:
        """Kill what runs in the session, if anything does; the session stays."""
        for command in await self.sandbox.commands.list(running=True):
            if command.shell == shell.name:
                await self.sandbox.commands.kill(command.exec_id)
        return BashObservation(exit_code=0)


class SandboxdDeployment(AbstractDeployment):
    """A sandbox of a conversation, which stays, or a new one that `stop` ends.

    `options` are those of `AsyncSandbox.create`.
    """

    def __init__(
        self,
        sandbox: AsyncSandbox | None = None,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
        logger: logging.Logger | None = None,
        **options: Any,
    ) -> None:
        self.logger = logger or get_logger("rex-deploy")
        self._owned = opened_for(sandbox, user_id, thread_id, **options)
        self._hooks = CombinedDeploymentHook()
        self._runtime: SandboxdRuntime | None = None

    def add_hook(self, hook: DeploymentHook) -> None:
        self._hooks.add_hook(hook)

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        self._hooks.on_custom_step("Starting sandbox")
        self._runtime = SandboxdRuntime(await self._owned.get(), self.logger)

    async def stop(self) -> None:
        self._runtime = None
        await self._owned.aclose()

    @property
    def runtime(self) -> SandboxdRuntime:
        if self._runtime is None:
            raise DeploymentNotStartedError
        return self._runtime


def _check_time(done: CommandResult, timeout: float | None) -> None:
    if done.reason == "timed_out":
        raise CommandTimeoutError(
            f"The command did not end within {timeout} s and was killed. Output:\n{done.stdout}"
        )


def _check_code(done: CommandResult, request: BashAction | Command) -> None:
    if done.exit_code != 0:
        message = (
            f"Command {request.command!r} failed with exit code {done.exit_code}. "
            f"Output:\n{done.stdout}{done.stderr}"
        )
        raise NonZeroExitCodeError(f"{request.error_msg}: {message}".removeprefix(": "))
