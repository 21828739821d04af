"""Upstreams: servers that a session reaches by a name of the operator, with a secret that it never
sees."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import aiohttp
import structlog
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from sandboxd.doors import http_head
from sandboxd.doors.addresses import Resolver, Unresolved
from sandboxd.doors.egress_ledger import Kind, LimitReached
from sandboxd.doors.egress_rules import DOOR_SUFFIX, HTTP_PORT
from sandboxd.doors.failures import Denied, Unreachable
from sandboxd.doors.http_forward import chunks, continue_if_asked
from sandboxd.doors.http_head import HOP_BY_HOP, BadMessage, Fields, RequestHead
from sandboxd.doors.relay import CHUNK, Connection, Count, idle_limit
from sandboxd.doors.scrubber import Scrubber
from sandboxd.doors.upstream_links import UpstreamLinks, leads_up

log = structlog.get_logger()

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 300.0
MAX_SECRET = 64 << 10
_DROPPED = HOP_BY_HOP | {
    *("accept-ranges", "content-encoding", "content-length", "set-cookie", "set-cookie2"),
}
"""Fields of answers that are not passed on. Cookies may stand for the secret."""
_PARTIAL = 206
_DECODED = frozenset({"", "identity", "gzip", "deflate", "br", "zstd"})
"""Encodings of answers in which a secret is seen: aiohttp decodes them."""
_NOT_SENT = frozenset({"accept-charset", "accept-encoding", "content-length", "if-range", "range"})
"""Fields by which a client would choose how an answer is written, or cut so that no piece of it has
the whole secret; and those that are set here."""
_OTHER_METHODS = frozenset({"x-http-method", "x-http-method-override", "x-method-override"})
"""Fields by which some servers take a request for one with another method."""


class SecretMissing(Exception):
    """The secret cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """A server of the operator's configuration."""

    name: str
    url: str
    """Where requests go, without a slash at its end."""
    header: str
    value: str
    """Value of the header; `{secret}` stands for the secret."""
    secret: Callable[[], str]
    """Reads it; OSError or ValueError."""
    methods: frozenset[str] = frozenset()
    """Empty means all."""
    users: frozenset[str] = frozenset()
    """Users whose sessions may use it; empty means all."""
    requests_per_minute: int = 60
    max_bytes: int = 100 << 20
    """In both directions together, for each session."""
    ca_file: Path | None = None

    @property
    def host(self) -> str:
        return f"{self.name}{DOOR_SUFFIX}"

    @cached_property
    def links(self) -> UpstreamLinks:
        return UpstreamLinks(self.url, self.host)


def secret_of_file(path: Path) -> str:
    """Read for each request, so that a new secret needs no restart."""
    with path.open() as file:
        secret = file.read(MAX_SECRET + 1).strip()
    if not secret or len(secret) > MAX_SECRET or not secret.isprintable():
        raise ValueError
    return secret


class Upstreams:
    """All upstreams of the daemon, and the client that speaks to them."""

    def __init__(
        self, upstreams: Mapping[str, Upstream] | None = None, resolver: Resolver | None = None
    ) -> None:
        self._upstreams = {one.host: one for one in (upstreams or {}).values()}
        self._resolver = resolver or Resolver()
        self._client: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    def find(self, host: str) -> Upstream | None:
        return self._upstreams.get(host)

    def of_session(self, user_id: str) -> SessionUpstreams:
        return SessionUpstreams(self, user_id)

    @property
    def client(self) -> aiohttp.ClientSession:
        """Made on demand: most daemons have no upstreams."""
        if self._client is None:
            timeout = aiohttp.ClientTimeout(
                total=None, connect=CONNECT_SECONDS, sock_read=IDLE_SECONDS
            )
            # No cookies, no proxy of the host's environment, no .netrc. The egress limits
            # connections; a second limit would let one session use up the share of others.
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=_SameNames(self._resolver), limit=0),
                timeout=timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
                max_line_size=http_head.MAX_HEAD,
                max_field_size=http_head.MAX_HEAD,
            )
        return self._client

    def context(self, upstream: Upstream) -> ssl.SSLContext:
        if upstream.name not in self._contexts:
            ca_file = str(upstream.ca_file) if upstream.ca_file else None
            self._contexts[upstream.name] = ssl.create_default_context(cafile=ca_file)
        return self._contexts[upstream.name]

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()


class _SameNames(AbstractResolver):
    """Looks names up as the egress does."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        try:
            found = await self._resolver.find(host)
        except Unresolved as error:
            raise OSError(str(error)) from None
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in found
        ]

    async def close(self) -> None:
        """The egress closes it."""


class SessionUpstreams:
    """The upstreams as one session may use them."""

    def __init__(self, upstreams: Upstreams, user_id: str) -> None:
        self._upstreams = upstreams
        self._user_id = user_id
        self._due: dict[str, float] = {}
        """When the requests so far would have been due at the steady rate, by upstream."""
        self._moved: dict[str, int] = {}

    async def serve(
        self,
        head: RequestHead,
        client: Connection,
        *,
        on_sent: Count,
        on_received: Count,
        idle_seconds: float,
    ) -> None:
        """Pass on one request with the secret; Denied, Unreachable, BadMessage, TimeoutError, what
        the counters raise, and EOFError if the answer ends in its middle."""
        upstream = self._permitted(head)
        self._take_turn(upstream)
        try:
            secret = upstream.secret()
        except (OSError, ValueError) as error:
            log.error("upstream.no_secret", upstream=upstream.name, error=type(error).__name__)
            raise Unreachable(
                f"the daemon cannot read the secret of {upstream.host}; ask the operator"
            ) from None
        async with idle_limit(idle_seconds) as mark:

            def counting(count: Count) -> Count:
                def on_bytes(number: int) -> None:
                    mark()
                    self._count(upstream, number)
                    count(number)

                return on_bytes

            exchange = _Exchange(
                upstream, head, client, on_sent=counting(on_sent), on_received=counting(on_received)
            )
            await exchange.run(self._upstreams, secret)

    def _permitted(self, head: RequestHead) -> Upstream:
        upstream = self._upstreams.find(head.host)
        if upstream is None:
            raise Denied(Kind.HOST, f"the operator has named no upstream {head.host}")
        if upstream.users and self._user_id not in upstream.users:
            raise Denied(Kind.HOST, f"this user may not use {head.host}; ask the operator")
        if head.method == "CONNECT" or head.port != HTTP_PORT:
            raise Denied(
                Kind.PROTOCOL, f"write http://{head.host}/...; the daemon adds TLS on its side"
            )
        if upstream.methods and head.method not in upstream.methods:
            allowed = ", ".join(sorted(upstream.methods))
            raise Denied(Kind.METHOD, f"{head.host} accepts only {allowed}")
        if leads_up(head.path):
            raise Denied(Kind.PROTOCOL, "the path leads up; write it without dots")
        return upstream

    def _take_turn(self, upstream: Upstream) -> None:
        """A steady rate after a burst of one minute's requests."""
        interval, now = 60.0 / upstream.requests_per_minute, time.monotonic()
        due = max(self._due.get(upstream.name, now), now)
        if due - now > 60.0 - interval:
            raise Denied(
                Kind.LIMIT,
                f"{upstream.host} accepts {upstream.requests_per_minute} requests a minute from a "
                "session; wait, and try again",
            )
        if self._moved.get(upstream.name, 0) >= upstream.max_bytes:
            raise Denied(
                Kind.LIMIT,
                f"this session has moved {upstream.max_bytes} bytes with {upstream.host}, which "
                "is all that it may",
            )
        self._due[upstream.name] = due + interval

    def _count(self, upstream: Upstream, number: int) -> None:
        moved = self._moved.get(upstream.name, 0) + number
        self._moved[upstream.name] = moved
        if moved > upstream.max_bytes:
            raise LimitReached


class _Exchange:
    """One request to an upstream, and its answer."""

    def __init__(
        self,
        upstream: Upstream,
        head: RequestHead,
        client: Connection,
        *,
        on_sent: Count,
        on_received: Count,
    ) -> None:
        self._upstream = upstream
        self._head = head
        self._client = client
        self._on_sent = on_sent
        self._on_received = on_received
        self._failure: Exception | None = None
        """Why the request could not be read to its end."""
        self._is_answered = False

    async def run(self, upstreams: Upstreams, secret: str) -> None:
        try:
            await self._pass_on(upstreams, secret)
        except (aiohttp.ClientError, ValueError) as error:
            if self._failure is not None:
                raise self._failure from None
            # Only the kind: the text of an error may repeat what was sent.
            name = self._upstream.name
            log.warning("upstream.failed", upstream=name, error=type(error).__name__)
            if self._is_answered:
                raise EOFError from None
            raise Unreachable(f"{self._upstream.host} does not answer properly") from None

    async def _pass_on(self, upstreams: Upstreams, secret: str) -> None:
        upstream, head = self._upstream, self._head
        value = upstream.value.replace("{secret}", secret)
        sent = [field for field in head.fields if _is_sent(field[0], upstream)]
        sent += [("Accept-Encoding", "identity"), (upstream.header, value)]
        if head.length:
            sent.append(("Content-Length", str(head.length)))
        async with upstreams.client.request(
            head.method,
            URL(upstream.url + head.path, encoded=True),
            headers=sent,
            data=self._body() if head.length != 0 else None,
            allow_redirects=False,
            ssl=upstreams.context(upstream),
        ) as answer:
            await self._answer(answer, Scrubber([value, secret]))

    async def _body(self) -> AsyncIterator[bytes]:
        try:
            await continue_if_asked(self._head, self._client)
            length, reader = self._head.length, self._client.reader
            async for part in chunks(reader) if length is None else _counted(reader, length):
                self._on_sent(len(part))
                yield part
        except (BadMessage, LimitReached, EOFError) as error:
            self._failure = error  # aiohttp reports only that something failed
            raise

    async def _answer(self, answer: aiohttp.ClientResponse, scrubber: Scrubber) -> None:
        head, writer = self._head, self._client.writer
        has_body = head.method != "HEAD" and answer.status not in (204, 304)
        encoding = answer.headers.get("Content-Encoding", "").lower()
        is_part = answer.status == _PARTIAL
        if answer.status < 200 or is_part or (has_body and encoding not in _DECODED):
            raise Unreachable(f"{self._upstream.host} answers in a way that nobody asked for")
        framing = [("Transfer-Encoding", "chunked")] if has_body and head.is_newer else []
        reason = scrubber.text(_printable(answer.reason or ""))
        fields = [*self._fields(answer, scrubber), *framing, ("Connection", "close")]
        self._is_answered = True
        writer.write(http_head.encode(f"HTTP/1.1 {answer.status} {reason}", fields))
        if has_body:
            async for part in scrubber.stream(answer.content.iter_chunked(CHUNK)):
                self._on_received(len(part))
                writer.write(b"%x\r\n%b\r\n" % (len(part), part) if framing else part)
                await writer.drain()
            if framing:
                writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _fields(self, answer: aiohttp.ClientResponse, scrubber: Scrubber) -> Fields:
        """Those that are passed on: a character stands for a byte, and none has two meanings."""
        local, found = self._upstream.links.local, []
        for raw_name, raw_content in answer.raw_headers:
            name, content = raw_name.decode("latin-1"), raw_content.decode("latin-1")
            if name.lower() not in _DROPPED and http_head.is_field(name, content):
                content = local(self._head.path, name, content)
                found.append((scrubber.text(name), scrubber.text(content)))
        return found


def _is_sent(name: str, upstream: Upstream) -> bool:
    if upstream.methods and name.lower() in _OTHER_METHODS:
        return False
    return name.lower() not in {upstream.header.lower(), *_NOT_SENT}


def _printable(text: str) -> str:
    return "".join(character if " " <= character <= "~" else "?" for character in text)


async def _counted(reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
    left = length
    while left:
        data = await reader.read(min(CHUNK, left))
        if not data:
            raise asyncio.IncompleteReadError(b"", left)
        left -= len(data)
        yield data
