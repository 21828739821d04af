"""The conversation that a sandbox belongs to, and how to find its sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary

from sandboxd_client.command_policy import CommandPolicy, command_check
from sandboxd_client.connection import Connection, acquire, release
from sandboxd_client.errors import (
    InvalidRequestError,
    SandboxLostError,
    SessionExpiredError,
    SessionNotFoundError,
    SessionParkedError,
    SessionRecreatedError,
)
from sandboxd_client.sandbox import AsyncSandbox, sandbox_of
from sandboxd_client.session import get_session, open_session
from sandboxd_client.settings import Mode, Timeouts, resolve
from sandboxd_client.snapshot_results import AutoSnapshotName

T = TypeVar("T")
_ENDED = (
    SessionExpiredError,
    SandboxLostError,
    SessionRecreatedError,
    SessionNotFoundError,
    SessionParkedError,
)


@dataclass(frozen=True)
class Conversation:
    """User and thread of the agent. Set by the program around the model, never by the model.

    Example:
        Conversation(user_id="ada", thread_id="conversation-42")
    """

    user_id: str
    thread_id: str
    runtime: object = field(default=None, compare=False, repr=False)
    """The framework's own context of the tool call, for file systems that need it."""

    def __post_init__(self) -> None:
        for name, value in (("user_id", self.user_id), ("thread_id", self.thread_id)):
            if not isinstance(value, str) or not value:
                raise InvalidRequestError(f"{name}: missing in the context of the tool call")


class Sandboxes(Protocol):
    """Finds the sandbox of a conversation."""

    async def open(self, conversation: Conversation, *, is_repeated: bool = False) -> AsyncSandbox:
        """The existing sandbox or a new one; `info.status` says which.

        `is_repeated`: for work that is repeated, which the daemon's statistics count separately.
        """

    async def aclose(self) -> None:
        """Free the connections. Sessions stay open until they expire."""


async def in_sandbox(
    sandboxes: Sandboxes, conversation: Conversation, work: Callable[[AsyncSandbox], Awaitable[T]]
) -> T:
    """Do the work in the conversation's sandbox; start again if the session ends before it."""
    sandbox = await sandboxes.open(conversation)
    try:
        return await work(sandbox)
    except _ENDED as error:
        if error.may_have_begun:
            raise
    return await work(await sandboxes.open(conversation, is_repeated=True))


class DaemonSandboxes:
    """Sandboxes of one daemon, over one connection per event loop."""

    def __init__(
        self,
        mode: Mode | None,
        server_url: str | None,
        *,
        token: str | None = None,
        policy: CommandPolicy | None = None,
        timeouts: Timeouts | None = None,
        local_settings: Mapping[str, object] | None = None,
        idle_minutes: float | None = None,
        auto_snapshot: AutoSnapshotName | None = None,
        command_policy: str = "",
        default_policy: str = "",
    ) -> None:
        self._settings = resolve(mode, server_url, token=token, local_settings=local_settings)
        self._check = command_check(policy)
        self._timeouts = timeouts or Timeouts()
        self._idle_seconds = None if idle_minutes is None else idle_minutes * 60
        self._auto_snapshot = auto_snapshot
        self._command_policy = command_policy
        self._default_policy = default_policy
        self._connections: WeakKeyDictionary[asyncio.AbstractEventLoop, Connection] = (
            WeakKeyDictionary()
        )

    async def open(self, conversation: Conversation, *, is_repeated: bool = False) -> AsyncSandbox:
        connection = await self.connection()
        info = await open_session(
            connection,
            conversation.user_id,
            conversation.thread_id,
            idle_seconds=self._idle_seconds,
            auto_snapshot=self._auto_snapshot,
            command_policy=self._command_policy,
            default_policy=self._default_policy,
        )
        if is_repeated:
            connection = connection.repeating()
        return sandbox_of(connection, info, check=self._check)

    async def connect(self, session_id: str) -> AsyncSandbox:
        """The sandbox of an active session, by its id; does not count as use."""
        connection = await self.connection()
        info = await get_session(connection, session_id)
        if info.state != "active":
            raise SessionNotFoundError(f"The session {session_id} has ended: {info.state}.")
        return sandbox_of(connection, info, check=self._check)

    async def aclose(self) -> None:
        connection = self._connections.pop(asyncio.get_running_loop(), None)
        if connection is not None:
            await release(connection)

    async def connection(self) -> Connection:
        """The connection of this event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            connection = await acquire(self._settings, self._timeouts)
            if loop in self._connections:
                await release(connection)  # another task did it first
            else:
                self._connections[loop] = connection
        return self._connections[loop]
