"""The API over HTTP: routes, JSON, problems, events, files, sockets, and what stands before them."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from sandboxd.daemon.composition import Daemon
from tests.ports import free_port

StartDaemon = Callable[..., Awaitable[Daemon]]


class Http:
    """A client of a daemon over HTTP."""

    def __init__(self, address: str, **options: Any) -> None:
        self.url = f"http://{address}"
        self._options = options

    async def __aenter__(self) -> Http:
        self.session = aiohttp.ClientSession(self.url, **self._options)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def call(self, verb: str, path: str, **options: Any) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        async with self.session.request(verb, path, **options) as answer:
            return answer.status, await answer.json(content_type=None)

    async def ok(self, verb: str, path: str, **options: Any) -> Any:
        status, body = await self.call(verb, path, **options)
        assert status == 200, body
        return body


@pytest.fixture
async def daemon(start_daemon: StartDaemon) -> Daemon:
    return await start_daemon(http_address=f"127.0.0.1:{free_port()}")


@pytest.fixture
async def http(daemon: Daemon) -> AsyncIterator[Http]:
    async with Http(daemon.config.http_address) as http:
        yield http


async def opened(http: Http, thread: str = "1") -> str:
    body = {"userId": "ada", "thread_id": thread}
    return (await http.ok("POST", "/v1/sessions", json=body))["session"]["sessionId"]


async def test_a_session_lives_over_http(http: Http) -> None:
    """A session is opened, found, listed, used and closed by its resource."""
    session = await opened(http)
    assert (await http.ok("GET", f"/v1/sessions/{session}"))["session"]["userId"] == "ada"
    listed = await http.ok("GET", "/v1/sessions", params={"user_id": "ada", "page_size": "5"})
    assert [one["sessionId"] for one in listed["sessions"]] == [session]
    done = await http.ok("POST", f"/v1/sessions/{session}/run", json={"shell": "echo hello"})
    assert base64.b64decode(done["stdout"]["data"]) == b"hello\n"
    closed = await http.ok("DELETE", f"/v1/sessions/{session}")
    assert closed["session"]["state"] == "SESSION_STATE_CLOSED"
    status, problem = await http.call("GET", "/v1/sessions/none")
    assert (status, problem["reason"]) == (404, "SESSION_NOT_FOUND")
