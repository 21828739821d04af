"""A sandbox as an object: the session of a (user, thread), with its commands and files."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from types import TracebackType

from sandboxd_client import methods
from sandboxd_client.command_policy import CommandCheck, CommandPolicy, command_check
from sandboxd_client.commands import AsyncCommands
from sandboxd_client.connection import Connection, acquire, release
from sandboxd_client.files import AsyncFiles
from sandboxd_client.results import SessionInfo
from sandboxd_client.session import SessionHold, close_session, get_session, open_session
from sandboxd_client.settings import Mode, Settings, Timeouts, resolve
from sandboxd_client.terminals import AsyncPty, AsyncShell
from sandboxd_proto.v1 import session_service_pb2 as pb


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
        hold: SessionHold,
        *,
        settings: Settings | None = None,
        is_temporary: bool = False,
    ) -> None:
        self._hold = hold
        self._settings = settings
        self._is_temporary = is_temporary
        self._commands = AsyncCommands(hold)
        self._files = AsyncFiles(hold)
        self._pty = AsyncPty(hold)

    @classmethod
    async def create(
        cls,
        *,
        timeout_minutes: float | None = None,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
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

        The daemon is `server_url` (`unix:`, `http://`, `https://`, `grpc://`, `host:port`),
        SANDBOXD_URL, or the local socket; with `mode="local"` it runs in this process.
        `policy="strict"` refuses commands that the policy of that name forbids before they are
        sent; a function receives each command and may refuse it with a PolicyError.

        Example:
            async with await AsyncSandbox.create(env={"LANG": "C.UTF-8"}) as sandbox:
                print((await sandbox.commands.run("echo $LANG")).stdout)
        """
        sandbox = await cls.open(
            user_id,
            f"sandbox-{secrets.token_hex(8)}",
            timeout_minutes=timeout_minutes,
            metadata=metadata,
            env=env,
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

    @classmethod
    async def open(
        cls,
        user_id: str,
        thread_id: str,
        *,
        timeout_minutes: float | None = None,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        project: str = "",
        mode: Mode | None = None,
        server_url: str | None = None,
        token: str | None = None,
        policy: CommandPolicy | None = None,
        timeouts: Timeouts | None = None,
        local_settings: Mapping[str, object] | None = None,
    ) -> AsyncSandbox:
        """The sandbox of a user's conversation, with its files; created if there is none.

        With `project`, project_files/ has the files of that project of the user, read-only and
        always as they are now; see `AsyncSandboxClient.projects`.

        Example:
            async with await AsyncSandbox.open("ada", "conversation-42") as sandbox:
                print(sandbox.info.status)
        """
        check = command_check(policy)
        settings = resolve(mode, server_url, token=token, local_settings=local_settings)
        connection = await acquire(settings, timeouts or Timeouts())
        try:
            info = await open_session(
                connection,
                user_id,
                thread_id,
                idle_seconds=None if timeout_minutes is None else timeout_minutes * 60,
                metadata=metadata,
                env=env,
                project=project,
            )
        except BaseException:
            await release(settings)
            raise
        return cls(SessionHold(connection, info, check=check), settings=settings)

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
            await release(settings)
            raise
        info = SessionInfo.of(touched.session)
        return cls(SessionHold(connection, info, check=check), settings=settings)

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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

    async def set_timeout(self, minutes: float) -> SessionInfo:
        """Set the idle time, in minutes, after which the session expires.

        Example:
            await sandbox.set_timeout(5)
        """
        info = self._hold.info
        self._hold.info = await open_session(
            self._hold.connection, info.user_id, info.thread_id, idle_seconds=minutes * 60
        )
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

    async def kill(self) -> SessionInfo:
        """End the session with its commands, and delete its files.

        Example:
            sandbox = await AsyncSandbox.create()
            await sandbox.kill()
            await sandbox.aclose()
        """
        return await close_session(self._hold.connection, self._hold.id)

    async def aclose(self) -> None:
        """Free the connection. The session stays open until it expires.

        Example:
            sandbox = await AsyncSandbox.open("ada", "conversation-42")
            await sandbox.aclose()
        """
        settings, self._settings = self._settings, None
        if settings is not None:
            await release(settings)


def sandbox_of(
    connection: Connection, info: SessionInfo, *, check: CommandCheck | None = None
) -> AsyncSandbox:
    """A sandbox that uses a connection which its creator keeps and frees."""
    return AsyncSandbox(SessionHold(connection, info, check=check))
