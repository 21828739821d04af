"""A sandbox as an object: the session of a (user, thread), with its commands and files."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from sandboxd_client.arguments import InstanceOrClass, checked, either
from sandboxd_client.cancellation import run_or_undo, run_to_end
from sandboxd_client.code_results import ContextInfo, DisplayCallback, LanguageName
from sandboxd_client.command_policy import CommandCheck, CommandPolicy, command_check
from sandboxd_client.connection import Connection, acquire, connected, release
from sandboxd_client.errors import (
    BY_REASON,
    InvalidRequestError,
    SandboxError,
    SessionNotFoundError,
)
from sandboxd_client.execution import (
    ErrorCallback,
    Execution,
    ExecutionResult,
    OutputMessage,
    OutputMessageCallback,
    ResultCallback,
)
from sandboxd_client.methods.sessions import RESET_SESSION, TOUCH_SESSION
from sandboxd_client.results import OutputCallback, SessionInfo, SessionList, StateName
from sandboxd_client.session import (
    SessionHold,
    close_session,
    get_session,
    in_seconds,
    list_sessions,
    open_session,
    update_session,
)
from sandboxd_client.settings import Mode, Timeouts, resolve
from sandboxd_client.snapshot_results import AutoSnapshotName, SnapshotName, reference
from sandboxd_proto.v1 import session_service_pb2 as pb
from sandboxd_proto.v1.session_pb2 import SessionUsage

if TYPE_CHECKING:
    from sandboxd_client.code import AsyncCode
    from sandboxd_client.commands import AsyncCommands
    from sandboxd_client.data import AsyncSandboxData
    from sandboxd_client.egress import AsyncEgress
    from sandboxd_client.files import AsyncFiles
    from sandboxd_client.ports import AsyncPorts
    from sandboxd_client.snapshots import AsyncSnapshots
    from sandboxd_client.terminals import AsyncPty, AsyncShell

T = TypeVar("T")


@checked
class AsyncSandbox:
    """A sandbox: commands, files, shells and terminals of one session.

    Use `create`, `open` or `connect` to get one. `async with` frees its connection, and ends the
    session of a sandbox from `create`.

    Example:
        async with await AsyncSandbox.create() as sandbox:
            await sandbox.files.write("numbers.txt", "1\\n2\\n3\\n")
            result = await sandbox.commands.run("awk '{s += $1} END {print s}' numbers.txt")
            print(result.stdout)
    """

    def __init__(
        self,
        hold: SessionHold | None = None,
        *,
        owns_connection: bool = False,
        is_temporary: bool = False,
    ) -> None:
        if hold is None:
            raise InvalidRequestError(
                "A sandbox comes from create(), open(user_id, thread_id) or connect(session_id), "
                "not from the class itself: for example Sandbox.create()."
            )
        self._hold = hold
        self._owns_connection = owns_connection
        self._is_temporary = is_temporary
        self._parts: dict[Callable[[SessionHold], Any], Any] = {}

    def __repr__(self) -> str:
        info = self._hold.info
        return f"<AsyncSandbox {info.session_id} of {info.user_id}/{info.thread_id}, {info.state}>"

    @classmethod
    async def create(
        cls,
        *,
        timeout_minutes: float | None = None,
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
        user_id: str = "sandbox",
        mode: Mode | None = None,
        server_url: str | None = None,
        token: str | None = None,
        policy: CommandPolicy | None = None,
        timeouts: Timeouts | None = None,
        local_settings: Mapping[str, object] | None = None,
    ) -> AsyncSandbox:
        """A new sandbox with its own session, which `async with` ends.

        It expires when it is not used for `timeout_minutes`, or for `timeout` seconds. `env` (or
        `envs`) are environment variables of its commands, `metadata` are labels to find it by.

        `environment` names what its image has, such as `data` or `node20`; `packages` and
        `env_vars` are added to it. `environment_type` and `environment_config`, with the keys
        `packages` and `env_vars`, are the same for programs that have them as a JSON document. What
        is not built yet is an EnvironmentNotReadyError or a PackagesNotReadyError, unless it is
        ready within `build_wait` seconds. `command_policy` is the name of the policy that the
        daemon checks its commands with; the token must allow it.
        `data_sources` names databases that its code and commands may query; see `data`.
        `egress` lists hosts that it may reach; see `AsyncEgress`.

        With `auto_snapshot`, the daemon keeps the workspace after every change (`commands`) or
        after every turn (`turns`, see `turn`), to look at and to `rewind` to. After `park_after`
        seconds without use the session gives up its sandbox until it is opened again.

        The daemon is `server_url` (`unix:`, `http://`, `https://`, `grpc://`, `host:port`),
        SANDBOXD_URL, or the local socket; with `mode="local"` it runs in this process.
        `policy="strict"` refuses commands that the policy of that name forbids before they are
        sent; a function receives each command and may refuse it with a PolicyError.

        Example:
            async with await AsyncSandbox.create(env={"LANG": "C.UTF-8"}) as sandbox:
                print((await sandbox.commands.run("echo $LANG")).stdout)
        """

        async def opened() -> AsyncSandbox:
            sandbox = await cls.open(
                user_id,
                f"sandbox-{os.urandom(8).hex()}",
                timeout_minutes=timeout_minutes,
                timeout=timeout,
                metadata=metadata,
                env=env,
                envs=envs,
                project=project,
                environment=environment,
                environment_type=environment_type,
                packages=packages,
                env_vars=env_vars,
                environment_config=environment_config,
                command_policy=command_policy,
                egress=egress,
                build_wait=build_wait,
                auto_snapshot=auto_snapshot,
                park_after=park_after,
                data_sources=data_sources,
                mode=mode,
                server_url=server_url,
                token=token,
                policy=policy,
                timeouts=timeouts,
                local_settings=local_settings,
            )
            sandbox._is_temporary = True
            return sandbox

        # Nobody else knows the thread, so a cancelled caller would leave the session to expire.
        return await run_or_undo(opened(), AsyncSandbox._leave)

    @classmethod
    async def open(
        cls,
        user_id: str,
        thread_id: str,
        *,
        timeout_minutes: float | None = None,
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
        mode: Mode | None = None,
        server_url: str | None = None,
        token: str | None = None,
        policy: CommandPolicy | None = None,
        timeouts: Timeouts | None = None,
        local_settings: Mapping[str, object] | None = None,
    ) -> AsyncSandbox:
        """The sandbox of a user's conversation, with its files; created if there is none.

        The parameters are those of `create`. With `project`, project_files/ has the files of that
        project of the user, read-only and always as they are now; see
        `AsyncSandboxClient.projects`. A session that was parked, stopped or expired has again what
        it had; what is named holds instead.

        Example:
            async with await AsyncSandbox.open("ada", "conversation-42") as sandbox:
                print(sandbox.info.status)
        """
        check = command_check(policy)
        env = either(env=env, envs=envs)
        seconds = either(timeout_minutes=in_seconds(timeout_minutes), timeout=timeout)
        settings = resolve(mode, server_url, token=token, local_settings=local_settings)
        connection = await acquire(settings, timeouts or Timeouts())
        try:
            info = await open_session(
                connection,
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
                egress=egress,
                build_wait=build_wait,
                auto_snapshot=auto_snapshot,
                park_after=park_after,
                data_sources=data_sources,
            )
        except BaseException:
            await release(connection)
            raise
        return cls(SessionHold(connection, info, check=check), owns_connection=True)

    @classmethod
    async def connect(
        cls,
        session_id: str,
        *,
        mode: Mode | None = None,
        server_url: str | None = None,
        token: str | None = None,
        policy: CommandPolicy | None = None,
        timeouts: Timeouts | None = None,
        local_settings: Mapping[str, object] | None = None,
    ) -> AsyncSandbox:
        """The sandbox of an open session, by its id.

        Example:
            again = await AsyncSandbox.connect(sandbox.session_id)
            print((await again.commands.run("ls")).stdout)
            await again.aclose()
        """
        check = command_check(policy)
        settings = resolve(mode, server_url, token=token, local_settings=local_settings)
        connection = await acquire(settings, timeouts or Timeouts())
        try:
            touched = await connection.call(
                TOUCH_SESSION, pb.TouchSessionRequest(session_id=session_id)
            )
        except BaseException:
            await release(connection)
            raise
        info = SessionInfo.of(touched.session)
        return cls(SessionHold(connection, info, check=check), owns_connection=True)

    @classmethod
    async def list(
        cls,
        *,
        user_id: str = "",
        thread_id: str = "",
        state: StateName | None = "active",
        metadata: Mapping[str, str] | None = None,
        mode: Mode | None = None,
        server_url: str | None = None,
        token: str | None = None,
        timeouts: Timeouts | None = None,
        local_settings: Mapping[str, object] | None = None,
    ) -> SessionList:
        """Sessions of the daemon, oldest first, by user, thread, state or labels.

        Only active ones by default; `state="stopped"` for those that keep their files and go on
        when they are opened, `state=None` for all, ended ones too. In a cluster these are the
        sessions of all workers; `missing_workers` of the result names those that did not answer.

        Example:
            for session in await AsyncSandbox.list(user_id="ada"):
                print(session.session_id, session.expires_at)
        """
        settings = resolve(mode, server_url, token=token, local_settings=local_settings)
        async with connected(settings, timeouts or Timeouts()) as connection:
            return await list_sessions(
                connection, user_id=user_id, thread_id=thread_id, state=state, metadata=metadata
            )

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await run_to_end(self._leave())

    async def _leave(self) -> None:
        try:
            if self._is_temporary:
                await self.kill()
        finally:
            await self.aclose()

    @property
    def session_id(self) -> str:
        """Id of the session in the API."""
        return self._hold.id

    @property
    def sandbox_id(self) -> str:
        """The same as `session_id`, under the name that other SDKs use."""
        return self._hold.id

    @property
    def info(self) -> SessionInfo:
        """The session as the daemon last described it."""
        return self._hold.info

    @property
    def workspace_dir(self) -> str:
        """Absolute path of the directory where commands start and keep their files."""
        return self._hold.info.workspace_dir

    def _part(self, kind: Callable[[SessionHold], T]) -> T:
        """Made when it is first used, since most programs use few of them, and each has modules and
        messages to load."""
        part: T | None = self._parts.get(kind)
        if part is None:
            part = self._parts[kind] = kind(self._hold)
        return part

    @property
    def commands(self) -> AsyncCommands:
        """Commands of the sandbox."""
        from sandboxd_client.commands import AsyncCommands

        return self._part(AsyncCommands)

    @property
    def files(self) -> AsyncFiles:
        """Files of the sandbox."""
        from sandboxd_client.files import AsyncFiles

        return self._part(AsyncFiles)

    @property
    def snapshots(self) -> AsyncSnapshots:
        """Snapshots of the workspace."""
        from sandboxd_client.snapshots import AsyncSnapshots

        return self._part(AsyncSnapshots)

    @property
    def data(self) -> AsyncSandboxData:
        """Data sources that the sandbox was opened with."""
        from sandboxd_client.data import AsyncSandboxData

        return self._part(AsyncSandboxData)

    @property
    def pty(self) -> AsyncPty:
        """Terminals of the sandbox."""
        from sandboxd_client.terminals import AsyncPty

        return self._part(AsyncPty)

    @property
    def egress(self) -> AsyncEgress:
        """Hosts that the sandbox may reach."""
        from sandboxd_client.egress import AsyncEgress

        return self._part(AsyncEgress)

    @property
    def ports(self) -> AsyncPorts:
        """Ports that programs in the sandbox listen on."""
        from sandboxd_client.ports import AsyncPorts

        return self._part(AsyncPorts)

    @property
    def code(self) -> AsyncCode:
        """Code of the sandbox: contexts that keep their variables, runs and the debugger."""
        from sandboxd_client.code import AsyncCode

        return self._part(AsyncCode)

    async def run_code(
        self,
        code: str,
        *,
        language: LanguageName | None = None,
        context: str | ContextInfo = "main",
        timeout: float | None = None,
        on_stdout: OutputMessageCallback | None = None,
        on_stderr: OutputMessageCallback | None = None,
        on_result: ResultCallback | None = None,
        on_error: ErrorCallback | None = None,
    ) -> Execution:
        """Run code and return results, logs and error, in the shape that other SDKs have.

        `code.run` returns more. The parameters are those of `code.run`; `on_result` receives what
        the code displays and the value of the last expression.

        Example:
            execution = await sandbox.run_code("x = 6\\nprint('hi')\\nx * 7")
            print(execution.text, execution.logs.stdout, execution.error)
        """
        run = await self.code.run(
            code,
            language=language,
            context=context,
            timeout=timeout,
            on_stdout=_messages(on_stdout, error=False),
            on_stderr=_messages(on_stderr, error=True),
            on_display=_results(on_result),
        )
        execution = Execution.of(run)
        if on_error is not None and execution.error is not None:
            answer = on_error(execution.error)
            if inspect.isawaitable(answer):
                await answer
        return execution

    def shell(self, name: str = "main") -> AsyncShell:
        """A named shell, which keeps directory and variables from one command to the next.

        Example:
            shell = sandbox.shell()
            await shell.run("cd outputs")
            print((await shell.run("pwd")).stdout)
        """
        from sandboxd_client.terminals import AsyncShell

        return AsyncShell(self.commands, name)

    async def refresh(self) -> SessionInfo:
        """Update and return `info`; does not count as use.

        Example:
            print((await sandbox.refresh()).expires_at)
        """
        found = await get_session(self._hold.connection, self._hold.id)
        if found.incarnation == self._hold.incarnation:
            self._hold.info = found
        return found

    async def get_info(self) -> SessionInfo:
        """The same as `refresh`, under the name that other SDKs use.

        Example:
            print((await sandbox.get_info()).state)
        """
        return await self.refresh()

    async def is_running(self) -> bool:
        """Whether the session is active; does not count as use.

        Example:
            print(await sandbox.is_running())
        """
        try:
            return (await self.refresh()).state == "active"
        except SessionNotFoundError:
            return False  # it ended too long ago

    async def get_metrics(self) -> SessionUsage | None:
        """Memory, CPU time, processes and disk space in use; None if they cannot be measured.

        Example:
            usage = await sandbox.get_metrics()
            print(usage.memory_bytes, usage.processes, usage.workspace_bytes)
        """
        return (await self.refresh()).usage

    async def set_timeout(
        self,
        timeout: float | None = None,
        *,
        minutes: float | None = None,
        seconds: float | None = None,
    ) -> SessionInfo:
        """Set the idle time after which the session expires, counted from now.

        A number without a unit is refused: other SDKs mean seconds, and `timeout_minutes` minutes.

        Example:
            await sandbox.set_timeout(minutes=5)
            await sandbox.set_timeout(seconds=300)
        """
        idle = either(minutes=in_seconds(minutes), seconds=seconds)
        if timeout is not None or idle is None:
            raise InvalidRequestError(
                "timeout: say which unit it has, as in set_timeout(minutes=5) or "
                "set_timeout(seconds=300)"
            )
        self._hold.info = await update_session(self._hold, idle_seconds=idle)
        return self._hold.info

    async def update_metadata(self, labels: Mapping[str, str | None]) -> SessionInfo:
        """Set labels of the session, or remove those whose value is None; others stay.

        Example:
            await sandbox.update_metadata({"turn": "7", "draft": None})
            print(sandbox.info.metadata)
        """
        self._hold.info = await update_session(self._hold, labels=labels)
        return self._hold.info

    async def set_auto_snapshot(self, auto_snapshot: AutoSnapshotName) -> SessionInfo:
        """Change which automatic snapshots the session gets.

        Example:
            await sandbox.set_auto_snapshot("commands")
        """
        self._hold.info = await update_session(self._hold, auto_snapshot=auto_snapshot)
        return self._hold.info

    async def rewind(
        self,
        turn: str | None = None,
        *,
        before: str | None = None,
        snapshot: SnapshotName | None = None,
    ) -> SessionInfo:
        """Return to an earlier state of the workspace: the end of a turn, `before` a turn, or any
        snapshot. Commands end; project_files/ stays. What was there is kept as a snapshot first,
        so that a rewind can be rewound. `turn` and `before` are ids of turns; `snapshot` takes the
        names that `snapshots.diff` takes, so `before="7"` and `snapshot="before:7"` are the same.

        Example:
            await sandbox.snapshots.create("good")
            await sandbox.files.write("mistake.txt", "...")
            await sandbox.rewind(snapshot="good")
        """
        from sandboxd_client.methods.snapshots import RESTORE_SESSION
        from sandboxd_proto.v1 import snapshot_service_pb2 as snapshot_pb

        request = snapshot_pb.RestoreSessionRequest(
            session_id=self._hold.id,
            incarnation=self._hold.incarnation,
            snapshot=reference(_target(turn, before, snapshot)),
            request_id=os.urandom(16).hex(),
        )
        connection = self._hold.connection
        done = await connection.call(RESTORE_SESSION, request, timeout=connection.timeouts.transfer)
        self._hold.info = SessionInfo.of(done.session, is_kept=False)
        return self._hold.info

    async def fork(
        self, thread_id: str | None = None, *, snapshot: SnapshotName | None = None
    ) -> AsyncSandbox:
        """A new thread of the same user with the files of a snapshot, or of the present.

        It is a session of its own, in the same environment, and uses the connection of this
        sandbox.

        Example:
            await sandbox.files.write("data.txt", "1")
            fork = await sandbox.fork()
            await fork.files.write("data.txt", "2")
            print(await sandbox.files.read("data.txt"))
            await fork.kill()
        """
        threads = None if thread_id is None else [thread_id]
        (info,) = await self.fork_many(1, thread_ids=threads, snapshot=snapshot)
        return sandbox_of(self._hold.connection, info, check=self._hold.check)

    async def fork_many(
        self,
        count: int = 2,
        *,
        thread_ids: Sequence[str] | None = None,
        snapshot: SnapshotName | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Sequence[SessionInfo]:
        """Several forks at once; `connect` returns the sandbox of each. The first that failed
        raises its error.

        Example:
            for info in await sandbox.fork_many(2):
                await AsyncSandbox.kill(info.session_id)
        """
        from sandboxd_client.methods.snapshots import FORK_SESSION
        from sandboxd_proto.v1 import snapshot_service_pb2 as snapshot_pb

        request = snapshot_pb.ForkSessionRequest(
            session_id=self._hold.id,
            snapshot=reference(snapshot) if snapshot is not None else None,
            thread_ids=thread_ids or (),
            count=0 if thread_ids else count,
            metadata=metadata or {},
            request_id=os.urandom(16).hex(),
        )
        connection = self._hold.connection
        done = await connection.call(FORK_SESSION, request, timeout=connection.timeouts.transfer)
        for fork in done.forks:
            if fork.reason:
                raise BY_REASON.get(fork.reason, SandboxError)(f"{fork.thread_id}: {fork.message}")
        return [SessionInfo.of(one.session, status="created") for one in done.forks]

    async def park(self) -> SessionInfo:
        """Give up the sandbox and keep the files as a snapshot, until the session is opened again.

        Example:
            other = await AsyncSandbox.open("ada", "conversation-44")
            print((await other.park()).state)
            await other.aclose()
        """
        from sandboxd_client.methods.snapshots import PARK_SESSION
        from sandboxd_proto.v1 import snapshot_service_pb2 as snapshot_pb

        request = snapshot_pb.ParkSessionRequest(session_id=self._hold.id)
        connection = self._hold.connection
        done = await connection.call(PARK_SESSION, request, timeout=connection.timeouts.transfer)
        self._hold.info = SessionInfo.of(done.session)
        return self._hold.info

    async def reset(self) -> SessionInfo:
        """Switch to a fresh sandbox: commands end and files are deleted, except project_files/.

        Example:
            await sandbox.files.write("junk.txt", "...")
            await sandbox.reset()
            print(await sandbox.files.exists("junk.txt"))
        """
        request = pb.ResetSessionRequest(
            session_id=self._hold.id, incarnation=self._hold.incarnation
        )
        connection = self._hold.connection
        done = await connection.call(RESET_SESSION, request, timeout=connection.timeouts.open)
        self._hold.info = SessionInfo.of(done.session, is_kept=False)
        return self._hold.info

    @InstanceOrClass
    async def kill(
        self: AsyncSandbox | None,
        session_id: str | None = None,
        *,
        mode: Mode | None = None,
        server_url: str | None = None,
        token: str | None = None,
        timeouts: Timeouts | None = None,
        local_settings: Mapping[str, object] | None = None,
    ) -> SessionInfo:
        """End the session with its commands, and delete its files.

        On the class it takes the id of a session: `AsyncSandbox.kill(session_id)`.

        Example:
            sandbox = await AsyncSandbox.create()
            await sandbox.kill()
            await sandbox.aclose()
        """
        if self is not None:
            if session_id not in (None, self._hold.id):
                raise InvalidRequestError(
                    "session_id: this sandbox has another id; call kill() on the class"
                )
            return await close_session(self._hold.connection, self._hold.id)
        if session_id is None:
            raise InvalidRequestError(
                "session_id: missing; use kill(session_id), or kill() of a sandbox"
            )
        settings = resolve(mode, server_url, token=token, local_settings=local_settings)
        async with connected(settings, timeouts or Timeouts()) as connection:
            return await close_session(connection, session_id)

    async def aclose(self) -> None:
        """Free the connection. The session stays open until it expires.

        Example:
            sandbox = await AsyncSandbox.open("ada", "conversation-42")
            await sandbox.aclose()
        """
        owns_connection, self._owns_connection = self._owns_connection, False
        if owns_connection:
            await release(self._hold.connection)


def _target(turn: str | None, before: str | None, snapshot: SnapshotName | None) -> SnapshotName:
    """Where to return to; one of them is given."""
    named: list[SnapshotName] = []
    if turn is not None:
        named.append(f"turn:{turn}")
    if before is not None:
        named.append(f"before:{before}")
    if snapshot is not None:
        named.append(snapshot)
    if len(named) != 1:
        raise InvalidRequestError(
            "turn: say where to return to, with one of a turn, before=TURN or snapshot=NUMBER"
        )
    return named[0]


def _messages(callback: OutputMessageCallback | None, *, error: bool) -> OutputCallback | None:
    if callback is None:
        return None
    return lambda text: callback(OutputMessage.of(text, error=error))


def _results(callback: ResultCallback | None) -> DisplayCallback | None:
    if callback is None:
        return None
    return lambda display: callback(ExecutionResult.of(display, is_main=display.is_value))


def sandbox_of(
    connection: Connection, info: SessionInfo, *, check: CommandCheck | None = None
) -> AsyncSandbox:
    """A sandbox that uses a connection which its creator keeps and frees."""
    return AsyncSandbox(SessionHold(connection, info, check=check))
