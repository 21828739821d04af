"""Ports of a sandbox: listed from outside, forwarded, and shown to a browser."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio

from sandboxd_client import AsyncSandbox, PortNotListeningError, Sandbox, SessionExpiredError
from tests.docker.daemon_process import DaemonProcess, running_daemon

WAIT_SECONDS = 60
SERVER = """
import base64, hashlib, http.server, socketserver, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            return self.websocket()
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "/there")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        said = f"{self.command} {self.path} host={self.headers['Host']} "
        body = (said + f"cookie={self.headers['Cookie']}").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "a=1; Path=/")
        self.send_header("Set-Cookie", "wide=1; Domain=localhost")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.upper())

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                break
            mask, size = self.rfile.read(4), head[1] & 127
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            self.wfile.write(bytes([0x81, size]) + text.upper())
            self.wfile.flush()
        self.close_connection = True

class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

ECHO = """
import socket
listener = socket.create_server(("127.0.0.1", 7000))
peer, _ = listener.accept()
while data := peer.recv(100):
    peer.sendall(data)
"""

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon() -> AsyncIterator[DaemonProcess]:
    async with running_daemon(POOL_SIZE="2") as daemon:
        yield daemon


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sandbox(daemon: DaemonProcess) -> AsyncIterator[AsyncSandbox]:
    """With a server on port 8080."""
    url = f"unix:{daemon.socket}"
    async with await AsyncSandbox.open("ada", "42", server_url=url) as sandbox:
        await sandbox.files.write("server.py", SERVER)
        await sandbox.commands.run("python3 server.py 8080", background=True, timeout=3000)
        await listening(sandbox, 8080)
        yield sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[aiohttp.ClientSession]:
    """Resolves names below localhost, as browsers do."""

    class Names(aiohttp.abc.AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[object]:
            assert host.endswith("localhost")
            found = {"hostname": host, "host": "127.0.0.1", "port": port, "proto": 0, "flags": 0}
            return [{**found, "family": socket.AF_INET}]

        async def close(self) -> None: ...

    connector = aiohttp.TCPConnector(resolver=Names())  # type: ignore[arg-type]
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as session:
        yield session


async def listening(sandbox: AsyncSandbox, port: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while port not in [one.port for one in await sandbox.ports.list()]:
            await asyncio.sleep(0.05)


async def get(browser: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, str]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with browser.get(url, headers=names, allow_redirects=False) as answer:
        return answer.status, await answer.text()


async def test_ports_are_listed_from_outside(sandbox: AsyncSandbox) -> None:
    """With their addresses, IPv6 too; the daemon's doors are not among them."""
    program = "import socket,time;s=socket.create_server(('::1',9001),family=10);time.sleep(600)"
    other = await sandbox.commands.run(f'python3 -c "{program}"', background=True, timeout=600)
    await sandbox.egress.set(["example.com"])
    await listening(sandbox, 9001)
    found = {(one.port, one.address) for one in await sandbox.ports.list()}
    assert found == {(8080, "127.0.0.1"), (9001, "::1")}
    async with await sandbox.ports.forward(9001) as forward:
        _, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        writer.close()
    await other.kill()
    await sandbox.egress.set([])


async def test_a_forwarded_port_carries_both_directions(sandbox: AsyncSandbox) -> None:
    """Many connections, a megabyte each way, and the end of one direction before the other."""
    async with await sandbox.ports.forward(8080) as forward:

        async def once() -> None:
            body = b"x" * (1 << 20)
            reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
            head = f"POST / HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            writer.write_eof()
            answer = await reader.read()
            assert answer.endswith(b"X" * (1 << 20))
            writer.close()

        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(*(once() for _ in range(5)))


async def test_a_port_without_a_listener_is_an_error(sandbox: AsyncSandbox) -> None:
    async with await sandbox.ports.forward(9999) as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert "port 9999" in forward.last_error
    with pytest.raises(PortNotListeningError):
        from sandboxd_client.methods.ports import FORWARD_PORT
        from sandboxd_proto.v1 import port_service_pb2 as pb

        async def requests() -> AsyncIterator[pb.ForwardPortRequest]:
            target = pb.PortTarget(session_id=sandbox.session_id, port=9999)
            yield pb.ForwardPortRequest(target=target)

        async for _ in sandbox._hold.connection.converse(FORWARD_PORT, requests()):
            raise AssertionError


async def test_the_command_line_forwards_a_port(
    daemon: DaemonProcess, sandbox: AsyncSandbox, browser: aiohttp.ClientSession
) -> None:
    """`sandboxd port-forward ada/42 8080`, `--preview`, and `sandboxd ports`."""
    command = [sys.executable, "-m", "sandboxd"]
    where = ["--url", f"unix:{daemon.socket}"]
    process = await asyncio.create_subprocess_exec(
        *(*command, "port-forward", "ada/42", "8080", "--local-port", "0", *where),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_SECONDS):
        line = (await process.stdout.readline()).decode()
        address = line.split()[0]
        assert (await get(browser, f"http://localhost:{address.partition(':')[2]}/cli"))[0] == 200
        process.terminate()
        await process.wait()
        for words, expected in (
            (("ports", "ada/42"), "8080"),
            (("port-forward", "ada/42", "8080", "--preview"), ".localhost:"),
            (("egress", "show", "ada/42"), "it reaches nothing"),
            (("egress", "set", "ada/42", "example.com"), "example.com"),
            (("egress", "set", "ada/42", "--none"), "it reaches nothing"),
        ):
            ran = await asyncio.create_subprocess_exec(
                *(*command, *words, *where), stdout=subprocess.PIPE
            )
            assert expected in (await ran.communicate())[0].decode()


async def test_a_preview_has_an_origin_of_its_own(
    sandbox: AsyncSandbox, browser: aiohttp.ClientSession
) -> None:
    """Requests reach the program as local ones, with its cookies, and none for other hosts."""
    url = await sandbox.ports.url(8080)
    token = (urlsplit(url).hostname or "").removesuffix(".localhost")
    assert len(token) >= 50
    async with browser.get(f"{url}page?x=1", headers={"Cookie": "b=2"}) as answer:
        assert await answer.text() == "GET /page?x=1 host=localhost:8080 cookie=b=2"
        assert answer.headers.getall("Set-Cookie") == ["a=1; Path=/"]
        assert answer.headers["Referrer-Policy"] == "no-referrer"
    async with browser.post(url, data=b"hello") as answer:
        assert await answer.read() == b"HELLO"


async def test_a_preview_under_a_path_has_neither_cookies_nor_an_origin(
    sandbox: AsyncSandbox, browser: aiohttp.ClientSession
) -> None:
    """All of these share 127.0.0.1, also with other services of this host."""
    preview = await sandbox.ports.preview(8080)
    url = preview.path_url.replace("127.0.0.1", "localhost")
    async with browser.get(f"{url}page", headers={"Cookie": "console=secret"}) as answer:
        assert await answer.text() == "GET /page host=localhost:8080 cookie=None"
        assert "Set-Cookie" not in answer.headers
        assert answer.headers["Content-Security-Policy"].startswith("sandbox ")
        assert "allow-same-origin" not in answer.headers["Content-Security-Policy"]
    async with browser.get(f"{url}away", allow_redirects=False) as answer:
        assert answer.headers["Location"] == f"{urlsplit(url).path}there"


async def test_a_websocket_works_through_a_preview(
    sandbox: AsyncSandbox, browser: aiohttp.ClientSession
) -> None:
    preview = await sandbox.ports.preview(8080)
    for url in (preview.url, preview.path_url.replace("127.0.0.1", "localhost")):
        async with asyncio.timeout(WAIT_SECONDS), browser.ws_connect(f"{url}ws") as socket_:
            await socket_.send_str("hello")
            assert await socket_.receive_str() == "HELLO"


async def test_previews_refuse_strangers(
    sandbox: AsyncSandbox, browser: aiohttp.ClientSession
) -> None:
    """Wrong tokens, pages of other origins, and names that lead here by DNS rebinding."""
    preview = await sandbox.ports.preview(8080)
    url, port = preview.url, urlsplit(preview.url).port
    guess = url.replace(url[7:9], "aa" if url[7:9] != "aa" else "bb", 1)
    assert (await get(browser, guess))[0] == 404
    assert (await get(browser, f"http://localhost:{port}/"))[0] == 404
    assert (await get(browser, f"http://localhost:{port}/{'a' * 52}/"))[0] == 404
    own = url.rstrip("/")
    assert (await get(browser, url, Origin=own))[0] == 200
    for origin in ("http://evil.example.com", "null", f"http://localhost:{port}"):
        assert (await get(browser, url, Origin=origin))[0] == 403
    assert (await get(browser, url, Sec_Fetch_Site="cross-site"))[0] == 403
    visit = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert (await get(browser, url, **visit))[0] == 200
    for host in ("evil.example.com", f"evil.example.com:{port}", "127.0.0.1", f"127.0.0.1:{port}1"):
        assert (await get(browser, url, Host=host))[0] in (400, 404, 421)
    with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
        await browser.ws_connect(f"{url}ws", origin="http://evil.example.com")
    assert raised.value.status == 403


async def test_a_preview_ends(sandbox: AsyncSandbox, browser: aiohttp.ClientSession) -> None:
    """When its time is over, or when it is deleted; so do its connections."""
    preview = await sandbox.ports.preview(8080, ttl=1)
    async with asyncio.timeout(WAIT_SECONDS):
        while (await get(browser, preview.url))[0] != 404:
            await asyncio.sleep(0.1)
    assert datetime.fromisoformat(preview.expires_at) <= datetime.now(UTC)
    preview = await sandbox.ports.preview(8080)
    assert (await get(browser, preview.url))[0] == 200
    async with asyncio.timeout(WAIT_SECONDS), browser.ws_connect(f"{preview.url}ws") as socket_:
        await socket_.send_str("hello")
        assert await socket_.receive_str() == "HELLO"
        assert await sandbox.ports.delete_previews(8080) >= 1
        assert (await socket_.receive()).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
    assert (await get(browser, preview.url))[0] == 404


async def test_traffic_is_use_and_an_idle_tunnel_is_not(daemon: DaemonProcess) -> None:
    """A session lives as long as bytes move through a port, and expires with an open connection on
    which none do."""
    url = f"unix:{daemon.socket}"
    made = await AsyncSandbox.open("ada", "idle", server_url=url, timeout=600)
    await made.files.write("echo.py", ECHO)
    await made.commands.run("setsid nohup python3 echo.py >/dev/null 2>&1 </dev/null &")
    await listening(made, 7000)
    forward = await made.ports.forward(7000)
    reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
    await made.set_timeout(seconds=3)
    loop = asyncio.get_running_loop()
    began = loop.time()
    while loop.time() - began < 6:
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        await asyncio.sleep(0.3)
    assert (await made.refresh()).state == "active"
    async with asyncio.timeout(WAIT_SECONDS):
        assert await reader.read() == b""
    writer.close()
    with pytest.raises(SessionExpiredError):
        await made.ports.list()
    await forward.aclose()
    await made.aclose()


async def test_the_sync_face_forwards_too(daemon: DaemonProcess, sandbox: AsyncSandbox) -> None:
    """The same classes without `await`."""

    def work() -> bytes:
        with (
            Sandbox.open("ada", "42", server_url=f"unix:{daemon.socket}") as again,
            again.ports.forward(8080) as forward,
            socket.create_connection(("127.0.0.1", forward.local_port), 30) as peer,
        ):
            peer.sendall(b"GET /sync HTTP/1.0\r\n\r\n")
            return peer.makefile("rb").read()

    assert b"GET /sync" in await asyncio.to_thread(work)
