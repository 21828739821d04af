"""The API over HTTP on real sandboxes: routes of the design by curl, files, events, sockets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import re
import sqlite3
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from grpc import aio
from yarl import URL

from sandboxd.http.seeds import seed_routes
from sandboxd_proto.v1 import exec_service_pb2, exec_service_pb2_grpc
from tests.docker.daemon_process import running_daemon
from tests.ports import free_port
from tests.scale import SCALE

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAIT_SECONDS = 60.0
FILE_MB = int(100 * SCALE)
"""2 GB with TEST_SCALE=20."""
CUTS = 20
CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_schema_conformance", "response_headers_conformance"),
)
LEFT_OUT = "WatchFigures|WatchFiles|DrainWorker|BuildEnvironment|DeleteEnvironment|EnsurePackages"
OUTPUT = (
    "for i in $(seq 1 2000); do echo line $i of output; echo error $i >&2; "
    "[ $((i % 100)) = 0 ] && sleep 0.02; done"
)


class Daemon:
    """A daemon with HTTP and a data source."""

    def __init__(self, address: str, port: int, session: aiohttp.ClientSession) -> None:
        self.port = port
        self.url = f"http://{address}"
        self.http = session

    async def ok(self, verb: str, path: str | URL, **options: Any) -> Any:
        async with self.http.request(verb, path, **options) as answer:
            body = await answer.json(content_type=None)
            assert answer.status == 200, body
            return body

    async def open(self, thread: str, **fields: Any) -> str:
        body = {"user_id": "http", "thread_id": thread, **fields}
        return str((await self.ok("POST", "/v1/sessions", json=body))["session"]["sessionId"])

    async def curl(self, *words: str, expects: int = 200) -> Any:
        """What curl prints, read as JSON where it is."""
        process = await asyncio.create_subprocess_exec(
            *("curl", "-sS", "-w", "\n%{http_code}", *words),
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await asyncio.wait_for(process.communicate(), WAIT_SECONDS)
        body, _, status = printed.decode().rpartition("\n")
        assert int(status) == expects, body
        return json.loads(body) if body[:1] in ("{", "[") else body


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def daemon(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Daemon]:
    directory = tmp_path_factory.mktemp("data")
    table = directory / "shop.db"
    with sqlite3.connect(table) as database:
        database.execute("CREATE TABLE users (id INTEGER, name TEXT)")
        database.execute("INSERT INTO users VALUES (1, 'Ada'), (2, 'Bob')")
    database.close()
    settings = directory / "sandboxd.toml"
    settings.write_text(
        f'config_version = 1\n[data_sources.shop]\nengine = "sqlite"\npath = "{table}"\n'
    )
    address, port = f"127.0.0.1:{free_port()}", free_port()
    async with (
        running_daemon(
            HOST="127.0.0.1",
            PORT=str(port),
            SANDBOXD_HTTP_ADDRESS=address,
            SANDBOXD_CONFIG=str(settings),
            MAX_FILE_SIZE_MB=str(max(100, FILE_MB)),
            MAX_WORKSPACE_SIZE_MB=str(200 + FILE_MB),
        ),
        aiohttp.ClientSession(f"http://{address}") as session,
    ):
        yield Daemon(address, port, session)


# --- the routes of the design documents ---


class Curl:
    """Calls routes of the documents with curl, and notes which."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.used: set[tuple[str, str]] = set()

    async def __call__(self, verb: str, route: str, *words: str, **names: str) -> Any:
        self.used.add((verb, route))
        url = self.daemon.url + route.format(**names)
        return await self.daemon.curl("-X", verb, *words, url)


def body(**fields: Any) -> tuple[str, ...]:
    return ("-H", "Content-Type: application/json", "-d", json.dumps(fields))


FORM = ("-H", "X-Requested-With: curl")
EXECUTE = "/sandbox/{session_id}/execute"


async def test_every_route_of_the_design_by_curl(daemon: Daemon, tmp_path: Path) -> None:
    """Each route of the documents answers what they promise, to curl and plain JSON."""
    assert (await daemon.curl(daemon.url + "/health"))["status"] == "serving"
    curl = Curl(daemon)
    await _code_and_data(curl)
    await _chat_with_a_project(curl, tmp_path)
    every = {(route.method, route.path) for route in seed_routes(None)}  # type: ignore[arg-type]
    assert curl.used == every


async def _code_and_data(curl: Curl) -> None:
    config = {"max_memory_mb": 128}
    created = await curl("POST", "/sandbox/create", *body(user_id=1, config=config))
    box = {"session_id": created["sandbox_id"]}
    state = await curl("GET", "/sandbox/{session_id}/status", **box)
    assert (state["status"], state["user_id"]) == ("running", "1")
    code = "x = [n * n for n in range(4)]\ndebug('squared', 'INFO')\n__result__ = {'sum': sum(x)}"
    done = await curl("POST", EXECUTE, *body(code=code), **box)
    assert (done["status"], done["result"]) == ("completed", {"sum": 14})
    assert done["debug_info"]["logs"][0]["message"] == "squared"
    wrong = await curl("POST", EXECUTE, *body(code="1 / 0"), **box)
    assert (wrong["status"], wrong["error"][:17]) == ("failed", "ZeroDivisionError")
    two_lines = body(code="a = 1\nb = a + 1")
    steps = (await curl("POST", "/sandbox/{session_id}/debug", *two_lines, **box))["steps"]
    assert [step["line_number"] for step in steps] == [1, 2]
    assert steps[-1]["state"]["variables"]["b"] == "2"
    query = body(query="SELECT name FROM users WHERE id = :id", params={"id": 2})
    rows = await curl("POST", "/sandbox/{session_id}/database/query", *query, **box)
    assert rows == {"rows": [{"name": "Bob"}], "row_count": 1}
    schema = await curl("GET", "/sandbox/{session_id}/database/schema", **box)
    assert schema["tables"] == ["users"]
    functions = await curl("GET", "/sandbox/{session_id}/help/functions", **box)
    assert "debug" in {one["name"] for one in functions["functions"]}
    assert (await curl("GET", "/sandbox/{session_id}/help/examples", **box))["examples"]
    quick = body(user_id=1, code="__result__ = 6 * 7")
    assert (await curl("POST", "/sandbox/agent/quick-execute", *quick))["result"] == 42
    table = body(user_id=1, data=[{"a": 1}, {"a": 3}])
    assert (await curl("POST", "/sandbox/agent/analyze-data", *table))["status"] == "completed"
    assert (await curl("DELETE", "/sandbox/{session_id}", **box))["status"] == "stopped"


async def _chat_with_a_project(curl: Curl, directory: Path) -> None:
    """The id in the path is that of the chat."""
    script = directory / "test.py"
    script.write_text("print('from the project')")
    file = ("-F", f"file=@{script}")
    uploaded = await curl("POST", "/files/upload/{project_id}", *FORM, *file, project_id="p1")
    listed = await curl("GET", "/files/project/{project_id}", project_id="p1")
    assert [file["file_id"] for file in listed["files"]] == [uploaded["file_id"]]
    chat = {"session_id": "chat-1"}
    wanted = body(project_id="p1", command_policy="strict")
    started = await curl("POST", "/sandbox/{session_id}/start", *wanted, **chat)
    assert (started["status"], started["project_id"]) == ("running", "p1")
    line = "python3 /workspace/project_files/test.py"
    done = await curl("POST", EXECUTE, *body(command=line), **chat)
    assert (done["exit_code"], done["stdout"]) == (0, "from the project\n")
    sent = ("-F", "session_id=chat-1", "-F", f"file=@{script};filename=own.py")
    placed = await curl("POST", "/upload_file", *FORM, *sent)
    assert (placed["status"], placed["path"]) == ("uploaded", "/workspace/own.py")
    assert "own.py" in (await curl("POST", EXECUTE, *body(command="ls"), **chat))["stdout"]
    url = curl.daemon.url + EXECUTE.format(**chat)
    refused = await curl.daemon.curl(*body(command="rm own.py"), url, expects=403)
    assert refused["reason"] == "COMMAND_NOT_ALLOWED"
    reset = await curl("POST", "/sandbox/{session_id}/reset", *body(), **chat)
    assert reset["status"] == "running"
    assert "own.py" not in (await curl("POST", EXECUTE, *body(command="ls"), **chat))["stdout"]
    stopped = await curl("POST", "/sandbox/{session_id}/stop", *body(), **chat)
    assert stopped["status"] == "stopped"
    text = await curl("GET", "/files/{file_id}/download", file_id=uploaded["file_id"])
    assert text == script.read_text()
    gone = await curl("DELETE", "/files/{file_id}", file_id=uploaded["file_id"])
    assert gone == {"status": "deleted", "filename": "test.py"}


# --- files ---


async def test_a_download_is_resumed_by_ranges(daemon: Daemon) -> None:
    """Cut twenty times and resumed, a large file has the bytes that it has inside."""
    session = await daemon.open("ranges")
    line = f"head -c {FILE_MB << 20} /dev/urandom > big && sha256sum big"
    run = f"/v1/sessions/{session}/run"
    made = await daemon.ok("POST", run, json={"shell": line, "timeout": "120s"})
    expected = base64.b64decode(made["stdout"]["data"]).split()[0].decode()
    path, digest, position = f"/v1/sessions/{session}/files/big", hashlib.sha256(), 0
    async with daemon.http.head(path) as answer:
        size, tag = int(answer.headers["Content-Length"]), answer.headers["ETag"]
    assert size == FILE_MB << 20
    cuts = sorted(random.Random(5).sample(range(1, size), CUTS))
    for end in (*cuts, size):
        headers = {"Range": f"bytes={position}-", "If-Range": tag}
        async with daemon.http.get(path, headers=headers) as answer:
            assert answer.status == 206
            assert answer.headers["Content-Range"] == f"bytes {position}-{size - 1}/{size}"
            while position < end and (
                data := await answer.content.read(min(1 << 20, end - position))
            ):
                digest.update(data)
                position += len(data)
    assert digest.hexdigest() == expected
    print(f"download resumed over http: {FILE_MB} MB in {CUTS + 1} pieces, equal")
    async with daemon.http.get(path, headers={"Range": f"bytes={size}-"}) as answer:
        assert (answer.status, answer.headers["Content-Range"]) == (416, f"bytes */{size}")
    async with daemon.http.get(path, headers={"Range": "bytes=-5"}) as answer:
        assert (answer.status, len(await answer.read())) == (206, 5)
    async with daemon.http.get(path, headers={"If-None-Match": tag}) as answer:
        assert answer.status == 304
    await daemon.ok("DELETE", f"/v1/sessions/{session}")


async def test_files_go_in_and_out_as_bytes(daemon: Daemon) -> None:
    """Any name and any bytes; an upload that breaks off leaves no file."""
    session = await daemon.open("files")
    files, data = f"/v1/sessions/{session}/files", bytes(range(256)) * 4096
    name = "a b/ümläut%20?.bin"
    quoted = "a%20b/%C3%BCml%C3%A4ut%2520%3F.bin"
    url = f"{daemon.url}{files}/{quoted}"
    written = await daemon.ok("PUT", URL(f"{url}?make_parents=true", encoded=True), data=data)
    assert written["entry"]["path"] == name
    async with daemon.http.get(URL(url, encoded=True)) as answer:
        assert await answer.read() == data
        assert answer.headers["Content-Disposition"].startswith("attachment")
        assert "sandbox" in answer.headers["Content-Security-Policy"]

    async def breaks_off() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    with pytest.raises((aiohttp.ClientError, ConnectionResetError)):
        async with daemon.http.put(f"{files}/half.bin", data=breaks_off()):
            pass
    listed = await daemon.ok("GET", files)
    assert "half.bin" not in {entry["name"] for entry in listed["entries"]}
    assert (await daemon.ok("DELETE", f"{files}/a%20b?recursive=true"))["removed"]
    await daemon.ok("DELETE", f"/v1/sessions/{session}")


# --- events ---


async def test_events_are_resumed_without_a_byte_lost_or_doubled(daemon: Daemon) -> None:
    """Server-sent events, cut twenty times, read on with `Last-Event-ID` each time."""
    session = await daemon.open("events")
    started = await daemon.ok(
        "POST", f"/v1/sessions/{session}/execs", json={"shell": OUTPUT, "exec_id": "cut"}
    )
    path = f"/v1/sessions/{session}/execs/{started['exec']['execId']}/events"
    output = {"stdout": b"", "stderr": b""}
    last, generator, connections, is_over = "", random.Random(7), 0, False
    while not is_over:
        connections += 1
        cut_after = generator.randint(1, 4) if connections <= CUTS else 10_000
        headers = {"Accept": "text/event-stream", "Last-Event-ID": last}
        async with daemon.http.get(path, headers=headers) as answer:
            assert answer.status == 200
            async for kind, event_id, data in _events(answer):
                if kind == "end":
                    is_over = True
                    break
                last = event_id
                for event in json.loads(data)["events"]:
                    for stream in output.keys() & event.keys():
                        assert int(event[stream].get("offset", 0)) == len(output[stream])
                        output[stream] += base64.b64decode(event[stream]["data"])
                cut_after -= 1
                if not cut_after:
                    break
        if connections <= CUTS:
            is_over = False
    assert output["stdout"] == b"".join(b"line %d of output\n" % i for i in range(1, 2001))
    assert output["stderr"] == b"".join(b"error %d\n" % i for i in range(1, 2001))
    assert connections > CUTS
    await daemon.ok("DELETE", f"/v1/sessions/{session}")


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str, str]]:
    """Kind, id and data of each whole event."""
    fields: dict[str, str] = {}
    async for line in answer.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif fields.get("data"):
            yield fields.get("event", ""), fields.get("id", ""), fields["data"]
            fields = {}


async def test_a_caller_who_goes_away_ends_its_command(daemon: Daemon) -> None:
    """As over gRPC: a command whose caller is lost is killed, unless the request says otherwise."""
    session = await daemon.open("gone")
    body = {"shell": "sleep 300", "exec_id": "left"}
    async with daemon.http.post(f"/v1/sessions/{session}/run/events", json=body) as answer:
        await answer.content.readline()
    done = await daemon.ok("GET", f"/v1/sessions/{session}/execs/left")
    assert done["exec"]["exit"]["reason"] == "EXIT_REASON_CANCELLED"
    await daemon.ok("DELETE", f"/v1/sessions/{session}")


# --- all of it ---


async def test_what_schemathesis_finds(daemon: Daemon, tmp_path: Path) -> None:
    """Requests made from the OpenAPI document, valid and not: no server error, and no answer that
    is not described there. What would change the daemon for others is left out."""
    phases = "examples,coverage,fuzzing" if SCALE >= 1 else "examples"
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).with_name("schemathesis"), "run", f"{daemon.url}/openapi.json"),
        *("--checks", ",".join(CHECKS), "--phases", phases, "-n", str(max(1, int(2 * SCALE)))),
        *("--exclude-operation-id-regex", f"_({LEFT_OUT})$", "--generation-deterministic"),
        *("--continue-on-failure", "--no-color", "--request-timeout", "60", "-w", "2"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=tmp_path,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()[-6000:]
    cases = re.search(r"(\d+) generated", printed.decode())
    assert cases is not None
    print(f"schemathesis: {cases[1]} requests, {len(CHECKS)} checks, no failure")


async def test_true_over_http_beside_grpc(daemon: Daemon) -> None:
    """In turns over one session, both over TCP; the figures are printed."""
    session = await daemon.open("bench")
    run = f"/v1/sessions/{session}/run"
    request = exec_service_pb2.ExecRequest(session_id=session, shell="true")
    times: dict[str, list[float]] = {"http": [], "grpc": []}
    async with aio.insecure_channel(f"127.0.0.1:{daemon.port}") as channel:
        stub = exec_service_pb2_grpc.ExecServiceStub(channel)
        for _ in range(int(100 * SCALE) + 1):
            begun = time.perf_counter()
            assert (await daemon.ok("POST", run, json={"shell": "true"}))["exit"]["code"] == 0
            between = time.perf_counter()
            assert (await stub.Run(request)).exit.code == 0
            times["http"].append(between - begun)
            times["grpc"].append(time.perf_counter() - between)
    http, grpc = (1000 * statistics.median(times[way]) for way in ("http", "grpc"))
    print(f"true over http: {http:.2f} ms, over grpc {grpc:.2f} ms, ratio {http / grpc:.2f}")
    await daemon.ok("DELETE", f"/v1/sessions/{session}")


# --- sockets ---


async def test_a_terminal_over_a_websocket(daemon: Daemon) -> None:
    """Keys go in, output comes out, the size changes, and the end is reported with its code."""
    session = await daemon.open("terminal")
    body = {"shell": "exec bash --norc", "exec_id": "tty", "stdin": True}
    body |= {"terminal": {"rows": 20, "columns": 60}, "on_disconnect": "ON_DISCONNECT_KEEP_RUNNING"}
    await daemon.ok("POST", f"/v1/sessions/{session}/execs", json=body)
    path = f"/v1/sessions/{session}/execs/tty/terminal"
    screen, exited = b"", None
    async with daemon.http.ws_connect(path) as socket:
        await socket.send_json({"resize": {"rows": 33, "columns": 77}})
        await socket.send_bytes(b"stty size; exit 7\n")
        async for frame in socket:
            if frame.type is aiohttp.WSMsgType.BINARY:
                screen += frame.data
            elif "exited" in (event := json.loads(frame.data)):
                exited = event["exited"]
    assert b"33 77" in screen
    assert exited is not None
    assert exited["code"] == 7
    async with daemon.http.ws_connect(f"{path}?offset={len(screen) - 4}") as again:
        frames = [frame.data async for frame in again]
    assert b"".join(data for data in frames if isinstance(data, bytes)) == screen[-4:]
    await daemon.ok("DELETE", f"/v1/sessions/{session}")


async def test_a_port_over_a_websocket(daemon: Daemon) -> None:
    """Bytes both ways, and the end of each side."""
    session = await daemon.open("ports")
    server = (
        'python3 -c \'import socket; s = socket.create_server(("127.0.0.1", 7000)); '
        'p, _ = s.accept(); d = b"".join(iter(lambda: p.recv(9999), b"")); p.sendall(d[::-1])\''
    )
    await daemon.ok("POST", f"/v1/sessions/{session}/execs", json={"shell": server})
    async with asyncio.timeout(WAIT_SECONDS):
        while not (await daemon.ok("GET", f"/v1/sessions/{session}/ports"))["ports"]:
            await asyncio.sleep(0.05)
    got = b""
    async with daemon.http.ws_connect(f"/v1/sessions/{session}/ports/7000/connect") as socket:
        await socket.send_bytes(b"hello")
        await socket.send_bytes(b"")
        async for frame in socket:
            got += frame.data if frame.type is aiohttp.WSMsgType.BINARY else b""
    assert got == b"olleh"
    async with daemon.http.ws_connect(f"/v1/sessions/{session}/ports/7001/connect") as socket:
        problem = json.loads((await socket.receive()).data)["error"]
        assert problem["reason"] == "PORT_NOT_LISTENING"
    await daemon.ok("DELETE", f"/v1/sessions/{session}")


async def test_the_debugger_over_a_websocket(daemon: Daemon) -> None:
    """Commands and events are the messages of DebugCode as JSON."""
    session = await daemon.open("debugger")
    lines, exit_code = [], None
    async with daemon.http.ws_connect("/v1/code/debug") as socket:
        run = {"session_id": session, "code": "a = 20\nb = a + 22"}
        await socket.send_json({"start": {"run": run}})
        async for frame in socket:
            for event in json.loads(frame.data)["events"]:
                if step := event.get("code", {}).get("step"):
                    lines.append(step["line"])
                    await socket.send_json({"resume": {"mode": "RESUME_MODE_STEP_OVER"}})
                exit_code = event.get("exited", {}).get("code", exit_code)
            if exit_code is not None:
                break
    assert lines[:2] == [1, 2]
    assert exit_code == 0
    await daemon.ok("DELETE", f"/v1/sessions/{session}")
