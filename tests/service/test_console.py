"""The bridge of the web console: logins, the socket of a page, files as bodies, foreign pages."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import aiohttp
import grpc
import pytest
import trustme
from google.protobuf.empty_pb2 import Empty
from google.rpc import code_pb2

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd.audit.check import entries
from sandboxd.audit.files import strangers_directory
from sandboxd.config import Config
from sandboxd.console import socket as frames
from sandboxd.console.bodies import document_policy
from sandboxd.console.site import HEADERS, LOGIN_TRIES, MAX_STRANGERS
from sandboxd.daemon.composition import Daemon, running
from sandboxd.http import listener as listener_module
from sandboxd.service.transport.rules import RULES
from sandboxd_proto.v1 import (
    admin_service_pb2,
    exec_service_pb2,
    file_service_pb2,
    session_service_pb2,
)
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.ports import free_port
from tests.service.client import Api, exec_request, refused
from tests.service.console_client import Browser, Page, Refused

StartDaemon = Callable[..., Awaitable[Daemon]]
WHO = session_service_pb2.WhoAmIRequest, session_service_pb2.WhoAmIResponse
ADA = Caller(name="ada", scope=Scope.USER, user_id="ada")


@pytest.fixture
async def daemon(start_daemon: StartDaemon) -> Daemon:
    return await start_daemon(console_port=free_port())


@pytest.fixture
async def browser(daemon: Daemon) -> AsyncIterator[Browser]:
    """Logged in as the host."""
    async with Browser(daemon.config.console_port) as browser:
        assert await browser.follow(await link_of(daemon)) == 200
        yield browser


@pytest.fixture
async def page(browser: Browser) -> Page:
    return await browser.open()


async def link_of(daemon: Daemon) -> str:
    async with Api(daemon.config.api_socket) as api:
        request = session_service_pb2.CreateConsoleLinkRequest()
        return (await api.sessions.CreateConsoleLink(request)).url


async def who(page: Page) -> str:
    request, answer = WHO
    return (await page.call("SessionService/WhoAmI", request(), answer)).name


# --- logins ---


async def test_link_logs_in_once(daemon: Daemon) -> None:
    """As the one who asked for it; afterwards it is of no use, and a made-up one never is."""
    link = await link_of(daemon)
    async with Browser(daemon.config.console_port) as browser:
        assert await browser.follow(link) == 200
        assert await who(await browser.open()) == "host"
    async with Browser(daemon.config.console_port) as browser:
        assert await browser.follow(link) == 401
        assert await browser.log_in(code="x" * 43) == 401
        assert await browser.log_in(token="") == 401
        with pytest.raises(ConnectionError, match=str(frames.UNAUTHENTICATED)):
            await (await browser.open()).frame()


async def test_login_ends_with_its_token(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """The daemon keeps neither token nor key; what the scope does not allow is refused."""
    token, tokens = new_token(), tmp_path / "tokens"
    tokens.write_text(line(ADA, hash_of(token)))
    daemon = await start_daemon(console_port=free_port(), tokens_file=tokens, socket_auth="token")
    logins = daemon.config.state_dir / "console_logins.json"
    async with Browser(daemon.config.console_port) as browser:
        assert await browser.log_in(token="sbx_wrong") == 401
        assert await browser.log_in(token=token) == 200
        page = await browser.open()
        assert await who(page) == "ada"
        assert token not in logins.read_text()
        assert browser.key not in logins.read_text()
        assert logins.stat().st_mode & 0o077 == 0
        with pytest.raises(Refused, match="scope"):
            await page.call(
                "AdminService/GetStatus",
                admin_service_pb2.GetStatusRequest(),
                admin_service_pb2.GetStatusResponse,
            )
        tokens.write_text("")
        assert await daemon.reloads.run()
        with pytest.raises(ConnectionError, match=str(frames.UNAUTHENTICATED)):
            await who(page)
        assert await browser.log_in(token=token) == 401


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"a": 1}'])
async def test_login_survives_a_restart(
    damage: str, config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """The next daemon knows the key; a file that cannot be read costs the login and no more."""
    settings = config.model_copy(update={"console_port": free_port()})
    async with (
        running(settings, engine=engine, maker=guests.maker) as daemon,
        Browser(settings.console_port) as browser,
    ):
        await browser.follow(await link_of(daemon))
        page = await browser.open()
        assert await who(page) == "host"
    if damage:
        (settings.state_dir / "console_logins.json").write_text(damage)
    async with (
        running(settings, engine=engine, maker=guests.maker) as daemon,
        Browser(settings.console_port) as again,
    ):
        again.key = browser.key
        if damage:
            with pytest.raises(ConnectionError, match=str(frames.UNAUTHENTICATED)):
                await who(await again.open())
            await again.follow(await link_of(daemon))
        assert await who(await again.open()) == "host"


async def test_log_out_ends_a_login(browser: Browser) -> None:
    """For every page that has its key."""
    page = await browser.open()
    assert await who(page) == "host"
    assert (await browser.request("POST", "/logout"))[0] == 200
    with pytest.raises(ConnectionError):
        await who(page)
    assert (await browser.request("POST", "/logout"))[0] == 401


async def test_logins_are_limited_and_refusals_are_recorded(daemon: Daemon) -> None:
    """Someone who guesses gets few tries in a second, and leaves a trace."""
    async with Browser(daemon.config.console_port) as browser:
        tries = [await browser.log_in(token="guess") for _ in range(LOGIN_TRIES * 3)]
    assert 401 in tries
    assert 429 in tries
    strangers = daemon.journal.strangers
    strangers.flush()
    await eventually(lambda: strangers.audit.is_flushed)
    lines = [entry for entry, _ in entries(strangers_directory(daemon.config.audit_dir))]
    assert any(entry["action"] == "calls.refused" for entry in lines)


async def test_console_that_is_off_has_no_link(start_daemon: StartDaemon) -> None:
    """The answer says how to switch it on; so does that of one whose port is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        daemon = await start_daemon(console_port=taken.getsockname()[1])
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "CONSOLE_OFF") as refusal:
            await link_of(daemon)
    assert "SANDBOXD_CONSOLE_PORT" in refusal.message


@pytest.mark.parametrize("is_on", [False, True])
async def test_console_that_is_off_does_not_listen(is_on: bool, start_daemon: StartDaemon) -> None:
    """With port 0 the process has not one TCP listener more, else it has one."""
    before = tcp_listeners()
    await start_daemon(console_port=free_port() if is_on else 0)
    assert len(tcp_listeners() - before) == is_on


def tcp_listeners() -> set[str]:
    """Inodes of the listening TCP sockets of this process."""
    ours = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    rows = [
        row.split()
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
    ]
    listening = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    return listening & ours


# --- calls ---


async def test_every_method_has_a_rule(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """Asked through the socket: a read-only login is refused each method that its scope is not
    allowed, and no other."""
    token, tokens = new_token(), tmp_path / "tokens"
    tokens.write_text(line(Caller(name="board", scope=Scope.READ_ONLY), hash_of(token)))
    daemon = await start_daemon(console_port=free_port(), tokens_file=tokens)
    async with Browser(daemon.config.console_port) as browser:
        assert await browser.log_in(token=token) == 200
        page = await browser.open()
        refused = set()
        for name in RULES:
            service, _, method = name.removeprefix("sandboxd.v1.").rpartition(".")
            number = await page.begin(f"{service}/{method}", Empty())
            while (frame := await page.frame())[1] != number:
                pass
            if frame[0] == frames.END and frame[2]:
                status = Refused(frame[2]).status
                refused |= {name} if status.code == code_pb2.PERMISSION_DENIED else set()
            elif frame[0] != frames.END:
                await page.send(frames.CANCEL, number)
    assert refused == {name for name, scopes in RULES.items() if Scope.READ_ONLY not in scopes}


async def test_calls_of_a_page_are_calls_of_the_api(page: Page, daemon: Daemon) -> None:
    """Answers, streams and refusals are those that a gRPC caller gets; so is the audit log."""
    opened = await page.call(
        "SessionService/OpenSession",
        session_service_pb2.OpenSessionRequest(user_id="ada", thread_id="t1"),
        session_service_pb2.OpenSessionResponse,
    )
    number = await page.begin(
        "ExecService/Exec", exec_request(opened.session.session_id, "echo hi")
    )
    batches = [batch async for batch in page.messages(number, exec_service_pb2.ExecResponse)]
    events = [event for batch in batches for event in batch.events]
    assert b"".join(event.stdout.data for event in events) == b"hi\n"
    assert events[-1].exited.code == 0
    with pytest.raises(Refused, match="ses_none") as refusal:
        await page.call(
            "ExecService/Run", exec_request("ses_none", "true"), exec_service_pb2.RunResponse
        )
    assert refusal.value.status.details
    daemon.journal.flush()
    await eventually(lambda: daemon.journal.audit.is_flushed)
    assert "exec" in {entry["action"] for entry, _ in entries(daemon.config.audit_dir)}


async def test_page_that_takes_nothing_stops_the_call(page: Page, api: Api) -> None:
    """It gets what its credit allows and one frame more; other calls go on; credit goes on."""
    session_id = await api.open_id()
    size = 4 * frames.INITIAL_CREDIT
    await api.start(session_id, "cat", "e1", stdin=True)
    for offset in range(0, size, 1 << 20):
        await api.write(session_id, "e1", offset, b"x" * (1 << 20))
    await api.write(session_id, "e1", size, b"", eof=True)
    request = exec_service_pb2.AttachExecRequest(session_id=session_id, exec_id="e1")
    number = await page.begin("ExecService/AttachExec", request)
    while page.taken < frames.INITIAL_CREDIT:
        kind, _, rest = await page.frame()
        page.taken += len(rest) if kind in (frames.MESSAGE, frames.PIECE) else 0
        assert len(rest) <= frames.MAX_FRAME_OUT
    request_frame = await page.begin("SessionService/WhoAmI", WHO[0]())
    while (frame := await page.frame())[1] != request_frame:
        page.taken += len(frame[2])
    assert page.taken <= frames.INITIAL_CREDIT + frames.MAX_FRAME_OUT
    await page.send(frames.CREDIT, number, frames.AMOUNT.pack(2 * size))
    while (frame := await page.frame())[:2] != (frames.END, number):
        page.taken += len(frame[2])
    assert page.taken > size


async def test_many_streams_do_not_hold_up_a_call(page: Page, api: Api) -> None:
    """Eight commands are followed over the socket of one page, and a call beside them answers."""
    session_id = await api.open_id()
    numbers = []
    for number in range(8):
        await api.start(session_id, "cat", f"e{number}", stdin=True)
        request = exec_service_pb2.AttachExecRequest(session_id=session_id, exec_id=f"e{number}")
        numbers.append(await page.begin("ExecService/AttachExec", request))
    assert await who(page) == "host"
    for number in range(8):
        await api.write(session_id, f"e{number}", 0, b"x", eof=True)
    ended: set[int] = set()
    while ended != set(numbers):
        kind, of_call, _ = await page.frame()
        ended |= {of_call} if kind == frames.END else set()


async def test_cancelled_call_ends(page: Page, api: Api, guests: FakeGuests) -> None:
    """Its command is killed, as that of a gRPC caller who goes away."""
    session_id = await api.open_id()
    number = await page.begin("ExecService/Exec", exec_request(session_id, "sleep"))
    await guests.wait_for("sleep")
    await page.send(frames.CANCEL, number)
    await eventually(lambda: not guests.command("sleep").is_running, timeout_seconds=20)
    assert await who(page) == "host"


async def test_closed_page_ends_its_calls(page: Page, api: Api, guests: FakeGuests) -> None:
    """A tab that is closed leaves nothing running that it did not start in the background."""
    session_id = await api.open_id()
    await page.begin("ExecService/Exec", exec_request(session_id, "sleep"))
    await guests.wait_for("sleep")
    await page.socket.close()
    await eventually(lambda: not guests.command("sleep").is_running, timeout_seconds=20)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        frames.HEAD.pack(frames.HELLO, 1),
        frames.HEAD.pack(99, 1),
        frames.HEAD.pack(frames.OPEN, 1),
        frames.HEAD.pack(frames.OPEN, 1) + b"\xff\xff/",
        frames.HEAD.pack(frames.OPEN, 1) + b"\x00\x04/a/b",
        "text",
    ],
)
async def test_wrong_frame_closes_the_page(
    frame: bytes | str, page: Page, browser: Browser, daemon: Daemon
) -> None:
    """Nothing else suffers; the page can connect again."""
    await page.frame()  # the daemon's hello
    if isinstance(frame, str):
        await page.socket.send_str(frame)
    else:
        await page.socket.send_bytes(frame)
    if frame in (frames.HEAD.pack(frames.HELLO, 1), frames.HEAD.pack(99, 1)):
        assert await who(page) == "host"  # about a call that has ended
    else:
        with pytest.raises(ConnectionError, match=str(frames.PROTOCOL_ERROR)):
            await page.frame()
    assert await who(await browser.open()) == "host"


async def test_calls_of_a_page_are_limited(page: Page, api: Api) -> None:
    """One page cannot have any number of them."""
    session_id = await api.open_id()
    watch = file_service_pb2.WatchFilesRequest(session_id=session_id)
    for _ in range(frames.MAX_CALLS + 1):
        await page.begin("FileService/WatchFiles", watch, kind=frames.PASSIVE)
    with pytest.raises(ConnectionError, match=str(frames.PROTOCOL_ERROR)):
        while True:
            await page.frame()


# --- files ---


async def test_files_are_bodies(browser: Browser, api: Api) -> None:
    """An upload is one PUT, a download one GET with a ticket that is valid once."""
    session_id = await api.open_id()
    data = bytes(range(256)) * 4096 * 3
    header = file_service_pb2.UploadHeader(
        session_id=session_id, path="a/b", make_parents=True, size_bytes=len(data)
    )
    request = file_service_pb2.UploadFileRequest(header=header)
    status, body = await browser.upload("sandboxd.v1.FileService/UploadFile", request, data)
    assert status == 200
    assert file_service_pb2.UploadFileResponse.FromString(body).entry.size_bytes == len(data)

    asked = file_service_pb2.DownloadFileRequest(session_id=session_id, path="a/b")
    name = "%22x%0d%0ay%E2%80%AE.html"
    ticket = await browser.ticket("sandboxd.v1.FileService/DownloadFile", asked, name)
    status, headers, body = await browser.request("GET", f"/download/{ticket}")
    assert (status, body) == (200, data)
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Content-Disposition"].startswith("attachment; filename*=UTF-8''%22x%0D%0Ay")
    assert "sandbox" in headers["Content-Security-Policy"]
    assert (await browser.request("GET", f"/download/{ticket}"))[0] == 410


async def test_refused_files_come_with_the_reason(browser: Browser, api: Api) -> None:
    """As a status of the API, under an HTTP status that fits."""
    session_id = await api.open_id()
    asked = file_service_pb2.DownloadFileRequest(session_id=session_id, path="none")
    ticket = await browser.ticket("sandboxd.v1.FileService/DownloadFile", asked)
    status, _, body = await browser.request("GET", f"/download/{ticket}")
    assert status == 404
    assert "none" in Refused(body).status.message

    header = file_service_pb2.UploadHeader(session_id="ses_none", path="x")
    request = file_service_pb2.UploadFileRequest(header=header)
    status, body = await browser.upload("sandboxd.v1.FileService/UploadFile", request, b"x")
    assert status == 404
    for path in ("sandboxd.v1.FileService/ListFiles", "sandboxd.v1.Nothing/UploadFile"):
        assert (await browser.upload(path, request, b"x"))[0] == 404


async def test_files_need_a_login(daemon: Daemon) -> None:
    """Every route but the pages themselves."""
    async with Browser(daemon.config.console_port) as browser:
        for method, path in (
            ("PUT", "/upload/sandboxd.v1.FileService/UploadFile"),
            ("POST", "/ticket/sandboxd.v1.FileService/DownloadFile"),
            ("POST", "/document"),
            ("POST", "/logout"),
        ):
            assert (await browser.request(method, path))[0] == 401
        assert (await browser.request("GET", "/download/x"))[0] == 410


async def test_untrusted_html_is_shown_in_a_frame_only(browser: Browser) -> None:
    """Once, without scripts unless they are asked for, and never as a page by itself."""
    for query, scripts in (("", False), ("?scripts=1", True)):
        _, _, body = await browser.request("POST", f"/document{query}", data=b"<b>hi</b>")
        ticket = body.decode().split('"')[3]
        in_frame = {"Sec-Fetch-Dest": "iframe"}
        assert (await browser.request("GET", f"/document/{ticket}"))[0] == 403
        status, headers, shown = await browser.request(
            "GET", f"/document/{ticket}", headers=in_frame
        )
        assert (status, shown) == (200, b"<b>hi</b>")
        policy = headers["Content-Security-Policy"]
        assert policy == document_policy(scripts)
        assert ("allow-scripts" in policy, "allow-same-origin" in policy) == (scripts, False)
        again = await browser.request("GET", f"/document/{ticket}", headers=in_frame)
        assert again[0] == 410


# --- foreign pages ---


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:1", "", "https://127.0.0.1:{port}"],
)
async def test_foreign_origin_is_refused(origin: str, browser: Browser) -> None:
    """Also with a key that is valid: a page of another site cannot use it."""
    origin = origin.format(port=browser.port)
    for method, path in (("POST", "/login"), ("POST", "/document"), ("GET", "/")):
        status, _, _ = await browser.request(method, path, headers={"Origin": origin})
        assert status == 403
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await browser.open(Origin=origin)
    assert refused.value.status == 403


async def test_socket_without_an_origin_is_refused(browser: Browser) -> None:
    """Every browser sends one with a socket."""
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await browser.open(Origin=None)
    assert refused.value.status == 403


async def test_socket_that_does_not_say_who_it_is_is_closed(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while; and one address cannot hold any number of such sockets, nor shut out pages
    that say it."""
    held = [await browser.open(says_hello=False) for _ in range(2 * MAX_STRANGERS)]
    assert (await (await browser.open()).frame())[0] == frames.HELLO
    with pytest.raises(ConnectionError):
        await held[0].frame()
    assert not held[-1].socket.closed
    monkeypatch.setattr(frames, "HELLO_SECONDS", 0.01)
    with pytest.raises(ConnectionError, match=str(frames.UNAUTHENTICATED)):
        await (await browser.open(says_hello=False)).frame()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "[::2]"])
async def test_other_name_of_the_host_is_refused(host: str, browser: Browser) -> None:
    """A name that someone points at this address does not reach the console."""
    named = host.format(port=browser.port)
    assert (await browser.request("GET", "/", headers={"Host": named}))[0] == 421


async def test_every_answer_has_the_headers(browser: Browser) -> None:
    """Refusals too."""
    for path in ("/", "/nothing", "/assets/../site.py", "/download/x"):
        _, headers, _ = await browser.request("GET", path)
        assert {name: headers.get(name) for name in HEADERS} == dict(HEADERS)


@pytest.mark.parametrize(
    ("origin", "status"),
    [("https://box.test", 200), ("http://box.test", 200), ("https://other.test", 403)],
)
async def test_name_of_a_proxy_is_accepted(
    origin: str, status: int, start_daemon: StartDaemon
) -> None:
    """One that ends TLS in front of the console and passes the name on."""
    daemon = await start_daemon(console_port=free_port(), console_names="box.test")
    async with Browser(daemon.config.console_port) as browser:
        headers = {"Host": "box.test", "Origin": origin}
        assert (await browser.request("GET", "/", headers=headers))[0] == status


async def test_silent_connections_are_limited(
    start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are closed after a while, whether they send nothing or half a request; one too many ends
    the oldest at once, and none that is served."""
    monkeypatch.setattr(listener_module, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(listener_module, "SILENT_SECONDS", 4.0)
    daemon = await start_daemon(console_port=free_port())
    port = daemon.config.console_port
    async with Browser(port) as browser:
        assert await browser.follow(await link_of(daemon)) == 200
        page = await browser.open()
        await page.frame()
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        held[-1][1].write(b"GET / HTTP/1.1\r\nHost: ")
        async with Browser(port) as other:
            assert (await other.request("GET", "/"))[0] == 200
        async with asyncio.timeout(60):
            for silent, _ in held:
                with suppress(ConnectionResetError):
                    assert not (await silent.read()).startswith(b"HTTP/1.1 200")
        for _, writer in held:
            writer.close()
        assert (await browser.request("GET", "/"))[0] == 200
        assert not page.socket.closed


# --- TLS ---


class Site:
    """Settings of a console beyond loopback, and what its callers trust."""

    def __init__(self, directory: Path) -> None:
        self.token = new_token()
        self._ca = trustme.CA()
        self.cert, self.key = directory / "cert.pem", directory / "key.pem"
        self.issue("console.test")
        tokens = directory / "tokens"
        tokens.write_text(line(ADA, hash_of(self.token)))
        self.settings = {
            "console_host": "127.0.0.2",
            "console_names": "console.test",
            "console_port": free_port(),
            "tokens_file": tokens,
            "tls_cert": self.cert,
            "tls_key": self.key,
        }

    def issue(self, *names: str) -> None:
        issued = self._ca.issue_cert(*names)
        issued.private_key_pem.write_to_path(self.key)
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    def browser(self) -> Browser:
        tls = ssl.create_default_context()
        self._ca.configure_trust(tls)
        port = self.settings["console_port"]
        assert isinstance(port, int)
        return Browser(port, address="https://127.0.0.2", tls=tls)


@pytest.fixture
def site(short_dir: Path) -> Site:
    return Site(short_dir)


async def test_console_beyond_loopback_speaks_tls(start_daemon: StartDaemon, site: Site) -> None:
    """With the certificate of the API, whose replacement it takes over; plain HTTP gets nothing,
    nor does a page that was loaded over it."""
    site.issue("127.0.0.2", "console.test")
    daemon = await start_daemon(**site.settings)
    port = daemon.config.console_port
    assert (await link_of(daemon)).startswith(f"https://console.test:{port}/#code=")
    async with site.browser() as browser:
        assert await browser.log_in(token=site.token) == 200
        assert await who(await browser.open()) == "ada"
        for origin, status in ((f"http://127.0.0.2:{port}", 403), (browser.origin, 200)):
            answer = await browser.request("GET", "/", headers={"Origin": origin})
            assert answer[0] == status
        for name, status in ((f"console.test:{port}", 200), (f"rebound.test:{port}", 421)):
            assert (await browser.request("GET", "/", headers={"Host": name}))[0] == status
    async with Browser(port, address="http://127.0.0.2") as plain:
        with pytest.raises(aiohttp.ClientError):
            await plain.request("GET", "/")

    site.issue("elsewhere.test")
    assert await daemon.reloads.run()
    async with site.browser() as browser:
        with pytest.raises(aiohttp.ClientConnectorCertificateError, match=r"127\.0\.0\.2"):
            await browser.request("GET", "/")


async def test_console_on_loopback_is_plain(start_daemon: StartDaemon, site: Site) -> None:
    """Certificates of the API seldom name loopback, and ssh encrypts a port that is forwarded."""
    settings = {**site.settings, "console_host": "127.0.0.1", "console_names": ""}
    daemon = await start_daemon(**settings)
    async with Browser(daemon.config.console_port) as browser:
        assert await browser.follow(await link_of(daemon)) == 200
