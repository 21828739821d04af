"""The API over HTTP: routes, JSON, problems, and what stands before every request."""

from __future__ import annotations

import base64
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from grpc import aio

from sandboxd.config import Config
from sandboxd.daemon.composition import Daemon, running
from sandboxd.http.api import api_routes
from sandboxd.http.routes import ROUTES, Route
from sandboxd.http.seeds import seed_routes
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.settings import without_policy
from tests.ports import free_port
from tests.service import test_access as access
from tests.service import test_listeners as listeners
from tests.service.test_access import SERVED, TOKENS, request_for, session_of_ada
from tests.service.test_listeners import Pki

StartDaemon = Callable[..., Awaitable[Daemon]]
KEPT_OUT = {"UNAUTHENTICATED", "NOT_PERMITTED", "SESSION_NOT_FOUND", "PROJECT_NOT_FOUND"}
MISDIRECTED = "Misdirected Request"

tokens_file, pki = access.tokens_file, listeners.pki


class Http:
    """A client of a daemon over HTTP."""

    def __init__(self, address: str, token: str = "", **options: Any) -> None:
        self.url = "http://localhost" if address.startswith("unix:") else f"http://{address}"
        if address.startswith("unix:"):
            options["connector"] = aiohttp.UnixConnector(address.removeprefix("unix:"))
        if token:
            options["headers"] = {"Authorization": f"Bearer {token}"}
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

    async def refused(self, verb: str, path: str, **options: Any) -> tuple[int, str]:
        """Status and reason, or what stands in its place, of a refusal."""
        async with self.session.request(verb, path, **options) as answer:
            assert answer.content_type == "application/problem+json"
            problem = await answer.json(content_type=None)
            assert problem["status"] == answer.status
            assert problem["detail"]
            return answer.status, problem.get("reason", problem["title"])

    async def open(self, user: str = "ada", thread: str = "1") -> str:
        body = {"userId": user, "thread_id": thread}
        opened = await self.ok("POST", "/v1/sessions", json=body)
        return str(opened["session"]["sessionId"])


@pytest.fixture
async def daemon(start_daemon: StartDaemon) -> Daemon:
    return await start_daemon(http_address=f"127.0.0.1:{free_port()}")


@pytest.fixture
async def http(daemon: Daemon) -> AsyncIterator[Http]:
    async with Http(daemon.config.http_address) as http:
        yield http


# --- the API ---


async def test_a_session_lives_over_http(http: Http) -> None:
    """A session is opened, found, listed, used and closed by its resource; both forms of names are
    read, and fields with their default are written."""
    session = await http.open()
    found = await http.ok("GET", f"/v1/sessions/{session}")
    assert (found["session"]["userId"], found["session"]["runningExecs"]) == ("ada", 0)
    listed = await http.ok("GET", "/v1/sessions", params={"user_id": "ada", "pageSize": "5"})
    assert [one["sessionId"] for one in listed["sessions"]] == [session]
    done = await http.ok("POST", f"/v1/sessions/{session}/run", json={"shell": "echo hello"})
    assert base64.b64decode(done["stdout"]["data"]) == b"hello\n"
    closed = await http.ok("DELETE", f"/v1/sessions/{session}")
    assert closed["session"]["state"] == "SESSION_STATE_CLOSED"
    assert await http.refused("GET", "/v1/sessions/none") == (404, "SESSION_NOT_FOUND")


async def test_an_exec_id_makes_a_start_safe_to_repeat(http: Http) -> None:
    """As over gRPC: the second start answers with the first, another command is a conflict."""
    path = f"/v1/sessions/{await http.open()}/execs"
    body = {"exec_id": "mine", "shell": "echo 1"}
    first = await http.ok("POST", path, json=body)
    again = await http.ok("POST", path, json=body)
    assert (first["alreadyStarted"], again["alreadyStarted"]) == (False, True)
    other = {**body, "shell": "echo 2"}
    assert await http.refused("POST", path, json=other) == (409, "EXEC_CONFLICT")


@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/event-stream"])
async def test_a_stream_is_lines_or_events(accept: str, http: Http) -> None:
    """A line of JSON for each message, or server-sent events with an id that a reader can come back
    with, and an event at the end."""
    path = f"/v1/sessions/{await http.open()}/run/events"
    body = {"exec_id": "e1", "shell": "echo hello"}
    async with http.session.post(path, json=body, headers={"Accept": accept}) as answer:
        assert (answer.status, answer.content_type) == (200, accept)
        lines = (await answer.text()).splitlines()
    if accept == "text/event-stream":
        assert lines[-3:] == ["event: end", "data: {}", ""]
        assert "id: e1:6:0:0" in lines
        lines = [line.removeprefix("data: ") for line in lines[:-3] if line.startswith("data: ")]
    events = [event for line in lines for event in json.loads(line)["events"]]
    assert [*events[0], *events[-1]] == ["started", "exited"]
    output = b"".join(base64.b64decode(e["stdout"]["data"]) for e in events if "stdout" in e)
    assert output == b"hello\n"


async def test_a_refused_stream_has_its_status(http: Http) -> None:
    """What is refused before anything is streamed is a problem like any other."""
    path = "/v1/sessions/none/run/events"
    assert await http.refused("POST", path, json={"shell": "true"}) == (404, "SESSION_NOT_FOUND")


async def test_every_method_has_a_route_and_every_route_a_page(http: Http) -> None:
    """No method of the API is missing over HTTP, and /openapi.json has each route."""
    assert {route.method for route in ROUTES} == {
        f"{method.containing_service.name}.{method.name}" for method in SERVED
    }
    document = await http.ok("GET", "/openapi.json")
    described = {
        operation["operationId"].replace("_", ".", 1): (verb.upper(), path.count("/"))
        for path, operations in document["paths"].items()
        for verb, operation in operations.items()
    }
    assert described == {route.method: (route.verb, route.path.count("/")) for route in ROUTES}
    async with http.session.get("/docs") as page:
        assert page.content_type == "text/html"
        assert "script" not in page.headers["Content-Security-Policy"]
        text = await page.text()
    names = [route.method.replace(".", "_") for route in ROUTES]
    assert [name for name in names if f'id="{name}"' not in text] == []


# --- who may call ---


class Exchange:
    """Sends requests of the API over HTTP, and reads how they were answered."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def call(self, route: Route, message: Message) -> tuple[str, str]:
        """Reason and message of a refusal; both empty if there was none."""
        fields = MessageToDict(message, preserving_proto_field_name=True)
        whole = fields
        path, fields = _filled(route, fields)
        options: dict[str, Any] = {"json": fields} if route.has_body else {"params": fields}
        if route.kind == "upload":
            named = {name.removeprefix("header."): value for name, value in fields.items()}
            options = {"data": b"", "params": named}
        if route.kind == "socket":
            return await self._converse(path, {} if "{" in route.path else whole)
        async with self._http.session.request(route.verb, path, **options) as answer:
            if answer.content_type == "application/problem+json":
                problem = await answer.json(content_type=None)
                return problem.get("reason", ""), problem["detail"]
            first = await answer.content.readline() if route.kind == "events" else b""
            return _refusal_in(first.decode())

    async def _converse(self, path: str, first_message: dict[str, Any]) -> tuple[str, str]:
        try:
            async with self._http.session.ws_connect(path) as socket:
                if first_message:
                    await socket.send_json(first_message)
                first = await socket.receive()
                return _refusal_in(first.data if isinstance(first.data, str) else "")
        except aiohttp.WSServerHandshakeError as error:
            return str(error.status), ""


def _refusal_in(line: str) -> tuple[str, str]:
    """A refusal after the head of a stream was sent."""
    error = json.loads(line).get("error", {}) if line.startswith('{"error"') else {}
    return error.get("reason", ""), error.get("detail", "")


def _filled(route: Route, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The path of a request, and the fields that do not stand in it, by their paths."""
    leaves = dict(_leaves(fields))
    path = route.path.replace("=**", "")
    for name, value in leaves.copy().items():
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", str(value))
            del leaves[name]
    if route.has_body:
        return path, fields
    return path, {name: str(value) for name, value in leaves.items()}


def _leaves(fields: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for name, value in fields.items():
        nested = _leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else None
        found += nested if nested is not None else [(prefix + name, value)]
    return found


@pytest.fixture
async def guarded(start_daemon: StartDaemon, tokens_file: Path) -> Daemon:
    return await start_daemon(
        tokens_file=tokens_file,
        socket_auth="token",
        max_pool_size=20,
        max_user_sessions=20,
        http_address=f"127.0.0.1:{free_port()}",
    )


@pytest.mark.parametrize("who", ["", "wrong", "ada", "bob", "board", "ops"])
async def test_http_refuses_what_grpc_refuses(who: str, guarded: Daemon) -> None:
    """Every route, for every kind of caller: the same reason as over gRPC; without a token
    UNAUTHENTICATED, whatever is asked for."""
    token = TOKENS.get(who, who)
    by_name = {f"{one.containing_service.name}.{one.name}": one for one in SERVED}
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    differing = {}
    async with (
        aio.insecure_channel(f"unix:{guarded.config.api_socket}") as channel,
        Http(guarded.config.http_address, token) as http,
    ):
        for route in ROUTES:
            method = by_name[route.method]
            reasons = []
            for over_http in (False, True):
                session = await session_of_ada(channel)
                await access.Stubs(channel).make_project("ada", exists=True)
                request = completed(request_for(method, session, "ada"))
                if over_http:
                    reason, _ = await Exchange(http).call(route, request)
                    reason = "UNAUTHENTICATED" if reason == "401" else reason
                else:
                    reason = (await access.call(channel, method, request, metadata)).reason
                reasons.append(reason if reason in KEPT_OUT else "")
            is_known = who in TOKENS or reasons[1] == "UNAUTHENTICATED"
            if reasons[0] != reasons[1] or not is_known:
                differing[route.method] = reasons
    assert differing == {}


def completed(request: Message) -> Message:
    """With what stands in paths."""
    for name, value in (("data_source", "x"), ("environment", "default"), ("port", 1)):
        target = getattr(request, "target", None)
        message = target if isinstance(target, Message) else request
        if name in message.DESCRIPTOR.fields_by_name and not getattr(message, name):
            setattr(message, name, value)
    return request


async def test_routes_of_the_seeds_need_a_token_too(guarded: Daemon) -> None:
    """None of them answers a caller who is not known, nor says whether something exists."""
    async with Http(guarded.config.http_address) as stranger:
        for route in seed_routes(None):  # type: ignore[arg-type]  # none of them is called
            path = route.path.replace("{", "").replace("}", "")
            options = {"json": {}} if route.method == "POST" else {}
            answer = await stranger.refused(route.method, path, **options)
            assert answer == (401, "UNAUTHENTICATED"), route.path


async def test_a_socket_is_trusted_as_that_of_grpc(
    start_daemon: StartDaemon, tokens_file: Path, short_dir: Path
) -> None:
    """Who can open the unix socket is the host, though others need a token; still no page is."""
    address = f"unix:{short_dir / 'http.sock'}"
    await start_daemon(tokens_file=tokens_file, http_address=address)
    assert (short_dir / "http.sock").stat().st_mode & 0o777 == 0o660
    async with Http(address) as http:
        assert (await http.ok("GET", "/v1/caller"))["scope"] == "admin"
        headers = {"Host": "evil.example"}
        assert await http.refused("GET", "/v1/caller", headers=headers) == (
            421,
            "Misdirected Request",
        )


async def test_certificates_are_asked_for_as_over_grpc(
    start_daemon: StartDaemon, pki: Pki, tokens_file: Path
) -> None:
    """With a CA for clients there is no connection without a certificate, and its name is who
    calls."""
    caller = replace(access.CALLERS["bob"], name="bobs-certificate")
    add_line(tokens_file, access.line(caller, "bob.example.org", kind="cert"))
    address = f"127.0.0.1:{free_port()}"
    tls = {"tls_cert": pki.cert, "tls_key": pki.key, "tls_client_ca": pki.ca}
    await start_daemon(tokens_file=tokens_file, http_address=address, **tls)
    for name, status in (("bob.example.org", 200), ("nobody.example.org", 401)):
        context = pki.context(name)
        async with aiohttp.ClientSession() as session:
            url = f"https://{address}/v1/caller"
            async with session.get(url, ssl=context) as answer:
                assert answer.status == status
                if status == 200:
                    assert (await answer.json())["userId"] == "bob"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"https://{address}/health", ssl=pki.context(None))


def add_line(file: Path, text: str) -> None:
    file.write_text(f"{file.read_text()}\n{text}")


async def test_sessions_of_the_seeds_routes_are_strict(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """As the documents promise it, where no operator has set a policy and the caller names none."""
    settings = without_policy(config).model_copy(
        update={"http_address": f"127.0.0.1:{free_port()}"}
    )
    async with (
        running(settings, engine=engine, maker=guests.maker),
        Http(settings.http_address) as http,
    ):
        started = await http.ok("POST", "/sandbox/chat-1/start", json={})
        session = await http.ok("GET", f"/v1/sessions/{started['session_id']}")
        assert session["session"]["commandPolicy"] == "strict"
        usual = await http.ok("GET", f"/v1/sessions/{await http.open()}")
        assert usual["session"]["commandPolicy"] == "open"


# --- what a page could send ---


@pytest.mark.parametrize(
    ("verb", "headers", "status"),
    [
        ("GET", {"Host": "evil.example"}, 421),
        ("GET", {"Host": "evil.example:8000"}, 421),
        ("GET", {"Host": "169.254.169.254"}, 421),
        ("GET", {"Origin": "http://evil.example"}, 403),
        ("GET", {"Origin": "null"}, 403),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", {"Sec-Fetch-Site": "same-site"}, 403),
        ("POST", {"Content-Type": "text/plain"}, 415),
        ("POST", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ("POST", {"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ("POST", {}, 415),
        ("POST", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
        ("DELETE", {"Origin": "http://evil.example"}, 403),
        ("OPTIONS", {"Origin": "http://evil.example"}, 403),
    ],
)
async def test_what_a_page_of_another_site_sends_is_refused(
    verb: str, headers: dict[str, str], status: int, http: Http
) -> None:
    """A rebound name, a foreign origin, a form, a plain fetch: refused before anything is read."""
    skipped = ("Content-Type",) if verb == "POST" and "Content-Type" not in headers else ()
    for path in ("/v1/sessions", "/sandbox/create", "/health"):
        async with http.session.request(
            verb, path, headers=headers, data=b"{}", skip_auto_headers=skipped
        ) as answer:
            assert answer.status in (status, 405), path
            assert "Access-Control-Allow-Origin" not in answer.headers


async def test_only_named_origins_may_call_from_a_page(start_daemon: StartDaemon) -> None:
    """CORS is off; an origin that the operator names gets its preflight and its answers."""
    address = f"127.0.0.1:{free_port()}"
    await start_daemon(http_address=address, http_origins="https://app.example")
    async with Http(address) as http:
        origin = {"Origin": "https://app.example"}
        for verb in ("OPTIONS", "GET"):
            async with http.session.request(verb, "/v1/sessions", headers=origin) as answer:
                assert answer.status in (200, 204)
                assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
        other = {"Origin": "https://evil.example"}
        assert (await http.refused("GET", "/v1/sessions", headers=other))[0] == 403


# --- bad input ---


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"data": b"{"}, 400),
        ({"data": b"[]"}, 400),
        ({"data": b'"x"'}, 400),
        ({"data": b'{"user_id": 5}'}, 400),
        ({"data": b'{"user_idd": "x"}'}, 400),
        ({"data": b'{"user_id": "\\ud800"}'}, 400),
        ({"data": b'{"\\ud800": 1}'}, 400),
        ({"data": b"\xff\xfe"}, 400),
        ({"data": b'{"egress": ' + b'{"a":' * 100_000}, 400),
        ({"data": b'{"metadata": ' + b"[" * 100_000}, 400),
        ({"data": b'{"user_id": "' + b"x" * (10 << 20) + b'"}'}, 400),
    ],
    ids=[
        *("cut", "list", "text", "number", "unknown field", "surrogate", "surrogate name"),
        *("no text", "deep object", "deep list", "large"),
    ],
)
async def test_bad_json_is_a_typed_problem(options: Any, status: int, http: Http) -> None:
    """Whatever stands in a body, the answer is a problem with a reason."""
    headers = {"Content-Type": "application/json"}
    options = {"data": BytesIO(options["data"])}
    got = await http.refused("POST", "/v1/sessions", headers=headers, **options)
    assert got in {(status, "INVALID_REQUEST"), (status, "REQUEST_TOO_LARGE")}


@pytest.mark.parametrize(
    "query",
    [
        "nothing=1",
        "page_size=x",
        "with_usage=maybe",
        "page_size=-1",
        "metadata=x",
        "state=NO",
        "a.b.c=1",
    ],
)
async def test_bad_query_is_a_typed_problem(query: str, http: Http) -> None:
    """A field that there is not, or a value that is none of its type."""
    assert await http.refused("GET", f"/v1/sessions?{query}") == (400, "INVALID_REQUEST")


async def test_paths_that_are_none_are_problems(http: Http) -> None:
    """Also what is no route at all is answered in the form of all refusals."""
    assert (await http.refused("GET", "/v2/sessions"))[0] == 404
    assert (await http.refused("PUT", "/v1/sessions"))[0] == 405


# --- around it ---


async def test_health_ready_and_metrics(guarded: Daemon, start_daemon: StartDaemon) -> None:
    """Health and readiness need no token by default, the figures need one that may see them."""
    async with Http(guarded.config.http_address) as stranger:
        assert (await stranger.ok("GET", "/health"))["status"] == "serving"
        assert (await stranger.call("GET", "/ready"))[1]["status"] in ("ready", "not ready")
        assert await stranger.refused("GET", "/metrics") == (401, "UNAUTHENTICATED")
    async with Http(guarded.config.http_address, TOKENS["ada"]) as ada:
        assert await ada.refused("GET", "/metrics") == (403, "NOT_PERMITTED")
    async with (
        Http(guarded.config.http_address, TOKENS["ops"]) as ops,
        ops.session.get("/metrics") as answer,
    ):
        assert "sandboxd_" in await answer.text()


async def test_daemon_serves_without_http_if_the_port_is_taken(start_daemon: StartDaemon) -> None:
    """gRPC does not depend on it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        daemon = await start_daemon(http_address=f"127.0.0.1:{taken.getsockname()[1]}")
        assert daemon.server.is_serving


def test_assets_are_in_the_package() -> None:
    """The page about the API needs no network: one file, without anything it would load."""
    page = files("sandboxd.http").joinpath("assets", "docs.html").read_text()
    assert "<script" not in page
    assert re.findall(r"""(?:src|href)=(?!"(?:#|/openapi))|url\(""", page) == []
    assert len(list(api_routes(None))) == len(ROUTES) + 1  # type: ignore[arg-type]
