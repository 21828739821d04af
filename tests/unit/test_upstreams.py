"""Upstreams against servers of the test: what comes back to a sandbox, and what does not."""

from __future__ import annotations

import asyncio
import base64
import gzip
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme

from sandboxd.access.shares import EGRESS_CONNECTIONS, Places
from sandboxd.doors.addresses import AddressRules, Resolver
from sandboxd.doors.egress import Egress, EgressLimits
from sandboxd.doors.egress_ledger import EgressLedger, Kind
from sandboxd.doors.egress_rules import parse_rules
from sandboxd.doors.relay import reset
from sandboxd.doors.scrubber import Scrubber
from sandboxd.doors.upstream_links import UpstreamLinks
from sandboxd.doors.upstreams import Upstream, Upstreams
from tests.fakes.waiting import eventually

SECRET = "s3cret/of+the&operator"
WAIT_SECONDS = 60
TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")


class Server:
    """An upstream that answers with bytes of the test, and the proxy in front of it."""

    def __init__(self) -> None:
        self.answer: bytes | Callable[[], AsyncIterator[bytes]] = b""
        self.requests: list[bytes] = []
        self.port = 0
        self.egress: Egress
        self.ledger: EgressLedger
        self.recorded: list[tuple[str, object]] = []
        self.serving = 0
        """Connections that the proxy has."""
        self.tasks: set[asyncio.Task[object]] = set()

    @asynccontextmanager
    async def owned(self, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """The current task ends with the test, and its connection with it."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            yield
            writer.close()
        except (OSError, EOFError):
            reset(writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self.tasks.discard(task)

    async def on_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self.owned(writer):
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            if isinstance(self.answer, bytes):
                writer.write(self.answer)
            else:
                async for part in self.answer():
                    writer.write(part)
                    await writer.drain()
            await writer.drain()

    async def ask(self, request: bytes, *, expects_reset: bool = False) -> bytes:
        """The answer to a request through the proxy, as `OpenDoor` serves it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        received = bytearray()
        is_reset = False
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                while data := await reader.read(1 << 16):
                    received += data
            except ConnectionResetError:
                is_reset = True
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        assert is_reset == expects_reset, bytes(received)
        return bytes(received)

    async def get(self, path: str = "/x", version: str = "1.1", more: str = "") -> bytes:
        return await self.ask(f"GET http://site.door{path} HTTP/{version}\r\n{more}\r\n".encode())


@asynccontextmanager
async def served(
    directory: Path,
    *,
    max_bytes: int = 1 << 20,
    idle_seconds: float = WAIT_SECONDS,
    methods: frozenset[str] = frozenset(),
) -> AsyncIterator[Server]:
    made, authority = Server(), trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("site.test").configure_cert(context)
    server = await asyncio.start_server(made.on_request, "127.0.0.1", 0, ssl=context)
    upstream = Upstream(
        name="site",
        url=f"https://site.test:{server.sockets[0].getsockname()[1]}/api",
        header="Authorization",
        value="Bearer {secret}",
        secret=lambda: SECRET,
        methods=methods,
        requests_per_minute=1000,
        max_bytes=max_bytes,
        ca_file=directory / "ca.pem",
    )
    resolver = Resolver({"site.test": "127.0.0.1"})
    upstreams = Upstreams({"site": upstream}, resolver)
    made.ledger = EgressLedger(max_bytes=1 << 30, record=lambda *line: made.recorded.append(line))
    made.egress = Egress(
        parse_rules(["site.door"]),
        made.ledger,
        EgressLimits(idle_seconds=idle_seconds),
        addresses=AddressRules(),
        resolver=resolver,
        upstreams=upstreams,
        user_id="ada",
        places=Places(EGRESS_CONNECTIONS),
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.serving += 1
        async with made.owned(writer):
            try:
                await made.egress.serve(reader, writer)
            finally:
                made.serving -= 1

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0, limit=64 << 10)
    made.port = proxy.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        proxy.close()
        server.close()
        made.ledger.flush()
        await upstreams.aclose()
        for task in made.tasks:
            task.cancel()
        async with asyncio.timeout(WAIT_SECONDS):
            while made.tasks:
                await asyncio.wait(made.tasks)


def answered(fields: str, body: bytes = b"", status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{fields}\r\n"
    return head.encode("latin-1") + body


async def test_the_secret_is_starred_out_in_every_usual_form(tmp_path: Path) -> None:
    """In fields and in the body: as it is, in a URL, in JSON, in HTML, in base64, and compressed
    although nobody asked for that."""
    forms = [
        SECRET,
        f"Bearer {SECRET}",
        "s3cret%2Fof%2Bthe%26operator",
        "s3cret%2fof%2bthe%26operator",
        "s3cret/of+the&amp;operator",
        "czNjcmV0L29mK3RoZSZvcGVyYXRvcg==",
    ]
    fields = "".join(f"X-{number}: {form}\r\n" for number, form in enumerate(forms))
    fields += "Content-Encoding: gzip\r\n"
    async with served(tmp_path) as made:
        made.answer = answered(fields, gzip.compress(" ".join(forms).encode()), f"200 {SECRET}")
        text = await made.get()
    assert text.startswith(b"HTTP/1.1 200 ****")
    for form in forms:
        assert form.rstrip("=").encode() not in text
    assert text.count(b"*" * len(SECRET)) >= 2 * len(forms)
    assert f"Authorization: Bearer {SECRET}".encode() in made.requests[0]


@pytest.mark.parametrize("secret", [SECRET, "\u00ff\u00fe?>?>secret", "abcd", "sbx_0123456789abc"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_the_secret_is_starred_out_of_base64_wherever_it_begins(
    secret: str, encode: Callable[[bytes], bytes]
) -> None:
    """At any distance from a multiple of three bytes, with anything before and after it: what is
    left differs by a few bits at most from what stands for something else."""
    raw, scrubber = secret.encode(), Scrubber([f"Bearer {secret}", secret])
    for before, after in product(range(7), range(4)):
        text = encode(bytes(range(65, 65 + before)) + raw + b"z" * after)
        found = scrubber.scrub(text)
        assert len(found) == len(text)
        left = base64.urlsafe_b64decode(found.replace(b"*", b"A").translate(TO_URL_SAFE))
        of_secret = left[before : before + len(raw)]
        assert not of_secret[1:-1].strip(b"\0"), (text, found)
        assert left[: max(0, before - 1)] == bytes(range(65, 65 + before))[: max(0, before - 1)]


def test_the_secret_is_starred_out_of_hexadecimal_digits_and_of_base64_in_a_url() -> None:
    raw = b"\xff\xfe?>?>secret".decode("latin-1")
    scrubber = Scrubber([raw])
    digits = raw.encode().hex()
    assert scrubber.scrub(f"x{digits}y{digits.upper()}".encode()).strip(b"*xy") == b""
    in_url = quote(base64.b64encode(raw.encode()).decode().rstrip("="), safe="")
    assert "%2" in in_url
    for written in (in_url, in_url.replace("%2F", "%2f").replace("%2B", "%2b")):
        assert scrubber.scrub(written.encode()).strip(b"*") == b"Q"


async def test_a_client_gets_no_piece_of_an_answer(tmp_path: Path) -> None:
    """Two pieces would have the secret between them; nor does it choose a character set in which
    nobody sees the secret."""
    async with served(tmp_path) as made:
        made.answer = answered("Accept-Ranges: bytes\r\n", SECRET.encode())
        more = 'Range: bytes=0-9\r\nIf-Range: "x"\r\nAccept-Charset: utf-16\r\n'
        text = await made.get(more=more, version="1.0")
        assert text.endswith(b"\r\n\r\n" + b"*" * len(SECRET))
        assert b"ccept-" not in text
        sent = made.requests[0].lower()
        assert b"range" not in sent
        assert b"charset" not in sent

        made.answer = answered("Content-Range: bytes 0-9/20\r\n", b"x", "206 Partial Content")
        assert (await made.get()).startswith(b"HTTP/1.1 502 ")


async def test_an_encoding_in_which_no_secret_is_seen_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as made:
        made.answer = answered("Content-Encoding: gzip, gzip\r\n", b"x")
        text = await made.get()
    assert text.startswith(b"HTTP/1.1 502 ")


async def test_fields_are_passed_on_byte_by_byte(tmp_path: Path) -> None:
    """Also those that are not ASCII; cookies and lengths are not."""
    async with served(tmp_path) as made:
        name = "Ren\u00e9 \u2192 \u65e5\u672c.txt".encode()
        head = b"X-Name: %b\r\nSet-Cookie: a=b\r\n" % name
        made.answer = answered(head.decode("latin-1"), b"body")
        text = await made.get(version="1.0")
    assert b"X-Name: %b\r\n" % name in text
    assert b"Cookie" not in text
    assert text.endswith(b"\r\n\r\nbody")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_an_answer_that_breaks_off_is_not_taken_for_a_whole_one(
    tmp_path: Path, version: str
) -> None:
    """The connection is reset; nothing of ours is added to the body."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf of it"

    async with served(tmp_path) as made:
        made.answer = broken
        text = await made.ask(
            f"GET http://site.door/x HTTP/{version}\r\n\r\n".encode(), expects_reset=True
        )
    assert b"502" not in text


async def test_a_client_that_does_not_read_is_ended(tmp_path: Path) -> None:
    """After the idle time, although the upstream has more to send."""

    async def endless() -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            yield bytes(1 << 16)

    async with served(tmp_path, idle_seconds=0.5, max_bytes=1 << 40) as made:
        made.answer = endless
        _, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(b"GET http://site.door/x HTTP/1.1\r\n\r\n")
        await eventually(lambda: made.ledger.connections == 1, timeout_seconds=WAIT_SECONDS)
        await eventually(lambda: not made.serving, timeout_seconds=WAIT_SECONDS)
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def test_bytes_are_counted_and_limited_in_both_directions(tmp_path: Path) -> None:
    """What is beyond the limit of an upstream is cut, and the next request says why."""
    async with served(tmp_path, max_bytes=5000) as made:
        made.answer = answered("", b"x" * 3000)
        assert (await made.get()).endswith(b"0\r\n\r\n")
        assert made.ledger.bytes_in == 3000
        body = b"POST http://site.door/x HTTP/1.1\r\nContent-Length: 4000\r\n\r\n" + bytes(4000)
        await made.ask(body, expects_reset=True)
        assert b"429 sandboxd: this session has moved" in await made.get()
        assert made.ledger.denials == {Kind.LIMIT: 2}
        made.ledger.flush()
    used = [line[1] for line in made.recorded if line[0] == "egress.used"]
    assert used[0]["bytes_in"] == 3000  # type: ignore[index]


async def test_a_request_that_is_malformed_is_the_clients_fault(tmp_path: Path) -> None:
    async with served(tmp_path) as made:
        head = b"POST http://site.door/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert b"HTTP/1.1 400 " in await made.ask(head + b"5;x=y\r\nhello\r\n0\r\n\r\n")
    assert made.ledger.denials == {Kind.PROTOCOL: 1}


async def test_a_method_cannot_be_disguised(tmp_path: Path) -> None:
    """Where the operator lists methods, fields that stand for another are dropped."""
    more = "X-HTTP-Method-Override: DELETE\r\nX-Keep: 1\r\nX-Keep: 2\r\n"
    async with served(tmp_path, methods=frozenset({"GET"})) as made:
        made.answer = answered("")
        await made.get(more=more)
    assert b"DELETE" not in made.requests[0]
    assert made.requests[0].count(b"X-Keep") == 2


async def test_a_switch_to_another_protocol_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as made:
        made.answer = (
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
        )
        assert (await made.get()).startswith(b"HTTP/1.1 502 ")


async def test_many_slow_requests_do_not_delay_others(tmp_path: Path) -> None:
    """More than a client of HTTP keeps open by default."""
    release = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        if len(made.requests) <= 110:
            await release.wait()
        yield answered("", b"done")

    async with served(tmp_path) as made:
        made.answer = slow
        waiting = [asyncio.ensure_future(made.get()) for _ in range(110)]
        await eventually(lambda: len(made.requests) == 110, timeout_seconds=WAIT_SECONDS)
        assert b"done" in await made.get()
        release.set()
        assert all(b"done" in text for text in await asyncio.gather(*waiting))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://api.test/v1/a?b=c#d", "http://x.door/a?b=c#d"),
        ("HTTPS://API.test:443/v1/a", "http://x.door/a"),
        ("https://api.test/v1", "http://x.door/"),
        ("/v1/a", "http://x.door/a"),
        ("a", "http://x.door/dir/a"),
        ("?page=2", "http://x.door/dir/asked?page=2"),
        ("", "http://x.door/dir/asked?x=1"),
        ("../a", "http://x.door/a"),
        ("../../a", "https://api.test/a"),
        ("/a", "https://api.test/a"),
        ("https://api.test/v1x/a", "https://api.test/v1x/a"),
        ("https://api.test/v1/../a", "https://api.test/v1/../a"),
        ("https://api.test/v1/%2e%2e/a", "https://api.test/v1/%2e%2e/a"),
        ("https://api.test.evil.test/v1/a", "https://api.test.evil.test/v1/a"),
        ("https://user@api.test/v1/a", "https://user@api.test/v1/a"),
        ("https://api.test:8443/v1/a", "https://api.test:8443/v1/a"),
        ("http://api.test/v1/a", "http://api.test/v1/a"),
        ("//evil.test/a", "https://evil.test/a"),
        ("https://e.test/?to=https://api.test/v1/a", "https://e.test/?to=https://api.test/v1/a"),
        ("file:///etc/passwd", "file:///etc/passwd"),
        ("https://[::1/a", "https://[::1/a"),
        ("https://api.test:x/v1/a", "https://api.test:x/v1/a"),
    ],
)
def test_addresses_of_an_upstream_become_those_of_its_door(address: str, expected: str) -> None:
    """Exactly those; relative ones are written out where a client would misunderstand them."""
    links = UpstreamLinks("https://api.test/v1", "x.door")
    assert links.local("/dir/asked?x=1", "Location", address) == expected
    both = f'<{address}>; rel="next", <https://api.test/v1/z>; rel="last"'
    wanted = f'<{expected}>; rel="next", <http://x.door/z>; rel="last"'
    assert links.local("/dir/asked?x=1", "Link", both) == wanted
    assert links.local("/", "X-Other", address) == address


async def test_a_secret_is_starred_out_wherever_parts_meet() -> None:
    secret = "top-secret-value"

    async def parts(text: bytes, size: int) -> AsyncIterator[bytes]:
        for at in range(0, len(text), size):
            yield text[at : at + size]

    text = b"a " + secret.encode() + b" b " + secret.encode()
    for size in range(1, len(text) + 1):
        scrubber = Scrubber([f"Bearer {secret}", secret])
        found = b"".join([part async for part in scrubber.stream(parts(text, size))])
        assert found == b"a " + b"*" * len(secret) + b" b " + b"*" * len(secret)
        assert len(found) == len(text)
