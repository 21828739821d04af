"""A daemon over TCP that asks its callers for tokens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sandboxd_client import AsyncSandbox, SessionInfo
from tests.docker.daemon_process import DaemonProcess, running_daemon
from tests.ports import free_port

SCOPES = {
    "ada": ("--user", "ada"),
    "bob": ("--user", "bob"),
    "admin": ("--admin",),
    "reader": ("--read-only",),
}


@dataclass
class TokenDaemon:
    """Address and tokens of the daemon, by the names above."""

    daemon: DaemonProcess
    url: str
    tokens: dict[str, str]

    async def sessions(self, user: str) -> list[SessionInfo]:
        found = await AsyncSandbox.list(
            user_id=user, server_url=self.url, token=self.tokens["admin"]
        )
        return list(found)


@asynccontextmanager
async def token_daemon(directory: Path, **settings: str) -> AsyncIterator[TokenDaemon]:
    file = directory / "tokens"
    tokens = {name: _new_token(file, *scope) for name, scope in SCOPES.items()}
    file.chmod(0o600)
    port = free_port()
    async with running_daemon(
        HOST="127.0.0.1",
        PORT=str(port),
        SANDBOXD_TOKENS_FILE=str(file),
        **{"MAX_CONTAINERS": "40", **settings},
    ) as daemon:
        yield TokenDaemon(daemon, f"127.0.0.1:{port}", tokens)


def _new_token(file: Path, *scope: str) -> str:
    made = subprocess.run(
        [sys.executable, "-m", "sandboxd", "token", "create", *scope],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    with file.open("a") as lines:
        lines.write(f"{made.splitlines()[-1]}\n")
    return next(word for word in made.split() if word.startswith("sbx_"))
