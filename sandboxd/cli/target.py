"""The daemon and the session that a command works on."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from sandboxd.cli import table
from sandboxd.cli.failure import NOT_FOUND, USAGE, Failure
from sandboxd_client import AsyncSandbox, AsyncSandboxClient, SessionInfo, SessionList, Timeouts
from sandboxd_client.connection import Connection, connected
from sandboxd_client.sandbox import sandbox_of
from sandboxd_client.session import get_session, open_session
from sandboxd_client.settings import resolve

SESSION_ID = re.compile(r"ses_[A-Za-z0-9]+")
TIMEOUTS = Timeouts(reconnect=30.0)


@dataclass(frozen=True)
class Target:
    """A daemon, named by options or the environment."""

    url: str | None
    token: str | None

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncSandboxClient]:
        """A client for calls that are not about one session."""
        client = AsyncSandboxClient("remote", self.url, token=self.token, timeouts=TIMEOUTS)
        try:
            yield client
        finally:
            await client.aclose()

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for calls that the client does not offer."""
        return connected(resolve("remote", self.url, token=self.token), TIMEOUTS)

    @asynccontextmanager
    async def sandbox(
        self, session: str, *, opens: bool = False, continues: bool = False
    ) -> AsyncIterator[AsyncSandbox]:
        """The sandbox of a session; with `continues`, one that is parked or stopped is opened, and
        with `opens`, USER/THREAD also if it has no session.

        Without both this does not count as use of the session.
        """
        async with self.connection() as connection:
            if opens and not SESSION_ID.fullmatch(session):
                info = await open_session(connection, *user_and_thread(session))
            else:
                info = await get_session(connection, await self.session_id(session))
                if (opens or continues) and info.state in ("parked", "stopped"):
                    info = await open_session(connection, info.user_id, info.thread_id)
            _say_if_opened(session, info)
            yield sandbox_of(connection, info)

    @asynccontextmanager
    async def sandbox_or_new(self, session: str | None) -> AsyncIterator[AsyncSandbox]:
        """The sandbox of a session, or one for this block only."""
        if session is not None:
            async with self.sandbox(session, opens=True) as sandbox:
                yield sandbox
            return
        created = await AsyncSandbox.create(
            mode="remote", server_url=self.url, token=self.token, timeouts=TIMEOUTS
        )
        async with created as sandbox:
            yield sandbox

    async def session_id(self, session: str) -> str:
        """The id of a session that is named by its id or by USER/THREAD."""
        if SESSION_ID.fullmatch(session):
            return session
        user, thread = user_and_thread(session)
        async with self.client() as client:
            found = await client.list_sessions(user_id=user, thread_id=thread)
        warn_of_missing(found)
        if not found:
            raise Failure(
                f"{user} has no session for thread {thread}; open it with: "
                f"sandboxd session open {user} {thread}",
                NOT_FOUND,
            )
        return _best(found)


def _say_if_opened(session: str, info: SessionInfo) -> None:
    """On stderr: a typing error would go unnoticed otherwise."""
    match info.status, info.workspace_kept:
        case "created", _:
            what = f"had no session; opened {info.session_id}"
        case "recreated", True:
            what = "was stopped; opened it again with its files"
        case "recreated", False:
            what = "had ended; opened it again without its files"
        case "unparked", _:
            what = "was parked; opened it again with its files"
        case _:
            return
    click.echo(f"sandboxd: {session} {what}", err=True)


def _best(sessions: Sequence[SessionInfo]) -> str:
    """The active one, otherwise the newest."""
    active = [info for info in sessions if info.state == "active"]
    return (active or sessions)[-1].session_id


def warn_of_missing(found: SessionList) -> None:
    """Say on stderr which workers of a cluster a listing lacks."""
    if found.missing_workers:
        click.echo(f"warning: {without_missing(found.missing_workers)}", err=True)


def without_missing(workers: Sequence[str]) -> str:
    names = table.printable(", ".join(workers))
    if len(workers) == 1:
        return f"worker {names} does not answer; its sessions may be missing"
    return f"workers {names} do not answer; their sessions may be missing"


def user_and_thread(session: str) -> tuple[str, str]:
    user, slash, thread = session.partition("/")
    if not (user and slash and thread):
        raise Failure(
            f"{session!r} is not a valid session: use its id (ses_...) or USER/THREAD", USAGE
        )
    return user, thread


def target_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add --url and --token to a command, and pass its function a `target`."""

    @click.option(
        "--url", metavar="URL", help="Daemon: unix:/path, host:port or https://host:port."
    )
    @click.option(
        "--token", metavar="TOKEN", help="Token; prefer SANDBOXD_TOKEN, which others cannot see."
    )
    @functools.wraps(function)
    def with_target(*arguments: Any, url: str | None, token: str | None, **others: Any) -> None:
        function(*arguments, target=Target(url, token), **others)

    return with_target


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


class Pairs(click.ParamType[tuple[str, str]]):
    """KEY=VALUE."""

    name = "KEY=VALUE"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, str]:
        key, is_pair, text = str(value).partition("=")
        if not (key and is_pair):
            self.fail(f"{value!r} is not KEY=VALUE", parameter, context)
        return key, text


class JsonObject(click.ParamType[dict[str, object]]):
    """A JSON object, or @FILE with one."""

    name = "JSON"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> dict[str, object]:
        text = str(value)
        try:
            found = json.loads(Path(text[1:]).read_bytes() if text[:1] == "@" else text)
        except OSError as error:
            self.fail(f"{text[1:]}: {error.strerror}", parameter, context)
        except ValueError as error:
            self.fail(f"not valid JSON: {error}", parameter, context)
        if not isinstance(found, dict):
            self.fail("not a JSON object", parameter, context)
        return found
