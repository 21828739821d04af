"""Sandboxes for agents of the OpenAI Agents SDK; needs the extra `openai-agents`.

Example:
    from agents import RunConfig, Runner
    from agents.sandbox import SandboxAgent, SandboxRunConfig
    from sandboxd_client.integrations.openai_agents import SandboxdClient, SandboxdOptions

    agent = SandboxAgent(name="coder", model=...)
    sandbox = SandboxRunConfig(
        client=SandboxdClient(), options=SandboxdOptions(user_id="ada", thread_id="42")
    )
    await Runner.run(agent, "Count the lines.", run_config=RunConfig(sandbox=sandbox))
"""

from __future__ import annotations

import asyncio
import io
import posixpath
import tarfile
import tempfile
import uuid
from collections.abc import Awaitable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, TypeVar, cast
from urllib.parse import urlsplit

from agents.sandbox import errors
from agents.sandbox.errors import ErrorCode, OpName
from agents.sandbox.files import EntryKind, FileEntry
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import (
    BaseSandboxClient,
    BaseSandboxClientOptions,
    SandboxSession,
    SandboxSessionState,
)
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.pty_types import (
    PtyExecUpdate,
    clamp_pty_yield_time_ms,
    resolve_pty_write_yield_time_ms,
)
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, Permissions, User

from sandboxd_client.cancellation import run_or_undo, run_to_end
from sandboxd_client.errors import (
    CallTimeoutError,
    CommandNotStartableError,
    ConnectionLostError,
    ExhaustedError,
    MissingFileError,
    NotADirectoryInSandboxError,
    OutsideWorkspaceError,
    PolicyError,
    ProtectedPathError,
    SandboxError,
    SessionError,
    UnavailableError,
)
from sandboxd_client.integrations.openai_processes import Processes
from sandboxd_client.results import FileInfo
from sandboxd_client.sandbox import AsyncSandbox

T = TypeVar("T")

BACKEND = "sandboxd"
MAX_OUTPUT_BYTES = 10 * 1024 * 1024
"""Output of a command that is returned; of longer output the middle is left out, and a line says
so."""
NOT_EXECUTABLE_CODE = 126
NO_PROGRAM_CODE = 127
PREPARED_LABEL = "openai_agents_root"
"""Label of a session whose workspace has the files of a manifest: they are not written again."""
PROJECT_FILES = "project_files"
"""Directory that belongs to the user's project, not to the workspace."""
AGENT_WORKSPACE = "agent_workspace"
"""If it is a link, every workspace has it already."""
KINDS = {
    "file": EntryKind.FILE,
    "directory": EntryKind.DIRECTORY,
    "symlink": EntryKind.SYMLINK,
}


class SandboxdOptions(BaseSandboxClientOptions):
    """Which sandbox an agent gets; most are those of `AsyncSandbox.create`.

    With `user_id` and `thread_id` it is that of a conversation, which stays when a run ends.
    Without them it is a new one, which ends with the run. With `pause_on_exit` either is parked
    instead: it holds no container until it is resumed.
    """

    type: Literal["sandboxd"] = "sandboxd"
    user_id: str = "sandbox"
    thread_id: str | None = None
    environment: str = ""
    packages: tuple[str, ...] = ()
    env: dict[str, str] | None = None
    project: str = ""
    command_policy: str = ""
    egress: tuple[str, ...] | None = None
    data_sources: tuple[str, ...] = ()
    timeout_minutes: float | None = None
    build_wait: float = 0.0
    exposed_ports: tuple[int, ...] = ()
    pause_on_exit: bool = False


class SandboxdSessionState(SandboxSessionState):
    """What finds a sandbox again; it holds no token."""

    type: Literal["sandboxd"] = "sandboxd"
    options: SandboxdOptions
    thread_id: str
    sandboxd_session_id: str | None = None


class SandboxdSession(BaseSandboxSession):
    """A sandbox of an agent, opened by `start`."""

    state: SandboxdSessionState

    def __init__(self, state: SandboxdSessionState, connection: Mapping[str, Any]) -> None:
        """`connection`: how to reach the daemon, as options of `AsyncSandbox.open`."""
        self.state = state
        self._connection = connection
        self._opened: AsyncSandbox | None = None
        self._processes = Processes()
        self._endpoints: dict[int, ExposedPortEndpoint] = {}

    @property
    def sandbox(self) -> AsyncSandbox:
        """The sandbox, for what the framework's interface does not have."""
        if self._opened is None:
            raise errors.ConfigurationError(
                message="The session has no sandbox: call `start` before you use it.",
                error_code=ErrorCode.SANDBOX_CONFIG_INVALID,
                op="running",
                context={"backend": BACKEND},
                retryable=False,
            )
        return self._opened

    # Beginning and end.

    async def _ensure_backend_started(self) -> None:
        if self._opened is not None and await self.running():
            return
        await self._release()
        options = self.state.options
        self._opened = sandbox = await run_or_undo(
            AsyncSandbox.open(
                options.user_id,
                self.state.thread_id,
                environment=options.environment,
                packages=options.packages or None,
                env=options.env,
                project=options.project,
                command_policy=options.command_policy,
                egress=options.egress,
                data_sources=options.data_sources,
                timeout_minutes=options.timeout_minutes,
                build_wait=options.build_wait,
                **self._connection,
            ),
            self._undone,
        )
        self._endpoints.clear()
        self.state.sandboxd_session_id = sandbox.session_id
        info = sandbox.info
        is_kept = info.status != "created" and info.workspace_kept
        is_prepared = is_kept and info.metadata.get(PREPARED_LABEL) == self._root
        self.state.workspace_root_ready = is_prepared
        self._set_start_state_preserved(is_prepared)

    async def _prepare_backend_workspace(self) -> None:
        await self._make_dir(self._root)

    async def _after_start(self) -> None:
        if self.sandbox.info.metadata.get(PREPARED_LABEL) != self._root:
            await self.sandbox.update_metadata({PREPARED_LABEL: self._root})

    async def _after_start_failed(self) -> None:
        await self._shutdown_backend()

    def _wrap_start_error(self, error: Exception) -> Exception:
        if not isinstance(error, SandboxError):
            return error
        failed = errors.WorkspaceStartError(
            path=Path(self._root),
            context={"backend": BACKEND},
            cause=error,
            message=f"failed to start session: {error}",
            retryable=_may_be_repeated(error),
        )
        return cast(Exception, failed)

    async def _shutdown_backend(self) -> None:
        await run_to_end(self._shut_down())

    async def _shut_down(self) -> None:
        """Park the sandbox, end it if nobody else can reach it, or leave it; once."""
        is_ours = self.state.options.thread_id is None
        try:
            if self.state.options.pause_on_exit:
                if self._opened is not None:
                    await self._opened.park()
            elif is_ours:
                await self._kill()
        except SessionError:
            pass  # it ended before
        finally:
            await self._release()

    async def _kill(self) -> None:
        if self._opened is not None:
            await self._opened.kill()
        elif self.state.sandboxd_session_id is not None:
            await AsyncSandbox.kill(self.state.sandboxd_session_id, **self._connection)
        self.state.sandboxd_session_id = None

    async def _release(self) -> None:
        sandbox, self._opened = self._opened, None
        if sandbox is not None:
            await sandbox.aclose()

    async def _undone(self, sandbox: AsyncSandbox) -> None:
        """The caller was cancelled while the sandbox was opened."""
        self._opened = sandbox
        await self._shut_down()

    async def running(self) -> bool:
        if self._opened is None:
            return False
        try:
            return await self._opened.is_running()
        except SandboxError:
            return False

    # Commands.

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        _refuse_user(user, "exec")
        return cast(list[str], super()._prepare_exec_command(*command, shell=shell, user=None))

    async def _exec_internal(
        self, *command: str | Path, timeout: float | None = None
    ) -> ExecResult:
        words = [str(word) for word in command]
        try:
            done = await self.sandbox.commands.run(
                words,
                cwd=self._root,
                env=await self._variables(),
                # For the SDK 0 means "as long as the session allows", for the framework "at once".
                timeout=0 if timeout is None else max(timeout, 0.001),
                max_output_bytes=MAX_OUTPUT_BYTES,
            )
        except (CommandNotStartableError, PolicyError) as error:
            return ExecResult(stdout=b"", stderr=str(error).encode(), exit_code=_code(error))
        except SandboxError as error:
            raise _transport_error(words, error) from error
        if done.reason == "timed_out":
            raise errors.ExecTimeoutError(command=words, timeout_s=timeout)
        # Only the text says where something was left out.
        stdout = done.stdout.encode() if done.stdout_omitted_bytes else done.stdout_bytes
        stderr = done.stderr.encode() if done.stderr_omitted_bytes else done.stderr_bytes
        if done.hint and not done.ok:
            stderr += f"{done.hint}\n".encode()
        return ExecResult(stdout=stdout, stderr=stderr, exit_code=done.exit_code)

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        words = self._prepare_exec_command(*command, shell=shell, user=user)
        env = await self._variables()
        limit = 0 if timeout is None else max(timeout, 0.001)
        try:
            if tty:
                handle = await self.sandbox.pty.create(
                    words, cwd=self._root, env=env, timeout=limit
                )
            else:
                handle = await self.sandbox.commands.run(
                    words,
                    background=True,
                    cwd=self._root,
                    env=env,
                    timeout=limit,
                    merge_stderr=True,
                )
        except (CommandNotStartableError, PolicyError) as error:
            return PtyExecUpdate(
                process_id=None,
                output=str(error).encode(),
                exit_code=_code(error),
                original_token_count=None,
            )
        except SandboxError as error:
            raise _transport_error(words, error) from error
        number = await self._processes.add(handle, has_terminal=tty)
        milliseconds = 10_000 if yield_time_s is None else int(yield_time_s * 1000)
        return await self._update(number, clamp_pty_yield_time_ms(milliseconds), max_output_tokens)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        try:
            await self._processes.write(session_id, chars)
        except SandboxError as error:
            raise _transport_error(["write_stdin", str(session_id)], error) from error
        milliseconds = resolve_pty_write_yield_time_ms(
            yield_time_ms=250 if yield_time_s is None else int(yield_time_s * 1000),
            input_empty=not chars,
        )
        return await self._update(session_id, milliseconds, max_output_tokens)

    async def _update(
        self, number: int, milliseconds: int, max_output_tokens: int | None
    ) -> PtyExecUpdate:
        try:
            return await self._processes.update(
                number, seconds=milliseconds / 1000, max_output_tokens=max_output_tokens
            )
        except SandboxError as error:
            raise _transport_error(["read_output", str(number)], error) from error

    async def pty_terminate_all(self) -> None:
        await self._processes.end_all()

    async def _variables(self) -> dict[str, str]:
        return dict(await self.state.manifest.environment.resolve())

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        """The origin of a preview, which only programs on the daemon's host reach."""
        if port not in self._endpoints:
            try:
                url = urlsplit(await self.sandbox.ports.url(port))
            except SandboxError as error:
                raise errors.ExposedPortUnavailableError(
                    port=port,
                    exposed_ports=self.state.exposed_ports,
                    reason="backend_unavailable",
                    context={"backend": BACKEND, "detail": str(error)},
                    cause=error,
                    retryable=_may_be_repeated(error),
                ) from error
            self._endpoints[port] = ExposedPortEndpoint(
                host=url.hostname or "", port=url.port or 80
            )
        return self._endpoints[port]

    # Files.

    async def read(self, path: Path | str, *, user: str | User | None = None) -> io.IOBase:
        _refuse_user(user, "read")
        return io.BytesIO(await self._content(path, None))

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        return await self._content(path, max_bytes)

    async def _content(self, path: Path | str, length: int | None) -> bytes:
        full = self._checked(path)
        try:
            return await self.sandbox.files.read(full, format="bytes", length=length)
        except (MissingFileError, NotADirectoryInSandboxError) as error:
            raise errors.WorkspaceReadNotFoundError(path=Path(full), cause=error) from error
        except OutsideWorkspaceError as error:
            _escapes(full, error)
        except SandboxError as error:
            raise errors.WorkspaceArchiveReadError(
                path=Path(full),
                context={"reason": str(error)},
                cause=error,
                retryable=_may_be_repeated(error),
            ) from error

    async def write(
        self, path: Path | str, data: io.IOBase, *, user: str | User | None = None
    ) -> None:
        _refuse_user(user, "write")
        full = self._checked(path, for_write=True)
        content = await asyncio.to_thread(data.read)
        if isinstance(content, str):
            content = content.encode()
        if not isinstance(content, bytes | bytearray):
            raise errors.WorkspaceWriteTypeError(
                path=Path(full), actual_type=type(content).__name__
            )
        await _written(full, self.sandbox.files.write(full, bytes(content)))

    async def mkdir(
        self, path: Path | str, *, parents: bool = False, user: str | User | None = None
    ) -> None:
        _refuse_user(user, "write")
        full = self._checked(path, for_write=True)
        if not parents:
            await super().mkdir(full)
        else:
            await _written(full, self._make_dir(full))

    async def ls(self, path: Path | str, *, user: str | User | None = None) -> list[FileEntry]:
        _refuse_user(user, "read")
        full = self._checked(path)
        try:
            found = await self.sandbox.files.list(full)
        except SandboxError as error:
            # The framework documents the error of the command that it would run itself.
            raise _as_failed_command(["ls", full], error) from error
        return [_entry(full, info) for info in found]

    async def rm(
        self, path: Path | str, *, recursive: bool = False, user: str | User | None = None
    ) -> None:
        _refuse_user(user, "write")
        full = self._checked(path, for_write=True)
        if recursive:
            self._workspace_path_policy().validate_recursive_remove(full)
        try:
            await self.sandbox.files.remove(full, recursive=recursive, ignore_missing=recursive)
        except SandboxError as error:
            raise _as_failed_command(["rm", full], error) from error

    async def _make_dir(self, path: str) -> None:
        # The daemon refuses to make the workspace itself, which is always there.
        if not f"{self.sandbox.workspace_dir}/".startswith(f"{path.rstrip('/')}/"):
            await self.sandbox.files.make_dir(path)

    def _checked(self, path: Path | str, *, for_write: bool = False) -> str:
        """The absolute path, if it is below the root or a path that the manifest grants.

        The daemon follows no link out of the workspace, so this need not ask the sandbox.
        """
        policy = self._workspace_path_policy()
        return str(policy.normalize_sandbox_path(path, for_write=for_write))

    @property
    def _root(self) -> str:
        return str(self._workspace_path_policy().sandbox_root())

    # The workspace as an archive, for the snapshots of the framework.

    async def persist_workspace(self) -> io.IOBase:
        skipped = {path.as_posix() for path in self._persist_workspace_skip_relpaths()}
        try:
            with tempfile.TemporaryFile() as archive:
                report = await self.sandbox.files.download_archive(self._root, archive)
                if report.refused_count:
                    raise errors.WorkspaceArchiveReadError(
                        path=Path(self._root), context={"left_out": list(report.refused)}
                    )
                kept = await asyncio.to_thread(_without, archive, frozenset(skipped))
                return cast(io.IOBase, kept)
        except SandboxError as error:
            raise errors.WorkspaceArchiveReadError(
                path=Path(self._root),
                context={"reason": str(error)},
                cause=error,
                retryable=_may_be_repeated(error),
            ) from error

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        if isinstance(data, io.TextIOBase):
            raise errors.WorkspaceWriteTypeError(path=Path(self._root), actual_type="str")
        upload = self.sandbox.files.upload_archive(cast(IO[bytes], data), self._root)
        report = await _written(self._root, upload)
        if report.refused_count:
            raise errors.WorkspaceArchiveWriteError(
                path=Path(self._root),
                context={"reason": "unsafe_or_invalid_tar", "refused": list(report.refused)},
                retryable=False,
            )

    def _persist_workspace_skip_relpaths(self) -> set[Path]:
        skipped = cast(set[Path], super()._persist_workspace_skip_relpaths())
        return skipped | {Path(PROJECT_FILES)} if self._is_whole_workspace else skipped

    async def _remove_workspace_entry_on_resume(self, path: Path) -> None:
        if self._is_whole_workspace and str(path) == posixpath.join(self._root, PROJECT_FILES):
            return
        try:
            await super()._remove_workspace_entry_on_resume(path)
        except errors.ExecNonZeroError as error:
            if not isinstance(error.cause, ProtectedPathError):
                raise
            # A directory of the layout stays, and what is in it goes.
            if (await self.sandbox.files.stat(str(path))).type == "directory":
                await self._clear_workspace_dir_on_resume_pruned(
                    current_dir=path, skip_rel_paths=set()
                )

    @property
    def _is_whole_workspace(self) -> bool:
        return self._root == self.sandbox.workspace_dir


class SandboxdClient(BaseSandboxClient[SandboxdOptions]):
    """Creates and resumes sandboxes at a daemon: that of SANDBOXD_URL and SANDBOXD_TOKEN, or of
    `connection`: `server_url`, `token`, `mode`, `timeouts` or `local_settings`."""

    backend_id = BACKEND
    supports_default_options = True

    def __init__(self, **connection: Any) -> None:
        self._connection = connection

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: SandboxdOptions | None = None,
    ) -> SandboxSession:
        """A session; `start`, or `async with`, opens its sandbox."""
        wanted = options or SandboxdOptions()
        manifest = manifest or Manifest()
        self._validate_manifest_for_create(manifest)
        _refuse_what_is_not_offered(manifest)
        session_id = uuid.uuid4()
        state = SandboxdSessionState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            exposed_ports=wanted.exposed_ports,
            options=wanted,
            thread_id=wanted.thread_id or f"openai-agents-{session_id.hex}",
        )
        return self._session(state)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """The same sandbox if it still exists, also a parked one; otherwise `start` makes another
        and fills it from the snapshot of the state."""
        if not isinstance(state, SandboxdSessionState):
            raise TypeError("SandboxdClient.resume expects a SandboxdSessionState")
        state.assert_path_grants_rebound()
        _refuse_what_is_not_offered(state.manifest)
        return self._session(state)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """End the sandbox, unless it belongs to a conversation or is parked."""
        inner = session._inner
        if not isinstance(inner, SandboxdSession):
            raise TypeError("SandboxdClient.delete expects a session of SandboxdClient")
        await inner.shutdown()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, SandboxdSessionState)

    def _session(self, state: SandboxdSessionState) -> SandboxSession:
        return self._wrap_session(SandboxdSession(state, self._connection))


def _refuse_what_is_not_offered(manifest: Manifest) -> None:
    if manifest.users or manifest.groups:
        _refuse_user("another user", "start")
    if any(True for _ in manifest.mount_targets()):
        raise errors.MountConfigError(
            message="sandboxd does not offer mounts; upload the files, or use a project's files",
            context={"backend": BACKEND},
        )


def _refuse_user(user: str | User | None, op: OpName) -> None:
    if user is not None:
        raise errors.ConfigurationError(
            message="A sandboxd sandbox has one user; leave out `user`, `run_as`, users and groups",
            error_code=ErrorCode.SANDBOX_CONFIG_INVALID,
            op=op,
            context={"backend": BACKEND, "user": getattr(user, "name", user)},
            retryable=False,
        )


def _may_be_repeated(error: SandboxError) -> bool:
    return isinstance(
        error, ExhaustedError | UnavailableError | ConnectionLostError | CallTimeoutError
    )


def _code(error: SandboxError) -> int:
    """The exit code that a shell reports for a program that cannot be started."""
    is_missing = isinstance(error, CommandNotStartableError) and error.kind == "no_program"
    return NO_PROGRAM_CODE if is_missing else NOT_EXECUTABLE_CODE


def _transport_error(words: list[str], error: SandboxError) -> Exception:
    return cast(
        Exception,
        errors.ExecTransportError(
            command=words,
            context={"backend": BACKEND, "reason": str(error)},
            cause=error,
            message=f"exec transport error: {error}",
            retryable=_may_be_repeated(error),
        ),
    )


def _as_failed_command(words: list[str], error: SandboxError) -> Exception:
    failed = ExecResult(stdout=b"", stderr=str(error).encode(), exit_code=1)
    return cast(Exception, errors.ExecNonZeroError(failed, command=words, cause=error))


def _escapes(path: str, error: SandboxError) -> NoReturn:
    raise errors.InvalidManifestPathError(rel=path, reason="escape_root", cause=error) from error


async def _written(path: str, call: Awaitable[T]) -> T:
    try:
        return await call
    except OutsideWorkspaceError as error:
        _escapes(path, error)
    except SandboxError as error:
        raise errors.WorkspaceArchiveWriteError(
            path=Path(path),
            context={"reason": str(error)},
            cause=error,
            retryable=_may_be_repeated(error),
        ) from error


def _entry(directory: str, info: FileInfo) -> FileEntry:
    return FileEntry(
        path=posixpath.join(directory, info.name),
        permissions=Permissions(
            owner=info.mode >> 6 & 7,
            group=info.mode >> 3 & 7,
            other=info.mode & 7,
            directory=info.type == "directory",
        ),
        owner="",
        group="",
        size=info.size_bytes,
        kind=KINDS.get(info.type, EntryKind.OTHER),
    )


def _without(archive: IO[bytes], skipped: frozenset[str]) -> IO[bytes]:
    """The archive without these entries and what is below them, from its beginning."""
    archive.seek(0)
    with ExitStack() as opened:
        kept = opened.enter_context(tempfile.TemporaryFile())
        with tarfile.open(fileobj=archive) as source, tarfile.open(fileobj=kept, mode="w") as copy:
            for member in source:
                is_layout = member.issym() and posixpath.normpath(member.name) == AGENT_WORKSPACE
                if is_layout or _is_below(member.name, skipped):
                    continue
                content = source.extractfile(member) if member.isreg() or member.islnk() else None
                if member.islnk() and _is_below(member.linkname, skipped):
                    # The first name of the file is left out, so this one becomes the file.
                    member.type = tarfile.REGTYPE
                    member.size = source.getmember(member.linkname).size
                copy.addfile(member, content if member.isreg() else None)
        kept.seek(0)
        opened.pop_all()
        return kept


def _is_below(name: str, places: frozenset[str]) -> bool:
    path = posixpath.normpath(name)
    return any(path == place or path.startswith(f"{place}/") for place in places)
