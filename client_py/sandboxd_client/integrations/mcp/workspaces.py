"""Whose sandbox a request is about: the token decides about the user, the client about the thread.

The model never names a user. It may name a workspace, but only where the client names none.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from sandboxd_client.errors import SandboxError
from sandboxd_client.integrations.callers import Caller, Callers
from sandboxd_client.integrations.conversation import Conversation, in_sandbox
from sandboxd_client.sandbox import AsyncSandbox

T = TypeVar("T")
AnyContext: TypeAlias = Context[Any, Any]
THREAD_HEADER, USER_HEADER, SESSION_HEADER = (
    "x-sandboxd-thread",
    "x-sandboxd-user",
    "mcp-session-id",
)
_HANDLE = re.compile(r"ws_[0-9a-f]{32}")


class Workspaces:
    """Sandboxes of the conversations that this server serves."""

    def __init__(self, callers: Callers, *, thread_id: str | None = None) -> None:
        """`thread_id`: of the only conversation, as over standard input and output."""
        self._callers = callers
        self._thread_id = thread_id

    @property
    def is_single(self) -> bool:
        return self._thread_id is not None

    async def use(
        self,
        context: AnyContext,
        workspace: str | None,
        work: Callable[[AsyncSandbox], Awaitable[T]],
    ) -> T:
        """Do the work in the sandbox of the request; failures are words for the model."""
        try:
            caller = await self._callers.of(_token(context))
            conversation = Conversation(
                self._user(caller, context), self._thread(context, workspace)
            )
            done = await in_sandbox(self._callers.sandboxes(caller), conversation, work)
            await self._callers.trim()
            return done
        except SandboxError as error:
            raise ToolError(str(error)) from error

    def new_handle(self) -> str:
        """A name for a workspace that nobody can guess."""
        return f"ws_{secrets.token_hex(16)}"

    def _user(self, caller: Caller, context: AnyContext) -> str:
        """Only an admin's client may name the user, in a header."""
        user_id = caller.user_id or _headers(context).get(USER_HEADER, "")
        if not user_id:
            raise ToolError(
                f"The token belongs to an admin; its client has to send {USER_HEADER} as well."
            )
        return user_id

    def _thread(self, context: AnyContext, workspace: str | None) -> str:
        headers = _headers(context)
        if self._thread_id is not None:
            return self._thread_id
        if named := headers.get(THREAD_HEADER):
            return named
        if workspace is not None:
            if not _HANDLE.fullmatch(workspace):
                raise ToolError("workspace: not the id of a workspace; open_workspace returns one.")
            return workspace
        if session := headers.get(SESSION_HEADER):
            return f"mcp_{hashlib.sha256(session.encode()).hexdigest()[:32]}"
        raise ToolError(
            "This client does not say which conversation it is. Call open_workspace once, then "
            "give its id to every call as `workspace`."
        )


def _headers(context: AnyContext) -> Mapping[str, str]:
    return context.headers or {}


def _token(context: AnyContext) -> str | None:
    """The token that the server has verified for this request."""
    request = context.request_context.request
    user = request.scope.get("user") if request is not None else None
    found = getattr(user, "access_token", None)
    return None if found is None else str(found.token)
