"""The egress of one session: an HTTP proxy on its loopback that passes on what its rules allow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sandboxd.access.shares import Full, NoPlace, Places
from sandboxd.doors import http_head
from sandboxd.doors.addresses import AddressRules, Resolver, Unresolved
from sandboxd.doors.client_hello import ALERT_DENIED, Need, NotTls, parse_client_hello
from sandboxd.doors.egress_ledger import EgressLedger, Kind, LimitReached
from sandboxd.doors.egress_rules import (
    DOOR_SUFFIX,
    EgressRule,
    InvalidHost,
    Verdict,
    is_address,
    judge,
    normal_host,
)
from sandboxd.doors.failures import Denied, Unreachable
from sandboxd.doors.http_forward import BadAnswer, forward
from sandboxd.doors.http_head import BadMessage, RequestHead
from sandboxd.doors.relay import CHUNK, Connection, drop_rest, join, reset
from sandboxd.doors.upstreams import Upstreams

HEAD_SECONDS = 20.0
"""How long a client may take to say what it wants."""
CONNECT_SECONDS = 10.0
_ASK = "ask for it with `egress` when the session is opened, or with `sandboxd egress set`"
_USED_UP = (
    "this session has moved as many bytes as it may; reset it, or ask the operator for more "
    "(SANDBOXD_EGRESS_MB)"
)
_STATUSES = {Kind.PROTOCOL: 400, Kind.LIMIT: 429}


@dataclass(frozen=True, kw_only=True)
class EgressLimits:
    """Limits of one session."""

    max_bytes: int = 1 << 30
    """In both directions together, for as long as it has its sandbox."""
    connections: int = 64
    connection_seconds: float = 3600.0
    idle_seconds: float = 300.0


@dataclass(eq=False)
class _Use:
    """One connection to a host."""

    request: RequestHead
    bytes_in: int = 0
    bytes_out: int = 0
    task: asyncio.Task[object] | None = field(default_factory=asyncio.current_task)


class Egress:
    """Serves the proxy of one session. `rules` may change while it does."""

    def __init__(
        self,
        rules: Sequence[EgressRule],
        ledger: EgressLedger,
        limits: EgressLimits,
        *,
        addresses: AddressRules,
        resolver: Resolver,
        upstreams: Upstreams,
        user_id: str,
        places: Places,
    ) -> None:
        """`places`: of the connections of all sessions together."""
        self.rules = rules
        self.ledger = ledger
        self._limits = limits
        self._addresses = addresses
        self._resolver = resolver
        self._upstreams = upstreams.of_session(user_id)
        self._user_id = user_id
        self._places = places
        self._uses: set[_Use] = set()

    def change(self, rules: Sequence[EgressRule]) -> None:
        """Use other rules from now on; connections that they do not allow are ended."""
        self.rules = rules
        for use in tuple(self._uses):
            verdict, _ = self._judge(use.request)
            if verdict is not Verdict.ALLOWED and use.task is not None:
                use.task.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, which is one request."""
        client = Connection(reader, writer)
        head: RequestHead | None = None
        try:
            head = await _read_head(reader)
            with self._places.place(self._user_id):
                await self._pass_on(head, client)
        except NoPlace as error:
            whose = "this user" if error.why is Full.SHARE else "all sessions"
            problem = f"too many connections of {whose} are open; close some, or try again"
            await self._deny(client, head, Denied(Kind.LIMIT, problem))
        except BadMessage as error:
            await self._deny(client, head, Denied(Kind.PROTOCOL, str(error)))
        except Denied as denied:
            await self._deny(client, head, denied)
        except (Unreachable, BadAnswer) as error:
            await _answer(client, 502, str(error))
            await _drop_body(client, head)
        except TimeoutError:
            # Nothing moved for too long, or the connection is too old. What was passed on so far
            # must not be taken for a whole answer.
            reset(writer)

    async def _pass_on(self, head: RequestHead, client: Connection) -> None:
        if not self.ledger.has_room:
            raise Denied(Kind.LIMIT, _USED_UP)
        self._check_rules(head)
        with self._using(head) as use:
            async with asyncio.timeout(self._limits.connection_seconds):
                if head.host.endswith(DOOR_SUFFIX):
                    await self._upstreams.serve(
                        head,
                        client,
                        on_sent=self._count_out(use),
                        on_received=self._count_in(use),
                        idle_seconds=self._limits.idle_seconds,
                    )
                elif head.method == "CONNECT":
                    await self._tunnel(use, client)
                else:
                    await self._forward(use, client)

    def _judge(self, head: RequestHead) -> tuple[Verdict, EgressRule | None]:
        method = None if head.method == "CONNECT" else head.method
        return judge(self.rules, head.host, head.port, method)

    def _check_rules(self, head: RequestHead) -> None:
        verdict, near = self._judge(head)
        match verdict:
            case Verdict.HOST:
                allowed = ", ".join(map(str, self.rules[:5])) or "nothing"
                raise Denied(
                    Kind.HOST,
                    f"the host {head.host} is not on the list of this session ({allowed}); {_ASK}",
                )
            case Verdict.PORT:
                raise Denied(Kind.PORT, f"the rule {near} does not allow port {head.port}; {_ASK}")
            case Verdict.METHOD:
                raise Denied(Kind.METHOD, f"the rule {near} does not allow {head.method}; {_ASK}")

    @contextmanager
    def _using(self, head: RequestHead) -> Iterator[_Use]:
        use = _Use(head)
        self._uses.add(use)
        self.ledger.connections += 1
        try:
            yield use
        except LimitReached:
            raise _Cut(Kind.LIMIT, _USED_UP) from None
        finally:
            self._uses.discard(use)
            self.ledger.on_used(
                head.host, head.port, bytes_in=use.bytes_in, bytes_out=use.bytes_out
            )

    # --- TLS ---

    async def _tunnel(self, use: _Use, client: Connection) -> None:
        """Check the name inside TLS before the first byte leaves the host."""
        server = await self._connect(use.request)
        try:
            client.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await client.writer.drain()
            hello = await self._checked_hello(use.request, client)
            self._count_out(use)(len(hello))
            server.writer.write(hello)
            await self._join(use, client, server)
        finally:
            server.writer.transport.abort()

    async def _checked_hello(self, head: RequestHead, client: Connection) -> bytes:
        """The first bytes of the client. What is denied here gets an alert of TLS."""
        hello = b""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                while (found := parse_client_hello(hello)) is Need.MORE:
                    data = await client.reader.read(CHUNK)
                    if not data:
                        raise NotTls("it ended before it said what it wants")
                    hello += data
        except NotTls as error:
            raise _Inside(Kind.PROTOCOL, f"only TLS is passed on to {head.host}: {error}") from None
        assert not isinstance(found, Need)
        if found.hides_name:
            raise _Inside(Kind.NAME, "TLS hides the name of the host (ECH); turn that off")
        if not _names(found.server_name, head.host):
            raise _Inside(
                Kind.NAME,
                f"TLS asks for {found.server_name or 'no host'} on a connection to {head.host}",
            )
        return hello

    # --- plain HTTP ---

    async def _forward(self, use: _Use, client: Connection) -> None:
        server = await self._connect(use.request)
        try:
            await forward(
                use.request,
                client,
                server,
                on_sent=self._count_out(use),
                on_received=self._count_in(use),
                idle_seconds=self._limits.idle_seconds,
            )
        finally:
            server.writer.transport.abort()

    # --- connections ---

    async def _connect(self, head: RequestHead) -> Connection:
        """A connection to an address that is checked; the name is not looked up again."""
        try:
            found = await self._resolver.find(head.host, self._user_id)
        except Unresolved as error:
            raise Unreachable(f"{head.host} was not found: {error}") from None
        problems = {address: self._addresses.problem(address, head.port) for address in found}
        usable = [address for address, problem in problems.items() if not problem]
        if not usable:
            reasons = ", ".join(f"{address} {problem}" for address, problem in problems.items())
            raise Denied(
                Kind.ADDRESS,
                f"{head.host} leads to {reasons}; the operator can name it in "
                "SANDBOXD_EGRESS_PRIVATE",
            )
        for address in usable:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return Connection(
                        *await asyncio.open_connection(address, head.port, limit=CHUNK)
                    )
            except OSError:  # also if it took too long
                continue
        raise Unreachable(f"{head.host}:{head.port} does not answer")

    async def _join(self, use: _Use, client: Connection, server: Connection) -> None:
        await join(
            client,
            server,
            on_sent=self._count_out(use),
            on_received=self._count_in(use),
            idle_seconds=self._limits.idle_seconds,
        )

    def _count_out(self, use: _Use) -> Callable[[int], None]:
        def count(number: int) -> None:
            use.bytes_out += number
            self.ledger.add_out(number)

        return count

    def _count_in(self, use: _Use) -> Callable[[int], None]:
        def count(number: int) -> None:
            use.bytes_in += number
            self.ledger.add_in(number)

        return count

    # --- denials ---

    async def _deny(self, client: Connection, head: RequestHead | None, denied: Denied) -> None:
        host, port = (head.host, head.port) if head else ("", 0)
        self.ledger.on_denied(denied.kind, host, port, str(denied))
        if isinstance(denied, _Inside):
            client.writer.write(ALERT_DENIED)
            await client.writer.drain()
        elif isinstance(denied, _Cut):
            reset(client.writer)
        else:
            await _answer(client, _STATUSES.get(denied.kind, 403), str(denied), denied.kind)
            await _drop_body(client, head)


class _Inside(Denied):
    """Denied after the connection was established: an answer in HTTP would be taken for TLS."""


class _Cut(Denied):
    """Denied in the middle of an answer, to which nothing may be added."""


def _names(name: str | None, host: str) -> bool:
    """Whether TLS asks for the host. It has no names for addresses, so clients send none then."""
    if name is None:
        return is_address(host)
    try:
        return normal_host(name) == host
    except InvalidHost:
        return False


async def _read_head(reader: asyncio.StreamReader) -> RequestHead:
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            data = await reader.readuntil(http_head.HEAD_END)
    except asyncio.LimitOverrunError:
        raise BadMessage("the head is too long") from None
    return http_head.parse_request(data)


async def _drop_body(client: Connection, head: RequestHead | None) -> None:
    if head is None or head.length != 0:
        await drop_rest(client)


async def _answer(client: Connection, status: int, message: str, rule: Kind | None = None) -> None:
    """Say it where programs show it: many show only the first line of an answer to CONNECT."""
    text = f"sandboxd: {message}"
    body = f"{text}\n".encode()
    fields = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    if rule is not None:
        fields.append(("X-Sandboxd-Denied", rule.value))
    first = f"HTTP/1.1 {status} {text.encode('ascii', 'replace').decode()}"
    head = http_head.encode(first, [*fields, ("Connection", "close")])
    client.writer.write(head + body)
    await client.writer.drain()
