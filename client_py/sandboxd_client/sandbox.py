"""A sandbox as an object: the session of a (user, thread), with its commands and files."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from types import TracebackType

from sandboxd_client import methods
from sandboxd_client.arguments import InstanceOrClass, checked, either
from sandboxd_client.cancellation import run_or_undo, run_to_end
from sandboxd_client.command_policy import CommandCheck, CommandPolicy, command_check
from sandboxd_client.commands import AsyncCommands
from sandboxd_client.connection import Connection, acquire, connected, release
from sandboxd_client.errors import InvalidRequestError, SessionNotFoundError
from sandboxd_client.files import AsyncFiles
from sandboxd_client.results import SessionInfo, StateName
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
from sandboxd_client.terminals import AsyncPty, AsyncShell
from sandboxd_proto.v1 import session_service_pb2 as pb
from sandboxd_proto.v1.session_pb2 import SessionUsage


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
        self._commands = AsyncCommands(hold)
        self._files = AsyncFiles(hold)
        self._pty = AsyncPty(hold)

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
                f"sandbox-{secrets.token_hex(8)}",
                timeout_minutes=timeout_minutes,
                timeout=timeout,
                metadata=metadata,
                env=env,
                envs=envs,
                project=project,
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
        `AsyncSandboxClient.projects`.

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
                methods.TOUCH_SESSION, pb.TouchSessionRequest(session_id=session_id)
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
    ) -> Sequence[SessionInfo]:
        """Sessions of the daemon, oldest first, by user, thread, state or labels.

        Only active ones by default; with `state=None`, ended ones too.

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

    @property
    def commands(self) -> AsyncCommands:
        """Commands of the sandbox."""
        return self._commands

    @property
    def files(self) -> AsyncFiles:
        """Files of the sandbox."""
        return self._files

    @property
    def pty(self) -> AsyncPty:
        """Terminals of the sandbox."""
        return self._pty

    def shell(self, name: str = "main") -> AsyncShell:
        """A named shell, which keeps directory and variables from one command to the next.

        Example:
            shell = sandbox.shell()
            await shell.run("cd outputs")
            print((await shell.run("pwd")).stdout)
        """
        return AsyncShell(self._commands, name)

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
        done = await connection.call(
            methods.RESET_SESSION, request, timeout=connection.timeouts.open
        )
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


def sandbox_of(
    connection: Connection, info: SessionInfo, *, check: CommandCheck | None = None
) -> AsyncSandbox:
    """A sandbox that uses a connection which its creator keeps and frees."""
    return AsyncSandbox(SessionHold(connection, info, check=check))
