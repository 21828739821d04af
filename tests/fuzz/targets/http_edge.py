"""Whatever bytes arrive at the listener of HTTP: heads, chunked bodies, forms, upgrades."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncGenerator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from sandboxd.access import HOST
from sandboxd.errors import SessionNotFound
from sandboxd.http.listener import Address
from sandboxd.http.site import HttpApi, HttpSettings, Observed
from sandboxd.service.in_process import InProcessCalls
from sandboxd.service.json_messages import refusal
from sandboxd.service.transport.guard import CallGuard
from tests.fuzz.target import Run, Target

ANSWER_SECONDS = 20.0
SILENCE_SECONDS = 0.03
MAX_ANSWER = 16 << 20
LAST = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
STATUS = re.compile(rb"HTTP/\d\.\d (\d{3}) ")


class _Conversation:
    """A call that takes everything, and finds nothing."""

    def __init__(self) -> None:
        self._at_end = asyncio.Event()

    async def put(self, message: bytes | None) -> None:
        if message is None:
            self._at_end.set()

    async def responses(self) -> AsyncGenerator[bytes, None]:
        await self._at_end.wait()
        raise refusal(SessionNotFound("s"))
        yield b""


class _Calls:
    def begin(self, path: str, caller: object, **_: object) -> _Conversation:
        return _Conversation()


class _Guard:
    def identify(self, visitor: object, method: str) -> object:
        return HOST

    def check_overseer(self, caller: object, method: str) -> None:
        """Everyone is."""


class _Edge:
    """The listener on a unix socket; opened by the first input, in the loop that sends it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._api: HttpApi | None = None

    async def __call__(self, data: bytes) -> Hashable:
        if self._api is None:
            settings = HttpSettings(Address("", 0, self._path), open_paths=("health",))
            observed = Observed(lambda: True, lambda: True, lambda: (b"", "text/plain"))
            calls = cast(InProcessCalls, _Calls())
            self._api = HttpApi(settings, calls, cast(CallGuard, _Guard()), observed)
            await self._api.__aenter__()
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(self._path, limit=MAX_ANSWER)
            try:
                writer.write(data + LAST)
                answer = await _read(reader, writer)
            except ConnectionError:
                return "reset"
            finally:
                writer.close()
        return _checked(answer)


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """All that is answered. An input that is no whole request swallows the last one, and what it
    lacks never comes."""
    answer = bytearray()
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            await _collect(reader, answer)
    except TimeoutError:
        writer.write_eof()
        await _collect(reader, answer)
    return bytes(answer)


async def _collect(reader: asyncio.StreamReader, answer: bytearray) -> None:
    while (data := await reader.read(1 << 20)) and len(answer) < MAX_ANSWER:
        answer += data


def _checked(answer: bytes) -> Hashable:
    """No answer is one of a failure of ours, and each is whole."""
    statuses = tuple(int(status) for status in STATUS.findall(answer))
    assert not any(status == 500 for status in statuses), answer[:2000]
    if not statuses:
        assert answer == b"", answer[:200]
    head, _, body = answer.partition(b"\r\n\r\n")
    if len(statuses) == 1 and b"application/problem+json" in head:
        problem: dict[str, Any] = json.loads(body)
        return statuses, problem.get("reason", problem["title"])
    return statuses[:3]


@contextmanager
def _opened() -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix="sbx-http-") as directory:
        yield _Edge(Path(directory) / "s")


def _request(line: str, *fields: str, body: bytes = b"") -> bytes:
    head = "\r\n".join((f"{line} HTTP/1.1", "Host: localhost", *fields, "", ""))
    return head.encode() + body


_JSON = "Content-Type: application/json"
_FORM = ("X-Requested-With: x", "Content-Type: multipart/form-data; boundary=b")
_PARTS = (
    b'--b\r\nContent-Disposition: form-data; name="session_id"\r\n\r\ns\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhi\r\n--b--\r\n'
)
_SOCKET = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
SEEDS: Sequence[bytes] = (
    _request("GET /health"),
    _request("GET /v1/sessions?page_size=3"),
    _request("GET /v1/sessions/s/files/a%20b", "Range: bytes=0-1"),
    _request("POST /v1/sessions", _JSON, "Content-Length: 15", body=b'{"user_id":"a"}'),
    _request(
        "POST /v1/sessions/s/run", _JSON, "Transfer-Encoding: chunked", body=b"2\r\n{}\r\n0\r\n\r\n"
    ),
    _request("PUT /v1/sessions/s/files/x", "Content-Length: 5", body=b"hello"),
    _request("POST /upload_file", *_FORM, f"Content-Length: {len(_PARTS)}", body=_PARTS),
    _request("POST /files/upload/p", *_FORM, f"Content-Length: {len(_PARTS)}", body=_PARTS),
    _request("GET /v1/code/debug", *_SOCKET, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
    _request("POST /sandbox/x/execute", _JSON, "Content-Length: 16", body=b'{"command":"ls"}'),
    _request("GET /health") + _request("GET /ready"),
)

HTTP_EDGE = Target(
    name="http-edge",
    open=_opened,
    seeds=SEEDS,
    words=[
        *(b"\r\n", b"\r\n\r\n", b"\n", b": ", b"Content-Length: ", b"Transfer-Encoding: chunked"),
        *(
            b"Expect: 100-continue",
            b"Connection: close",
            b"Origin: null",
            b"Accept: text/event",
        ),
        *(b"--b", b"--b--", b"0\r\n\r\n", b"ffffffff\r\n", b"/../", b"%2e%2e", b"%00", b"HTTP/1.0"),
    ],
    max_bytes=32 << 10,
)
