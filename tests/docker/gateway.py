"""A daemon that checks tokens, and `sandboxd e2b-gateway` in front of it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.docker.token_daemon import TokenDaemon


class Gateway:
    """A daemon that asks for tokens, and the gateway in front of it."""

    def __init__(self, daemon: TokenDaemon, url: str) -> None:
        self.daemon, self.url = daemon, url

    def environment(self, who: str = "ada") -> dict[str, str]:
        key = self.daemon.tokens.get(who, who)
        return {"E2B_API_URL": self.url, "E2B_SANDBOX_URL": self.url, "E2B_API_KEY": key}

    async def call(self, method: str, path: str, who: str = "ada", **options: Any) -> Any:
        headers = {"X-API-Key": self.daemon.tokens.get(who, who), **options.pop("headers", {})}
        async with (
            aiohttp.ClientSession() as http,
            http.request(method, self.url + path, headers=headers, **options) as answer,
        ):
            body = await answer.read()
            return answer.status, body

    async def sandbox(self, who: str = "ada", **options: Any) -> dict[str, str]:
        """A new sandbox; the headers that name it and give access to it."""
        async with (
            aiohttp.ClientSession() as http,
            http.post(
                f"{self.url}/v2/sandboxes",
                json={"templateID": "base", **options},
                headers={"X-API-Key": self.daemon.tokens[who]},
            ) as answer,
        ):
            made = await answer.json()
        assert answer.status == 201, made
        return {"E2b-Sandbox-Id": made["sandboxID"], "X-Access-Token": made["envdAccessToken"]}


@asynccontextmanager
async def gateway(daemon: TokenDaemon, *arguments: str) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sandboxd",
        "e2b-gateway",
        "--http",
        "127.0.0.1:0",
        *arguments,
        env={**os.environ, "SANDBOXD_URL": daemon.url},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            address = await process.stdout.readline()
        yield address.decode().strip()
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(30):
            await process.wait()
