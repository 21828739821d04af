"""Callers of a server in front of the daemon: their tokens are the daemon's, and it decides."""

from __future__ import annotations

import ipaddress
import secrets
from collections import OrderedDict
from dataclasses import dataclass

from sandboxd_client.connection import connected
from sandboxd_client.errors import InvalidRequestError, NotAuthorizedError, UnauthenticatedError
from sandboxd_client.integrations.conversation import DaemonSandboxes
from sandboxd_client.methods.sessions import WHO_AM_I
from sandboxd_client.settings import Settings, Timeouts, resolve
from sandboxd_proto.v1 import session_service_pb2 as pb

MAX_TOKENS = 256
"""Tokens whose connections are kept."""
TIMEOUTS = Timeouts(reconnect=30.0)


@dataclass(frozen=True)
class Caller:
    """Who sends a request, and the token that proves it."""

    user_id: str
    """User whose sandboxes the caller uses; empty for an admin, who has to name one."""
    name: str
    token: str | None


class Callers:
    """Finds out who a caller is, and keeps the connections that use its token.

    With `user_id` every caller is that user and the server's own token is used, as for a program
    on the same machine; otherwise each request needs a token, and the daemon has to check tokens.
    """

    def __init__(
        self, server_url: str | None, *, token: str | None = None, user_id: str | None = None
    ) -> None:
        self._url = server_url
        self._token = token
        self._user_id = user_id
        self._sandboxes: OrderedDict[str | None, DaemonSandboxes] = OrderedDict()

    @property
    def needs_token(self) -> bool:
        return self._user_id is None

    async def check_daemon(self) -> None:
        """Refuse to serve many callers for a daemon that does not check their tokens."""
        if not self.needs_token:
            return
        try:
            await self._who(f"sbx_{secrets.token_hex(24)}")
        except NotAuthorizedError:
            return
        raise InvalidRequestError(
            "The daemon does not ask for tokens at this address, so every caller would be an "
            "admin. Set SANDBOXD_TOKENS_FILE (and SANDBOXD_SOCKET_AUTH=token for its socket), or "
            "serve one user with --user."
        )

    async def of(self, token: str | None) -> Caller:
        """The caller with a token; UnauthenticatedError if the daemon does not know it."""
        if self._user_id is not None:
            return Caller(self._user_id, self._user_id, self._token)
        if not token:
            raise UnauthenticatedError("Send a token of sandboxd with the request.")
        who = await self._who(token)
        if who.scope == "read-only":
            raise NotAuthorizedError("This token may only read; sandboxes need one of a user.")
        return Caller(who.user_id, who.name, token)

    def sandboxes(self, caller: Caller) -> DaemonSandboxes:
        """Sandboxes that are opened with the caller's own token."""
        found = self._sandboxes.pop(caller.token, None) or DaemonSandboxes(
            "remote", self._url, token=caller.token, timeouts=TIMEOUTS
        )
        self._sandboxes[caller.token] = found
        return found

    async def trim(self) -> None:
        """Free the connections of tokens that were not used for longest."""
        while len(self._sandboxes) > MAX_TOKENS:
            _, least_used = self._sandboxes.popitem(last=False)
            await least_used.aclose()

    async def aclose(self) -> None:
        while self._sandboxes:
            _, sandboxes = self._sandboxes.popitem()
            await sandboxes.aclose()

    def settings(self, token: str | None) -> Settings:
        return resolve("remote", self._url, token=token)

    async def _who(self, token: str) -> pb.WhoAmIResponse:
        async with connected(self.settings(token), TIMEOUTS) as connection:
            return await connection.call(WHO_AM_I, pb.WhoAmIRequest())


def check_address(host: str, callers: Callers) -> None:
    """Without tokens a server must not be reachable from other machines."""
    if not callers.needs_token and not _is_loopback(host):
        raise InvalidRequestError(
            f"With --user everyone who reaches {host} would be that user; use a loopback address, "
            "or leave out --user so that each request needs a token."
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
