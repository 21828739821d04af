"""The client: one method per task, in the session that was opened last."""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from sandboxd_client.arguments import checked, either
from sandboxd_client.cancellation import run_to_end
from sandboxd_client.code_results import CodeRun, LanguageName
from sandboxd_client.command_policy import STRICT, CommandPolicy, command_check
from sandboxd_client.connection import Connection, acquire, release
from sandboxd_client.downloads import downloaded
from sandboxd_client.errors import (
    NoSessionError,
    SandboxLostError,
    SessionExpiredError,
    SessionNotFoundError,
    SessionParkedError,
    SessionRecreatedError,
)
from sandboxd_client.methods.sessions import CREATE_CONSOLE_LINK
from sandboxd_client.results import (
    CommandResult,
    DownloadedFile,
    FileListing,
    SandboxPath,
    SessionInfo,
    SessionList,
    StateName,
    UploadResult,
)
from sandboxd_client.sandbox import AsyncSandbox, sandbox_of
from sandboxd_client.session import (
    close_session,
    get_session,
    in_seconds,
    list_sessions,
    open_session,
)
from sandboxd_client.settings import Mode, Timeouts, resolve
from sandboxd_client.snapshot_results import AutoSnapshotName
from sandboxd_proto.v1 import admin_service_pb2, cluster_service_pb2, session_service_pb2

if TYPE_CHECKING:
    from sandboxd_client.data import AsyncData
    from sandboxd_client.projects import AsyncProjects

Thread: TypeAlias = tuple[str, str]
"""A user and a conversation."""
T = TypeVar("T")

_REOPENED = (
    SessionExpiredError,
    SandboxLostError,
    SessionRecreatedError,
    SessionNotFoundError,
    SessionParkedError,
)
_numbers = itertools.count()
_selected: ContextVar[Mapping[int, Thread]] = ContextVar("selected", default={})  # noqa: B039
"""The conversation that this task or thread works on, by client. One client may serve many
conversations at once, and they must not end up in each other's workspace between two calls."""


@checked
class AsyncSandboxClient:
    """A client that keeps a session per (user, thread) and works in the one opened last.

    "Last" applies per asyncio task (or thread of the program): tasks that share a client do not
    change each other's session. The daemon is `server_url` (`unix:`, `http://`, `https://`,
    `grpc://`, `host:port`), SANDBOXD_URL, or the local socket; with `mode="local"` it runs in this
    process, with settings from `local_settings` and the environment.

    Sessions that it creates have the command policy `strict`, unless an operator has set another
    one, or `command_policy="open"` is given with `get_or_create_session`.

    `policy="strict"` refuses commands that the policy of that name forbids before they are sent,
    with the daemon's own PolicyError; the daemon decides about all others. A function receives each
    command and may refuse it with a PolicyError.

    `async with` closes the sessions that it opened and frees the connection.

    Example:
        async with AsyncSandboxClient() as client:
            await client.get_or_create_session(user_id="ada", thread_id="42")
            result = await client.execute("echo hello")
            print(result["stdout"], result.exit_code)
    """

    def __init__(
        self,
        mode: Mode | None = None,
        server_url: str | None = None,
        *,
        token: str | None = None,
        policy: CommandPolicy | None = None,
        timeouts: Timeouts | None = None,
        local_settings: Mapping[str, object] | None = None,
    ) -> None:
        self._settings = resolve(mode, server_url, token=token, local_settings=local_settings)
        self._check = command_check(policy)
        self._timeouts = timeouts or Timeouts()
        self._connection: Connection | None = None
        self._number = next(_numbers)
        self._threads: dict[Thread, tuple[SessionInfo, float | None]] = {}
        self._contexts: dict[Thread, set[tuple[int, str]]] = {}
        """Contexts that this client has run code in, by the incarnation of their session."""

    def __repr__(self) -> str:
        where = self._settings.target or "a daemon in this process"
        session = f", session {self.session_id}" if self.session_id else ""
        return f"<AsyncSandboxClient of {where}{session}>"

    @property
    def mode(self) -> str:
        """`local` or `remote`."""
        return self._settings.mode

    @property
    def user_id(self) -> str | None:
        """User of the current session; None before one is opened."""
        thread = self._current()
        return thread[0] if thread else None

    @property
    def thread_id(self) -> str | None:
        """Thread of the current session. Set it to return to one that this client opened."""
        thread = self._current()
        return thread[1] if thread else None

    @thread_id.setter
    def thread_id(self, thread_id: str) -> None:
        user_id = self.user_id
        known = [thread for thread in self._threads if thread[1] == thread_id]
        chosen = next((thread for thread in known if thread[0] == user_id), None)
        if chosen is None and len(known) == 1:
            chosen = known[0]
        if chosen is None:
            raise NoSessionError(
                f"This client has not opened a session for thread {thread_id!r}; call "
                "get_or_create_session() first."
            )
        self._select(chosen)

    @property
    def session_id(self) -> str | None:
        """Id of the current session; None before one is opened."""
        thread = self._current()
        return self._threads[thread][0].session_id if thread else None

    @property
    def sandbox(self) -> AsyncSandbox:
        """The current session, with its commands, files, shells and terminals."""
        _, info = self._session()
        assert self._connection is not None
        return sandbox_of(self._connection, info, check=self._check)

    @property
    def projects(self) -> AsyncProjects:
        """Projects: files that users keep beyond sessions."""
        from sandboxd_client.projects import AsyncProjects

        return AsyncProjects(self._connected)

    @property
    def data(self) -> AsyncData:
        """Data sources: databases that users may query."""
        from sandboxd_client.data import AsyncData

        return AsyncData(self._connected)

    async def __aenter__(self) -> AsyncSandboxClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Here, not in the task below: the selection belongs to the caller's context.
        threads = list(self._threads)
        _forget(self._number)
        await run_to_end(self._leave(threads))

    async def _leave(self, threads: Sequence[Thread]) -> None:
        try:
            for thread in threads:
                await self._close(thread)
        finally:
            await self.aclose()

    async def get_or_create_session(
        self,
        user_id: str,
        thread_id: str,
        timeout_minutes: float | None = None,
        *,
        timeout: float | None = None,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        project: str = "",
        environment: str = "",
        environment_type: str = "",
        packages: Sequence[str] | None = None,
        env_vars: Mapping[str, str] | None = None,
        environment_config: Mapping[str, object] | None = None,
        command_policy: str = "",
        egress: Sequence[str] | None = None,
        build_wait: float = 0.0,
        auto_snapshot: AutoSnapshotName | None = None,
        park_after: float | None = None,
        data_sources: Sequence[str] = (),
    ) -> SessionInfo:
        """Open the session of a conversation, or attach to it; later calls work in it.

        It expires when it is not used for `timeout_minutes` (30 by default), or for `timeout`
        seconds. `env` (or `envs`) are environment variables of its commands. With `project`,
        project_files/ has the files of that project of the user, read-only; see `projects`. The
        others are those of `AsyncSandbox.create`. A session that was parked, stopped or expired
        has again what it had; what is named holds instead.

        Example:
            info = await client.get_or_create_session("ada", "conversation-42", timeout_minutes=10)
            print(info["session_id"], info["status"])
        """
        env = either(env=env, envs=envs)
        seconds = either(timeout_minutes=in_seconds(timeout_minutes), timeout=timeout)
        info = await open_session(
            await self._connected(),
            user_id,
            thread_id,
            idle_seconds=seconds,
            metadata=metadata,
            env=env,
            project=project,
            environment=environment,
            environment_type=environment_type,
            packages=packages,
            env_vars=env_vars,
            environment_config=environment_config,
            command_policy=command_policy,
            default_policy=STRICT,
            egress=egress,
            build_wait=build_wait,
            auto_snapshot=auto_snapshot,
            park_after=park_after,
            data_sources=data_sources,
        )
        self._threads[user_id, thread_id] = info, seconds
        self._select((user_id, thread_id))
        return info

    async def execute(
        self, command: str, timeout: float | None = None, auto_retry: bool = True
    ) -> CommandResult:
        """Run a command line and wait for its end. Non-zero exits and time-outs are results.

        If the session expired or lost its sandbox before the command could start, it is opened
        again and the command runs there, once; `result.session` is then set. Without `auto_retry`,
        or if the command may already have started, this is an error.

        Example:
            result = await client.execute("python3 -c 'print(6 * 7)'", timeout=10)
            print(result["stdout"], result["exit_code"], result["execution_time_ms"])
        """
        result, reopened = await self._in_session(
            lambda sandbox: sandbox.commands.run(command, timeout=timeout), auto_retry=auto_retry
        )
        result.session = reopened
        return result

    async def execute_code(
        self,
        code: str,
        timeout: float | None = None,
        auto_retry: bool = True,
        *,
        context: str = "main",
        language: LanguageName | None = None,
    ) -> CodeRun:
        """Run code in a context of the session, which keeps its variables, and wait for its end.

        If the session ended before the code could start, it is opened again and the code runs
        there, once, unless this client has already run code in the context: its variables are
        gone, so this is then an error. Without `auto_retry` it always is.

        Example:
            await client.execute_code("x = 20")
            print((await client.execute_code("x * 2 + 2"))["result"])
        """
        thread, info = self._session()
        used = self._contexts.setdefault(thread, set())
        run, reopened = await self._in_session(
            lambda sandbox: sandbox.code.run(
                code, timeout=timeout, context=context, language=language
            ),
            auto_retry=auto_retry and (info.incarnation, context) not in used,
        )
        run.session = reopened
        used.add((self._session()[1].incarnation, context))
        return run

    async def quick_execute(
        self,
        code: str,
        *,
        user_id: str = "sandbox",
        environment: str = "",
        packages: Sequence[str] | None = None,
        language: LanguageName | None = None,
        timeout: float | None = None,
    ) -> CodeRun:
        """Run code in a session for this call only: it is closed afterwards, whatever happens.

        Example:
            print((await client.quick_execute("sum(range(10))"))["result"])
        """
        from sandboxd_client.code import quick_execute

        return await quick_execute(
            await self._connected(),
            code,
            user_id=user_id,
            environment=environment,
            packages=packages,
            language=language,
            timeout=timeout,
        )

    async def upload_file(
        self, file_path: str | os.PathLike[str], remote_name: SandboxPath | None = None
    ) -> UploadResult:
        """Upload a local file to the workspace; `remote_name` defaults to its own name.

        Example:
            await client.upload_file("report.csv", remote_name="input.csv")
        """
        info, _ = await self._in_session(
            lambda sandbox: sandbox.files.upload(file_path, remote_name), is_repeatable=True
        )
        return UploadResult.of(self._session()[1], info)

    async def upload_file_from_bytes(self, filename: SandboxPath, file_data: bytes) -> UploadResult:
        """Write bytes to a file in the workspace.

        Example:
            await client.upload_file_from_bytes("input.json", b"[1, 2, 3]")
        """
        info, _ = await self._in_session(
            lambda sandbox: sandbox.files.write(filename, file_data), is_repeatable=True
        )
        return UploadResult.of(self._session()[1], info)

    async def download_file(
        self, remote_name: SandboxPath, local_path: str | os.PathLike[str] | None = None
    ) -> DownloadedFile:
        """Download a file and return its local path.

        Without `local_path` it is a temporary file, which is deleted when the program ends, or
        after 31 further ones. `len()` and `decode()` of the path are those of the content.

        Example:
            await client.upload_file_from_bytes("output.csv", b"a,b")
            print((await client.download_file("output.csv")).decode())
            path = await client.download_file("output.csv", local_path="output.csv")
        """
        return await downloaded(self.sandbox.files, remote_name, local_path)

    async def list_files(self) -> FileListing:
        """All files of the workspace, with totals.

        Example:
            files = await client.list_files()
            print(files["total_files"], files["total_size_bytes"])
        """
        entries = await self.sandbox.files.list(recursive=True)
        return FileListing.of(self._session()[1], entries)

    async def close_session(self) -> None:
        """End the current session and delete its files. Does nothing if there is no session.

        Example:
            await client.get_or_create_session("ada", "conversation-42")
            await client.close_session()
        """
        thread = self._current()
        if thread is not None:
            await self._close(thread)

    async def reset_session(self) -> SessionInfo:
        """Give the session a fresh sandbox and delete its files, except project_files/.

        Example:
            await client.reset_session()
        """
        thread, _ = self._session()
        info = await self.sandbox.reset()
        self._threads[thread] = info, self._threads[thread][1]
        return info

    async def get_session(self, session_id: str) -> SessionInfo:
        """Any session of the daemon, including one that ended recently; does not count as use.

        Example:
            print((await client.get_session(client.session_id)).state)
        """
        return await get_session(await self._connected(), session_id)

    async def list_sessions(
        self,
        *,
        user_id: str = "",
        thread_id: str = "",
        state: StateName | None = None,
        metadata: Mapping[str, str] | None = None,
        with_usage: bool = False,
    ) -> SessionList:
        """Sessions of the daemon, oldest first, by user, thread, state (`active`, ...) or labels.

        With `with_usage` each has its current `usage`. In a cluster these are the sessions of all
        workers; `missing_workers` of the result names those that did not answer.

        Example:
            for session in await client.list_sessions(state="active"):
                print(session.session_id, session.user_id, session.expires_at)
        """
        return await list_sessions(
            await self._connected(),
            user_id=user_id,
            thread_id=thread_id,
            state=state,
            metadata=metadata,
            with_usage=with_usage,
        )

    async def server_status(self) -> admin_service_pb2.GetStatusResponse:
        """What the daemon is doing: version, pool, engine, isolation in force.

        Example:
            status = await client.server_status()
            print(status.version, status.pool.warm, status.active_sessions)
        """
        from sandboxd_client.methods.admin import GET_STATUS

        connection = await self._connected()
        return await connection.call(GET_STATUS, admin_service_pb2.GetStatusRequest())

    async def workers(self) -> Sequence[cluster_service_pb2.Worker]:
        """The daemons that share sessions with this one, itself included.

        Example:
            for worker in await client.workers():
                print(worker.id, worker.address, worker.used, worker.capacity)
        """
        from sandboxd_client.methods.cluster import LIST_WORKERS

        connection = await self._connected()
        request = cluster_service_pb2.ListWorkersRequest()
        return (await connection.call(LIST_WORKERS, request)).workers

    async def console_link(self) -> str:
        """A link that logs a browser into the web console as this caller, once, for a minute.

        Example:
            print(await client.console_link())
        """
        connection = await self._connected()
        request = session_service_pb2.CreateConsoleLinkRequest()
        return (await connection.call(CREATE_CONSOLE_LINK, request)).url

    async def aclose(self) -> None:
        """Free the connection. Sessions stay open until they expire.

        Example:
            client = AsyncSandboxClient()
            await client.server_status()
            await client.aclose()
        """
        connection, self._connection = self._connection, None
        self._threads.clear()
        _forget(self._number)
        if connection is not None:
            await release(connection)

    # --- the current session ---

    def _current(self) -> Thread | None:
        chosen = _selected.get().get(self._number)
        if chosen is None and len(self._threads) == 1:
            chosen = next(iter(self._threads))  # the only possible one
        return chosen if chosen in self._threads else None

    def _select(self, thread: Thread) -> None:
        _selected.set({**_selected.get(), self._number: thread})

    def _session(self) -> tuple[Thread, SessionInfo]:
        thread = self._current()
        if thread is None:
            several = (
                " A session applies to the task or thread that opened it." if self._threads else ""
            )
            raise NoSessionError(f"No active session. Call get_or_create_session() first.{several}")
        return thread, self._threads[thread][0]

    async def _close(self, thread: Thread) -> None:
        info, _ = self._threads.pop(thread)
        self._contexts.pop(thread, None)
        await close_session(await self._connected(), info.session_id)

    async def _in_session(
        self,
        work: Callable[[AsyncSandbox], Awaitable[T]],
        *,
        auto_retry: bool = True,
        is_repeatable: bool = False,
    ) -> tuple[T, SessionInfo | None]:
        """Do it in the session; if the session had already ended, open it again and do it there.

        `is_repeatable`: doing it twice has the same effect as once, so it may already have begun.
        The second part of the answer is the session if it was opened again.
        """
        thread, _ = self._session()
        try:
            return await work(self.sandbox), None
        except _REOPENED as error:
            if not auto_retry or (error.may_have_begun and not is_repeatable):
                raise
        earlier, seconds = self._threads[thread]
        info = await open_session(
            await self._connected(),
            *thread,
            idle_seconds=seconds,
            project=earlier.project_id,
            # A daemon that has forgotten the session makes a new one, with the same rights.
            default_policy=earlier.command_policy or STRICT,
        )
        self._threads[thread] = info, seconds
        assert self._connection is not None
        again = sandbox_of(self._connection.repeating(), info, check=self._check)
        return await work(again), info

    async def _connected(self) -> Connection:
        if self._connection is None:
            connection = await acquire(self._settings, self._timeouts)
            if self._connection is None:
                self._connection = connection
            else:
                await release(connection)  # another task did it first
        return self._connection


def _forget(number: int) -> None:
    """Forget the conversation that was selected with a client."""
    _selected.set({k: v for k, v in _selected.get().items() if k != number})
