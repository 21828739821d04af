"""Previews: what a program in a sandbox serves, for a browser on this host.

Each preview has a token of 256 bits that nobody can guess, and is reached in two ways:

- `http://TOKEN.localhost:PORT/`: an origin of its own, so that a page has its own cookies and
  storage, and cannot read another preview or the daemon's console;
- `http://127.0.0.1:PORT/TOKEN/`: for programs that do not resolve such names. All of these share
  an origin, so pages get an opaque one (a CSP sandbox) and no cookies.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import structlog

from sandboxd.access.shares import PREVIEW_CONNECTIONS, NoPlace, Places
from sandboxd.doors import http_head
from sandboxd.doors.http_forward import BadAnswer, forward
from sandboxd.doors.http_head import BadMessage, Fields, RequestHead
from sandboxd.doors.relay import CHUNK, Connection, finish, reset
from sandboxd.lost_connections import closed_as_lost

log = structlog.get_logger()

LOOPBACK = "127.0.0.1"
MAX_SILENT = 64
"""Connections that have not said yet which preview they want; another one ends the oldest."""
MAX_OF_A_SESSION = 32
HEAD_SECONDS = 5.0
IDLE_SECONDS = 300.0
_LOCAL_SUFFIX = ".localhost"
_SANDBOX = (
    "sandbox allow-downloads allow-forms allow-modals allow-pointer-lock allow-popups allow-scripts"
)
_PASSED_ON = frozenset(
    {
        *("accept-ranges", "age", "allow", "cache-control", "content-disposition"),
        *("content-encoding", "content-language", "content-length", "content-location"),
        *("content-range", "content-security-policy", "content-security-policy-report-only"),
        *("content-type", "cross-origin-embedder-policy", "cross-origin-opener-policy"),
        *("cross-origin-resource-policy", "date", "deprecation", "etag", "expires"),
        *("last-modified", "link", "location", "permissions-policy", "pragma", "refresh"),
        *("retry-after", "server", "server-timing", "sourcemap", "sunset"),
        *("timing-allow-origin", "traceparent", "transfer-encoding", "vary", "via", "warning"),
        "www-authenticate",
    }
)
"""Fields of answers that are about this answer or its page. Others can act on more than that, as
Clear-Site-Data does on all ports of a host, and browsers learn new ones."""
_OF_PROGRAMS = ("access-control-", "grpc-", "hx-", "idempotency-", "mcp-", "ratelimit", "x-")
"""How names begin that browsers leave to the programs of pages, or that are about one request."""
_OF_AN_ORIGIN = frozenset({"origin-agent-cluster", "service-worker-allowed", "set-cookie"})
"""Fields that are for all pages of an origin."""


class PortUse(NamedTuple):
    """A connection to a port of a session."""

    connection: Connection
    touch: Callable[[], None]
    """To be called when bytes move: that is use of the session."""


class NotReached(Exception):
    """A port of a session cannot be reached; the text says why."""


Reach: TypeAlias = Callable[[str, int, int], AbstractAsyncContextManager[PortUse]]
"""Connects to a port of a session, by its id, incarnation and the port; NotReached."""


class ListenerFailed(Exception):
    """The listener could not be opened; the text says why."""


class TooManyPreviews(Exception):
    """A session has as many previews as it may have."""


@dataclass(frozen=True)
class Preview:
    user_id: str
    session_id: str
    incarnation: int
    port: int
    expires_at: float
    """Seconds since the epoch."""

    @property
    def seconds_left(self) -> float:
        return self.expires_at - time.time()


class CreatedPreview(NamedTuple):
    token: str
    url: str
    """With an origin of its own."""
    path_url: str
    preview: Preview


class _Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Asked(NamedTuple):
    """A request that has a right to be passed on."""

    head: RequestHead
    """As the program inside gets it."""
    preview: Preview
    prefix: str
    """Path of the preview; empty if it has an origin of its own."""


class Previews:
    """Serves previews on loopback; it listens from the first one on."""

    def __init__(
        self,
        reach: Reach,
        *,
        port: int = 0,
        has_ended: Callable[[str], bool] = lambda session_id: False,
    ) -> None:
        """`has_ended` tells whether a session will never be reached again."""
        self._reach = reach
        self._has_ended = has_ended
        self._wanted_port = port
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()
        self._by_hash: dict[bytes, Preview] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.Task[Any], None] = {}
        """Connections that have not been admitted to a preview, oldest first."""
        self._places = Places(PREVIEW_CONNECTIONS)
        self._served: dict[asyncio.Task[Any], Preview] = {}
        """Connections that have been admitted to a preview."""
        self.port = 0

    # --- previews ---

    async def create(
        self, session_id: str, incarnation: int, port: int, *, seconds: float, user_id: str
    ) -> CreatedPreview:
        """`user_id`: of the session. ListenerFailed, TooManyPreviews."""
        await self._listen()
        self._forget_useless()
        if sum(one.session_id == session_id for one in self._by_hash.values()) >= MAX_OF_A_SESSION:
            raise TooManyPreviews
        token = base64.b32encode(secrets.token_bytes(32)).decode().rstrip("=").lower()
        preview = Preview(user_id, session_id, incarnation, port, time.time() + seconds)
        self._by_hash[_hash(token)] = preview
        url = f"http://{token}{_LOCAL_SUFFIX}:{self.port}/"
        return CreatedPreview(token, url, f"http://{LOOPBACK}:{self.port}/{token}/", preview)

    def delete_of(self, session_id: str, port: int = 0) -> int:
        """Delete the previews of a session, or of one of its ports, and end their connections;
        returns how many."""
        gone = [
            key
            for key, one in self._by_hash.items()
            if one.session_id == session_id and port in (0, one.port)
        ]
        for key in gone:
            deleted = self._by_hash.pop(key)
            for serving, preview in tuple(self._served.items()):
                if preview is deleted:
                    serving.cancel()
        return len(gone)

    def _forget_useless(self) -> None:
        """Those that have expired, and those of sessions that have ended."""
        for key, one in tuple(self._by_hash.items()):
            if one.seconds_left <= 0 or self._has_ended(one.session_id):
                del self._by_hash[key]

    def __len__(self) -> int:
        return len(self._by_hash)

    def _find(self, token: str) -> Preview:
        # Looked up by its hash, so that the time it takes reveals nothing about any token.
        found = self._by_hash.get(_hash(token))
        if found is None or found.seconds_left <= 0:
            raise _Refused(404, "there is no such preview, or it has expired; make a new one")
        return found

    # --- listener ---

    async def _listen(self) -> None:
        async with self._starting:
            if self._server is not None:
                return
            try:
                self._server = await asyncio.start_server(
                    self._on_connected, LOOPBACK, self._wanted_port, limit=CHUNK
                )
            except OSError as error:
                raise ListenerFailed(
                    f"{LOOPBACK}:{self._wanted_port} cannot be opened ({error.strerror}); set "
                    "SANDBOXD_PREVIEW_PORT to a free port, or to 0 for any"
                ) from error
            self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def _on_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._silent) >= MAX_SILENT:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.cancel()
        serving = asyncio.get_running_loop().create_task(
            self._serve(Connection(reader, writer)), name="preview", context=Context()
        )
        self._connections.add(serving)
        self._silent[serving] = None

        def on_done(done: asyncio.Task[None]) -> None:
            self._connections.discard(done)
            self._silent.pop(done, None)
            if done.cancelled():  # perhaps before it began
                reset(writer)

        serving.add_done_callback(on_done)

    # --- requests ---

    async def _serve(self, client: Connection) -> None:
        try:
            with closed_as_lost():
                await self._answer(client)
            await finish(client.writer)
        except (OSError, EOFError):  # also if nothing moved for too long
            reset(client.writer)
        except asyncio.CancelledError:
            reset(client.writer)
            raise
        except Exception as error:
            log.error("preview.failed", exc_info=error)
            reset(client.writer)

    async def _answer(self, client: Connection) -> None:
        try:
            head, is_websocket = await _read_head(client)
            asked = self._admitted(head)
            preview = asked.preview
            async with (
                self._serving(preview),
                asyncio.timeout(preview.seconds_left),
                self._reach(preview.session_id, preview.incarnation, preview.port) as use,
            ):
                await _pass_on(asked, client, use, is_websocket=is_websocket)
        except BadMessage as error:
            await _refuse(client, 400, str(error))
        except _Refused as refused:
            await _refuse(client, refused.status, str(refused))
        except (BadAnswer, NotReached) as error:
            await _refuse(client, 502, str(error))

    @asynccontextmanager
    async def _serving(self, preview: Preview) -> AsyncIterator[None]:
        serving = asyncio.current_task()
        assert serving is not None
        self._silent.pop(serving, None)
        try:
            with self._places.place(preview.user_id):
                self._served[serving] = preview
                yield
        except NoPlace as error:
            raise _Refused(503, f"{error}; close some, or try again") from None
        finally:
            self._served.pop(serving, None)

    def _admitted(self, head: RequestHead) -> _Asked:
        """The preview that a request names, if its page may ask for it."""
        if head.port != self.port:
            raise _Refused(421, "this is not the address of a preview")
        token = head.host.removesuffix(_LOCAL_SUFFIX)
        if token != head.host:
            prefix, path, own = "", head.path, f"http://{head.host}:{self.port}"
        elif head.host in (LOOPBACK, "localhost"):
            token, _, rest = head.path.lstrip("/").partition("/")
            token = token.partition("?")[0]
            prefix, path, own = f"/{token}", f"/{rest}", "null"
        else:
            # A name that leads here, but is not ours: DNS rebinding.
            raise _Refused(421, "this is not the address of a preview")
        preview = self._find(token)
        _check_origin(head, {own, f"http://{head.host}:{self.port}"})
        dropped = {"cookie"} if prefix else set()
        fields = [field for field in head.fields if field[0].lower() not in dropped]
        inside = replace(head, host="localhost", port=preview.port, path=path, fields=fields)
        return _Asked(inside, preview, prefix)


def _check_origin(head: RequestHead, own: set[str]) -> None:
    """Refuse what a page of another origin asks for."""
    for name, value in head.fields:
        if name.lower() == "origin" and value not in own:
            raise _Refused(403, "a page of another origin may not use this preview")
        if name.lower() == "sec-fetch-site" and value in ("cross-site", "same-site"):
            is_visit = ("sec-fetch-mode", "navigate") in (
                (name.lower(), value) for name, value in head.fields
            )
            if not (is_visit and head.method == "GET") and "null" not in own:
                raise _Refused(403, "a page of another origin may not use this preview")


async def _pass_on(asked: _Asked, client: Connection, use: PortUse, *, is_websocket: bool) -> None:
    def count(_: int) -> None:
        use.touch()

    await forward(
        asked.head,
        client,
        use.connection,
        on_sent=count,
        on_received=count,
        idle_seconds=IDLE_SECONDS,
        edit=lambda fields: _edited(fields, asked.prefix),
        is_websocket=is_websocket,
    )


def _edited(fields: Fields, prefix: str) -> Fields:
    """Fields of an answer: no referrer with the token in it, no cookies for other origins, and
    nothing by which a browser does something beyond the page."""
    added = [("Referrer-Policy", "no-referrer")]
    if prefix:
        added.append(("Content-Security-Policy", _SANDBOX))
    kept = [field for field in fields if _is_passed_on(field[0].lower(), has_own=not prefix)]
    return [_located(field, prefix) for field in kept if not _sets_wide_cookie(*field)] + added


def _is_passed_on(name: str, *, has_own: bool) -> bool:
    """Whether a preview, with an origin of its own or not, may answer with this field."""
    if name in _OF_AN_ORIGIN:
        return has_own
    return name in _PASSED_ON or name.startswith(_OF_PROGRAMS)


def _located(field: tuple[str, str], prefix: str) -> tuple[str, str]:
    """A field in which a path of the program becomes a path of its preview."""
    name, value = field
    is_path = value.startswith("/") and not value.startswith("//")
    return (name, prefix + value) if name.lower() == "location" and is_path else field


def _sets_wide_cookie(name: str, value: str) -> bool:
    """Whether it sets a cookie that other hosts than this one get, too."""
    attributes = (part.partition("=")[0].strip().lower() for part in value.split(";")[1:])
    return name.lower() == "set-cookie" and "domain" in attributes


async def _read_head(client: Connection) -> tuple[RequestHead, bool]:
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            data = await client.reader.readuntil(http_head.HEAD_END)
    except asyncio.LimitOverrunError:
        raise BadMessage("the head is too long") from None
    return http_head.parse_served_request(data)


async def _refuse(client: Connection, status: int, message: str) -> None:
    body = f"sandboxd: {message}\n".encode()
    fields = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
    ]
    client.writer.write(http_head.encode(f"HTTP/1.1 {status} Refused", fields) + body)
    await client.writer.drain()


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
