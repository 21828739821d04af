"""Carriers of calls to a daemon: a channel (remote.py) or the process itself (local.py)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

from sandboxd_client.call_metadata import Metadata
from sandboxd_client.methods import Method, Request, Response


class Transport(Protocol):
    """Carries single calls. Every failure is raised as a SandboxError; nothing is repeated."""

    @property
    def can_come_back(self) -> bool:
        """Whether a daemon that does not answer may answer a little later."""

    async def start(self) -> None:
        """Prepare for calls."""

    async def ready(self, timeout: float, session_id: str = "") -> None:
        """Wait until the daemon can be reached again, if it was reached before.

        `session_id`: what the next call is about; empty for no session.
        """

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float,
        metadata: Metadata = (),
    ) -> Response:
        """One request, one response."""

    def stream(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float | None,
        metadata: Metadata = (),
    ) -> AsyncGenerator[Response, None]:
        """One request, many responses. Closing it cancels the call."""

    async def send(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> Response:
        """Many requests, one response; about this session, if any."""

    def converse(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float | None,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> AsyncGenerator[Response, None]:
        """Many requests, many responses, side by side. Closing it cancels the call."""

    async def aclose(self) -> None:
        """End all calls and free everything."""
